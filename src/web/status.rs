//! What `/status.json` says: the same facts as the page and `tipbucket status`, under fixed names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Subject;
use crate::model::{LossReason, Timestamp};
use crate::stats::{Condition, SourceStats, State, StoreStats};

/// How a running daemon stands. Times are RFC 3339, `null` where something has not happened yet.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Status {
    /// The installation.
    pub site: String,
    /// The program's version.
    pub version: String,
    /// When this was written.
    pub now: String,
    /// Seconds since the daemon was started.
    pub uptime_s: u64,
    /// Whether the time is believed.
    pub clock: ClockStatus,
    /// The local store.
    pub store: StoreStatus,
    /// Where buckets go.
    pub upstream: UpstreamStatus,
    /// Every source, by name.
    pub sources: Vec<SourceStatus>,
}

/// Whether something works, since when, and in words.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ConditionStatus {
    /// `up`, `down` or `unknown` (not tried yet).
    pub state: String,
    /// Since when.
    pub since: Option<String>,
    /// What it is connected to, or what fails and what to do.
    pub detail: String,
    /// Failures since it last worked.
    pub failures: u64,
}

/// The clock. Counters are since the start of the daemon.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ClockStatus {
    /// `up` if the time is trusted; and why, or why not.
    pub condition: ConditionStatus,
    /// How far the time told is from the steady line, in milliseconds.
    pub offset_ms: i64,
    /// Samples that wait for a trusted clock.
    pub held: i64,
    /// Samples whose times were put right.
    pub restamped: u64,
    /// Samples in buckets that say that the clock was not trusted.
    pub unsynced: u64,
}

/// The local store. Counters are since the start of the daemon.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct StoreStatus {
    /// Whether it can write.
    pub condition: ConditionStatus,
    /// Readings taken charge of since the store's file was born. Always `delivered` + `stored` + the sum of `ledger`.
    pub accepted: i64,
    /// Of these, proven stored upstream.
    pub delivered: i64,
    /// Of these, in open or sealed buckets.
    pub stored: i64,
    /// Of these, in the loss ledger, by reason.
    pub ledger: BTreeMap<String, i64>,
    /// Readings on disk.
    pub readings: u64,
    /// Readings that were there already and are kept once.
    pub duplicates: u64,
    /// Messages delivered again by a broker and recognised.
    pub redelivered: u64,
    /// Readings of sensors beyond `site.max_sensors`.
    pub refused_by_sensor_limit: u64,
    /// Sensors known.
    pub sensors: i64,
    /// Buckets that are open.
    pub open_buckets: i64,
    /// Buckets sealed.
    pub sealed: u64,
    /// Of these, opened for late readings.
    pub late: u64,
    /// Sealed buckets not yet delivered.
    pub backlog_buckets: i64,
    /// Segments they lie in.
    pub backlog_segments: i64,
    /// Samples replaced by their rollups because the budget was short.
    pub thinned: u64,
    /// Buckets deleted undelivered because the budget was short.
    pub evicted: u64,
    /// Dead letters written.
    pub dead_letters: u64,
    /// Bytes written to the card by commits and checkpoints, without what the file system adds.
    pub written_bytes: u64,
    /// Bytes in use.
    pub bytes: i64,
    /// Bytes that may be used.
    pub max_bytes: i64,
    /// How much of it is used up, in percent of what data can have.
    pub fill_percent: i64,
    /// The alarm that stands: 70, 90, or 0 for none.
    pub alarm_percent: i64,
    /// Transactions committed.
    pub commits: u64,
    /// How long the last took, in microseconds.
    pub commit_us: i64,
    /// When it ended.
    pub last_commit: Option<String>,
}

/// Where buckets go. Counters are since the start of the daemon.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct UpstreamStatus {
    /// Whether it can be reached.
    pub condition: ConditionStatus,
    /// Buckets delivered.
    pub buckets: u64,
    /// Readings in them.
    pub readings: u64,
    /// Bytes of their documents.
    pub bytes: u64,
    /// Attempts that failed as a whole.
    pub failures: u64,
    /// Buckets sent under a second `_id` because the first held other content.
    pub conflicts: u64,
    /// Buckets refused for good.
    pub refused: u64,
    /// Seconds until the backlog is drained if it goes on like now; `null` if there is none, or nobody can tell.
    pub drained_in_s: Option<i64>,
    /// When the last bucket was delivered.
    pub last_delivery: Option<String>,
    /// Mode `live`: whether open buckets are sent, and why not; `null` in other modes.
    #[serde(default)]
    pub live: Option<ConditionStatus>,
    /// Updates of open buckets that were sent.
    #[serde(default)]
    pub live_updates: u64,
    /// Readings that they showed for the first time.
    #[serde(default)]
    pub live_readings: u64,
}

/// One source. Counters are since the start of the daemon.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Whether its line or connection is up.
    pub condition: ConditionStatus,
    /// Messages, frames or lines.
    pub messages: u64,
    /// Readings handed to the store.
    pub readings: u64,
    /// What could not be taken.
    pub refused: u64,
    /// Values left out by a declared deadband or minimum interval.
    #[serde(default)]
    pub left_out: u64,
    /// Counters that fell: they were reset, or ran over.
    #[serde(default)]
    pub rollovers: u64,
    /// Watched sensors that send nothing any more (`silent_after`).
    #[serde(default)]
    pub silent_sensors: i64,
    /// Which ones, in words; empty if there are none.
    #[serde(default)]
    pub silence: String,
    /// Decoders picked where that was left open (`decode = "auto"`), and for how many topics.
    #[serde(default)]
    pub picked: BTreeMap<String, u64>,
    /// New starts after an error.
    pub restarts: u64,
}

impl Status {
    pub(super) fn of(subject: &Subject) -> Self {
        let now = subject.clock.now();
        let (store, upstream) = (subject.stats.store(), subject.stats.upstream());
        Self {
            site: subject.site.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: now.to_string(),
            uptime_s: now.since(subject.started).as_secs(),
            clock: ClockStatus {
                condition: condition(&store.clock_condition),
                offset_ms: store.clock_offset_ms.get(),
                held: store.held.get(),
                restamped: store.restamped.get(),
                unsynced: store.unsynced.get(),
            },
            store: StoreStatus {
                condition: condition(&store.condition),
                accepted: store.accepted.get(),
                delivered: store.delivered.get(),
                stored: store.stored.get(),
                ledger: ledger(store),
                readings: store.readings.get(),
                duplicates: store.duplicates.get(),
                redelivered: store.redelivered.get(),
                refused_by_sensor_limit: store.sensor_limit.get(),
                sensors: store.sensors.get(),
                open_buckets: store.open_buckets.get(),
                sealed: store.sealed.get(),
                late: store.late.get(),
                backlog_buckets: store.backlog_buckets.get(),
                backlog_segments: store.backlog_segments.get(),
                thinned: store.thinned.get(),
                evicted: store.evicted.get(),
                dead_letters: store.dead_letters.get(),
                written_bytes: store.written.get(),
                bytes: store.bytes.get(),
                max_bytes: store.max_bytes.get(),
                fill_percent: store.fill_percent.get(),
                alarm_percent: store.alarm_percent.get(),
                commits: store.commits.get(),
                commit_us: store.commit_us.get(),
                last_commit: instant(store.last_commit_ms.get()),
            },
            upstream: UpstreamStatus {
                condition: condition(&upstream.condition),
                buckets: upstream.buckets.get(),
                readings: upstream.readings.get(),
                bytes: upstream.bytes.get(),
                failures: upstream.failures.get(),
                conflicts: upstream.conflicts.get(),
                refused: upstream.refused.get(),
                drained_in_s: Some(upstream.drained_in_s.get()).filter(|left| *left >= 0),
                last_delivery: instant(upstream.last_delivery_ms.get()),
                live: Some(condition(&upstream.live)).filter(|live| live.since.is_some()),
                live_updates: upstream.live_updates.get(),
                live_readings: upstream.live_readings.get(),
            },
            sources: subject.stats.sources().iter().map(|source| of_source(source)).collect(),
        }
    }
}

fn ledger(store: &StoreStats) -> BTreeMap<String, i64> {
    LossReason::ALL.iter().zip(&store.lost).map(|(reason, lost)| (reason.word().to_owned(), lost.get())).collect()
}

fn of_source(source: &SourceStats) -> SourceStatus {
    SourceStatus {
        name: source.name.to_string(),
        kind: source.kind.to_owned(),
        condition: condition(&source.condition),
        messages: source.messages.get(),
        readings: source.readings.get(),
        refused: source.refused.get(),
        left_out: source.left_out.get(),
        rollovers: source.rollovers.get(),
        silent_sensors: source.silent.get(),
        silence: if source.silent.get() > 0 { source.silences.get().detail } else { String::new() },
        picked: source.picks().into_iter().map(|(name, topics)| (name.to_owned(), topics)).collect(),
        restarts: source.restarts.get(),
    }
}

fn condition(condition: &Condition) -> ConditionStatus {
    let State { up, since, detail, failures, .. } = condition.get();
    let state = match up {
        Some(true) => "up",
        Some(false) => "down",
        None => "unknown",
    };
    let detail = if up.is_none() { "not tried yet".to_owned() } else { detail };
    ConditionStatus { state: state.to_owned(), since: up.map(|_| since.to_string()), detail, failures }
}

fn instant(millis: i64) -> Option<String> {
    (millis > 0).then(|| Timestamp::clamped(millis).to_string())
}
