//! The compact form of samples: columns of times and values, each with the cheapest encoding that is exact.
//!
//! A block is `n · times · columns`. Times are the first one relative to a base that the caller knows, then
//! delta-of-delta varints. A column is `head = field << 4 | kind << 1 | sparse`, a presence bitmap if some samples lack
//! the field, and the values: doubles scaled losslessly to decimals where possible (decimal mantissas as delta
//! varints), else raw; whole numbers as deltas; booleans as bits; texts through a dictionary inside the block.
//! A block is self-contained and self-delimiting: no state from earlier blocks, so damage stays local.
//!
//! What must stay true: decode ∘ encode is the identity, bit for bit; decode never panics and never allocates more than
//! a constant multiple of the bytes it was given.

mod column;

pub use column::{put_value, read_value};
use smallvec::SmallVec;

use super::varint::{self, Damaged, Reader};
use super::{Timestamp, Value};

/// Most rows in one block.
pub const MAX_ROWS: usize = 65_536;

/// A sample with its fields by number, ascending. The store's dictionary gives numbers to names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub at: Timestamp,
    /// Values by field number, ascending, each number once.
    pub fields: SmallVec<[(u32, Value); 2]>,
}

impl Row {
    /// Appends a field, its value rounded to `decimals` places. Never part of its caller, which is compiled for size.
    #[inline(never)]
    pub fn push(&mut self, number: u32, value: &Value, decimals: Option<u8>) {
        let value = match (value, decimals) {
            (Value::F64(_), Some(decimals)) => value.clone().rounded(decimals),
            _ => value.clone(),
        };
        self.fields.push((number, value));
    }

    /// Puts the fields in order of their numbers.
    pub fn sort(&mut self) {
        if !self.fields.is_sorted_by_key(|(number, _)| *number) {
            self.fields.sort_unstable_by_key(|(number, _)| *number);
        }
    }
}

/// Appends a block of 1 to [`MAX_ROWS`] rows, in the order given.
pub fn encode(rows: &[Row], base: Timestamp, out: &mut Vec<u8>) {
    debug_assert!(!rows.is_empty() && rows.len() <= MAX_ROWS, "a block holds 1 to {MAX_ROWS} rows");
    varint::put(out, rows.len() as u64);
    let mut previous = base.as_millis();
    let mut step = 0;
    for (i, row) in rows.iter().enumerate() {
        let delta = row.at.as_millis() - previous;
        varint::put_signed(out, if i < 2 { delta } else { delta - step });
        step = delta;
        previous = row.at.as_millis();
    }
    let columns = field_numbers(rows);
    varint::put(out, columns.len() as u64);
    let mut cursors: SmallVec<[u16; 32]> = SmallVec::from_elem(0, rows.len());
    let mut values: SmallVec<[Option<&Value>; 32]> = SmallVec::with_capacity(rows.len());
    for field in columns {
        values.clear();
        values.extend(rows.iter().zip(&mut cursors).map(|(row, cursor)| match row.fields.get(*cursor as usize) {
            Some((number, value)) if *number == field => {
                *cursor += 1;
                Some(value)
            }
            _ => None,
        }));
        column::encode(field, &values, out);
    }
}

/// Reads one block and appends its rows.
pub fn decode(input: &mut Reader<'_>, base: Timestamp, out: &mut Vec<Row>) -> Result<(), Damaged> {
    let n = input.bounded(MAX_ROWS.min(input.left()))?;
    if n == 0 {
        return Err(Damaged("block without rows"));
    }
    let first = out.len();
    out.reserve(n);
    let mut previous = base.as_millis();
    let mut step = 0i64;
    for i in 0..n {
        let read = input.signed()?;
        let delta = if i < 2 { read } else { step.checked_add(read).ok_or(Damaged("time step too long"))? };
        previous = previous.checked_add(delta).ok_or(Damaged("time out of range"))?;
        step = delta;
        let at = Timestamp::from_millis(previous).ok_or(Damaged("time out of range"))?;
        out.push(Row { at, fields: SmallVec::new() });
    }
    // Every row may bring fields of its own: what bounds their number is that each column takes a byte at least.
    let columns = input.bounded(input.left())?;
    let mut last = None;
    for _ in 0..columns {
        let field = column::decode(input, &mut out[first..])?;
        if last.is_some_and(|last| last >= field) {
            return Err(Damaged("columns out of order"));
        }
        last = Some(field);
    }
    Ok(())
}

/// Passes over one block: where it ends, told without its values.
pub fn skip(input: &mut Reader<'_>) -> Result<(), Damaged> {
    let n = input.bounded(MAX_ROWS.min(input.left()))?;
    if n == 0 {
        return Err(Damaged("block without rows"));
    }
    input.skip_varints(n)?;
    for _ in 0..input.bounded(input.left())? {
        column::skip(input, n)?;
    }
    Ok(())
}

/// Appends values of one field as a column without times.
pub fn encode_column(field: u32, values: &[Value], out: &mut Vec<u8>) {
    let values: SmallVec<[Option<&Value>; 8]> = values.iter().map(Some).collect();
    column::encode(field, &values, out);
}

/// Reads what [`encode_column`] wrote of `n` values.
pub fn decode_column(input: &mut Reader<'_>, n: usize) -> Result<(u32, SmallVec<[Value; 8]>), Damaged> {
    let mut rows: SmallVec<[Row; 8]> = SmallVec::from_elem(Row { at: Timestamp::EPOCH, fields: SmallVec::new() }, n);
    let field = column::decode(input, &mut rows)?;
    let values: SmallVec<[Value; 8]> = rows.into_iter().flat_map(|row| row.fields).map(|(_, value)| value).collect();
    if values.len() == n { Ok((field, values)) } else { Err(Damaged("column with gaps")) }
}

/// The numbers of all fields in these rows, ascending.
fn field_numbers(rows: &[Row]) -> SmallVec<[u32; 8]> {
    let mut numbers: SmallVec<[u32; 8]> = rows[0].fields.iter().map(|(number, _)| *number).collect();
    for row in &rows[1..] {
        // Rows of one sensor mostly have the same shape.
        if row.fields.len() == numbers.len() && row.fields.iter().zip(&numbers).all(|((a, _), b)| a == b) {
            continue;
        }
        for (number, _) in &row.fields {
            if let Err(place) = numbers.binary_search(number) {
                numbers.insert(place, *number);
            }
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(rows: &[Row]) -> usize {
        let base = Timestamp::clamped(1_796_043_600_000);
        let mut bytes = Vec::new();
        encode(rows, base, &mut bytes);
        bytes.push(0xAA);
        let mut input = Reader::new(&bytes);
        let mut back = Vec::new();
        decode(&mut input, base, &mut back).unwrap();
        assert_eq!(back, rows);
        assert_eq!(input.left(), 1, "a block delimits itself");
        let mut skipped = Reader::new(&bytes);
        skip(&mut skipped).unwrap();
        assert_eq!(skipped.left(), 1);
        bytes.len() - 1
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            (-100_000i64..100_000, 0u32..5).prop_map(|(m, p)| Value::F64(m as f64 / 10f64.powi(p as i32))),
            any::<f64>().prop_map(|v| Value::F64(if v.is_finite() { v } else { -0.0 })),
            any::<i64>().prop_map(Value::I64),
            any::<u64>().prop_map(Value::U64),
            any::<bool>().prop_map(Value::Bool),
            "[a-c]{0,3}".prop_map(|t| Value::Text(t.as_str().into())),
        ]
    }

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let row = (0..Timestamp::LAST.as_millis(), prop::collection::btree_map(0u32..6, value(), 0..4))
            .prop_map(|(at, fields)| Row { at: Timestamp::clamped(at), fields: fields.into_iter().collect() });
        prop::collection::vec(row, 1..60)
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_the_identity(rows in rows()) {
            round_trip(&rows);
        }

        #[test]
        fn no_bytes_make_decode_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (mut read, mut skipped) = (Reader::new(&bytes), Reader::new(&bytes));
            let passed = skip(&mut skipped);
            if decode(&mut read, Timestamp::EPOCH, &mut Vec::new()).is_ok() {
                prop_assert!(passed.is_ok() && skipped.left() == read.left());
            }
        }
    }

    #[test]
    fn a_regular_temperature_costs_about_two_bytes_a_sample() {
        let rows: Vec<Row> = (0..100i64)
            .map(|i| Row {
                at: Timestamp::clamped(1_796_043_600_000 + i * 5000),
                fields: [(3, Value::F64((215 + i % 7) as f64 / 10.0))].into_iter().collect(),
            })
            .collect();
        assert!(round_trip(&rows) < 230);
    }

    #[test]
    fn rows_together_may_have_more_fields_than_one_may() {
        let row = |i: u32| Row {
            at: Timestamp::clamped(1_796_043_600_000 + i64::from(i)),
            fields: (0..100).map(|k| (i * 100 + k, Value::I64(1))).collect(),
        };
        round_trip(&(0..20).map(row).collect::<Vec<_>>());
    }

    #[test]
    fn one_row_costs_few_bytes() {
        let row =
            Row { at: Timestamp::clamped(1_796_043_600_250), fields: [(3, Value::F64(21.5))].into_iter().collect() };
        assert!(round_trip(&[row]) <= 9);
    }
}
