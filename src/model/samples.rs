//! Buckets for tests.
#![allow(clippy::unwrap_used)]

use crate::{FieldName, Sample, SealReason, SealedBucket, SensorName, Timestamp, Value, WindowLength};

/// A bucket of ten minutes that begins `start` seconds after the epoch, with samples of `temp` at (seconds, value).
pub fn bucket(sensor: &str, start: i64, part: u32, samples: &[(i64, f64)]) -> SealedBucket {
    let temp = FieldName::new("temp").unwrap();
    let at = |s: i64| Timestamp::from_millis((start + s) * 1000).unwrap();
    SealedBucket {
        sensor: SensorName::new(sensor).unwrap(),
        window: WindowLength::from_seconds(600).unwrap().window_of(at(0)),
        part,
        sealed: SealReason::Window,
        late: false,
        clock: crate::ClockState::Synced,
        rollup: None,
        samples: samples
            .iter()
            .map(|&(s, v)| Sample { at: at(s), fields: [(temp.clone(), Value::F64(v))].into_iter().collect() })
            .collect(),
    }
}

/// A sample of several fields, `at` milliseconds after the epoch.
pub fn sample(at: i64, fields: &[(&str, Value)]) -> Sample {
    Sample {
        at: Timestamp::from_millis(at).unwrap(),
        fields: fields.iter().map(|(n, v)| (FieldName::new(n).unwrap(), v.clone())).collect(),
    }
}
