//! The form of binary frames as the settings describe it, checked.

use std::collections::HashSet;

use serde::Deserialize;

use super::config::Wrong;
use crate::decode::binary::{Checksum, Column, Form, Frames, Kind, Length, MAX_FRAME_BYTES, Type};
use crate::decode::shape::{Options, field_table};
use crate::model::{FieldName, MAX_FIELDS};
use crate::sources::serial::recording::hex_bytes;

/// Most start bytes: more are a content.
const MAX_START_BYTES: usize = 16;
/// Longest request.
const MAX_REQUEST_BYTES: usize = 256;

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ByteOrder {
    #[default]
    Big,
    Little,
}

/// A number of bytes, or where the frame tells it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number of bytes, or a table of `at`, `bytes`, `add`, `min`, `max`")]
pub(super) enum LengthConfig {
    Fixed(usize),
    Told(ToldLength),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToldLength {
    at: usize,
    #[serde(default = "one")]
    bytes: usize,
    #[serde(default)]
    add: usize,
    min: usize,
    max: usize,
}

fn one() -> usize {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChecksumConfig {
    kind: Kind,
    #[serde(default)]
    from: usize,
    #[serde(default)]
    behind: usize,
    #[serde(default)]
    order: ByteOrder,
}

field_table! {
    pub(super) struct ColumnConfig {
        field: String,
        at: usize,
        #[serde(rename = "type", default)]
        kind: Type,
        /// How many bytes an `ascii` field has.
        width: Option<usize>,
        order: Option<ByteOrder>,
        bits: Option<[u8; 2]>,
        /// Raw contents that mean "no value".
        #[serde(default)]
        invalid: Vec<i64>,
        #[serde(default)]
        min_frame: usize,
        start_value: Option<f64>,
    }
}

/// The keys that describe a frame.
pub(super) struct FrameConfig<'a> {
    pub(super) start: &'a str,
    pub(super) length: &'a LengthConfig,
    pub(super) checksum: Option<&'a ChecksumConfig>,
    pub(super) order: ByteOrder,
    pub(super) fields: &'a [ColumnConfig],
}

impl FrameConfig<'_> {
    /// The decoder, if nothing is wrong with it.
    pub(super) fn checked(&self, wrong: &mut Wrong) -> Option<Frames> {
        let before = wrong.len();
        let start = hex_bytes(self.start).unwrap_or_else(|words| {
            wrong.push(("start".into(), words));
            vec![0]
        });
        if start.is_empty() || start.len() > MAX_START_BYTES {
            wrong.push(("start".into(), format!("must name 1 to {MAX_START_BYTES} bytes, as \"FF 86\"")));
        }
        let (length, shortest, longest) = self.length.checked(self.order, wrong);
        if shortest < start.len().max(1) || longest > MAX_FRAME_BYTES || shortest > longest {
            wrong.push((
                "length".into(),
                format!("a frame has more bytes than its start and at most {MAX_FRAME_BYTES}"),
            ));
        }
        let checksum = self.checksum.map(|c| Checksum {
            kind: c.kind,
            from: c.from,
            behind: c.behind,
            little: c.order == ByteOrder::Little,
        });
        if checksum.is_some_and(|c| c.from + c.kind.bytes() + c.behind > shortest) {
            wrong.push(("checksum".into(), "does not fit into the shortest frame".into()));
        }
        let columns = self.columns(longest, wrong);
        (wrong.len() == before).then(|| Frames::new(Form { start, length, checksum, columns }))
    }

    fn columns(&self, longest: usize, wrong: &mut Wrong) -> Vec<Column> {
        if self.fields.is_empty() || self.fields.len() > MAX_FIELDS {
            wrong.push(("fields".into(), format!("must name 1 to {MAX_FIELDS} fields")));
        }
        let mut seen = HashSet::new();
        let mut columns = Vec::new();
        for (i, field) in self.fields.iter().enumerate() {
            let at = |key: &str| format!("fields[{i}].{key}");
            match FieldName::new(&field.field) {
                Err(error) => wrong.push((at("field"), error.to_string())),
                Ok(name) if !seen.insert(name.clone()) => {
                    wrong.push((at("field"), format!("two fields bear the name `{name}`")));
                }
                Ok(_) => {}
            }
            let column = field.column(self.order, longest).unwrap_or_else(|inner| {
                wrong.extend(inner.into_iter().map(|(key, words)| (at(key), words)));
                None
            });
            columns.extend(column);
        }
        columns
    }
}

impl LengthConfig {
    /// The length, and the shortest and longest frame.
    fn checked(&self, order: ByteOrder, wrong: &mut Wrong) -> (Length, usize, usize) {
        match self {
            Self::Fixed(length) => (Length::Fixed(*length), *length, *length),
            Self::Told(ToldLength { at, bytes, add, min, max }) => {
                if !(1..=2).contains(bytes) || at + bytes > *min {
                    wrong.push((
                        "length".into(),
                        "`bytes` is 1 or 2, and lies inside the shortest frame (`min`)".into(),
                    ));
                }
                let little = order == ByteOrder::Little;
                (Length::Told { at: *at, bytes: *bytes, little, add: *add, bounds: (*min, *max) }, *min, *max)
            }
        }
    }
}

impl ColumnConfig {
    /// Field and unit, if it has one.
    pub(super) fn unit(&self) -> Option<(String, String)> {
        Some((self.field.clone(), self.unit.clone()?))
    }

    /// The field and what depends on its earlier values.
    pub(super) fn memory(&self) -> Option<(FieldName, Options)> {
        let options = self.options();
        FieldName::new(&self.field).ok().filter(|_| options.has_memory()).map(|field| (field, options))
    }

    /// What it says until it has measured something.
    pub(super) fn start_value(&self) -> Option<(FieldName, f64)> {
        Some((FieldName::new(&self.field).ok()?, self.start_value?))
    }

    fn column(&self, order: ByteOrder, longest: usize) -> Result<Option<Column>, Vec<(&'static str, String)>> {
        let options = self.options();
        let mut wrong = options.contradictions();
        let width = match (self.kind.width(), self.width) {
            (Some(width), None) => width,
            (Some(_), Some(_)) => {
                wrong.push(("width", "has a meaning with type = \"ascii\" only".to_owned()));
                1
            }
            (None, width) => width.unwrap_or_else(|| {
                wrong.push(("width", "is missing: how many characters the number has".to_owned()));
                1
            }),
        };
        if self.at.checked_add(width).is_none_or(|end| end > longest) {
            wrong.push(("at", format!("and its {width} bytes reach beyond the longest frame ({longest} bytes)")));
        }
        let is_unsigned = matches!(self.kind, Type::U8 | Type::U16 | Type::U24 | Type::U32 | Type::U64);
        let bits = self.bits.map(|[low, high]| (low, high));
        if bits.is_some_and(|(low, high)| low > high || usize::from(high) >= width * 8 || !is_unsigned) {
            wrong.push(("bits", "must lie inside an unsigned type, the lowest first".to_owned()));
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Some(Column {
            name: self.field.clone(),
            at: self.at,
            width,
            kind: self.kind,
            little: self.order.unwrap_or(order) == ByteOrder::Little,
            bits,
            invalid: self.invalid.clone(),
            min_frame: self.min_frame,
            options,
        }))
    }
}

/// The bytes of a request.
pub(super) fn request(text: Option<&str>, wrong: &mut Wrong) -> Option<Vec<u8>> {
    let text = text?;
    match hex_bytes(text) {
        Ok(bytes) if (1..=MAX_REQUEST_BYTES).contains(&bytes.len()) => Some(bytes),
        Ok(_) => {
            wrong.push(("request".into(), format!("must have 1 to {MAX_REQUEST_BYTES} bytes")));
            None
        }
        Err(words) => {
            wrong.push(("request".into(), words));
            None
        }
    }
}
