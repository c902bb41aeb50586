//! Counters and conditions: what the status page, `/metrics` and the log know about a running daemon.
//!
//! Every part gets a handle and writes to it; nobody decides anything by reading one.

mod tap;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

pub use tap::{Seen, Tap};

use crate::model::{LossReason, SourceName, Timestamp};

/// A failure that goes on is told again at most this often.
const REPEAT_EVERY: Duration = Duration::from_secs(30);

/// Everything that is counted. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stats(Arc<Inner>);

impl Default for Stats {
    fn default() -> Self {
        let store = StoreStats {
            condition: Condition::new("store"),
            sensor_condition: Condition::new("store"),
            room_condition: Condition::new("store"),
            clock_condition: Condition::new("clock"),
            ..StoreStats::default()
        };
        let upstream = UpstreamStats {
            condition: Condition::new("upstream"),
            live: Condition::new("live"),
            ..UpstreamStats::default()
        };
        upstream.drained_in_s.set(-1);
        Self(Arc::new(Inner { sources: Mutex::default(), store, upstream }))
    }
}

#[derive(Debug)]
struct Inner {
    sources: Mutex<BTreeMap<SourceName, Arc<SourceStats>>>,
    store: StoreStats,
    upstream: UpstreamStats,
}

impl Stats {
    /// The handle of one source, made at the first call. `kind` is its type in the site file.
    pub fn source(&self, name: &SourceName, kind: &'static str) -> Arc<SourceStats> {
        let mut sources = lock(&self.0.sources);
        Arc::clone(sources.entry(name.clone()).or_insert_with(|| Arc::new(SourceStats::new(name, kind))))
    }

    /// All sources, by name.
    pub fn sources(&self) -> Vec<Arc<SourceStats>> {
        lock(&self.0.sources).values().cloned().collect()
    }

    /// The store's counters.
    pub fn store(&self) -> &StoreStats {
        &self.0.store
    }

    /// The upstream's counters.
    pub fn upstream(&self) -> &UpstreamStats {
        &self.0.upstream
    }
}

/// One source.
#[derive(Debug)]
pub struct SourceStats {
    /// Its name in the site file.
    pub name: SourceName,
    /// Its type in the site file.
    pub kind: &'static str,
    /// Messages, frames or lines that arrived.
    pub messages: Counter,
    /// Readings handed to the store.
    pub readings: Counter,
    /// Messages, or parts of one, that could not be taken; each is a dead letter.
    pub refused: Counter,
    /// Values left out by a declared deadband or minimum interval.
    pub left_out: Counter,
    /// Counters that fell: they were reset, or ran over.
    pub rollovers: Counter,
    /// Which decoders were picked where that was left open, and for how many topics.
    picked: Mutex<BTreeMap<&'static str, u64>>,
    /// Times the source was started again after an error or a panic.
    pub restarts: Counter,
    /// Whether its line or connection is up, and why not.
    pub condition: Condition,
    /// What of it cannot be taken; told rarely, the dead letters have the rest.
    pub refusals: Condition,
    /// Watched sensors that send nothing any more.
    pub silent: Gauge,
    /// Which ones.
    pub silences: Condition,
    /// What it receives and refuses, for whoever watches it.
    pub tap: Tap,
}

impl SourceStats {
    fn new(name: &SourceName, kind: &'static str) -> Self {
        Self {
            name: name.clone(),
            kind,
            messages: Counter::default(),
            readings: Counter::default(),
            refused: Counter::default(),
            left_out: Counter::default(),
            rollovers: Counter::default(),
            picked: Mutex::default(),
            restarts: Counter::default(),
            condition: Condition::new(format!("source {name}")),
            refusals: Condition::new(format!("source {name}")),
            silent: Gauge::default(),
            silences: Condition::new(format!("source {name}")),
            tap: Tap::default(),
        }
    }
}

impl SourceStats {
    /// A decoder was picked for one more topic.
    pub fn picked(&self, decoder: &'static str) {
        *lock(&self.picked).entry(decoder).or_default() += 1;
    }

    /// Which decoders were picked, and for how many topics.
    pub fn picks(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.picked).clone()
    }
}

/// The store.
#[derive(Debug, Default)]
pub struct StoreStats {
    /// Rounds of the store's task; stands still only if the disk or the runtime hangs.
    pub rounds: Counter,
    /// Transactions committed.
    pub commits: Counter,
    /// Readings that are on disk.
    pub readings: Counter,
    /// Readings that were there already (same sensor, time and values) and are kept once.
    pub duplicates: Counter,
    /// Messages that the broker delivered again although they had been committed.
    pub redelivered: Counter,
    /// Readings refused because the site already has `max_sensors` sensors.
    pub sensor_limit: Counter,
    /// Buckets sealed.
    pub sealed: Counter,
    /// Buckets opened for late readings.
    pub late: Counter,
    /// Payloads and buckets put aside as dead letters.
    pub dead_letters: Counter,
    /// Buckets deleted, undelivered, because the disk budget was short.
    pub evicted: Counter,
    /// Samples replaced by their rollups because the disk budget was short.
    pub thinned: Counter,
    /// Bytes written to the card by commits and checkpoints, without what the file system adds.
    pub written: Counter,
    /// Readings taken charge of since the file was born: kept, or put on record as refused.
    pub accepted: Gauge,
    /// Of these, proven stored upstream.
    pub delivered: Gauge,
    /// Of these, in open or sealed buckets.
    pub stored: Gauge,
    /// Of these, in the loss ledger: by reason, in the order of [`LossReason::ALL`].
    pub lost: [Gauge; LossReason::ALL.len()],
    /// Buckets that are open.
    pub open_buckets: Gauge,
    /// Sensors known.
    pub sensors: Gauge,
    /// Segments of sealed buckets not yet delivered.
    pub backlog_segments: Gauge,
    /// Buckets in them.
    pub backlog_buckets: Gauge,
    /// Bytes of the database file and its write-ahead log in use.
    pub bytes: Gauge,
    /// Bytes the store may use.
    pub max_bytes: Gauge,
    /// How much of `max_bytes` is used up, in percent of what data can have.
    pub fill_percent: Gauge,
    /// The alarm that stands: 70, 90, or 0 for none.
    pub alarm_percent: Gauge,
    /// How long the last commit took, in microseconds.
    pub commit_us: Gauge,
    /// When the last commit ended, in milliseconds since the epoch; 0 before the first.
    pub last_commit_ms: Gauge,
    /// Whether the store can commit, and why not.
    pub condition: Condition,
    /// Whether there is room for further sensors.
    pub sensor_condition: Condition,
    /// Whether there is room for undelivered buckets.
    pub room_condition: Condition,
    /// Samples that wait for a trusted clock.
    pub held: Gauge,
    /// Samples whose times were put right when the clock was trusted.
    pub restamped: Counter,
    /// Samples that went into buckets which say that the clock was not trusted.
    pub unsynced: Counter,
    /// How far the time told is from the steady line, in milliseconds.
    pub clock_offset_ms: Gauge,
    /// Whether the clock is trusted, and why not.
    pub clock_condition: Condition,
}

/// The upstream.
#[derive(Debug, Default)]
pub struct UpstreamStats {
    /// Buckets delivered.
    pub buckets: Counter,
    /// Readings in them.
    pub readings: Counter,
    /// Bytes of documents delivered.
    pub bytes: Counter,
    /// Delivery attempts that failed as a whole.
    pub failures: Counter,
    /// Buckets whose `_id` was taken by other content and that were sent under a second one.
    pub conflicts: Counter,
    /// Buckets the database refused for good; each is a dead letter.
    pub refused: Counter,
    /// Seconds until the backlog is drained if it goes on like now; -1 if there is none, or nobody can tell.
    pub drained_in_s: Gauge,
    /// When the last bucket was delivered, in milliseconds since the epoch; 0 before the first.
    pub last_delivery_ms: Gauge,
    /// Whether the upstream can be reached, and why not.
    pub condition: Condition,
    /// Updates of open buckets that were sent.
    pub live_updates: Counter,
    /// Readings that they showed for the first time.
    pub live_readings: Counter,
    /// Whether open buckets are sent, and why not; never tried in other modes than `live`.
    pub live: Condition,
}

/// Whether one thing works. Tells the log once when that changes, and rarely while it lasts.
#[derive(Debug)]
pub struct Condition {
    what: String,
    state: Mutex<State>,
}

/// What a [`Condition`] says now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// `None` until it was tried, then whether it works.
    pub up: Option<bool>,
    /// Since when.
    pub since: Timestamp,
    /// In words: what it is connected to, or what fails and what to do.
    pub detail: String,
    /// Failures since it last worked.
    pub failures: u64,
    /// When a failure was last told.
    told: Option<Timestamp>,
    /// Whether this one was.
    is_told: bool,
}

impl Condition {
    /// The condition of `what`, not yet tried.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), state: Mutex::default() }
    }

    /// What it says now.
    pub fn get(&self) -> State {
        lock(&self.state).clone()
    }

    /// It works. Logs the first time and every recovery.
    pub fn up(&self, now: Timestamp, detail: impl fmt::Display) {
        let mut state = lock(&self.state);
        let now = now.plain();
        let was = state.up.replace(true);
        if was != Some(true) {
            let detail = detail.to_string();
            match was {
                Some(false) if !state.is_told => {}
                Some(false) => tracing::info!("{}: recovered after {} failures: {detail}", self.what, state.failures),
                _ => tracing::info!("{}: {detail}", self.what),
            }
            *state = State { up: Some(true), since: now, detail, failures: 0, told: state.told, is_told: false };
        }
    }

    /// It fails. Logs at once, and again when half a minute has passed; what comes and goes is no more often in the log.
    pub fn down(&self, now: Timestamp, detail: impl fmt::Display) {
        self.fail(now, detail, |what, words| tracing::warn!("{what}: {words}"));
    }

    /// It fails, and data is lost by it or a person must act. Logs as [`Self::down`], as an error.
    pub fn lost(&self, now: Timestamp, detail: impl fmt::Display) {
        self.fail(now, detail, |what, words| tracing::error!("{what}: {words}"));
    }

    fn fail(&self, now: Timestamp, detail: impl fmt::Display, tell: impl Fn(&str, &str)) {
        let mut state = lock(&self.state);
        let now = now.plain();
        let detail = detail.to_string();
        if state.up != Some(false) {
            state.since = now;
            state.failures = 0;
            state.is_told = false;
        }
        state.failures += 1;
        if state.told.is_none_or(|told| told.plus(REPEAT_EVERY) <= now || now < told) {
            match state.failures {
                1 => tell(&self.what, &detail),
                n => tell(&self.what, &format!("{detail} (failure {n} since {})", state.since)),
            }
            state.told = Some(now);
            state.is_told = true;
        }
        state.up = Some(false);
        state.detail = detail;
    }
}

impl Default for Condition {
    fn default() -> Self {
        Self::new("")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock means a panic between two assignments of plain numbers: nothing to protect from.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_says_what_it_is_about() {
        let stats = Stats::default();
        let what = |condition: &Condition| condition.what.clone();
        assert_eq!([what(&stats.store().condition), what(&stats.upstream().condition)], ["store", "upstream"]);
        assert_eq!(what(&stats.store().sensor_condition), "store");
    }

    #[test]
    fn what_comes_and_goes_is_told_once_in_half_a_minute() {
        let condition = Condition::new("thing");
        let told = std::cell::Cell::new(0);
        for second in 0..60 {
            let now = Timestamp::EPOCH.plus(Duration::from_secs(second));
            condition.fail(now, "noise", |_, _| told.set(told.get() + 1));
            condition.up(now, "works");
        }
        assert_eq!(told.get(), 2);
        let later = Timestamp::EPOCH.plus(Duration::from_secs(100));
        condition.fail(later, "noise", |_, words| assert_eq!(words, "noise"));
        assert!(condition.get().is_told);
    }

    #[test]
    fn a_condition_counts_failures_until_it_recovers() {
        let condition = Condition::new("thing");
        let at = |s| Timestamp::EPOCH.plus(Duration::from_secs(s));
        assert_eq!(condition.get().up, None);
        condition.down(at(1), "no route");
        condition.down(at(2), "no route");
        let state = condition.get();
        assert_eq!((state.up, state.since, state.failures), (Some(false), at(1), 2));
        condition.up(at(3), "connected");
        assert_eq!((condition.get().up, condition.get().failures), (Some(true), 0));
    }
}
