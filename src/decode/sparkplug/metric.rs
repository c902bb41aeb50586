//! One metric into one value, by the type that was announced for it (Sparkplug 3.0, section 6.4.16).
//!
//! Signed numbers travel in unsigned fields, by some writers cut to their own width and by others extended to 32 bits: both
//! are read, and what fits neither is refused.

use super::wire::{Held, Metric};
use crate::decode::quoted;
use crate::model::{FieldName, Value};

/// What an alias stands for.
#[derive(Clone, Debug)]
pub(super) struct Meaning {
    pub(super) field: FieldName,
    pub(super) is_control: bool,
    pub(super) datatype: u32,
}

/// Metrics that steer and do not measure.
pub(super) fn is_control(name: &str) -> bool {
    name == "bdSeq" || name.starts_with("Node Control/") || name.starts_with("Device Control/")
}

/// A whole number, whatever its announced type.
pub(super) fn whole(metric: &Metric) -> Option<u64> {
    match metric.held {
        Some(Held::Int(v)) => Some(u64::from(v)),
        Some(Held::Long(v)) => Some(v),
        _ => None,
    }
}

/// The value; `None` if the metric says it has none, or is a time.
pub(super) fn value(metric: &Metric, datatype: u32) -> Result<Option<Value>, String> {
    if metric.is_null == Some(true) {
        return Ok(None);
    }
    let Some(held) = &metric.held else { return Ok(None) };
    let value = match (datatype, held) {
        // DateTime and UUID identify; they do not measure.
        (13 | 15, _) => return Ok(None),
        (1, Held::Int(v)) => signed(u64::from(*v), 8)?,
        (2, Held::Int(v)) => signed(u64::from(*v), 16)?,
        (3, Held::Int(v)) => signed(u64::from(*v), 32)?,
        (1, Held::Long(v)) => signed(*v, 8)?,
        (2, Held::Long(v)) => signed(*v, 16)?,
        (3, Held::Long(v)) => signed(*v, 32)?,
        (4, Held::Long(v)) => Value::I64(*v as i64),
        (4, Held::Int(v)) => Value::I64(i64::from(*v as i32)),
        (11, Held::Int(v @ 0..=1)) => Value::Bool(*v == 1),
        (_, Held::Int(v)) => Value::I64(i64::from(*v)),
        (_, Held::Long(v)) => Value::unsigned(*v),
        (_, Held::Float(v)) => finite(f64::from(*v))?,
        (_, Held::Double(v)) => finite(*v)?,
        (_, Held::Boolean(v)) => Value::Bool(*v),
        (_, Held::String(text)) => Value::text(text)
            .ok_or_else(|| format!("({}) is a text of {} bytes, over 256", quoted(text), text.len()))?,
        (22..=34, Held::Bytes(_)) => return Err("is an array, not a value".to_owned()),
        (_, Held::Bytes(bytes)) => return Err(format!("is {} bytes, not a value", bytes.len())),
        (_, Held::DataSet(_)) => return Err("is a data set, not a value".to_owned()),
        (_, Held::Template(_)) => return Err("is a template, not a value".to_owned()),
    };
    Ok(Some(value))
}

/// A signed number of so many bits out of an unsigned field.
fn signed(raw: u64, bits: u32) -> Result<Value, String> {
    let narrow = |raw: u64, width: u32| ((raw << (64 - width)) as i64) >> (64 - width);
    let (least, most) = (-(1_i64 << (bits - 1)), (1_i64 << (bits - 1)) - 1);
    let readings =
        [(raw >> bits == 0).then(|| narrow(raw, bits)), (raw >> 32 == 0).then(|| narrow(raw, 32)), Some(raw as i64)];
    let fitting = readings.into_iter().flatten().find(|v| (least..=most).contains(v));
    fitting.map(Value::I64).ok_or_else(|| format!("({raw}) does not fit into {bits} bits"))
}

fn finite(v: f64) -> Result<Value, String> {
    Value::float(v).ok_or_else(|| format!("is {v}, not a finite number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(datatype: u32, held: Held, expected: Result<Option<Value>, &str>) {
        let shown = format!("{datatype} {held:?}");
        match (value(&Metric { held: Some(held), ..Metric::default() }, datatype), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{shown}"),
            (Err(words), Err(expected)) => assert!(words.contains(expected), "{shown}: {words}"),
            other => panic!("{shown}: {other:?}"),
        }
    }

    #[test]
    fn signed_numbers_are_read_however_they_were_extended() {
        check(2, Held::Int(65_531), Ok(Some(Value::I64(-5))));
        check(2, Held::Int(4_294_967_291), Ok(Some(Value::I64(-5))));
        check(2, Held::Long(u64::MAX - 4), Ok(Some(Value::I64(-5))));
        check(2, Held::Int(100_000), Err("does not fit into 16 bits"));
        check(1, Held::Int(0x80), Ok(Some(Value::I64(-128))));
        check(3, Held::Int(u32::MAX), Ok(Some(Value::I64(-1))));
        check(4, Held::Long(u64::MAX - 6), Ok(Some(Value::I64(-7))));
    }

    #[test]
    fn other_types_are_values_or_refused() {
        check(8, Held::Long(u64::MAX), Ok(Some(Value::U64(u64::MAX))));
        check(9, Held::Float(21.5), Ok(Some(Value::F64(21.5))));
        check(9, Held::Float(f32::NAN), Err("NaN"));
        check(12, Held::String("auto".to_owned()), Ok(Value::text("auto")));
        check(13, Held::Long(1), Ok(None));
        check(0, Held::Boolean(true), Ok(Some(Value::Bool(true))));
        check(16, Held::DataSet(prost::bytes::Bytes::new()), Err("data set"));
        check(17, Held::Bytes(prost::bytes::Bytes::from_static(b"\0\xff")), Err("2 bytes"));
        check(25, Held::Bytes(prost::bytes::Bytes::new()), Err("array"));
    }
}
