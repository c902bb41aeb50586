//! `simulated`: readings out of nothing, for trying things out. The same seed gives the same values.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::MissedTickBehavior;

use super::{Claims, Intake, Kind, Source, SourceConfig};
use crate::model::{FieldName, Fields, MAX_FIELDS, Reading, SensorName, Value};
use crate::store::Delivery;

/// Most sensors one source simulates.
const MAX_SENSORS: usize = 100_000;
/// Readings in one delivery: small beside what may wait for a commit.
const READINGS_AT_ONCE: usize = 1000;

/// The kind's row.
pub(super) const KIND: Kind = Kind { name: "simulated", read: super::read::<Config> };

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// How many (`simulated-1` …), or their names.
    #[serde(default = "one")]
    sensors: Sensors,
    /// What numbered sensors are called before the number.
    #[serde(default = "default_prefix")]
    prefix: String,
    #[serde(default = "default_every", with = "humantime_serde")]
    every: Duration,
    #[serde(default)]
    seed: u64,
    /// What each sensor shows.
    #[serde(default = "default_fields")]
    fields: BTreeMap<String, FieldConfig>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number of sensors, or a list of names")]
enum Sensors {
    Count(usize),
    Names(Vec<String>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldConfig {
    wave: Wave,
    /// `sine`: the middle; `walk`: where it starts and is drawn back to; `constant`: the value; `counter`: the start.
    #[serde(default)]
    mean: f64,
    /// `sine`: how far it goes from the middle.
    #[serde(default = "unity")]
    amplitude: f64,
    /// `walk` and `counter`: the (largest) step.
    #[serde(default = "unity")]
    step: f64,
    /// `sine`: how long one wave takes; `bool`: how long it takes from on over off to on.
    #[serde(default = "default_period", with = "humantime_serde")]
    period: Duration,
    unit: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Wave {
    /// Up and down; each sensor in a phase of its own.
    Sine,
    /// A random walk around `mean`.
    Walk,
    /// A whole number that grows.
    Counter,
    /// Always the same.
    Constant,
    /// On and off.
    Bool,
}

fn one() -> Sensors {
    Sensors::Count(1)
}
fn default_prefix() -> String {
    "simulated-".to_owned()
}
fn default_every() -> Duration {
    Duration::from_secs(1)
}
fn default_period() -> Duration {
    Duration::from_secs(600)
}
fn unity() -> f64 {
    1.0
}
fn default_fields() -> BTreeMap<String, FieldConfig> {
    let field = |wave, mean, amplitude, step, unit: &str| FieldConfig {
        wave,
        mean,
        amplitude,
        step,
        period: default_period(),
        unit: Some(unit.to_owned()),
    };
    BTreeMap::from([
        ("temp".to_owned(), field(Wave::Sine, 21.0, 4.0, 1.0, "°C")),
        ("hum".to_owned(), field(Wave::Walk, 45.0, 1.0, 0.5, "%")),
    ])
}

impl Config {
    fn names(&self) -> Vec<String> {
        match &self.sensors {
            Sensors::Count(count) => (1..=*count.min(&MAX_SENSORS)).map(|n| format!("{}{n}", self.prefix)).collect(),
            Sensors::Names(names) => names.clone(),
        }
    }
}

impl SourceConfig for Config {
    fn claims(&self) -> Claims {
        let units = |sensor: &String| {
            let units = self.fields.iter().filter_map(|(name, field)| Some((name.clone(), field.unit.clone()?)));
            units.map(|(name, unit)| (sensor.clone(), name, unit)).collect::<Vec<_>>()
        };
        let sensors = self.names();
        Claims { units: sensors.iter().flat_map(units).collect(), sensors, ..Claims::default() }
    }

    fn contradictions(&self) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        let mut say = |key: &str, words: String| wrong.push((key.to_owned(), words));
        match &self.sensors {
            Sensors::Count(count) if !(1..=MAX_SENSORS).contains(count) => {
                say("sensors", format!("{count} is not between 1 and {MAX_SENSORS}"));
            }
            Sensors::Names(names) if names.is_empty() => say("sensors", "names no sensor".to_owned()),
            _ => {}
        }
        let mut names = self.names();
        if let Some(error) = names.iter().find_map(|name| SensorName::new(name).err()) {
            say("sensors", error.to_string());
        }
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            say("sensors", format!("`{}` stands there twice", twice[0]));
        }
        if self.every < Duration::from_millis(1) {
            say("every", "must be at least 1ms".to_owned());
        }
        if self.fields.is_empty() || self.fields.len() > MAX_FIELDS {
            say("fields", format!("must name 1 to {MAX_FIELDS} fields"));
        }
        for (name, field) in &self.fields {
            if let Err(error) = FieldName::new(name) {
                say(&format!("fields.{name}"), error.to_string());
            }
            if ![field.mean, field.amplitude, field.step].iter().all(|v| v.is_finite()) || field.period.is_zero() {
                say(&format!("fields.{name}"), "numbers must be finite, and the period not zero".to_owned());
            }
        }
        wrong
    }

    fn build(self: Box<Self>) -> Box<dyn Source> {
        let sensors = self.names().iter().map(|n| SensorName::new(n).expect("names were checked")).collect();
        let fields: Vec<_> = self.fields.into_iter().collect();
        let fields = fields.into_iter().map(|(n, field)| (FieldName::new(&n).expect("names were checked"), field));
        Box::new(Simulated::new(sensors, self.every, self.seed, fields.collect()))
    }
}

/// Sensors that do not exist.
#[derive(Debug)]
struct Simulated {
    sensors: Vec<SensorName>,
    every: Duration,
    fields: Vec<(FieldName, FieldConfig)>,
    random: fastrand::Rng,
    tick: u64,
    /// Where each sensor's walks are, sensor by sensor, field by field.
    walks: Vec<f64>,
}

impl Simulated {
    fn new(sensors: Vec<SensorName>, every: Duration, seed: u64, fields: Vec<(FieldName, FieldConfig)>) -> Self {
        let walks = sensors.iter().flat_map(|_| fields.iter().map(|(_, field)| field.mean)).collect();
        Self { sensors, every, fields, random: fastrand::Rng::with_seed(seed), tick: 0, walks }
    }

    /// What every sensor shows at the next tick.
    fn next_tick(&mut self) -> Vec<Fields> {
        let (tick, count, seconds) = (self.tick, self.sensors.len(), self.every.as_secs_f64() * self.tick as f64);
        self.tick += 1;
        let mut walks = self.walks.iter_mut();
        let random = &mut self.random;
        let mut show = |sensor: usize, field: &FieldConfig| {
            let walk = walks.next().expect("one walk for each sensor and field");
            let turns = seconds / field.period.as_secs_f64() + sensor as f64 / count as f64;
            let value = match field.wave {
                Wave::Sine => field.mean + field.amplitude * (TAU * turns).sin(),
                Wave::Walk => {
                    *walk += field.step * (random.f64() * 2.0 - 1.0) + (field.mean - *walk) * 0.01;
                    *walk
                }
                Wave::Counter => return Value::I64((field.mean + field.step * tick as f64) as i64),
                Wave::Constant => field.mean,
                Wave::Bool => return Value::Bool(turns.fract() < 0.5),
            };
            Value::F64((value * 1000.0).round() / 1000.0)
        };
        let fields = &self.fields;
        (0..count).map(|sensor| fields.iter().map(|(name, f)| (name.clone(), show(sensor, f))).collect()).collect()
    }
}

impl Source for Simulated {
    fn run<'a>(&'a mut self, intake: &'a Intake) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            let mut ticks = tokio::time::interval(self.every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                let at = intake.clock.now();
                intake.stats.condition.up(at, format!("simulates {} sensors", self.sensors.len()));
                let shown = self.next_tick();
                let mut readings = self.sensors.iter().cloned().zip(shown).peekable();
                while readings.peek().is_some() {
                    let some = readings.by_ref().take(READINGS_AT_ONCE);
                    let some = some.map(|(sensor, fields)| Reading { sensor, at, fields }).collect();
                    intake.deliver(Delivery { stamped: true, ..Delivery::of(some) }).await?;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Clock;
    use crate::model::{Admission, SourceName, Timestamp};
    use crate::stats::Stats;

    fn simulated(seed: u64) -> Simulated {
        let sensors = ["a", "b"].map(|name| SensorName::new(name).unwrap()).to_vec();
        let fields = default_fields().into_iter().map(|(n, f)| (FieldName::new(&n).unwrap(), f)).collect();
        Simulated::new(sensors, Duration::from_secs(1), seed, fields)
    }

    fn read(table: serde_json::Value) -> Config {
        super::super::table::read(serde_json::from_value::<config::Value>(table).unwrap()).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_values() {
        let values = |seed| {
            let mut simulated = simulated(seed);
            (0..100).map(|_| simulated.next_tick()).collect::<Vec<_>>()
        };
        assert_eq!(values(7), values(7));
        assert_ne!(values(7), values(8));
    }

    #[tokio::test(start_paused = true)]
    async fn every_sensor_is_shown_at_every_tick() {
        let fields = json!({ "n": { "wave": "counter", "step": 2 }, "on": { "wave": "bool", "period": "2s" } });
        let mut source =
            Box::new(read(json!({ "sensors": 2, "prefix": "s", "every": "1s", "fields": fields }))).build();
        let name = SourceName::new("sim").unwrap();
        let (inlet, mut deliveries) = crate::store::inlet();
        let intake = Intake {
            clock: Clock::virtual_from(Timestamp::EPOCH),
            stats: Stats::default().source(&name, "simulated"),
            admission: Admission::default(),
            timezone: None,
            name,
            inlet,
        };
        assert!(tokio::time::timeout(Duration::from_millis(2500), source.run(&intake)).await.is_err());
        let mut told = Vec::new();
        while let Some((delivery, _)) = deliveries.try_next() {
            for reading in delivery.readings {
                let value = |i: usize| format!("{:?}", reading.fields[i].1);
                told.push(format!("{} {} {} {}", reading.sensor, reading.at.as_millis(), value(0), value(1)));
            }
        }
        assert_eq!(
            told,
            [
                "s1 0 I64(0) Bool(true)",
                "s2 0 I64(0) Bool(false)",
                "s1 1000 I64(2) Bool(false)",
                "s2 1000 I64(2) Bool(true)",
                "s1 2000 I64(4) Bool(true)",
                "s2 2000 I64(4) Bool(false)",
            ]
        );
    }

    #[test]
    fn contradictions_are_named() {
        let check = |table: serde_json::Value, path: &str, words: &str| {
            let found = read(table).contradictions();
            assert!(found.iter().any(|(p, w)| p == path && w.contains(words)), "{path}: {words}: {found:?}");
        };
        assert_eq!(read(json!({})).contradictions(), []);
        check(json!({ "sensors": 0 }), "sensors", "not between 1");
        check(json!({ "sensors": ["a", "a"] }), "sensors", "twice");
        check(json!({ "every": "0s" }), "every", "1ms");
        check(json!({ "fields": {} }), "fields", "1 to 256");
        check(json!({ "fields": { "a": { "wave": "sine", "period": "0s" } } }), "fields.a", "not zero");
    }
}
