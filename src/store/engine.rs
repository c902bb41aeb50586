//! The store's working part: applies batches to memory and writes each as one transaction. Runs on a blocking thread.
//!
//! One recovery for everything: when a commit fails, memory is thrown away and read back from disk, exactly as after a
//! power cut ([`Engine::open`]); the batch is then applied again. So memory never runs ahead of the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::blocks::Blocks;
use super::error::Doing;
use super::held::Held;
use super::lazy::Pool;
use super::ledger::REASONS;
use super::quarantine::Salvage;
use super::quota::Fill;
use super::record::Record;
use super::room::Room;
use super::schema::META_SALVAGE;
use super::state::State;
use super::waiting::TurnedAwayLoss;
use super::wear::Wear;
use super::{
    Delivery, Order, SegmentId, Settled, StoreError, WhenFull, aside, database, letters, orders, quota, recovery,
    segment,
};
use crate::clock::{self, Known, Moment};
use crate::model::{Policies, SiteName, Timestamp};
use crate::stats::StoreStats;

/// Most buckets sealed in one commit: thousands of sensors share a window's end, and a commit must stay short.
const MAX_SEALS: usize = 512;
/// Memory for the samples in open buckets above which the largest are sealed: ten thousand sensors with some 90 samples
/// each.
const MAX_OPEN_BYTES: usize = 2 << 20;
/// By how much the clock must go back to count as set: less is the kernel's own adjustment.
const STEP_BACK: Duration = Duration::from_secs(1);
/// What the engine needs to know.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub site: SiteName,
    pub path: PathBuf,
    pub max_bytes: u64,
    /// Bytes of the budget beyond that, for files beside the database.
    pub beside: u64,
    pub when_full: WhenFull,
    pub max_sensors: usize,
    pub clock: clock::Config,
    pub policies: Policies,
    pub blocks: Arc<Blocks>,
    /// How long a sealed bucket may wait in memory while the upstream takes what it is sent.
    pub write_behind: Duration,
    /// Where it waits.
    pub pool: Pool,
    /// How long buckets, and their rollups, are kept after their delivery.
    pub keep: (Duration, Duration),
}

/// Everything one commit takes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub deliveries: Vec<Delivery>,
    pub settled: Vec<Settled>,
    /// There is no room: only delete what is settled, and put on record what is lost.
    pub only_settle: bool,
    /// Readings that could not wait for room any longer, of sources that cannot send again.
    pub turned_away: Vec<TurnedAwayLoss>,
    /// What an operator orders about dead letters.
    pub orders: Vec<Order>,
    /// Segments that cannot be read, and why.
    pub broken: Vec<(SegmentId, String)>,
}

impl Batch {
    /// Whether it orders nothing but readings.
    fn is_quiet(&self) -> bool {
        self.settled.is_empty() && self.broken.is_empty() && self.orders.is_empty()
    }
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
    /// Bytes written to the card.
    pub written: u64,
    /// Samples whose times were put right.
    pub restamped: u64,
    /// Samples that went into unsynced buckets.
    pub unsynced: u64,
}

/// Sealed buckets that are not yet delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub segments: u64,
    pub buckets: u64,
    /// Samples in them that are still there as samples.
    pub samples: u64,
}

impl Report {
    /// What making room did beforehand.
    pub(super) fn join(&mut self, made: Self) {
        self.thinned += made.thinned;
        self.evicted += made.evicted;
        self.lost.iter_mut().zip(made.lost).for_each(|(lost, more)| *lost += more);
    }
}

impl Count {
    pub(super) fn inserted(&mut self, buckets: u32, samples: u64) {
        self.segments += 1;
        self.buckets += u64::from(buckets);
        self.samples += samples;
    }

    /// `None`: the segment was not there.
    pub(super) fn deleted(&mut self, deleted: Option<(u32, u64)>) {
        let (buckets, samples) = deleted.unwrap_or_default();
        self.segments = self.segments.saturating_sub(u64::from(deleted.is_some()));
        self.buckets = self.buckets.saturating_sub(buckets.into());
        self.lost(samples);
    }

    /// Samples went, and their segment stayed.
    pub(super) const fn lost(&mut self, samples: u64) {
        self.samples = self.samples.saturating_sub(samples);
    }
}

/// The open database, and what of it is in memory.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) db: Connection,
    pub(super) state: State,
    /// What its commits write.
    pub(super) wear: Wear,
    pub(super) sound: bool,
    /// What making room did that was not enough, and is not told yet.
    pub(super) made: Report,
    /// When a commit found no room although there seemed to be some, and until when that is believed.
    pub(super) full: Option<(Fill, Timestamp)>,
}

impl Engine {
    /// An engine whose memory is what the database says.
    pub(super) fn new(db: Connection, state: State, wear: Wear) -> Self {
        Self { db, state, wear, sound: true, made: Report::default(), full: None }
    }

    /// Applies a batch and writes it. Afterwards it is on disk. On an error what it brings is not; then this engine is of
    /// no use, unless it [is sound](Self::is_sound): it found no room before it began.
    pub(super) fn commit(&mut self, batch: &Batch, now: Timestamp) -> Result<Report, StoreError> {
        self.sound = false;
        let room = if batch.only_settle { Some(self.room()?) } else { self.find_room(batch, now)? };
        let Some(room) = room else {
            self.sound = true;
            return Err(StoreError::Full { doing: "take readings".to_owned() });
        };
        let mut report = self.write_in(room, batch, now, false)?;
        report.join(std::mem::take(&mut self.made));
        Ok(report)
    }

    /// One transaction; `wants_room`: also if there is nothing to write but room to be made.
    pub(super) fn write(&mut self, batch: &Batch, now: Timestamp, wants_room: bool) -> Result<Report, StoreError> {
        let room = self.room()?;
        self.write_in(room, batch, now, wants_room)
    }

    fn write_in(&mut self, room: Room, batch: &Batch, now: Timestamp, wants_room: bool) -> Result<Report, StoreError> {
        self.sound = false;
        self.state.is_tight = wants_room || room.fill.is_tight();
        let mut report = Report::default();
        let (mut release, mut overdue) = (None, Vec::new());
        if !batch.only_settle {
            self.state.bucketer.close_due(now, MAX_SEALS);
            self.state.bucketer.close_largest(MAX_OPEN_BYTES);
            release = self.state.release(&self.db, &mut report)?;
            overdue = self.state.lazy.overdue(now, self.state.horizon());
        }
        let traces = self.state.apply(&batch.deliveries, now, &mut report);
        self.state.turn_away(&batch.turned_away);
        let letters = batch.deliveries.iter().flat_map(|d| &d.dead_letters);
        let mut letters: Vec<_> = letters.chain(batch.settled.iter().flat_map(|s| &s.dead_letters)).collect();
        aside::forget_known(&self.db, &mut letters)?;
        report.dead_letters = letters.len() as u64;
        let quiet = traces.is_empty() && self.state.losses.is_empty() && !self.state.bucketer.has_news();
        let quiet = quiet && release.is_none() && overdue.is_empty() && letters.is_empty() && batch.is_quiet();
        if quiet && !(wants_room && quota::can_make_room(&self.state)) {
            self.sound = true;
            return Ok(report);
        }
        let seq = self.state.seq + 1;
        let (mut record, segments) = self.state.plan(seq, traces, now, &mut report)?;

        let tx = self.db.unchecked_transaction().doing("begin a transaction")?;
        // Deleting first lets the new rows use the room.
        for letter in &letters {
            aside::put_aside(&tx, &mut self.state, letter)?;
        }
        let broken = aside::take_broken(&tx, &mut self.state, &batch.broken, now)?;
        letters.extend(&broken);
        for id in batch.settled.iter().flat_map(|settled| &settled.segments) {
            self.state.settle(&tx, id.0, &mut record, (!batch.only_settle).then_some(now))?;
        }
        if let Some(release) = &release {
            self.state.settle_release(&tx, release)?;
        }
        batch.orders.iter().try_for_each(|order| orders::carry_out(&tx, &mut self.state, *order))?;
        let believed = self.state.believed(now);
        self.state.kept.make_room(&tx, room.budget, believed)?;
        (report.thinned, report.evicted) = quota::make_room(&tx, &mut self.state, room.budget)?;
        self.state.names.save(&tx)?;
        self.state.write_lazy(&tx, &overdue, &mut record)?;
        for segment in &segments {
            segment::insert(&tx, self.state.next_segment, segment)?;
            self.state.next_segment += 1;
            self.state.backlog.inserted(segment.buckets(), segment.samples.into());
        }
        self.state.note_held(&tx)?;
        if !batch.only_settle {
            self.state.kept.write(&tx, now, false)?;
        }
        let losses = std::mem::take(&mut self.state.losses);
        report.lost = losses.totals();
        self.state.ledger.record(&tx, &losses, now)?;
        letters::store(&tx, &letters, self.state.budget)?;
        let low = self.state.journal_record(&tx, seq, record)?;
        tx.commit().doing("commit")?;
        self.state.names.saved();
        self.state.seq = seq;
        self.state.journal.trim(low);
        self.state.lazy.publish();
        report.committed = true;
        self.sound = true;
        Ok(report)
    }

    /// Tells how the clock stands, before each commit. In a new boot what the last one left open is closed first: it is on
    /// another line of time.
    pub(super) fn take_moment(&mut self, moment: &Moment) -> Result<(), StoreError> {
        if self.state.calendar.is_another(moment) {
            while self.state.bucketer.held_buckets() > 0 {
                self.state.bucketer.close_held(MAX_SEALS);
                self.commit(&Batch::default(), moment.now)?;
            }
            self.state.calendar.number = self.state.calendar.number.max(Held::last_boot(&self.db)?);
            self.state.calendar.turn(moment);
            self.state.calendar_is_new = true;
        }
        let before = self.state.moment.replace(moment.clone());
        let last = before.as_ref().map_or(self.state.calendar.said, |before| before.now);
        let stepped = last > moment.now.plus(STEP_BACK);
        if stepped || before.is_none() {
            let State { bucketer, setup, names, .. } = &mut self.state;
            bucketer.turn_back(moment.now, stepped, |sensor| recovery::policy_of(setup, names, sensor).grace);
        }
        self.state.calendar_is_new |= self.state.calendar.note(moment);
        Ok(())
    }

    /// What is known of the clock from earlier runs.
    pub(super) fn known(&self) -> Known {
        self.state.calendar.known.clone()
    }

    /// Whether the next commit will release what was held.
    pub(super) fn is_releasing(&self, moment: &Moment) -> bool {
        self.state.is_releasing(moment)
    }

    /// When the next bucket is due to be sealed, or a sealed one to be written.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.state.bucketer.next_due().into_iter().chain(self.state.lazy.next_due()).min()
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

    /// Segments of a damaged file may still come back: later ones bear higher numbers, and the accounts wait for them.
    pub(super) fn await_salvage(&mut self, salvage: &Salvage) {
        self.state.next_segment = self.state.next_segment.max(salvage.last_segment() + 1);
        self.state.aside.is_busy = true;
    }

    /// Counts anew what waits, after rows came back, and puts it on record.
    pub(super) fn recount(&mut self) -> Result<(), StoreError> {
        self.state.backlog = segment::count(&self.db)?;
        self.state.held = Held::load(&self.db)?.0;
        self.state.count_stored();
        self.state.settle_accounts();
        let seq = self.state.seq + 1;
        let tx = self.db.unchecked_transaction().doing("begin a transaction")?;
        let low = self.state.journal_record(&tx, seq, Record::default())?;
        tx.execute("DELETE FROM meta WHERE id = ?1", [META_SALVAGE]).doing("note that all segments are back")?;
        tx.commit().doing("commit")?;
        self.state.seq = seq;
        self.state.journal.trim(low);
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
        let accounts = &self.state.accounts;
        stats.accepted.set(gauge(accounts.accepted));
        stats.delivered.set(gauge(accounts.delivered));
        stats.stored.set(gauge(accounts.stored));
        for (lost, total) in stats.lost.iter().zip(self.state.ledger.totals()) {
            lost.set(gauge(*total));
        }
        stats.held.set(gauge(self.state.held_samples()));
        self.tell_backlog(stats);
        stats.max_bytes.set(gauge(self.state.setup.max_bytes + self.state.setup.beside));
    }

    /// Tells how much waits for delivery.
    pub(super) fn tell_backlog(&self, stats: &StoreStats) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let (rows, lazy) = (self.state.backlog, self.state.lazy.waiting());
        stats.backlog_segments.set(gauge(rows.segments + lazy.segments));
        stats.backlog_buckets.set(gauge(rows.buckets + lazy.buckets));
    }

    /// Whether the write-ahead log is long enough to be copied into the file.
    pub(super) fn is_log_long(&mut self) -> Result<bool, StoreError> {
        let (frames, copied) = database::log_frames(&self.db)?;
        self.wear.committed(frames);
        Ok(frames >= self.state.budget.checkpoint_frames() && frames > copied)
    }

    /// The last act: what a next start needs is brought together, and the log is copied into the file.
    pub(super) fn close(mut self) -> Result<(), StoreError> {
        let waiting = self.state.lazy.all();
        match self.write_last(&waiting) {
            // Without room, what waits in memory stays in the journal.
            Err(StoreError::Full { .. }) if !waiting.is_empty() => {
                let mut again = recovery::recover(self.state.setup.clone(), &self.state.names.reader())?;
                again.write_last(&[])?;
                database::checkpoint(&again.db)
            }
            done => done.and_then(|()| database::checkpoint(&self.db)),
        }
    }

    fn write_last(&mut self, waiting: &[u64]) -> Result<(), StoreError> {
        let seq = self.state.seq + 1;
        let mut record = Record::default();
        self.state.snapshot_seq = 0;
        let tx = self.db.unchecked_transaction().doing("begin a transaction")?;
        self.state.write_lazy(&tx, waiting, &mut record)?;
        self.state.kept.write(&tx, Timestamp::EPOCH, true)?;
        self.state.journal_record(&tx, seq, record)?;
        tx.commit().doing("commit")
    }
}
