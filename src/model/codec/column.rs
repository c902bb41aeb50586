//! One column of a block: the values of one field.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Row;
use crate::varint::{self, Damaged, Reader};
use crate::{MAX_TEXT_BYTES, Value};

/// Powers of ten that decimal columns use; 1e-9 is finer than any sensor in the field.
const POWERS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Whole numbers up to here are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

const DECIMAL: u64 = 0;
const FLOAT: u64 = 1;
const SIGNED: u64 = 2;
const UNSIGNED: u64 = 3;
const BOOL: u64 = 4;
const TEXT: u64 = 5;
const MIXED: u64 = 6;

pub(super) fn encode(field: u32, values: &[Option<&Value>], out: &mut Vec<u8>) {
    let sparse = values.iter().any(Option::is_none);
    let (kind, decimals) = kind_of(values);
    varint::put(out, u64::from(field) << 4 | kind << 1 | u64::from(sparse));
    if sparse {
        put_bits(out, values.iter().map(Option::is_some));
    }
    let values = || values.iter().flatten().copied();
    match kind {
        DECIMAL => {
            out.push(decimals.exponent as u8);
            put_deltas(out, decimals.mantissas.into_iter());
        }
        FLOAT => {
            for value in values() {
                if let Value::F64(v) = value {
                    out.extend_from_slice(&v.to_le_bytes());
                }
            }
        }
        SIGNED => put_deltas(out, values().map(|v| if let Value::I64(v) = v { *v } else { 0 })),
        UNSIGNED => put_deltas(out, values().map(|v| if let Value::U64(v) = v { *v as i64 } else { 0 })),
        BOOL => put_bits(out, values().map(|v| matches!(v, Value::Bool(true)))),
        TEXT => put_texts(out, values()),
        _ => values().for_each(|v| put_value(out, v)),
    }
}

pub(super) fn decode(input: &mut Reader<'_>, rows: &mut [Row]) -> Result<u32, Damaged> {
    let head = input.varint()?;
    let field = u32::try_from(head >> 4).map_err(|_| Damaged("field number above 32 bits"))?;
    let kind = head >> 1 & 7;
    let present = if head & 1 == 1 { Some(input.take(rows.len().div_ceil(8))?) } else { None };
    let mut rows =
        rows.iter_mut().enumerate().filter(|(i, _)| present.is_none_or(|bits| bit(bits, *i))).map(|(_, row)| row);
    match kind {
        DECIMAL => {
            let power = *POWERS.get(input.byte()? as usize).ok_or(Damaged("decimal exponent above 9"))?;
            read_deltas(input, rows, field, |mantissa| Value::F64(mantissa as f64 / power))?;
        }
        FLOAT => {
            for row in rows {
                let v = f64::from_le_bytes(input.array()?);
                row.fields.push((field, Value::float(v).ok_or(Damaged("not a finite number"))?));
            }
        }
        SIGNED => read_deltas(input, rows, field, Value::I64)?,
        UNSIGNED => read_deltas(input, rows, field, |v| Value::U64(v as u64))?,
        BOOL => {
            let rows: Vec<&mut Row> = rows.by_ref().collect();
            let bits = input.take(rows.len().div_ceil(8))?;
            for (i, row) in rows.into_iter().enumerate() {
                row.fields.push((field, Value::Bool(bit(bits, i))));
            }
        }
        TEXT => read_texts(input, rows, field)?,
        MIXED => {
            for row in rows {
                row.fields.push((field, read_value(input)?));
            }
        }
        _ => return Err(Damaged("unknown kind of column")),
    }
    Ok(field)
}

/// Passes over a column of `n` rows.
pub(super) fn skip(input: &mut Reader<'_>, n: usize) -> Result<(), Damaged> {
    let head = input.varint()?;
    let present = if head & 1 == 1 { Some(input.take(n.div_ceil(8))?) } else { None };
    let n = present.map_or(n, |bits| (0..n).filter(|i| bit(bits, *i)).count());
    match head >> 1 & 7 {
        DECIMAL => {
            input.byte()?;
            input.skip_varints(n)
        }
        FLOAT => input.take(n * size_of::<f64>()).map(drop),
        SIGNED | UNSIGNED => input.skip_varints(n),
        BOOL => input.take(n.div_ceil(8)).map(drop),
        TEXT => (0..n).try_for_each(|_| if input.varint()? == 0 { input.bytes().map(drop) } else { Ok(()) }),
        MIXED => (0..n).try_for_each(|_| read_value(input).map(drop)),
        _ => Err(Damaged("unknown kind of column")),
    }
}

/// Doubles as whole numbers over a power of ten.
#[derive(Default)]
struct Decimals {
    exponent: usize,
    mantissas: SmallVec<[i64; 32]>,
}

/// The cheapest exact kind for these values, and the values as decimals where that is `DECIMAL`.
fn kind_of(values: &[Option<&Value>]) -> (u64, Decimals) {
    let mut kind = None;
    for value in values.iter().flatten() {
        let this = match value {
            Value::F64(_) => FLOAT,
            Value::I64(_) => SIGNED,
            Value::U64(_) => UNSIGNED,
            Value::Bool(_) => BOOL,
            Value::Text(_) => TEXT,
        };
        if *kind.get_or_insert(this) != this {
            return (MIXED, Decimals::default());
        }
    }
    match kind {
        Some(FLOAT) => decimals(values).map_or((FLOAT, Decimals::default()), |decimals| (DECIMAL, decimals)),
        Some(kind) => (kind, Decimals::default()),
        None => (MIXED, Decimals::default()),
    }
}

/// The values over the least power of ten at which every one is exactly a whole number, if there is one.
fn decimals(values: &[Option<&Value>]) -> Option<Decimals> {
    let mut exponent = 0;
    let mut mantissas: SmallVec<[i64; 32]> = SmallVec::with_capacity(values.len());
    for value in values.iter().flatten() {
        let Value::F64(v) = value else { continue };
        let mut found = mantissa(*v, exponent);
        while found.is_none() {
            exponent += 1;
            if exponent == POWERS.len() {
                return None;
            }
            // What is exact over a smaller power is so over a larger one, while it stays a whole number that is exact.
            for mantissa in &mut mantissas {
                *mantissa = mantissa.checked_mul(10).filter(|m| m.unsigned_abs() < EXACT as u64)?;
            }
            found = mantissa(*v, exponent);
        }
        mantissas.extend(found);
    }
    Some(Decimals { exponent, mantissas })
}

/// The whole number that is exactly `v` over this power of ten.
fn mantissa(v: f64, exponent: usize) -> Option<i64> {
    let scaled = v * POWERS[exponent];
    let mantissa = nearest(scaled)?;
    // The integer round trip tells -0.0, whose sign a mantissa cannot hold, from 0.0.
    ((mantissa as f64 / POWERS[exponent]).to_bits() == v.to_bits()).then_some(mantissa)
}

/// The nearest whole number below [`EXACT`]. Halves go either way: no value is exactly a whole number and a half over a
/// power of ten and a whole number over it.
fn nearest(v: f64) -> Option<i64> {
    /// 1.5 · 2^52: adding it leaves no bits for a fraction, which the processor rounds, far faster than `round`.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    if v.abs() < EXACT / 4.0 {
        return Some(((v + SHIFT) - SHIFT) as i64);
    }
    let rounded = v.round();
    (rounded.abs() < EXACT).then_some(rounded as i64)
}

fn put_deltas(out: &mut Vec<u8>, values: impl Iterator<Item = i64>) {
    let mut previous = 0i64;
    for value in values {
        varint::put_signed(out, value.wrapping_sub(previous));
        previous = value;
    }
}

fn read_deltas<'r>(
    input: &mut Reader<'_>,
    rows: impl Iterator<Item = &'r mut Row>,
    field: u32,
    value: impl Fn(i64) -> Value,
) -> Result<(), Damaged> {
    let mut previous = 0i64;
    for row in rows {
        previous = previous.wrapping_add(input.signed()?);
        row.fields.push((field, value(previous)));
    }
    Ok(())
}

fn put_bits(out: &mut Vec<u8>, bits: impl Iterator<Item = bool>) {
    let mut byte = 0;
    let mut filled = 0;
    for bit in bits {
        byte |= u8::from(bit) << filled;
        filled += 1;
        if filled == 8 {
            out.push(byte);
            (byte, filled) = (0, 0);
        }
    }
    if filled > 0 {
        out.push(byte);
    }
}

fn bit(bits: &[u8], i: usize) -> bool {
    bits[i / 8] >> (i % 8) & 1 == 1
}

/// Each text is 0 and itself the first time, then its place in the dictionary plus 1.
fn put_texts<'v>(out: &mut Vec<u8>, values: impl Iterator<Item = &'v Value>) {
    let mut known: Vec<&Arc<str>> = Vec::new();
    for value in values {
        if let Value::Text(text) = value {
            // A column has few distinct words; past 64 the rest is written out.
            match known.iter().position(|k| *k == text) {
                Some(place) => varint::put(out, place as u64 + 1),
                None => {
                    varint::put(out, 0);
                    varint::put_bytes(out, text.as_bytes());
                    if known.len() < 64 {
                        known.push(text);
                    }
                }
            }
        }
    }
}

fn read_texts<'r>(input: &mut Reader<'_>, rows: impl Iterator<Item = &'r mut Row>, field: u32) -> Result<(), Damaged> {
    let mut known: Vec<Arc<str>> = Vec::new();
    for row in rows {
        let text = match input.bounded(64)? {
            0 => {
                let text: Arc<str> = read_text(input)?.into();
                if known.len() < 64 {
                    known.push(Arc::clone(&text));
                }
                text
            }
            place => Arc::clone(known.get(place - 1).ok_or(Damaged("word not in the dictionary"))?),
        };
        row.fields.push((field, Value::Text(text)));
    }
    Ok(())
}

fn read_text<'a>(input: &mut Reader<'a>) -> Result<&'a str, Damaged> {
    let text = input.text()?;
    if text.len() > MAX_TEXT_BYTES { Err(Damaged("text too long")) } else { Ok(text) }
}

/// Appends one value with its kind before it.
pub fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::F64(v) => {
            out.push(FLOAT as u8);
            out.extend_from_slice(&v.to_le_bytes());
        }
        Value::I64(v) => {
            out.push(SIGNED as u8);
            varint::put_signed(out, *v);
        }
        Value::U64(v) => {
            out.push(UNSIGNED as u8);
            varint::put(out, *v);
        }
        Value::Bool(v) => {
            out.push(BOOL as u8);
            out.push(u8::from(*v));
        }
        Value::Text(v) => {
            out.push(TEXT as u8);
            varint::put_bytes(out, v.as_bytes());
        }
    }
}

/// Reads what [`put_value`] wrote.
pub fn read_value(input: &mut Reader<'_>) -> Result<Value, Damaged> {
    Ok(match u64::from(input.byte()?) {
        FLOAT => Value::float(f64::from_le_bytes(input.array()?)).ok_or(Damaged("not a finite number"))?,
        SIGNED => Value::I64(input.signed()?),
        UNSIGNED => Value::U64(input.varint()?),
        BOOL => Value::Bool(input.byte()? != 0),
        TEXT => Value::Text(read_text(input)?.into()),
        _ => return Err(Damaged("unknown kind of value")),
    })
}
