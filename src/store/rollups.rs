//! Rollups in compact form: what a bucket tells without its samples.
//!
//! A rollup is `count · first time · span · fields · column …`. Times are relative to the window's start. A column holds
//! first, last, minimum, maximum and sum of one field, encoded as samples are: decimals as differences, so that a
//! temperature takes about ten bytes. A field without numbers has first and last only.

use super::names::NameReader;
use crate::model::codec::{self, Row};
use crate::model::varint::{self, Damaged, Reader};
use crate::model::{FieldName, FieldStats, Number, Timestamp, row_rollups};

/// Values in the column of a field that has numbers, and of one that has none.
const NUMERIC: usize = 5;
const PLAIN: usize = 2;

/// One bucket's rollup; fields are numbers of the dictionary.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowRollup {
    pub count: u32,
    pub first: Timestamp,
    pub last: Timestamp,
    pub stats: Vec<(u32, FieldStats)>,
}

impl RowRollup {
    /// Of rows in time order; `None` without any.
    pub(super) fn of(rows: &[Row]) -> Option<Self> {
        let (first, last) = (rows.first()?.at, rows.last()?.at);
        Some(Self { count: rows.len() as u32, first, last, stats: row_rollups(rows) })
    }

    /// Appends it; `base` is the start of its window.
    pub(super) fn encode(&self, base: Timestamp, out: &mut Vec<u8>) {
        varint::put(out, self.count.into());
        varint::put_signed(out, self.first.as_millis() - base.as_millis());
        varint::put_signed(out, self.last.as_millis() - self.first.as_millis());
        varint::put(out, self.stats.len() as u64);
        for (field, stats) in &self.stats {
            let missing = self.count.saturating_sub(stats.count);
            varint::put(out, u64::from(missing) << 1 | u64::from(stats.numbers.is_some()));
            let (first, last) = (stats.first.clone(), stats.last.clone());
            match stats.numbers {
                Some((sum, min, max)) => {
                    let values = [first, last, min.value(), max.value(), sum.value()];
                    codec::encode_column(*field, &values, out);
                }
                None => codec::encode_column(*field, &[first, last], out),
            }
        }
    }

    /// Reads what [`Self::encode`] wrote.
    pub(super) fn decode(input: &mut Reader<'_>, base: Timestamp) -> Result<Self, Damaged> {
        let count = input.u32()?;
        let mut time = |from: i64| {
            let time = from.checked_add(input.signed()?).and_then(Timestamp::from_millis);
            time.ok_or(Damaged("time out of range"))
        };
        let first = time(base.as_millis())?;
        let last = time(first.as_millis())?;
        let fields = input.bounded(input.left())?;
        let mut stats = Vec::new();
        for _ in 0..fields {
            let head = input.varint()?;
            let numeric = head & 1 == 1;
            let missing = u32::try_from(head >> 1).map_err(|_| Damaged("count above 32 bits"))?;
            let (field, mut values) = codec::decode_column(input, if numeric { NUMERIC } else { PLAIN })?;
            let number = |i: usize| values.get(i).and_then(Number::of).ok_or(Damaged("sum that is no number"));
            let numbers = if numeric { Some((number(4)?, number(2)?, number(3)?)) } else { None };
            values.truncate(PLAIN);
            let (Some(last), Some(first)) = (values.pop(), values.pop()) else { return Err(Damaged("empty column")) };
            let count = count.checked_sub(missing).ok_or(Damaged("more missing than there are"))?;
            stats.push((field, FieldStats { count, numbers, first, last }));
        }
        Ok(Self { count, first, last, stats })
    }

    /// Its fields by name; `None` if one has no name.
    pub(super) fn named(&self, names: &NameReader) -> Option<Vec<(FieldName, FieldStats)>> {
        self.stats.iter().map(|(field, stats)| Some((names.field(*field)?, stats.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Value;

    const BASE: i64 = 1_796_043_600_000;

    fn check(values: &[Value]) -> usize {
        let row = |(i, value): (usize, &Value)| Row {
            at: Timestamp::clamped(BASE + 5000 * i as i64),
            fields: [(3, value.clone())].into_iter().collect(),
        };
        let rows: Vec<Row> = values.iter().enumerate().map(row).collect();
        let rollup = RowRollup::of(&rows).unwrap();
        let mut bytes = Vec::new();
        rollup.encode(Timestamp::clamped(BASE), &mut bytes);
        let mut input = Reader::new(&bytes);
        assert_eq!(RowRollup::decode(&mut input, Timestamp::clamped(BASE)).unwrap(), rollup);
        assert_eq!(input.left(), 0);
        bytes.len()
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

    proptest! {
        #[test]
        fn a_rollup_survives_bit_for_bit(values in proptest::collection::vec(value(), 1..40)) {
            check(&values);
        }

        #[test]
        fn no_bytes_make_decode_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RowRollup::decode(&mut Reader::new(&bytes), Timestamp::EPOCH);
        }
    }

    #[test]
    fn a_temperature_takes_few_bytes() {
        let values: Vec<Value> = (0..120).map(|i| Value::F64((215 + i % 7) as f64 / 10.0)).collect();
        assert!(check(&values) <= 20, "{}", check(&values));
    }
}
