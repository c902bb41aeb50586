//! What the store keeps in memory: a mirror of the disk that is thrown away and read back whenever a commit fails.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use rusqlite::Connection;

use super::accounts::Accounts;
use super::calendar::Calendar;
use super::database::Budget;
use super::engine::{Count, Report, Setup};
use super::held::{Held, latest_due};
use super::journal::Journal;
use super::kept::Kept;
use super::lazy::Lazy;
use super::ledger::{Ledger, Losses};
use super::names::Names;
use super::quarantine::Aside;
use super::record::{Frozen, Record};
use super::redelivery::{Redelivery, Trace};
use super::reserve::Reserve;
use super::segment::{Packed, Packer};
use super::waiting::TurnedAwayLoss;
use super::{Delivery, StoreError, frame, recovery, segment};
use crate::clock::{Moment, WhenUnsynced};
use crate::model::bucketer::{Arrival, BucketKey, Bucketer, Closed, Pushed, held_series};
use crate::model::codec::Row;
use crate::model::{BucketPolicy, ClockState, LossReason, Reading, Sample, Timestamp};

/// Records after which the snapshot is written anew.
const SNAPSHOT_RECORDS: u64 = 512;

/// A journal that takes no more than this share of the log does not give up any of it.
const LEAST_JOURNAL: u64 = 8;

/// The finest step of time there is.
const TICK: Duration = Duration::from_millis(1);
/// How far a stamp may be moved from the arrival: beyond it a flood of one value counts as repetition.
const MAX_DRIFT: Duration = Duration::from_secs(1);

/// Everything in memory that mirrors the database.
#[derive(Debug)]
pub(super) struct State {
    pub setup: Setup,
    pub budget: Budget,
    /// Pages that SQLite is held to.
    pub held_to: Cell<u64>,
    pub names: Names,
    pub bucketer: Bucketer,
    pub redelivery: Redelivery,
    pub journal: Journal,
    /// The number of the last record written.
    pub seq: u64,
    /// The last record that the snapshot includes.
    pub snapshot_seq: u64,
    pub next_segment: u64,
    /// Segments written and not delivered.
    pub backlog: Count,
    pub accounts: Accounts,
    /// Whether `accounts` began with the file: the first release kept none.
    pub has_accounts: bool,
    pub ledger: Ledger,
    pub reserve: Reserve,
    /// Room is short: the journal gives up what it can.
    pub is_tight: bool,
    /// Damaged files that were set aside.
    pub aside: Aside,
    /// What could not be read back, in words.
    pub damage: Vec<String>,
    /// What the next commit will put on record.
    pub losses: Losses,
    /// Sealed buckets that are not written.
    pub lazy: Lazy,
    /// What stays after its delivery.
    pub kept: Kept,
    /// Every segment up to this one is thinned.
    pub thinned_until: u64,
    /// Where spilled buckets lie.
    pub spills: HashMap<BucketKey, i64>,
    pub next_spill: i64,
    /// How the clock stands; `None` until it was told, and then every time is believed.
    pub moment: Option<Moment>,
    pub calendar: Calendar,
    /// The calendar says what the disk does not.
    pub calendar_is_new: bool,
    pub held: Held,
    /// The time last given to a reading that met its equal, by series: what comes after it must not go before it.
    pub stamps: HashMap<u32, Timestamp, foldhash::fast::RandomState>,
}

impl State {
    /// Puts deliveries into buckets; what must be remembered of their messages.
    pub(super) fn apply(&mut self, deliveries: &[Delivery], now: Timestamp, report: &mut Report) -> Vec<Trace> {
        let mut traces = Vec::new();
        let mut row = Row::default();
        for delivery in deliveries {
            if let Some(origin) = &delivery.origin {
                if self.redelivery.is_repeat(origin) {
                    report.redelivered += 1;
                    continue;
                }
                traces.extend(self.redelivery.remember(origin));
            }
            for reading in &delivery.readings {
                self.push(reading, &mut row, delivery.stamped, now, report);
            }
            for refused in &delivery.refused {
                self.refuse(self.names.known_sensor(&refused.sensor), refused.reason, refused.at);
            }
        }
        self.accounts.kept(report.readings);
        traces
    }

    /// Puts readings on record that could not wait for room.
    pub(super) fn turn_away(&mut self, readings: &[TurnedAwayLoss]) {
        for (sensor, loss) in readings {
            let sensor = sensor.as_ref().and_then(|sensor| self.names.known_sensor(sensor));
            self.losses.add(sensor, LossReason::StoreFull, *loss);
            self.accounts.refused(loss.samples);
        }
    }

    /// Something cannot be read back: it is told, and left out.
    pub(super) fn damaged(&mut self, words: String) {
        tracing::error!("{words}");
        self.damage.push(words);
    }

    /// Compares the accounts with what is there, once all of it is there.
    pub(super) fn settle_accounts(&mut self) {
        let known = self.has_accounts.then_some(self.accounts);
        self.accounts = Accounts::settle(known, self.accounts.stored, &self.ledger, &mut self.losses);
        self.has_accounts = true;
    }

    /// Counts what is stored: in segments, in packs that wait in memory, held in rows of their own, in open buckets.
    pub(super) fn count_stored(&mut self) {
        let open: u64 = self.bucketer.open_iter().map(|open| u64::from(open.count())).sum();
        self.accounts.stored = self.backlog.samples + self.lazy.samples() + self.held.samples + open;
    }

    /// A reading that is not kept.
    fn refuse(&mut self, sensor: Option<u32>, reason: LossReason, at: Timestamp) {
        self.losses.add_one(sensor, reason, at.plain());
        self.accounts.refused(1);
    }

    /// `row` is where the reading is put on its way: rows are too large to be handed around for each.
    fn push(&mut self, reading: &Reading, row: &mut Row, stamped: bool, now: Timestamp, report: &mut Report) {
        let policy = self.setup.policies.of(&reading.sensor);
        let Some(sensor) = self.names.sensor(&reading.sensor) else {
            return self.refuse(None, LossReason::TooManySensors, reading.at);
        };
        if !self.names.fill(row, reading, policy.decimals) {
            return self.refuse(Some(sensor), LossReason::TooManyFields, reading.at);
        }
        let (series, arrival) = self.arrival(sensor, row, stamped, now, report);
        let weight = Sample::bytes_of(&reading.fields);
        let arrived = row.at;
        if stamped && let Some(&last) = self.stamps.get(&series) {
            if last >= arrived && last.since(arrived) < MAX_DRIFT {
                row.at = last.plus(TICK);
                self.stamps.insert(series, row.at);
            } else {
                self.stamps.remove(&series);
            }
        }
        match place(&mut self.bucketer, policy, series, (row, weight), arrival, stamped) {
            Some(at) => {
                report.readings += 1;
                if stamped && at > arrived {
                    self.stamps.insert(series, at);
                }
            }
            None => report.duplicates += 1,
        }
    }

    /// Which series a row goes to, and how it arrived. A stamp of a clock that was not trusted becomes a plain time here.
    fn arrival(
        &self,
        sensor: u32,
        row: &mut Row,
        stamped: bool,
        now: Timestamp,
        report: &mut Report,
    ) -> (u32, Arrival) {
        let is_trusted = self.moment.as_ref().is_none_or(Moment::is_trusted);
        let usual = Arrival { comparable: is_trusted || stamped, in_order: stamped, ..Arrival::at(now) };
        if !row.at.is_unsynced() {
            return (sensor, usual);
        }
        row.at = row.at.plain();
        let stamp = Arrival { comparable: true, ..usual };
        if is_trusted {
            // It was under way when the clock became trusted.
            row.at = row.at.shifted(self.moment.as_ref().map_or(0, Moment::correction));
            report.restamped += 1;
            return (sensor, Arrival { clock: ClockState::Restamped, in_order: false, ..stamp });
        }
        let config = &self.setup.clock;
        match config.unsynced {
            WhenUnsynced::Hold => {
                (held_series(sensor), Arrival { latest_due: latest_due(now, config.hold_for), ..stamp })
            }
            WhenUnsynced::Flag => {
                report.unsynced += 1;
                (sensor, Arrival { clock: ClockState::Unsynced, ..stamp })
            }
        }
    }

    /// What the record `seq` will say, and the segments to be written of the buckets that are closed in it. Touches no
    /// disk.
    pub(super) fn plan(
        &mut self,
        seq: u64,
        traces: Vec<Trace>,
        now: Timestamp,
        report: &mut Report,
    ) -> Result<(Record, Vec<Packed>), StoreError> {
        let step = self.bucketer.step(seq).map_err(StoreError::damaged("open bucket"))?;
        let mut record = Record { traces, groups: step.groups, ..Record::default() };
        let (mut packer, mut held) = (Packer::default(), Packer::default());
        let mut segments = Vec::new();
        let lazy = self.lazy.wants();
        let first_seq = step.closed.iter().map(Closed::first_seq).min().unwrap_or(seq);
        for closed in step.closed {
            if !lazy || closed.key().is_held() {
                record.seals.push(closed.key());
            }
            let sealed = self.bucketer.seal(closed).map_err(StoreError::damaged("open bucket"))?;
            if sealed.key.is_held() {
                self.held.fresh.extend(held.add(&sealed));
                continue;
            }
            report.sealed += 1;
            report.late += u64::from(sealed.late);
            segments.extend(packer.add(&sealed));
        }
        segments.extend(packer.finish());
        if lazy {
            for packed in segments.drain(..) {
                let id = self.next_segment;
                self.next_segment += 1;
                record.frozen.push(Frozen { id, keys: packed.keys.clone() });
                self.lazy.freeze(id, packed, first_seq, now);
            }
        }
        self.held.fresh.extend(held.finish());
        record.seals.extend(step.gone);
        Ok((record, segments))
    }

    /// Writes the record, and what must be written beside it so that old records can go; the lowest record that is needed
    /// then.
    pub(super) fn journal_record(&mut self, tx: &Connection, seq: u64, mut record: Record) -> Result<u64, StoreError> {
        record.next_segment = self.next_segment;
        record.backlog = self.backlog.buckets;
        record.accounts = Some(Accounts { stored: self.backlog.samples, ..self.accounts });
        record.segments = Some(self.backlog.segments);
        self.forget_spills(tx, record.seals.iter())?;
        // A journal longer than the log is held back by slow sensors: their open buckets are kept elsewhere.
        if let Some(horizon) = self.horizon() {
            for key in self.bucketer.spill_before(horizon, seq) {
                let Some(open) = self.bucketer.find(key) else { continue };
                self.next_spill += 1;
                recovery::store_spill(tx, self.next_spill, open, &self.bucketer.blocks(open), seq)?;
                if let Some(old) = self.spills.insert(key, self.next_spill) {
                    recovery::delete_spill(tx, old)?;
                }
            }
            self.snapshot_seq = 0;
        }
        if self.snapshot_seq == 0 || seq - self.snapshot_seq >= SNAPSHOT_RECORDS {
            recovery::store_snapshot(tx, seq, self)?;
            self.snapshot_seq = seq;
        }
        let low = self.low(seq);
        self.journal.write(tx, seq, low, &frame::seal(&record.encode()))?;
        Ok(low)
    }

    /// How long the journal may be while room is short.
    pub(super) const fn least_journal(&self) -> u64 {
        self.budget.wal_bytes / LEAST_JOURNAL
    }

    /// Settles a segment, wherever it is; with the time, what is to be kept of it is kept.
    pub(super) fn settle(
        &mut self,
        tx: &Connection,
        id: u64,
        record: &mut Record,
        keep: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        match self.lazy.take(id) {
            Some(held) => {
                record.gone.push(id);
                self.accounts.delivered(held.samples());
                if let Some(now) = keep {
                    self.kept.take_pack(tx, id, &held.packed, now)?;
                }
                self.forget_spills(tx, held.packed.keys.iter().map(|(key, _)| key))
            }
            None => {
                if let Some(now) = keep {
                    self.kept.take_row(tx, id, &self.names, now)?;
                }
                let deleted = segment::delete(tx, id)?;
                self.backlog.deleted(deleted);
                self.accounts.delivered(deleted.map_or(0, |(_, samples)| samples));
                Ok(())
            }
        }
    }

    /// Writes packs that wait in memory.
    pub(super) fn write_lazy(&mut self, tx: &Connection, ids: &[u64], record: &mut Record) -> Result<(), StoreError> {
        for &id in ids {
            let Some(held) = self.lazy.take(id) else { continue };
            if segment::insert(tx, id, &held.packed)? {
                self.backlog.inserted(held.packed.buckets(), held.packed.samples.into());
                self.backlog.lost(segment::take_out(tx, id, held.aside)?);
            }
            self.thinned_until = self.thinned_until.min(id - 1);
            record.gone.push(id);
            self.forget_spills(tx, held.packed.keys.iter().map(|(key, _)| key))?;
        }
        Ok(())
    }

    /// Records below this one are about to go, if the journal is longer than the log: slow sensors hold it back. So are
    /// they when the journal must give up room.
    pub(super) fn horizon(&self) -> Option<u64> {
        let most = if self.is_tight { self.least_journal() } else { self.budget.wal_bytes };
        if self.journal.live_bytes() > most { self.journal.middle() } else { None }
    }

    fn forget_spills<'a>(
        &mut self,
        tx: &Connection,
        mut keys: impl Iterator<Item = &'a BucketKey>,
    ) -> Result<(), StoreError> {
        keys.try_for_each(|key| self.spills.remove(key).map_or(Ok(()), |id| recovery::delete_spill(tx, id)))
    }

    /// The lowest record that is still needed once `seq` is written.
    fn low(&self, seq: u64) -> u64 {
        let needed = self.bucketer.first_seq().into_iter().chain(self.lazy.first_seq()).min();
        needed.unwrap_or(u64::MAX).min(self.snapshot_seq + 1).min(seq + 1)
    }
}

/// Puts a row into its bucket; the time it has there, `None` if it is there already. Another reading of the same value,
/// stamped in the same millisecond, gets the next one that is free.
pub(super) fn place(
    bucketer: &mut Bucketer,
    policy: &BucketPolicy,
    series: u32,
    (row, weight): (&mut Row, u32),
    arrival: Arrival,
    stamped: bool,
) -> Option<Timestamp> {
    let first = row.at;
    loop {
        let at = row.at;
        match bucketer.push(series, row, weight, policy, arrival) {
            Pushed::Kept => return Some(at),
            Pushed::Duplicate if stamped && at.since(first) < MAX_DRIFT => row.at = at.plus(TICK),
            Pushed::Duplicate => return None,
        }
    }
}
