//! Every value of a tree as a field, named by the way to it: `a.b`, `list[0].c`.
//!
//! Numbers and booleans are fields; texts are not, unless the style reads some of them as values. The stored name has `_`
//! for each `.`. What the tree holds but no value can hold is refused by name.

use super::found::{Names, Taken};
use super::node::Node;
use super::{number, quoted};
use crate::model::Value;

/// How texts are seen, and what is left out.
#[derive(Clone, Copy)]
pub(super) struct Style {
    /// Whether `ON`, `OFF`, `TRUE` and `FALSE`, in capitals as devices write states, are booleans.
    pub(super) words: bool,
    /// Whether a number in a text is a number.
    pub(super) numbers_in_texts: bool,
    /// Whether what stands under this key, reached by this path, is left out.
    pub(super) skip: fn(path: &str, key: &str) -> bool,
}

impl Style {
    /// Numbers and booleans only, all of them.
    pub(super) const PLAIN: Self = Self { words: false, numbers_in_texts: false, skip: |_, _| false };
    /// Also states in capitals.
    pub(super) const STATES: Self = Self { words: true, ..Self::PLAIN };
}

/// Goes through a tree.
pub(super) struct Walk<'d, 'n, 'a, 't, 'r> {
    pub(super) names: &'d mut Names,
    pub(super) style: Style,
    /// Nodes that are no fields, such as the time.
    pub(super) apart: [Option<&'n Node<'a>>; 2],
    /// The way so far.
    pub(super) path: String,
    pub(super) taken: &'t mut Taken<'r>,
}

/// Takes everything under `node`, with `path` before each name.
pub(super) fn every(node: &Node<'_>, path: &str, style: Style, names: &mut Names, taken: &mut Taken<'_>) {
    let mut walk = Walk { names, style, apart: [None; 2], path: path.to_owned(), taken };
    walk.node(node);
}

impl Walk<'_, '_, '_, '_, '_> {
    /// Takes this node under the present path, and everything below it.
    pub(super) fn node(&mut self, node: &Node<'_>) {
        match node {
            Node::Map(members) => {
                for (key, value) in members {
                    self.member(key, value);
                }
            }
            Node::List(items) => {
                for (i, value) in items.iter().enumerate() {
                    self.item(i, value);
                }
            }
            Node::Scalar(value) => self.leaf(value.clone()),
            Node::Text(text) => {
                if let Some(value) = self.spoken(text) {
                    self.leaf(value);
                }
            }
            Node::Unfit(text, unfit) => {
                let (path, text) = (quoted(&self.path), quoted(text));
                self.taken.refuse(format_args!("field {path} ({text}) {unfit}"));
            }
            Node::Null | Node::Bytes => {}
        }
    }

    fn member(&mut self, key: &str, value: &Node<'_>) {
        if matches!(value, Node::Null) || self.is_apart(value) || (self.style.skip)(&self.path, key) {
            return;
        }
        if let (Node::Scalar(value), true) = (value, self.path.is_empty()) {
            return self.taken.named(self.names, key, value.clone());
        }
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        self.node(value);
        self.path.truncate(length);
    }

    fn item(&mut self, i: usize, value: &Node<'_>) {
        if self.is_apart(value) {
            return;
        }
        let length = self.path.len();
        self.path.push_str(&format!("[{i}]"));
        self.node(value);
        self.path.truncate(length);
    }

    fn is_apart(&self, node: &Node<'_>) -> bool {
        self.apart.iter().flatten().any(|apart| std::ptr::addr_eq(*apart, node))
    }

    fn leaf(&mut self, value: Value) {
        let path = std::mem::take(&mut self.path);
        self.taken.named(self.names, &path, value);
        self.path = path;
    }

    /// The value that a text stands for in this style.
    fn spoken(&self, text: &str) -> Option<Value> {
        let state = if self.style.words { state(text) } else { None };
        state.or_else(|| if self.style.numbers_in_texts { number::parse(text)?.ok() } else { None })
    }
}

/// What a state in capitals stands for.
pub(super) fn state(text: &str) -> Option<Value> {
    match text {
        "ON" | "TRUE" => Some(Value::Bool(true)),
        "OFF" | "FALSE" => Some(Value::Bool(false)),
        _ => None,
    }
}
