//! Packed payloads: numbers at fixed places, as a C struct or a PLC writes them.
//!
//! The payload must be exactly as long as the fields declare, unless a length is given: three bytes for a 4-byte number are
//! refused, not padded. Not-a-number and the infinities are no values.

use serde::Deserialize;

use super::found::{Decoded, Measured, Taken};
use super::modbus::Order;
use crate::model::{FieldName, Value};

/// Longest payload that is described so; longer ones are not structs.
pub const MAX_BYTES: usize = 4096;

/// What the bytes of a number mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of the types of Rust")]
pub enum Type {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl Type {
    /// How many bytes it takes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// One number at its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// The field's name.
    pub name: FieldName,
    /// Its first byte.
    pub at: usize,
    /// What its bytes mean.
    pub kind: Type,
    /// In which order they arrive.
    pub order: Order,
}

/// Numbers at fixed places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoder {
    slots: Vec<Slot>,
    length: usize,
}

impl Slot {
    /// The byte after its last.
    pub fn end(&self) -> usize {
        self.at.saturating_add(self.kind.bytes())
    }

    fn value(&self, bytes: &[u8]) -> Result<Value, String> {
        let raw = if let [byte] = bytes { u64::from(*byte) } else { self.order.bits(bytes) };
        match self.kind {
            Type::Bool => Ok(Value::Bool(raw != 0)),
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => Ok(Value::unsigned(raw)),
            Type::I8 => Ok(Value::I64(i64::from(raw as u8 as i8))),
            Type::I16 => Ok(Value::I64(i64::from(raw as u16 as i16))),
            Type::I32 => Ok(Value::I64(i64::from(raw as u32 as i32))),
            Type::I64 => Ok(Value::I64(raw as i64)),
            Type::F32 => float(f64::from(f32::from_bits(raw as u32))),
            Type::F64 => float(f64::from_bits(raw)),
        }
    }
}

impl Decoder {
    /// A decoder for payloads of these fields; of `length` bytes, or as long as they need.
    pub fn new(slots: Vec<Slot>, length: Option<usize>) -> Self {
        let needed = slots.iter().map(Slot::end).max().unwrap_or(0);
        Self { slots, length: length.unwrap_or(needed) }
    }

    /// What the payload holds, or why nothing of it can be taken.
    pub fn decode(&self, payload: &[u8]) -> Result<Decoded, String> {
        if payload.len() != self.length {
            return Err(format!("payload has {} bytes, {} are expected", payload.len(), self.length));
        }
        let mut decoded = Decoded::default();
        let mut taken = Taken::new(None, &mut decoded.refused);
        for slot in &self.slots {
            let bytes = payload.get(slot.at..slot.end()).unwrap_or_default();
            match if bytes.is_empty() { Err("lies beyond the payload".to_owned()) } else { slot.value(bytes) } {
                Ok(value) => taken.push(slot.name.clone(), value),
                Err(reason) => taken.refuse(format_args!("field `{}` {reason}", slot.name)),
            }
        }
        let fields = taken.fields;
        if !fields.is_empty() {
            decoded.push(Measured { fields, ..Measured::default() });
        }
        decoded.or_reasons()
    }
}

fn float(v: f64) -> Result<Value, String> {
    Value::float(v).ok_or_else(|| format!("is {v}, not a finite number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, at: usize, kind: Type, order: Order) -> Slot {
        Slot { name: FieldName::new(name).unwrap(), at, kind, order }
    }

    fn check(slots: Vec<Slot>, payload: &[u8], expected: Result<&[Value], &str>) {
        let got = Decoder::new(slots, None).decode(payload);
        match expected {
            Ok(values) => {
                let fields = got.unwrap().readings[0].fields.clone();
                assert_eq!(fields.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), values, "{payload:x?}");
            }
            Err(words) => assert!(got.clone().is_err_and(|e| e.contains(words)), "{payload:x?}: {got:?}"),
        }
    }

    #[test]
    fn numbers_are_cut_out_in_either_order() {
        check(vec![slot("v", 0, Type::F32, Order::Abcd)], &[0x41, 0xac, 0, 0], Ok(&[Value::F64(21.5)]));
        check(vec![slot("v", 0, Type::F32, Order::Dcba)], &[0, 0, 0xac, 0x41], Ok(&[Value::F64(21.5)]));
        let three = |order| (0..3).map(|i| slot(&format!("f{i}"), i * 2, Type::I16, order)).collect();
        check(
            three(Order::Dcba),
            &[0xf3, 0xfd, 0x80, 0x11, 0xc4, 0x0b],
            Ok(&[Value::I64(-525), Value::I64(4480), Value::I64(3012)]),
        );
        check(
            vec![slot("i", 0, Type::I8, Order::Abcd), slot("n", 1, Type::U64, Order::Abcd)],
            &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            Ok(&[Value::I64(-2), Value::U64(u64::MAX)]),
        );
    }

    #[test]
    fn wrong_lengths_and_no_numbers_are_refused() {
        check(vec![slot("v", 0, Type::F32, Order::Dcba)], &[0, 0, 0xac], Err("3 bytes, 4 are expected"));
        check(vec![slot("v", 0, Type::F32, Order::Dcba)], &[0, 0, 0xc0, 0x7f], Err("field `v` is NaN"));
        assert!(Decoder::new(vec![slot("v", 0, Type::F32, Order::Dcba)], Some(2)).decode(&[0, 0]).is_err());
    }
}
