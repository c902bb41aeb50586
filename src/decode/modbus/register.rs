//! Registers into values: types, word orders, bits, scaling. Integers stay exact as long as nothing divides them.

use serde::Deserialize;

use crate::decode::arithmetic::{double, shifted};
use crate::decode::shape::Options;
use crate::model::Value;

/// How the bits of one or more registers are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// One register, unsigned.
    U16,
    /// One register, two's complement.
    I16,
    /// Two registers, unsigned.
    U32,
    /// Two registers, two's complement.
    I32,
    /// Two registers, IEEE 754.
    F32,
    /// Four registers, unsigned.
    U64,
    /// Four registers, two's complement.
    I64,
    /// Four registers, IEEE 754.
    F64,
    /// A coil or discrete input; of a register, whether it is not zero.
    Bool,
    /// One register, four decimal digits of four bits each.
    Bcd16,
    /// Two registers, eight decimal digits.
    Bcd32,
    /// As many registers as are named, two characters in each.
    String,
}

impl Type {
    /// How many registers (or bits, in a table of bits) it takes; of a string, the least.
    pub const fn width(self) -> u16 {
        match self {
            Self::U16 | Self::I16 | Self::Bool | Self::Bcd16 | Self::String => 1,
            Self::U32 | Self::I32 | Self::F32 | Self::Bcd32 => 2,
            Self::U64 | Self::I64 | Self::F64 => 4,
        }
    }

    /// The content that means "not implemented" in SunSpec, whose values have their exponent in a register.
    pub const fn not_implemented(self) -> Option<u64> {
        match self {
            Self::U16 => Some(0xffff),
            Self::I16 => Some(0x8000),
            Self::U32 => Some(0xffff_ffff),
            Self::I32 => Some(0x8000_0000),
            Self::U64 => Some(u64::MAX),
            Self::I64 => Some(1 << 63),
            Self::F32 | Self::F64 | Self::Bool | Self::Bcd16 | Self::Bcd32 | Self::String => None,
        }
    }
}

/// In which order a value's bytes arrive. `ABCD` is big-endian, as the standard has it; the letters stand for the bytes
/// of a 32-bit value, and 64-bit values follow the same rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Order {
    /// High word first, high byte first.
    #[default]
    Abcd,
    /// High word first, low byte first.
    Badc,
    /// Low word first, high byte first.
    Cdab,
    /// Low word first, low byte first: little-endian.
    Dcba,
}

impl Order {
    /// The value's bits, as an unsigned number, from its 2, 4 or 8 bytes in the order in which they arrived.
    pub fn bits(self, bytes: &[u8]) -> u64 {
        let swap_words = matches!(self, Self::Cdab | Self::Dcba);
        let swap_bytes = matches!(self, Self::Badc | Self::Dcba);
        let join = |bits: u64, word: &[u8]| {
            let word = [word[0], word[1]];
            bits << 16 | u64::from(if swap_bytes { u16::from_le_bytes(word) } else { u16::from_be_bytes(word) })
        };
        let words = bytes.chunks_exact(2);
        if swap_words { words.rev().fold(0, join) } else { words.fold(0, join) }
    }
}

/// How a value is cut out and scaled. Checked where the settings are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// What its bits mean.
    pub kind: Type,
    /// In which order its bytes arrive.
    pub order: Order,
    /// Lowest and highest bit of a field, if not all of it; the flag asks for a `Bool`.
    pub bits: Option<(u8, u8, bool)>,
    /// Raw contents (after ordering the bytes) that mean "no value".
    pub invalid: Vec<u64>,
    /// What is done to the value.
    pub options: Options,
    /// How many registers a string has; 0 for everything else.
    pub registers: u16,
}

/// Where in a reply a value stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// How many entries after the first one of the reply.
    pub at: u16,
    /// Where the register with its decimal exponent stands (SunSpec's scale factor), if it has one.
    pub exponent_at: Option<u16>,
    /// How it is read.
    pub shape: Shape,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub enum Absent {
    /// The device says that it has none, by a content declared as `invalid`: nothing is wrong.
    Declared,
    /// What came is not a value, in words.
    Refused(String),
}

impl Point {
    /// The first and the last entry of the reply that it needs.
    pub fn span(&self) -> (u16, u16) {
        let last = self.at + self.shape.width().max(1) - 1;
        let exponent = self.exponent_at.unwrap_or(self.at);
        (self.at.min(exponent), last.max(exponent))
    }

    /// The value of a single bit, from the reply's data.
    pub fn bit(&self, data: &[u8]) -> Result<Value, Absent> {
        let (byte, bit) = (usize::from(self.at / 8), self.at % 8);
        let byte = data.get(byte).ok_or_else(|| Absent::Refused("the answer is too short".to_owned()))?;
        Ok(Value::Bool(byte >> bit & 1 == 1))
    }

    /// The value in registers, from the reply's data.
    pub fn value(&self, data: &[u8]) -> Result<Value, Absent> {
        let bytes_at = |at: u16, width: u16| {
            let start = usize::from(at) * 2;
            let bytes = data.get(start..start + usize::from(width) * 2);
            bytes.ok_or_else(|| Absent::Refused("the answer is too short".to_owned()))
        };
        let bytes = bytes_at(self.at, self.shape.width())?;
        if self.shape.kind == Type::String {
            return self.shape.treated(text(self.shape.order, bytes)?);
        }
        let raw = self.shape.order.bits(bytes);
        let exponent = match self.exponent_at {
            None => 0,
            Some(at) => exponent(self.shape.order, bytes_at(at, 1)?)?,
        };
        self.shape.value(raw, exponent)
    }
}

/// SunSpec: a signed power of ten from -10 to 10; 0x8000 is "not implemented".
fn exponent(order: Order, bytes: &[u8]) -> Result<i32, Absent> {
    match order.bits(bytes) as u16 as i16 {
        i16::MIN => Err(Absent::Declared),
        n @ -10..=10 => Ok(i32::from(n)),
        n => Err(Absent::Refused(format!("its scale register holds {n}, which is not between -10 and 10"))),
    }
}

/// Characters up to the first NUL, without blanks around. SunSpec: nothing but NULs is "not implemented".
fn text(order: Order, bytes: &[u8]) -> Result<Value, Absent> {
    let swap_bytes = matches!(order, Order::Badc | Order::Dcba);
    let mut bytes = bytes.to_vec();
    if swap_bytes {
        bytes.chunks_exact_mut(2).for_each(|word| word.swap(0, 1));
    }
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| Absent::Refused("is no text".to_owned()))?.trim();
    match Value::text(text) {
        _ if text.is_empty() => Err(Absent::Declared),
        Some(value) if !text.chars().any(char::is_control) => Ok(value),
        _ => Err(Absent::Refused("is no text".to_owned())),
    }
}

impl Shape {
    /// How many registers (or bits) it takes.
    pub const fn width(&self) -> u16 {
        if matches!(self.kind, Type::String) { self.registers } else { self.kind.width() }
    }

    fn value(&self, raw: u64, exponent: i32) -> Result<Value, Absent> {
        if self.invalid.contains(&raw) {
            return Err(Absent::Declared);
        }
        if let Some((low, high, as_bool)) = self.bits {
            let field = raw >> low & (u64::MAX >> (63 - (high - low)));
            return if as_bool { Ok(Value::Bool(field == 1)) } else { self.treated(Value::unsigned(field)) };
        }
        let value = match self.kind {
            Type::Bool => return Ok(Value::Bool(raw != 0)),
            Type::U16 | Type::U32 | Type::U64 => Value::unsigned(raw),
            Type::I16 => Value::I64(i64::from(raw as u16 as i16)),
            Type::I32 => Value::I64(i64::from(raw as u32 as i32)),
            Type::I64 => Value::I64(raw as i64),
            Type::F32 => finite(f64::from(f32::from_bits(raw as u32)))?,
            Type::F64 => finite(f64::from_bits(raw))?,
            Type::Bcd16 | Type::Bcd32 => Value::I64(bcd(raw)?),
            Type::String => return Err(Absent::Refused("is no number".to_owned())),
        };
        self.treated(raised(value, exponent)?)
    }

    fn treated(&self, value: Value) -> Result<Value, Absent> {
        match self.options.take(value) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(Absent::Declared),
            Err(words) => Err(Absent::Refused(words)),
        }
    }
}

/// `value * 10^exponent`; whole numbers stay whole as long as nothing divides them.
fn raised(value: Value, exponent: i32) -> Result<Value, Absent> {
    if let (Value::I64(v), 1..) = (&value, exponent)
        && let Some(exact) = 10i64.checked_pow(exponent as u32).and_then(|factor| v.checked_mul(factor))
    {
        return Ok(Value::I64(exact));
    }
    match double(&value) {
        Some(v) if exponent != 0 => finite(shifted(v, exponent)),
        _ => Ok(value),
    }
}

fn finite(v: f64) -> Result<Value, Absent> {
    Value::float(v).ok_or_else(|| Absent::Refused(format!("{v} is not a finite number")))
}

fn bcd(raw: u64) -> Result<i64, Absent> {
    (0..8).rev().try_fold(0, |sum, digit| match raw >> (digit * 4) & 0xf {
        d @ 0..=9 => Ok(sum * 10 + d as i64),
        _ => Err(Absent::Refused(format!("0x{raw:04x} is not a decimal number"))),
    })
}
