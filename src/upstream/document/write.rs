//! Values as BSON, and a document that is written field by field.
//!
//! A double stays a double and a whole number a 64-bit integer, exact over its whole range; one that needs the 64th bit
//! becomes a Decimal128, which holds it exactly too.

use mongodb::bson::raw::{BindRawBsonRef, CString};
use mongodb::bson::spec::ElementType;
use mongodb::bson::{DateTime, Decimal128, RawBson, RawDocumentBuf};

use crate::model::{Number, Timestamp, Value};

/// Appends under names that were checked where they entered.
pub(super) struct Builder(pub(super) RawDocumentBuf);

impl Builder {
    pub(super) fn new() -> Self {
        Self(RawDocumentBuf::new())
    }

    /// Appends; a field without a name is left out.
    pub(super) fn put(&mut self, key: &str, value: impl BindRawBsonRef) {
        if !key.is_empty() {
            let key = CString::try_from(key).expect("a checked name holds no NUL");
            self.0.append(key, value);
        }
    }

    /// Lets elements be written as bytes.
    pub(super) fn append_bytes(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.pop();
        write(&mut bytes);
        close(&mut bytes, 0);
        self.0 = RawDocumentBuf::from_bytes(bytes).expect("its length is right");
    }

    /// The document, in no more memory than it needs: many wait at a time.
    pub(super) fn finish(self) -> RawDocumentBuf {
        let mut bytes = self.0.into_bytes();
        bytes.shrink_to_fit();
        RawDocumentBuf::from_bytes(bytes).expect("its length is right")
    }

    /// As [`Self::put`], for a name that depends on a sensor's fields: if it is there already, with a `_` more.
    pub(super) fn put_beside(&mut self, key: &str, value: impl BindRawBsonRef) {
        let mut key = key.to_owned();
        while !key.is_empty() && !matches!(self.0.get(key.as_str()), Ok(None)) {
            key.push('_');
        }
        self.put(&key, value);
    }
}

/// Kinds of BSON values that hold others.
pub(super) const DOCUMENT: u8 = 0x03;
pub(super) const ARRAY: u8 = 0x04;

/// Begins a document or an array in bytes; the place is for [`close`].
pub(super) fn open(bytes: &mut Vec<u8>) -> usize {
    bytes.extend_from_slice(&[0; 4]);
    bytes.len() - 4
}

/// Begins one of this kind as an element of the one around it.
pub(super) fn open_inside(bytes: &mut Vec<u8>, kind: u8, key: &str) -> usize {
    bytes.push(kind);
    bytes.extend_from_slice(key.as_bytes());
    bytes.push(0);
    open(bytes)
}

/// Ends it: now its length is known.
pub(super) fn close(bytes: &mut Vec<u8>, begin: usize) {
    bytes.push(0);
    let length = i32::try_from(bytes.len() - begin).expect("a bucket is far smaller than two gibibytes");
    bytes[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
}

/// A value of a sample as an element of the document that is open; a field without a name is left out.
pub(super) fn element(bytes: &mut Vec<u8>, key: &str, value: &RawBson) {
    if key.is_empty() {
        return;
    }
    bytes.push(value.element_type() as u8);
    bytes.extend_from_slice(key.as_bytes());
    bytes.push(0);
    match value {
        RawBson::Double(v) => bytes.extend(v.to_le_bytes()),
        RawBson::DateTime(v) => bytes.extend_from_slice(&v.timestamp_millis().to_le_bytes()),
        RawBson::Int32(v) => bytes.extend(v.to_le_bytes()),
        RawBson::Int64(v) => bytes.extend(v.to_le_bytes()),
        RawBson::Decimal128(v) => bytes.extend(v.bytes()),
        RawBson::Boolean(v) => bytes.push(u8::from(*v)),
        RawBson::String(v) => {
            let length = i32::try_from(v.len() + 1).expect("a text has at most 256 bytes");
            bytes.extend(length.to_le_bytes());
            bytes.extend(v.as_bytes());
            bytes.push(0);
        }
        other => unreachable!("no value of a sample is a {:?}", other.element_type()),
    }
}

/// As [`element`], of a value as it was measured.
pub(super) fn value_element(bytes: &mut Vec<u8>, key: &str, v: &Value) {
    let (kind, number) = match v {
        Value::F64(v) => (ElementType::Double, v.to_le_bytes()),
        Value::I64(v) => (ElementType::Int64, v.to_le_bytes()),
        other => return element(bytes, key, &value(other)),
    };
    if !key.is_empty() {
        bytes.push(kind as u8);
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&number);
    }
}

/// Numbers from 0 as text, as arrays have them for keys.
pub(super) struct Counter {
    digits: [u8; 10],
    begin: usize,
    is_first: bool,
}

impl Counter {
    pub(super) const fn new() -> Self {
        Self { digits: [b'0'; 10], begin: 9, is_first: true }
    }

    /// The next one.
    pub(super) fn next(&mut self) -> &str {
        let mut place = self.digits.len() - 1;
        while !self.is_first {
            self.begin = self.begin.min(place);
            if self.digits[place] < b'9' {
                self.digits[place] += 1;
                break;
            }
            self.digits[place] = b'0';
            place = place.saturating_sub(1);
        }
        self.is_first = false;
        std::str::from_utf8(&self.digits[self.begin..]).expect("digits are text")
    }
}

pub(super) fn value(value: &Value) -> RawBson {
    match value {
        Value::F64(v) => RawBson::Double(*v),
        Value::I64(v) => RawBson::Int64(*v),
        Value::U64(v) => RawBson::Decimal128(decimal(*v)),
        Value::Bool(v) => RawBson::Boolean(*v),
        Value::Text(v) => RawBson::String((**v).to_owned()),
    }
}

pub(super) fn number(number: Number) -> RawBson {
    match number {
        Number::F64(v) => RawBson::Double(v),
        Number::I64(v) => RawBson::Int64(v),
        Number::U64(v) => RawBson::Decimal128(decimal(v)),
    }
}

/// Counts fit 32 bits by far (caps); should one not, it is still told exactly.
pub(super) fn whole(count: u32) -> RawBson {
    i32::try_from(count).map_or(RawBson::Int64(count.into()), RawBson::Int32)
}

/// A length of time as a number: 32 bits if they hold it.
pub(super) fn length(units: i64) -> RawBson {
    i32::try_from(units).map_or(RawBson::Int64(units), RawBson::Int32)
}

pub(super) fn date(at: Timestamp) -> DateTime {
    DateTime::from_millis(at.as_millis())
}

/// IEEE 754 decimal128, binary integer form: biased exponent 6176 (10⁰) above a 113-bit coefficient, little-endian.
pub(super) fn decimal(v: u64) -> Decimal128 {
    let bits = (6176_u128 << 113) | u128::from(v);
    Decimal128::from_bytes(bits.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    #[test]
    fn decimals_hold_every_unsigned_number() {
        for v in [0, 1, i64::MAX as u64 + 1, u64::MAX] {
            assert_eq!(decimal(v), Decimal128::from_str(&v.to_string()).unwrap());
        }
    }

    #[test]
    fn a_counter_counts() {
        let mut counter = Counter::new();
        (0..123_456).for_each(|i: u32| assert_eq!(counter.next(), i.to_string()));
    }

    #[test]
    fn no_name_no_field_and_no_field_twice() {
        let mut doc = Builder::new();
        doc.put("", 1);
        doc.put("sum", 1);
        doc.put_beside("sum", 2);
        doc.put_beside("sum", 3);
        doc.put_beside("", 3);
        let keys: Vec<_> = doc.0.iter().map(|entry| entry.unwrap().0.to_string()).collect();
        assert_eq!(keys, ["sum", "sum_", "sum__"]);
    }
}
