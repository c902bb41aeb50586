//! What a structured payload holds, whatever it was written in: a tree of values that borrows from the payload.
//!
//! JSON and CBOR become the same tree, so that pointers, presets and SenML know one form only. A number that no value can
//! hold exactly stays what it was written as, and is refused where somebody wants it.

use std::borrow::Cow;

use super::number::Unfit;
use crate::model::Value;

/// Deepest nesting; each level is a stack frame of the reader.
pub(super) const MAX_DEPTH: usize = 32;
/// Most values in one payload: at 32 bytes each (56 with a key) 4 to 7 MiB of memory, while the payload is in hand.
pub(super) const MAX_VALUES: usize = 131_072;

/// One value, or many.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node<'a> {
    Null,
    Scalar(Value),
    /// A number that no value can hold exactly, as written.
    Unfit(Cow<'a, str>, Unfit),
    Text(Cow<'a, str>),
    /// Bytes that are no text (CBOR).
    Bytes,
    List(Vec<Node<'a>>),
    Map(Members<'a>),
}

/// The keys and values of an object, in the order in which they were written; each key once.
pub(super) type Members<'a> = Vec<(Cow<'a, str>, Node<'a>)>;

impl<'a> Node<'a> {
    /// What it is, for an operator.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Scalar(Value::Bool(_)) => "a boolean",
            Self::Scalar(_) | Self::Unfit(..) => "a number",
            Self::Text(_) => "a string",
            Self::Bytes => "a byte string",
            Self::List(_) => "an array",
            Self::Map(_) => "an object",
        }
    }

    /// The value under a key of an object.
    pub(super) fn get(&self, key: &str) -> Option<&Node<'a>> {
        match self {
            Self::Map(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The value at the end of these keys.
    pub(super) fn at(&self, keys: &[&str]) -> Option<&Node<'a>> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items, if it is an array.
    pub(super) fn list(&self) -> Option<&[Node<'a>]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// A number as a double, for arithmetic on times.
    pub(super) fn double(&self) -> Option<f64> {
        match self {
            Self::Scalar(Value::I64(v)) => Some(*v as f64),
            Self::Scalar(Value::U64(v)) => Some(*v as f64),
            Self::Scalar(Value::F64(v)) => Some(*v),
            _ => None,
        }
    }

    /// A name: a text, or a whole number as one writes it.
    pub(super) fn name(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Scalar(Value::I64(v)) => Some(Cow::Owned(v.to_string())),
            Self::Scalar(Value::U64(v)) => Some(Cow::Owned(v.to_string())),
            _ => None,
        }
    }
}
