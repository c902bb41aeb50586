//! One field of a binary frame: where it stands and how its bytes are read.

use crate::decode::number;
use crate::decode::shape::Options;
use crate::decode::telegram::{Measure, Telegram};
use crate::model::Value;

/// How a field's bytes are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// One byte, unsigned.
    U8,
    /// One byte, two's complement.
    I8,
    /// Two bytes, unsigned.
    #[default]
    U16,
    /// Two bytes, two's complement.
    I16,
    /// Three bytes, unsigned.
    U24,
    /// Three bytes, two's complement.
    I24,
    /// Four bytes, unsigned.
    U32,
    /// Four bytes, two's complement.
    I32,
    /// Four bytes, IEEE 754.
    F32,
    /// Eight bytes, unsigned.
    U64,
    /// Eight bytes, two's complement.
    I64,
    /// Eight bytes, IEEE 754.
    F64,
    /// Decimal digits as text, blanks around.
    Ascii,
}

impl Type {
    /// How many bytes it takes; none for a text, whose length is told.
    pub const fn width(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U24 | Self::I24 => Some(3),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Ascii => None,
        }
    }
}

/// A field. Checked where the settings are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its first byte.
    pub at: usize,
    /// How many bytes it has.
    pub width: usize,
    /// How they are read.
    pub kind: Type,
    /// Whether its low byte comes first.
    pub little: bool,
    /// Lowest and highest bit, if it is not all of it.
    pub bits: Option<(u8, u8)>,
    /// Raw contents that mean "no value".
    pub invalid: Vec<i64>,
    /// The field is there only in frames of at least so many bytes.
    pub min_frame: usize,
    /// What is done to it.
    pub options: Options,
}

impl Column {
    /// Takes the field out of a whole frame.
    pub(super) fn take(&self, frame: &[u8], telegram: &mut Telegram) {
        let Some(bytes) = frame.get(self.at..self.at + self.width).filter(|_| frame.len() >= self.min_frame) else {
            return;
        };
        let raw = match self.raw(bytes) {
            Ok(raw) => raw,
            Err(why) => return telegram.refuse(&self.name, why),
        };
        if let Value::I64(v) = raw
            && self.invalid.contains(&v)
        {
            return telegram.note_absent(&self.name, format!("{v} means that there is no value"));
        }
        match self.options.take(raw) {
            Ok(value) => {
                let unit = self.options.unit.clone();
                let measure = |value| Measure { unit, ..Measure::new(&self.name, value) };
                telegram.measures.extend(value.map(measure));
            }
            Err(why) => telegram.refuse(&self.name, why),
        }
    }

    fn raw(&self, bytes: &[u8]) -> Result<Value, String> {
        let not_finite = |v: f64| format!("{v} is not a finite number");
        if self.kind == Type::Ascii {
            let text = String::from_utf8_lossy(bytes);
            let text = text.trim_matches([' ', '\0']);
            let parsed = number::parse(text).and_then(Result::ok);
            return parsed.ok_or_else(|| format!("{} is no number", crate::decode::quoted(text)));
        }
        let join = |sum: u64, b: &u8| sum << 8 | u64::from(*b);
        let bits = if self.little { bytes.iter().rev().fold(0, join) } else { bytes.iter().fold(0, join) };
        if let Some((low, high)) = self.bits {
            return Ok(Value::unsigned(bits >> low & (u64::MAX >> (63 - (high - low)))));
        }
        let signed = |width: usize| {
            let unused = 64 - 8 * width as u32;
            Value::I64(((bits << unused) as i64) >> unused)
        };
        match self.kind {
            Type::U8 | Type::U16 | Type::U24 | Type::U32 | Type::U64 | Type::Ascii => Ok(Value::unsigned(bits)),
            Type::I8 | Type::I16 | Type::I24 | Type::I32 | Type::I64 => Ok(signed(self.width)),
            Type::F32 => {
                let v = f64::from(f32::from_bits(bits as u32));
                Value::float(v).ok_or_else(|| not_finite(v))
            }
            Type::F64 => {
                let v = f64::from_bits(bits);
                Value::float(v).ok_or_else(|| not_finite(v))
            }
        }
    }
}
