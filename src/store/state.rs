//! What the store keeps in memory: a mirror of the disk that is thrown away and read back whenever a commit fails.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::Connection;

use super::accounts::Accounts;
use super::database::Budget;
use super::engine::{Count, Report, Setup};
use super::journal::Journal;
use super::ledger::{Ledger, Losses};
use super::names::Names;
use super::quarantine::Aside;
use super::record::Record;
use super::redelivery::{Redelivery, Trace};
use super::reserve::Reserve;
use super::segment::{Packed, Packer};
use super::waiting::TurnedAwayLoss;
use super::{Delivery, StoreError, frame, recovery};
use crate::model::bucketer::{BucketKey, Bucketer, Pushed};
use crate::model::{LossReason, Reading, Sample, Timestamp};

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
    pub names: Names,
    pub bucketer: Bucketer,
    pub redelivery: Redelivery,
    pub journal: Journal,
    /// The number of the last record written.
    pub seq: u64,
    /// The last record that the snapshot includes.
    pub snapshot_seq: u64,
    pub next_segment: u64,
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
    /// What the next commit will put on record.
    pub losses: Losses,
    /// Every segment up to this one is thinned.
    pub thinned_until: u64,
    /// Where spilled buckets lie.
    pub spills: HashMap<BucketKey, i64>,
    pub next_spill: i64,
    /// The time last given to a reading that met its equal, by sensor: what comes after it must not go before it.
    pub stamps: HashMap<u32, Timestamp, foldhash::fast::RandomState>,
}

impl State {
    /// Puts deliveries into buckets; what must be remembered of their messages.
    pub(super) fn apply(&mut self, deliveries: &[Delivery], now: Timestamp, report: &mut Report) -> Vec<Trace> {
        let mut traces = Vec::new();
        for delivery in deliveries {
            if let Some(origin) = &delivery.origin {
                if self.redelivery.is_repeat(origin) {
                    report.redelivered += 1;
                    continue;
                }
                traces.extend(self.redelivery.remember(origin));
            }
            for reading in &delivery.readings {
                self.push(reading, delivery.stamped, now, report);
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

    /// Compares the accounts with what is there, once all of it is there.
    pub(super) fn settle_accounts(&mut self) {
        let known = self.has_accounts.then_some(self.accounts);
        self.accounts = Accounts::settle(known, self.accounts.stored, &self.ledger, &mut self.losses);
        self.has_accounts = true;
    }

    /// Counts what is stored: so many samples in segments, and those in open buckets.
    pub(super) fn count_stored(&mut self, in_segments: u64) {
        let open = self.bucketer.open_iter().map(|open| u64::from(open.count()));
        self.accounts.stored = in_segments + open.sum::<u64>();
    }

    /// A reading that is not kept.
    fn refuse(&mut self, sensor: Option<u32>, reason: LossReason, at: Timestamp) {
        self.losses.add_one(sensor, reason, at);
        self.accounts.refused(1);
    }

    fn push(&mut self, reading: &Reading, stamped: bool, now: Timestamp, report: &mut Report) {
        let policy = self.setup.policies.of(&reading.sensor);
        let Some(sensor) = self.names.sensor(&reading.sensor) else {
            return self.refuse(None, LossReason::TooManySensors, reading.at);
        };
        let Some(mut row) = self.names.row(reading, policy.decimals) else {
            return self.refuse(Some(sensor), LossReason::TooManyFields, reading.at);
        };
        let weight = Sample::bytes_of(&reading.fields);
        let arrived = row.at;
        if stamped && let Some(&last) = self.stamps.get(&sensor) {
            if last >= arrived && last.since(arrived) < MAX_DRIFT {
                row.at = last.plus(TICK);
                self.stamps.insert(sensor, row.at);
            } else {
                self.stamps.remove(&sensor);
            }
        }
        loop {
            match self.bucketer.push(sensor, row, weight, policy, now) {
                Pushed::Kept => report.readings += 1,
                // Another reading of the same value, stamped in the same millisecond.
                Pushed::Duplicate(again) if stamped && again.at.since(arrived) < MAX_DRIFT => {
                    row = again;
                    row.at = row.at.plus(TICK);
                    self.stamps.insert(sensor, row.at);
                    continue;
                }
                Pushed::Duplicate(_) => report.duplicates += 1,
            }
            break;
        }
    }

    /// What the record `seq` will say, and the segments of the buckets that are closed in it. Touches no disk.
    pub(super) fn plan(
        &mut self,
        seq: u64,
        traces: Vec<Trace>,
        report: &mut Report,
    ) -> Result<(Record, Vec<Packed>), StoreError> {
        let step = self.bucketer.step(seq).map_err(StoreError::damaged("open bucket"))?;
        let mut record = Record { traces, groups: step.groups, ..Record::default() };
        let mut packer = Packer::default();
        let mut segments = Vec::new();
        for closed in step.closed {
            record.seals.push(closed.key());
            let sealed = closed.seal().map_err(StoreError::damaged("open bucket"))?;
            report.sealed += 1;
            report.late += u64::from(sealed.late);
            segments.extend(packer.add(&sealed));
        }
        segments.extend(packer.finish());
        Ok((record, segments))
    }

    /// Writes the record, and what must be written beside it so that old records can go.
    pub(super) fn journal_record(&mut self, tx: &Connection, seq: u64, mut record: Record) -> Result<(), StoreError> {
        record.next_segment = self.next_segment;
        record.backlog = self.backlog.buckets;
        record.accounts = Some(self.accounts);
        for key in &record.seals {
            if let Some(id) = self.spills.remove(key) {
                recovery::delete_spill(tx, id)?;
            }
        }
        // A journal longer than the log is held back by slow sensors: their open buckets are kept elsewhere.
        // So are they when the journal must give up room.
        let most = if self.is_tight { self.least_journal() } else { self.budget.wal_bytes };
        if self.journal.live_bytes() > most
            && let Some(horizon) = self.journal.middle()
        {
            for open in self.bucketer.spill_before(horizon, seq) {
                self.next_spill += 1;
                recovery::store_spill(tx, self.next_spill, open, seq)?;
                if let Some(old) = self.spills.insert(open.key, self.next_spill) {
                    recovery::delete_spill(tx, old)?;
                }
            }
            self.snapshot_seq = 0;
        }
        if self.snapshot_seq == 0 || seq - self.snapshot_seq >= SNAPSHOT_RECORDS {
            recovery::store_snapshot(tx, seq, self)?;
            self.snapshot_seq = seq;
        }
        self.journal.write(tx, seq, self.low(seq), &frame::seal(&record.encode()))
    }

    /// How long the journal may be while room is short.
    pub(super) const fn least_journal(&self) -> u64 {
        self.budget.wal_bytes / LEAST_JOURNAL
    }

    /// The lowest record that is still needed once `seq` is written.
    pub(super) fn low(&self, seq: u64) -> u64 {
        self.bucketer.first_seq().unwrap_or(u64::MAX).min(self.snapshot_seq + 1).min(seq + 1)
    }
}
