//! A store in a folder, opened the way the daemon does, on virtual time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use tipbucket::clock::Clock;
use tipbucket::model::{
    BucketPolicy, FieldName, Policies, Reading, SealedBucket, SensorName, SiteName, Timestamp, Value, WindowLength,
};
use tipbucket::stats::Stats;
use tipbucket::store::{self, Backlog, Config, Delivery, Inlet, Outlet, Receipt, SegmentId, StoreError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A full hour: 2026-11-30T13:00:00Z.
pub const START: i64 = 1_796_043_600_000;
/// The sensors that [`crate::history`] knows; one more is refused.
pub const SENSORS: usize = 6;
/// The smallest budget in which all of that happens: two mebibytes for the file, one for its log, one in reserve, and what
/// the log's index takes.
const BUDGET: ByteSize = ByteSize::kib(4162);
/// What is due comes sooner.
const QUIET: Duration = Duration::from_secs(10);

pub struct Site {
    pub inlet: Inlet,
    pub outlet: Outlet,
    pub stats: Stats,
    writer: JoinHandle<anyhow::Result<()>>,
}

pub fn database(folder: &Path) -> PathBuf {
    folder.join("t.db")
}

pub fn log(folder: &Path) -> PathBuf {
    folder.join("t.db-wal")
}

/// Time that passes when everybody waits.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

pub fn policies() -> Policies {
    let policy = |seconds| BucketPolicy {
        window: WindowLength::from_seconds(seconds).unwrap(),
        max_samples: 1000,
        max_bytes: 64 << 10,
        grace: Duration::from_secs(5),
        decimals: None,
    };
    Policies { default: policy(60), by_sensor: [(name("slow"), policy(86_400))].into_iter().collect() }
}

pub fn name(sensor: &str) -> SensorName {
    SensorName::new(sensor).unwrap()
}

/// One reading `millis` after [`START`].
pub fn reading(sensor: &str, millis: i64, fields: &[(&str, Value)]) -> Reading {
    let fields = fields.iter().map(|(field, value)| (FieldName::new(field).unwrap(), value.clone())).collect();
    Reading::new(name(sensor), Timestamp::clamped(START + millis), fields).unwrap()
}

impl Site {
    pub async fn open(folder: &Path, clock: Clock) -> Result<Self, StoreError> {
        Self::open_with(folder, clock, |_| {}).await
    }

    pub async fn open_with(folder: &Path, clock: Clock, change: impl FnOnce(&mut Config)) -> Result<Self, StoreError> {
        let mut config = Config { path: database(folder), max_bytes: BUDGET, ..Config::default() };
        change(&mut config);
        let (stats, site) = (Stats::default(), SiteName::new("test").unwrap());
        let opened = store::open(&config, site, policies(), SENSORS, clock, stats.clone());
        let (inlet, outlet, writer) = opened.await?;
        Ok(Self { inlet, outlet, stats, writer: tokio::spawn(writer.run()) })
    }

    /// Hands a delivery over and waits until it is on disk.
    pub async fn commit(&self, delivery: Delivery) {
        assert!(self.receipt(delivery).await.recv().await.is_some(), "the store ended");
    }

    /// Hands a delivery over; its receipt comes through the channel.
    pub async fn receipt(&self, delivery: Delivery) -> mpsc::Receiver<u64> {
        let (to, receipts) = mpsc::channel(1);
        let delivery = Delivery { receipt: Some(Receipt::new(to, 7)), urgent: true, ..delivery };
        self.inlet.push(delivery).await.unwrap();
        receipts
    }

    /// Draws the next segment, if there is one before long.
    pub async fn draw(&mut self) -> Option<(SegmentId, Vec<SealedBucket>)> {
        let parcel = tokio::time::timeout(QUIET, self.outlet.next()).await.ok()?.unwrap()?;
        Some((parcel.id, parcel.buckets.iter().map(|bucket| bucket.unpack().unwrap()).collect()))
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        drop((self.inlet, self.outlet));
        self.writer.await?
    }

    /// As a SIGKILL: nothing is finished.
    pub async fn kill(self) {
        self.writer.abort();
        assert!(self.writer.await.unwrap_err().is_cancelled());
    }
}
