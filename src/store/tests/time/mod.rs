//! The store and the clock together, on a simulated machine: wall clocks that are wrong, set, or lost with the power.

mod model;
mod scenarios;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::engine::{Batch, Engine, Report, Setup};
use super::super::lazy::Pool;
use super::super::names::NameReader;
use super::super::{Delivery, SegmentId, WhenFull, recovery, segment};
use super::{START, policies, site_name};
use crate::clock::{Clock, Config, Script, WhenUnsynced};
use crate::model::{FieldName, Reading, SensorName, Timestamp, Value};

/// One run of the program on a machine.
struct Gateway {
    path: PathBuf,
    config: Config,
    script: Script,
    clock: Clock,
    arrivals: Clock,
    engine: Engine,
    max_samples: u32,
    /// Whether the upstream takes what it is sent, so that sealed buckets wait in memory.
    lazy: bool,
}

/// A delivered bucket, as seen from outside: sensor, what is known of its clock, part, samples as (ms since START, value).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    sensor: String,
    clock: &'static str,
    part: u32,
    samples: Vec<(i64, i64)>,
}

/// Milliseconds since START as an instant.
fn at(millis: i64) -> Timestamp {
    Timestamp::clamped(START + millis)
}

fn hold() -> Config {
    Config::default()
}

fn flag() -> Config {
    Config { unsynced: WhenUnsynced::Flag, ..Config::default() }
}

impl Gateway {
    fn open(folder: &Path, script: &Script, config: Config, max_samples: u32) -> Self {
        Self::open_with(folder, script, config, max_samples, false)
    }

    fn open_with(folder: &Path, script: &Script, config: Config, max_samples: u32, lazy: bool) -> Self {
        let path = folder.join("t.db");
        let setup = Setup {
            site: site_name(),
            path: path.clone(),
            max_bytes: 48 << 20,
            beside: 0,
            when_full: WhenFull::Evict,
            max_sensors: 100,
            clock: config,
            blocks: Default::default(),
            policies: policies(max_samples),
            write_behind: Duration::from_secs(30),
            keep: (Duration::ZERO, Duration::ZERO),
            pool: Pool::default(),
        };
        setup.pool.tell(lazy);
        let engine = recovery::recover(setup, &NameReader::default()).unwrap();
        let clock = Clock::scripted(script, config);
        clock.begin(&engine.known());
        clock.look();
        let arrivals = clock.for_arrivals(Some(crate::model::SourceName::new("gps").unwrap()));
        Self { path, config, script: script.clone(), clock, arrivals, engine, max_samples, lazy }
    }

    /// A machine that is switched on, and whose wall clock then says `wall`.
    fn boot(folder: &Path, boot: &str, wall: Timestamp, config: Config) -> Self {
        Self::open(folder, &Script::boot_at(boot, wall), config, 1000)
    }

    /// The process is killed and started again.
    fn restart(self) -> Self {
        let Self { path, config, script, engine, max_samples, lazy, .. } = self;
        drop(engine);
        Self::open_with(path.parent().unwrap(), &script, config, max_samples, lazy)
    }

    /// The power is cut, and the machine switched on again.
    fn reboot(self, boot: &str, wall: Timestamp) -> Self {
        let Self { path, config, engine, max_samples, lazy, .. } = self;
        drop(engine);
        Self::open_with(path.parent().unwrap(), &Script::boot_at(boot, wall), config, max_samples, lazy)
    }

    fn pass(&self, seconds: u64) {
        self.script.pass(Duration::from_secs(seconds));
    }

    /// The wall clock is set and synchronised; a second later that is known.
    fn synchronise(&mut self, millis: i64) {
        self.script.synchronise(at(millis));
        self.pass(1);
        self.commit(Vec::new());
    }

    fn commit(&mut self, deliveries: Vec<Delivery>) -> Report {
        let moment = self.clock.look();
        self.engine.take_moment(&moment).unwrap();
        self.engine.commit(&Batch { deliveries, ..Batch::default() }, moment.now).unwrap()
    }

    /// A reading that bears the time of its arrival, in a commit of its own.
    fn stamp(&mut self, sensor: &str, value: i64) -> Report {
        let reading = reading(sensor, self.arrivals.now(), value);
        self.commit(vec![Delivery { stamped: true, ..Delivery::of(vec![reading]) }])
    }

    /// Readings of one sensor, one a second.
    fn stamp_each_second(&mut self, sensor: &str, values: std::ops::Range<i64>) {
        for value in values {
            self.stamp(sensor, value);
            self.pass(1);
        }
    }

    /// A reading with a time of its own.
    fn tell(&mut self, sensor: &str, at: Timestamp, value: i64) {
        self.commit(vec![Delivery::of(vec![reading(sensor, at, value)])]);
    }

    /// Commits until nothing is released any more and nothing is due; how many commits that took.
    fn settle(&mut self) -> usize {
        for commits in 0..10_000 {
            let moment = self.clock.look();
            let is_due = self.engine.next_due().is_some_and(|due| due <= moment.now);
            if commits > 0 && !is_due && !self.engine.is_releasing(&moment) {
                return commits;
            }
            self.commit(Vec::new());
        }
        panic!("it never ends");
    }

    /// Lets more than a day pass, so that everything is sealed that can be, and shows it in the order of sealing.
    fn sealed(&mut self) -> Vec<Seen> {
        for seconds in [0, 90_000, 600, 600] {
            self.pass(seconds);
            self.settle();
        }
        self.drawn()
    }

    /// What a forwarder would draw.
    fn drawn(&self) -> Vec<Seen> {
        let names = self.engine.state.names.reader();
        let mut seen = Vec::new();
        let mut after = 0;
        while let Some((id, data)) = segment::read_after(&self.engine.db, after, i64::MAX as u64).unwrap() {
            after = id;
            for bucket in segment::open(SegmentId(id), data, &names).unwrap().buckets {
                let bucket = bucket.unpack().unwrap();
                assert!(bucket.samples.iter().all(|sample| bucket.window.contains(sample.at)));
                let samples = bucket.samples.iter().map(|sample| match sample.fields[0].1 {
                    Value::I64(value) => (sample.at.as_millis() - START, value),
                    _ => unreachable!("only whole numbers are pushed"),
                });
                let (samples, clock) = (samples.collect(), bucket.clock.as_str());
                seen.push(Seen { sensor: bucket.sensor.to_string(), clock, part: bucket.part, samples });
            }
        }
        seen
    }

    fn held(&self) -> u64 {
        let stats = crate::stats::Stats::default();
        self.engine.tell(stats.store());
        u64::try_from(stats.store().held.get()).unwrap()
    }
}

fn reading(sensor: &str, at: Timestamp, value: i64) -> Reading {
    let fields = [(FieldName::new("v").unwrap(), Value::I64(value))].into_iter().collect();
    Reading::new(SensorName::new(sensor).unwrap(), at, fields).unwrap()
}

/// Every sample of some buckets, as (what is known of its clock, time, value), in the order of their values.
fn samples(seen: &[Seen]) -> Vec<(&'static str, i64, i64)> {
    let mut all: Vec<_> =
        seen.iter().flat_map(|bucket| bucket.samples.iter().map(|(at, value)| (bucket.clock, *at, *value))).collect();
    all.sort_by_key(|(_, _, value)| *value);
    all
}
