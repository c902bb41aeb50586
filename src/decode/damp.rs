//! What depends on earlier values: counters that fall back, changes too small to keep, values that come too often.
//!
//! All of it is declared field by field and counted; nothing is left out by default. The memory is bounded: when it is full
//! it is emptied, and each field's next value is kept.

use std::collections::HashMap;
use std::time::Duration;

use super::arithmetic::double;
use super::shape::Options;
use crate::model::{FieldName, Fields, SensorName, Timestamp, Value};

/// Most series remembered: as many sensors as a site may have by default, with a few fields each.
const MAX_SERIES: usize = 50_000;

/// Remembers each series' last value that was taken.
#[derive(Debug, Default)]
pub struct Damper {
    last: HashMap<(SensorName, FieldName), (Timestamp, Value), foldhash::fast::RandomState>,
}

/// What is to be done with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Keep it.
    Keep,
    /// Keep it, and note that the counter fell.
    Rollover,
    /// Leave it out: it changed less than the deadband, or came sooner than the minimum interval.
    Leave,
}

/// What became of the fields of a reading.
#[derive(Debug, Default)]
pub struct Damped {
    /// Those that are kept.
    pub fields: Fields,
    /// Those that are left out.
    pub left_out: Vec<FieldName>,
    /// Counters that fell.
    pub fallen: Vec<FieldName>,
}

impl Damper {
    /// Judges the fields of a reading.
    pub fn keep<'o>(
        &mut self,
        fields: Fields,
        (sensor, at): (&SensorName, Timestamp),
        options: impl Fn(&FieldName) -> Option<&'o Options>,
    ) -> Damped {
        let mut damped = Damped::default();
        for (name, value) in fields {
            let verdict = match options(&name).filter(|options| options.has_memory()) {
                Some(options) => self.judge(options, sensor, &name, at, &value),
                None => Verdict::Keep,
            };
            match verdict {
                Verdict::Leave => {
                    damped.left_out.push(name);
                    continue;
                }
                Verdict::Rollover => damped.fallen.push(name.clone()),
                Verdict::Keep => {}
            }
            damped.fields.push((name, value));
        }
        damped
    }

    /// Judges a value, and remembers it if it is kept. What is older than the last one is always kept.
    pub fn judge(
        &mut self,
        options: &Options,
        sensor: &SensorName,
        field: &FieldName,
        at: Timestamp,
        value: &Value,
    ) -> Verdict {
        let key = (sensor.clone(), field.clone());
        let verdict = match self.last.get(&key) {
            Some((last_at, last)) if *last_at <= at => options.verdict(at.since(*last_at), last, value),
            Some(_) => return Verdict::Keep,
            None => Verdict::Keep,
        };
        if verdict != Verdict::Leave {
            if self.last.len() >= MAX_SERIES && !self.last.contains_key(&key) {
                self.last.clear();
            }
            self.last.insert(key, (at, value.clone()));
        }
        verdict
    }
}

impl Options {
    fn verdict(&self, passed: Duration, last: &Value, value: &Value) -> Verdict {
        if self.min_interval.is_some_and(|least| passed < least) {
            return Verdict::Leave;
        }
        let (Some(before), Some(now)) = (double(last), double(value)) else { return Verdict::Keep };
        if self.deadband.is_some_and(|band| (now - before).abs() < band) {
            return Verdict::Leave;
        }
        if self.counter && now < before { Verdict::Rollover } else { Verdict::Keep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values as (second, value) through one series; what became of each as a letter: k, r or l.
    fn check(options: &Options, values: &[(u64, f64)], expected: &str) {
        let mut damper = Damper::default();
        let (sensor, field) = (SensorName::new("s").unwrap(), FieldName::new("f").unwrap());
        let letters = values.iter().map(|(second, v)| {
            let at = Timestamp::EPOCH.plus(Duration::from_secs(*second));
            match damper.judge(options, &sensor, &field, at, &Value::F64(*v)) {
                Verdict::Keep => 'k',
                Verdict::Rollover => 'r',
                Verdict::Leave => 'l',
            }
        });
        assert_eq!(letters.collect::<String>(), expected, "{options:?}");
    }

    #[test]
    fn small_changes_are_left_out_against_the_last_value_kept() {
        let options = Options { deadband: Some(0.5), ..Options::default() };
        check(&options, &[(0, 20.0), (1, 20.3), (2, 20.4), (3, 20.5), (4, 20.1), (5, 20.0)], "kllklk");
        // A slow drift is not lost: it is measured from the value that was kept.
        check(&options, &[(0, 20.0), (1, 20.25), (2, 20.5), (3, 20.75), (4, 21.0)], "klklk");
    }

    #[test]
    fn values_that_come_too_soon_are_left_out() {
        let options = Options { min_interval: Some(Duration::from_secs(10)), ..Options::default() };
        check(&options, &[(0, 1.0), (5, 2.0), (9, 3.0), (10, 4.0), (15, 5.0), (21, 6.0)], "kllklk");
        check(&options, &[(100, 1.0), (50, 2.0)], "kk");
    }

    #[test]
    fn a_counter_that_falls_is_noted_and_kept() {
        let options = Options { counter: true, ..Options::default() };
        check(&options, &[(0, 65_530.0), (1, 65_534.0), (2, 3.0), (3, 7.0)], "kkrk");
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut damper = Damper::default();
        let options = Options { counter: true, ..Options::default() };
        let field = FieldName::new("f").unwrap();
        for i in 0..=MAX_SERIES {
            let sensor = SensorName::new(&format!("s{i}")).unwrap();
            damper.judge(&options, &sensor, &field, Timestamp::EPOCH, &Value::I64(1));
        }
        assert!(damper.last.len() <= MAX_SERIES);
    }
}
