//! The store's working part: applies batches to memory and writes each as one transaction. Runs on a blocking thread.
//!
//! One recovery for everything: when a commit fails, memory is thrown away and read back from disk, exactly as after a
//! power cut ([`Engine::open`]); the batch is then applied again. So memory never runs ahead of the disk.

use std::path::PathBuf;

use rusqlite::Connection;

use super::database::Budget;
use super::error::Doing;
use super::ledger::{Loss, REASONS};
use super::record::Record;
use super::state::State;
use super::{Delivery, Settled, StoreError, WhenFull, database, letters, quota, segment};
use crate::model::{DeadLetter, Policies, SiteName, Timestamp};
use crate::stats::StoreStats;

/// Most buckets sealed in one commit: thousands of sensors share a window's end, and a commit must stay short.
const MAX_SEALS: usize = 512;
/// What the engine needs to know.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub site: SiteName,
    pub path: PathBuf,
    pub max_bytes: u64,
    pub when_full: WhenFull,
    pub max_sensors: usize,
    pub policies: Policies,
}

/// Everything one commit takes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub deliveries: Vec<Delivery>,
    pub settled: Vec<Settled>,
    /// There is no room: only delete what is settled.
    pub only_settle: bool,
}

/// What one commit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub committed: bool,
    pub readings: u64,
    pub duplicates: u64,
    pub redelivered: u64,
    /// Readings that went into the ledger, by reason.
    pub lost: [u64; REASONS],
    pub sealed: u64,
    pub late: u64,
    pub dead_letters: u64,
    /// Samples replaced by their rollups.
    pub thinned: u64,
    /// Buckets deleted undelivered.
    pub evicted: u64,
}

/// Sealed buckets that are not yet delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub segments: u64,
    pub buckets: u64,
}

impl Count {
    pub(super) fn inserted(&mut self, buckets: u32) {
        self.segments += 1;
        self.buckets += u64::from(buckets);
    }

    /// `None`: the segment was not there.
    pub(super) fn deleted(&mut self, buckets: Option<u32>) {
        self.segments = self.segments.saturating_sub(u64::from(buckets.is_some()));
        self.buckets = self.buckets.saturating_sub(buckets.unwrap_or(0).into());
    }
}

/// The open database, and what of it is in memory.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) db: Connection,
    pub(super) state: State,
}

impl Engine {
    /// Applies a batch and writes it. Afterwards it is on disk; on an error nothing is, and this engine is of no use.
    pub(super) fn commit(&mut self, batch: &Batch, now: Timestamp) -> Result<Report, StoreError> {
        let mut report = Report::default();
        if !batch.only_settle {
            self.state.bucketer.close_due(now, MAX_SEALS);
        }
        let traces = self.state.apply(&batch.deliveries, now, &mut report);
        let letters = batch
            .deliveries
            .iter()
            .flat_map(|d| &d.dead_letters)
            .chain(batch.settled.iter().flat_map(|s| &s.dead_letters));
        let mut letters: Vec<_> = letters.collect();
        forget_known(&self.db, &mut letters)?;
        report.dead_letters = letters.len() as u64;
        let quiet = traces.is_empty() && self.state.losses.is_empty() && !self.state.bucketer.has_news();
        if quiet && letters.is_empty() && batch.settled.is_empty() {
            return Ok(report);
        }
        let seq = self.state.seq + 1;
        let (record, segments) = self.state.plan(seq, traces, &mut report)?;

        let budget = self.limit()?;
        let tx = self.db.unchecked_transaction().doing("begin a transaction")?;
        // Deleting first lets the new rows use the room.
        for letter in &letters {
            put_aside(&tx, &mut self.state, letter)?;
        }
        for id in batch.settled.iter().flat_map(|settled| &settled.segments) {
            let deleted = segment::delete(&tx, id.0)?;
            self.state.backlog.deleted(deleted.map(|(buckets, _)| buckets));
            self.state.accounts.delivered(deleted.map_or(0, |(_, samples)| samples));
        }
        if self.state.setup.when_full != WhenFull::Refuse {
            (report.thinned, report.evicted) = quota::make_room(&tx, &mut self.state, budget)?;
        }
        self.state.names.save(&tx)?;
        for segment in &segments {
            segment::insert(&tx, self.state.next_segment, segment)?;
            self.state.next_segment += 1;
            self.state.backlog.inserted(segment.buckets);
        }
        let losses = std::mem::take(&mut self.state.losses);
        report.lost = losses.totals();
        self.state.ledger.record(&tx, &losses, now)?;
        letters::store(&tx, &letters)?;
        self.state.journal_record(&tx, seq, record)?;
        tx.commit().doing("commit")?;
        self.state.names.saved();
        self.state.seq = seq;
        self.state.journal.trim(self.state.low(seq));
        report.committed = true;
        Ok(report)
    }

    /// Holds SQLite to the budget, or to what the disk has room for.
    fn limit(&self) -> Result<Budget, StoreError> {
        let pragma = |text: &str| self.db.query_row(text, [], |row| row.get::<_, u64>(0)).doing("measure the database");
        let budget = self.state.budget.on_disk(&self.state.setup.path, pragma("PRAGMA page_count")?);
        pragma(&format!("PRAGMA max_page_count = {}", budget.max_pages))?;
        Ok(budget)
    }

    /// When the next bucket is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.state.bucketer.next_due()
    }

    /// After a commit that failed and yet left its record: the log's pages may be in memory only, and syncing them again
    /// would prove nothing. Copying them into the file writes them anew, and that sync is believed.
    pub(super) fn make_durable(&self) -> Result<(), StoreError> {
        database::checkpoint(&self.db)?;
        match database::log_frames(&self.db)? {
            (frames, copied) if copied >= frames => Ok(()),
            _ => {
                Err(StoreError::Unusable("the log could not be copied into the database: a reader holds it".to_owned()))
            }
        }
    }

    /// The number of the last record written; 0 before the first.
    pub(super) fn last_record(&self) -> u64 {
        self.state.seq
    }

    /// Later segments bear numbers from `first` on: lower ones may still come back from a damaged file.
    pub(super) fn number_segments_from(&mut self, first: u64) {
        self.state.next_segment = self.state.next_segment.max(first);
    }

    /// Counts the backlog anew, after the last segment came back.
    pub(super) fn recount(&mut self) -> Result<(), StoreError> {
        let (backlog, samples) = segment::count(&self.db)?;
        self.state.backlog = backlog;
        self.state.count_stored(samples);
        self.state.settle_accounts();
        Ok(())
    }

    /// The last segment written; 0 before the first.
    pub(super) fn last_segment(&self) -> u64 {
        self.state.next_segment - 1
    }

    /// Tells how things stand.
    pub(super) fn tell(&self, stats: &StoreStats) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        stats.open_buckets.set(gauge(self.state.bucketer.open_buckets() as u64));
        stats.sensors.set(gauge(self.state.names.sensor_count() as u64));
        stats.backlog_segments.set(gauge(self.state.backlog.segments));
        stats.backlog_buckets.set(gauge(self.state.backlog.buckets));
        let accounts = &self.state.accounts;
        stats.accepted.set(gauge(accounts.accepted));
        stats.delivered.set(gauge(accounts.delivered));
        stats.stored.set(gauge(accounts.stored));
        for (lost, total) in stats.lost.iter().zip(self.state.ledger.totals()) {
            lost.set(gauge(*total));
        }
        // Not worth failing for: the next commit meets the same trouble and reports it.
        if let Ok(bytes) = self.bytes() {
            stats.bytes.set(gauge(bytes));
        }
        stats.max_bytes.set(gauge(self.state.setup.max_bytes));
    }

    /// Whether the write-ahead log is long enough to be copied into the file.
    pub(super) fn is_log_long(&self) -> Result<bool, StoreError> {
        let (frames, copied) = database::log_frames(&self.db)?;
        Ok(frames >= self.state.budget.checkpoint_frames() && frames > copied)
    }

    /// Bytes of the database in use, and of its log.
    fn bytes(&self) -> Result<u64, StoreError> {
        let pages = database::used_pages(&self.db)?;
        Ok(pages * database::PAGE_BYTES + self.state.budget.wal_bytes)
    }

    /// The last act: what a next start needs is brought together, and the log is copied into the file.
    pub(super) fn close(mut self) -> Result<(), StoreError> {
        let seq = self.state.seq + 1;
        self.state.snapshot_seq = 0;
        let tx = self.db.unchecked_transaction().doing("begin a transaction")?;
        self.state.journal_record(&tx, seq, Record::default())?;
        tx.commit().doing("commit")?;
        database::checkpoint(&self.db)
    }
}

/// A bucket that was put aside before, and its segment was not deleted in time, is no second letter.
fn forget_known(db: &Connection, letters: &mut Vec<&DeadLetter>) -> Result<(), StoreError> {
    let mut failed = None;
    letters.retain(|letter| {
        let known = letter.lost.is_some()
            && letters::is_known(db, letter).unwrap_or_else(|error| {
                failed = Some(error);
                false
            });
        !known
    });
    failed.map_or(Ok(()), Err)
}

/// The samples of a bucket that goes to the dead letters are in the ledger from then on.
fn put_aside(db: &Connection, state: &mut State, letter: &DeadLetter) -> Result<(), StoreError> {
    let Some(lost) = &letter.lost else { return Ok(()) };
    let samples = segment::take_out(db, lost.segment, lost.samples.into())?;
    state.accounts.lost(samples);
    // None, although it held some: its segment is gone, and they stand in the ledger as evicted.
    if samples > 0 || lost.samples == 0 {
        let sensor = lost.sensor.as_ref().and_then(|sensor| state.names.known_sensor(sensor));
        state.losses.add(sensor, lost.reason, Loss { first: lost.first, last: lost.last, samples });
    }
    Ok(())
}
