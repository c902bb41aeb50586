//! Sensors that report one value each at their own pace: temperatures, humidities, energy counters, noisy voltages, positions.

use std::time::Duration;

use tipbucket::model::{FieldName, Reading, SensorName, Timestamp, Value};

/// How many sensors report how often; how long before and while it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub words: &'static str,
    pub sensors: usize,
    pub every_ms: u64,
    pub warm_s: u64,
    pub measured_s: u64,
}

/// The sensors of a load, in turn and with jitter. The same in every run.
#[derive(Debug)]
pub struct Trickle {
    sensors: Vec<(SensorName, i64)>,
    field: FieldName,
    every_ms: u64,
    next: usize,
    /// Readings owed, in thousandths.
    owed: u64,
    random: fastrand::Rng,
}

impl Trickle {
    pub fn new(load: &Load) -> Self {
        let name = |i| SensorName::new(&format!("sensor-{i}")).expect("good name");
        Self {
            sensors: (0..load.sensors).map(|i| (name(i), 200 + i as i64 % 100)).collect(),
            field: FieldName::new("value").expect("good name"),
            every_ms: load.every_ms,
            next: 0,
            owed: 0,
            random: fastrand::Rng::with_seed(7),
        }
    }

    /// The readings of the time before `now`.
    pub fn due(&mut self, now: Timestamp, time: Duration) -> Vec<Reading> {
        self.owed += time.as_millis() as u64 * 1000 * self.sensors.len() as u64 / self.every_ms;
        let count = self.owed / 1000;
        self.owed %= 1000;
        let start = now.minus(time);
        (0..count).map(|n| self.reading(start.plus(time * n as u32 / count as u32))).collect()
    }

    fn reading(&mut self, at: Timestamp) -> Reading {
        let jitter = (self.every_ms / 100).clamp(1, 10);
        let at = at.plus(Duration::from_millis(self.random.u64(..=jitter)));
        let place = self.next % self.sensors.len();
        self.next += 1;
        let (sensor, walk) = &mut self.sensors[place];
        let step = self.random.i64(-1..=1);
        let value = match place % 10 {
            0..=5 => {
                *walk += step;
                *walk as f64 / 10.0
            }
            6 | 7 => {
                *walk += self.random.i64(0..20);
                *walk as f64 / 1000.0
            }
            8 => self.random.u32(229_000..231_000) as f64 / 1000.0,
            _ => {
                *walk += step * 13;
                (520_000_000 + *walk) as f64 / 1e7
            }
        };
        let fields = [(self.field.clone(), Value::F64(value))].into_iter().collect();
        Reading::new(sensor.clone(), at, fields).expect("a sound reading")
    }
}
