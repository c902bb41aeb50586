//! A store and a forwarder in the test's own process: readings in, and what the database holds of them.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use mongodb::bson::{Bson, Document as Bsondoc};
use tipbucket::clock::{self, Clock};
use tipbucket::forwarder;
use tipbucket::model::{
    BucketPolicy, FieldName, Policies, Reading, SensorName, SiteName, Timestamp, Value, WindowLength,
};
use tipbucket::stats::Stats;
use tipbucket::store::{self, Delivery, Inlet, Receipt};
use tipbucket::upstream::{Config, Upstream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::impatient;

/// Length of a window, and how long it stays open.
pub(super) const WINDOW: u32 = 3;
const GRACE: Duration = Duration::from_millis(500);

/// One gateway, running.
pub(super) struct Gateway {
    inlet: Inlet,
    pub(super) stats: Stats,
    shutdown: CancellationToken,
    tasks: [JoinHandle<anyhow::Result<()>>; 2],
}

impl Gateway {
    /// Opens the store in `folder`, and delivers as `config` says.
    pub(super) async fn start(folder: &Path, config: Config, max_samples: u32) -> Self {
        let site = SiteName::new("greenhouse-7").unwrap();
        let stats = Stats::default();
        let believed = clock::Config { trust: clock::Belief::Always, ..clock::Config::default() };
        let clock = Clock::system().governed_by(believed);
        let default = BucketPolicy {
            window: WindowLength::from_seconds(WINDOW).unwrap(),
            max_samples,
            max_bytes: 64 << 10,
            grace: GRACE,
            decimals: None,
        };
        let policies = Policies { default, by_sensor: HashMap::new() };
        let every = Duration::from_millis(20);
        let settings = store::Config {
            path: folder.join("t.db"),
            max_bytes: ByteSize::mib(48),
            commit_every: every,
            commit_every_resendable: every,
            ..store::Config::default()
        };
        let opened = store::open(&settings, site.clone(), policies, 100, clock.clone(), stats.clone());
        let (inlet, outlet, writer) = opened.await.unwrap();
        let tuning = tipbucket::upstream::Tuning { calm: Duration::from_millis(300), ..impatient() };
        let upstream = Upstream::new(config, site, HashMap::new(), clock.clone(), tuning);
        let shutdown = CancellationToken::new();
        let forward = forwarder::run(outlet, upstream, clock, stats.clone(), shutdown.clone());
        Self { inlet, stats, shutdown, tasks: [tokio::spawn(writer.run()), tokio::spawn(forward)] }
    }

    /// Readings that are on disk when this returns.
    pub(super) async fn accept(&self, readings: Vec<Reading>) {
        let (to, mut receipts) = mpsc::channel(1);
        let receipt = Some(Receipt::new(to, 7));
        self.inlet.push(Delivery { receipt, ..Delivery::of(readings) }).await.unwrap();
        assert_eq!(receipts.recv().await, Some(7));
    }

    /// Waits until something is so.
    pub(super) async fn until(&self, what: &str, is_so: impl Fn(&Stats) -> bool) {
        let deadline = Instant::now() + crate::support::patience(Duration::from_secs(90));
        while !is_so(&self.stats) {
            let up = self.stats.upstream();
            assert!(Instant::now() < deadline, "{what}: {:?}, live {:?}", up.condition.get(), up.live.get());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until so many readings, since the file was born, are delivered.
    pub(super) async fn delivered(&self, readings: usize) {
        self.until("everything is delivered", |stats| stats.store().delivered.get() == readings as i64).await;
    }

    /// As a kill: nothing is finished.
    pub(super) async fn kill(self) {
        for task in self.tasks {
            task.abort();
            let _ = task.await;
        }
    }

    pub(super) async fn stop(self) -> Stats {
        drop(self.inlet);
        self.shutdown.cancel();
        let [writer, forwarder] = self.tasks;
        forwarder.await.unwrap().unwrap();
        writer.await.unwrap().unwrap();
        self.stats
    }
}

/// Readings of some sensors at this moment, each with a number of its own.
#[derive(Default)]
pub(super) struct Readings {
    pub(super) accepted: Vec<(String, i64, f64)>,
    next: u32,
}

impl Readings {
    /// One for each sensor.
    pub(super) fn take(&mut self, sensors: &[&str]) -> Vec<Reading> {
        let now = Clock::system().now().plain();
        sensors.iter().map(|sensor| self.one(sensor, now)).collect()
    }

    fn one(&mut self, sensor: &str, at: Timestamp) -> Reading {
        let value = f64::from(self.next) / 2.0;
        self.next += 1;
        self.accepted.push((sensor.to_owned(), at.as_millis(), value));
        let fields = [(FieldName::new("temp").unwrap(), Value::F64(value))].into_iter().collect();
        Reading::new(SensorName::new(sensor).unwrap(), at, fields).unwrap()
    }

    /// What was accepted, sorted.
    pub(super) fn sorted(&self) -> Vec<(String, i64, u64)> {
        sorted(self.accepted.iter().map(|(sensor, at, value)| (sensor.clone(), *at, *value)))
    }
}

/// What documents hold, sorted.
pub(super) fn held(documents: &[Bsondoc]) -> Vec<(String, i64, u64)> {
    let of = |document: &Bsondoc| {
        let sensor = document.get_str("sensor").unwrap().to_owned();
        let samples = document.get_array("samples").unwrap().clone();
        let one = move |sample: Bson| {
            let sample = sample.as_document().unwrap().clone();
            (sensor.clone(), sample.get_datetime("t").unwrap().timestamp_millis(), sample.get_f64("temp").unwrap())
        };
        samples.into_iter().map(one).collect::<Vec<_>>()
    };
    sorted(documents.iter().flat_map(of))
}

fn sorted(readings: impl Iterator<Item = (String, i64, f64)>) -> Vec<(String, i64, u64)> {
    let mut all: Vec<_> = readings.map(|(sensor, at, value)| (sensor, at, value.to_bits())).collect();
    all.sort_unstable();
    all
}
