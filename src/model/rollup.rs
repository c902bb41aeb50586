//! Rollups: per field `count, sum, min, max, first, last`, the computed pattern.
//!
//! They are computed from a sealed bucket's samples in time order, so that the same samples give the same rollups bit
//! for bit however they arrived. Whole numbers are summed exactly; doubles with compensation (Neumaier).

use super::codec::Row;
use super::{FieldName, Sample, Value};

/// A sum, minimum or maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number within `i64`.
    I64(i64),
    /// A whole number that needs the 64th bit.
    U64(u64),
    /// Everything else.
    F64(f64),
}

/// One field's rollup over a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldStats {
    /// Samples that held the field.
    pub count: u32,
    /// Sum, minimum and maximum; `None` if no sample held a number.
    pub numbers: Option<(Number, Number, Number)>,
    /// The earliest value.
    pub first: Value,
    /// The latest value.
    pub last: Value,
}

/// The rollups of samples that are in time order, one per field, in the order in which fields first appear.
pub fn rollups(samples: &[Sample]) -> Vec<(FieldName, FieldStats)> {
    collect(samples.iter().map(|sample| &sample.fields[..]))
}

/// As `rollups`, of rows: fields by number.
pub fn row_rollups(rows: &[Row]) -> Vec<(u32, FieldStats)> {
    collect(rows.iter().map(|row| &row.fields[..]))
}

fn collect<'a, K: Clone + PartialEq + 'a>(rows: impl Iterator<Item = &'a [(K, Value)]>) -> Vec<(K, FieldStats)> {
    let mut columns: Vec<(K, Accumulator<'a>)> = Vec::new();
    for fields in rows {
        for (i, (name, value)) in fields.iter().enumerate() {
            // Fields mostly keep their place from sample to sample.
            let place = match columns.get(i) {
                Some((known, _)) if known == name => Some(i),
                _ => columns.iter().position(|(known, _)| known == name),
            };
            match place {
                Some(place) => columns[place].1.add(value),
                None => columns.push((name.clone(), Accumulator::new(value))),
            }
        }
    }
    columns.into_iter().map(|(name, column)| (name, column.finish())).collect()
}

struct Accumulator<'a> {
    count: u32,
    first: &'a Value,
    last: &'a Value,
    whole: i128,
    float: f64,
    compensation: f64,
    floats: bool,
    range: Option<(Number, Number)>,
}

impl<'a> Accumulator<'a> {
    fn new(value: &'a Value) -> Self {
        let mut new = Self {
            count: 0,
            first: value,
            last: value,
            whole: 0,
            float: 0.0,
            compensation: 0.0,
            floats: false,
            range: None,
        };
        new.add(value);
        new
    }

    fn add(&mut self, value: &'a Value) {
        self.count += 1;
        self.last = value;
        let number = match value {
            Value::F64(v) => {
                self.floats = true;
                let sum = self.float + v;
                self.compensation +=
                    if self.float.abs() >= v.abs() { (self.float - sum) + v } else { (v - sum) + self.float };
                self.float = sum;
                Number::F64(*v)
            }
            Value::I64(v) => {
                self.whole += i128::from(*v);
                Number::I64(*v)
            }
            Value::U64(v) => {
                self.whole += i128::from(*v);
                Number::U64(*v)
            }
            Value::Bool(_) | Value::Text(_) => return,
        };
        self.range = Some(match self.range {
            None => (number, number),
            Some((min, max)) => {
                (if number.less_than(min) { number } else { min }, if max.less_than(number) { number } else { max })
            }
        });
    }

    fn finish(self) -> FieldStats {
        let sum = if self.floats {
            // An overflow makes the compensation NaN; the plain sum is then the honest answer, bounded to stay finite.
            let sum = self.float + self.compensation + self.whole as f64;
            let sum = if sum.is_nan() { self.float } else { sum };
            Number::F64(sum.clamp(f64::MIN, f64::MAX))
        } else if let Ok(sum) = i64::try_from(self.whole) {
            Number::I64(sum)
        } else if let Ok(sum) = u64::try_from(self.whole) {
            Number::U64(sum)
        } else {
            Number::F64(self.whole as f64)
        };
        FieldStats {
            count: self.count,
            numbers: self.range.map(|(min, max)| (sum, min, max)),
            first: self.first.clone(),
            last: self.last.clone(),
        }
    }
}

impl Number {
    fn less_than(self, other: Self) -> bool {
        match (self.whole(), other.whole()) {
            (Some(a), Some(b)) => a < b,
            _ => self.float() < other.float(),
        }
    }

    fn whole(self) -> Option<i128> {
        match self {
            Self::I64(v) => Some(v.into()),
            Self::U64(v) => Some(v.into()),
            Self::F64(_) => None,
        }
    }

    /// The number in a value; `None` for switches and texts.
    pub const fn of(value: &Value) -> Option<Self> {
        match value {
            Value::I64(v) => Some(Self::I64(*v)),
            Value::U64(v) => Some(Self::U64(*v)),
            Value::F64(v) => Some(Self::F64(*v)),
            Value::Bool(_) | Value::Text(_) => None,
        }
    }

    /// As a value.
    pub const fn value(self) -> Value {
        match self {
            Self::I64(v) => Value::I64(v),
            Self::U64(v) => Value::U64(v),
            Self::F64(v) => Value::F64(v),
        }
    }

    /// As a double, rounded where it must be.
    pub fn float(self) -> f64 {
        match self {
            Self::I64(v) => v as f64,
            Self::U64(v) => v as f64,
            Self::F64(v) => v,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn stats(values: &[Value]) -> FieldStats {
        let name = FieldName::new("v").unwrap();
        let samples: Vec<Sample> = values
            .iter()
            .enumerate()
            .map(|(i, v)| Sample {
                at: Timestamp::clamped(i as i64),
                fields: [(name.clone(), v.clone())].into_iter().collect(),
            })
            .collect();
        let mut all = rollups(&samples);
        assert_eq!(all.len(), 1);
        all.remove(0).1
    }

    #[test]
    fn whole_numbers_are_summed_exactly() {
        let s = stats(&[Value::I64(i64::MAX), Value::I64(1), Value::I64(-5)]);
        assert_eq!(s.numbers, Some((Number::I64(i64::MAX - 4), Number::I64(-5), Number::I64(i64::MAX))));
        assert_eq!((s.count, s.first, s.last), (3, Value::I64(i64::MAX), Value::I64(-5)));
    }

    #[test]
    fn doubles_are_summed_with_compensation() {
        let s = stats(&[Value::F64(1e16), Value::F64(1.0), Value::F64(-1e16)]);
        assert_eq!(s.numbers, Some((Number::F64(1.0), Number::F64(-1e16), Number::F64(1e16))));
    }

    #[test]
    fn a_sum_never_leaves_the_finite_numbers() {
        let s = stats(&[Value::F64(f64::MAX), Value::F64(f64::MAX)]);
        assert_eq!(s.numbers.unwrap().0, Number::F64(f64::MAX));
    }

    #[test]
    fn words_have_a_first_and_a_last_but_no_sum() {
        let s = stats(&[Value::text("on").unwrap(), Value::Bool(false)]);
        assert_eq!(
            s,
            FieldStats { count: 2, numbers: None, first: Value::text("on").unwrap(), last: Value::Bool(false) }
        );
    }
}
