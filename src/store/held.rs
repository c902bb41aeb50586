//! Held samples: stamped before the clock was trusted, and kept back until their times can be put right.
//!
//! They lie in open held buckets and, once those are closed, in rows of the table `held`, which nobody draws. Each commit
//! releases a bounded piece of them into ordinary buckets: moved by the boot's correction once that is known, unmoved and
//! marked as unsynced when it never will be (another boot, `hold_for` is over, or the site file says so). A piece leaves
//! where it was held and enters its buckets in one transaction, so a kill neither loses nor doubles a sample.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::engine::Report;
use super::error::Doing;
use super::ledger::Loss;
use super::segment::{self, Packed};
use super::state::{State, place};
use super::{SegmentId, StoreError, schema};
use crate::clock::{Moment, WhenUnsynced};
use crate::model::bucketer::{Arrival, BucketKey, sensor_of};
use crate::model::codec::Row;
use crate::model::{ClockState, LossReason, Timestamp};

/// Samples of open held buckets that are released in one commit, about: a row of `held` holds as many.
const RELEASE_SAMPLES: usize = 20_000;
/// Open held buckets that are released in one commit.
const RELEASE_BUCKETS: usize = 64;

/// What is held in the table.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub rows: u64,
    pub samples: u64,
    /// The number of the last row.
    last_id: i64,
    /// The row that is released next.
    oldest: Option<Oldest>,
    /// Rows of this commit.
    pub fresh: Vec<Packed>,
}

#[derive(Clone, Copy, Debug)]
struct Oldest {
    id: i64,
    boot: u64,
    loss: Loss,
}

/// What a commit releases.
#[derive(Debug)]
pub(super) enum Release {
    /// Open held buckets.
    Open,
    /// A row, which is to be deleted.
    Row,
    /// A row that cannot be read: what it held is lost.
    Damaged,
}

impl Held {
    /// Looks at the table; when its latest sample was.
    pub(super) fn load(db: &Connection) -> Result<(Self, Timestamp), StoreError> {
        if !schema::has(db, "held")? {
            return Ok((Self::default(), Timestamp::EPOCH));
        }
        let sql = "SELECT count(*), coalesce(sum(samples), 0), coalesce(max(id), 0), coalesce(max(last), 0) FROM held";
        let (mut held, last) = db
            .query_row(sql, [], |row| {
                let held = Self { rows: row.get(0)?, samples: row.get(1)?, last_id: row.get(2)?, ..Self::default() };
                Ok((held, Timestamp::clamped(row.get(3)?)))
            })
            .doing("count what is held")?;
        held.find_oldest(db)?;
        Ok((held, last))
    }

    /// The highest boot of which something is held.
    pub(super) fn last_boot(db: &Connection) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(max(boot), 0) FROM held";
        db.query_row(sql, [], |row| row.get(0)).doing("find the last boot")
    }

    /// Whether anything of a boot is held.
    fn has_boot(db: &Connection, boot: u64) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM held WHERE boot = ?1)";
        db.query_row(sql, [boot], |row| row.get(0)).doing("look for a boot")
    }

    /// Writes the fresh rows.
    pub(super) fn insert_fresh(&mut self, db: &Connection, boot: u64) -> Result<(), StoreError> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let sql =
            "INSERT INTO held (id, boot, buckets, samples, first, last, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let mut insert = db.prepare_cached(sql).doing("store what is held")?;
        for packed in std::mem::take(&mut self.fresh) {
            self.last_id += 1;
            self.rows += 1;
            self.samples += u64::from(packed.samples);
            let (first, last) = (packed.first.as_millis(), packed.last.as_millis());
            insert
                .execute(params![self.last_id, boot, packed.buckets(), packed.samples, first, last, packed.seal()])
                .doing("store what is held")?;
        }
        self.find_oldest(db)
    }

    /// Deletes the row that was released, or given up.
    pub(super) fn delete_oldest(&mut self, db: &Connection) -> Result<Option<Loss>, StoreError> {
        let Some(Oldest { id, loss, .. }) = self.oldest.take() else { return Ok(None) };
        let mut delete = db.prepare_cached("DELETE FROM held WHERE id = ?1").doing("delete what was held")?;
        delete.execute([id]).doing("delete what was held")?;
        self.rows = self.rows.saturating_sub(1);
        self.samples = self.samples.saturating_sub(loss.samples);
        self.find_oldest(db)?;
        Ok(Some(loss))
    }

    fn find_oldest(&mut self, db: &Connection) -> Result<(), StoreError> {
        let sql = "SELECT id, boot, samples, first, last FROM held ORDER BY id LIMIT 1";
        let mut select = db.prepare_cached(sql).doing("find what is held longest")?;
        let oldest = select.query_row([], |row| {
            let time = |i| Ok::<_, rusqlite::Error>(Timestamp::clamped(row.get(i)?));
            let loss = Loss { first: time(3)?, last: time(4)?, samples: row.get(2)? };
            Ok(Oldest { id: row.get(0)?, boot: row.get(1)?, loss })
        });
        self.oldest = oldest.optional().doing("find what is held longest")?;
        Ok(())
    }
}

impl State {
    /// Whether a commit at that moment will release something.
    pub(super) fn is_releasing(&self, moment: &Moment) -> bool {
        let (boot, first) = match &self.held.oldest {
            Some(row) => (row.boot, row.loss.first),
            None if self.bucketer.held_buckets() > 0 => (self.calendar.number, Timestamp::LAST),
            None => return false,
        };
        let is_news = moment.is_trusted() || self.calendar.is_another(moment);
        is_news || self.verdict(moment, boot, first).is_some()
    }

    /// Now, if that is believed: nothing grows old by a clock that is not trusted.
    pub(super) fn believed(&self, now: Timestamp) -> Timestamp {
        if self.moment.as_ref().is_none_or(Moment::is_trusted) { now } else { Timestamp::EPOCH }
    }

    /// Writes what is newly held, and what is new about the clock.
    pub(super) fn note_held(&mut self, tx: &Connection) -> Result<(), StoreError> {
        self.held.insert_fresh(tx, self.calendar.number)?;
        if self.calendar_is_new {
            self.calendar.save(tx)?;
            self.calendar_is_new = false;
        }
        Ok(())
    }

    /// How many samples are held.
    pub(super) fn held_samples(&self) -> u64 {
        if self.bucketer.held_buckets() == 0 {
            return self.held.samples;
        }
        let open = self.bucketer.open_iter().filter(|open| open.key.is_held());
        self.held.samples + open.map(|open| u64::from(open.count())).sum::<u64>()
    }

    /// Moves a piece of what is held into ordinary buckets, in memory.
    pub(super) fn release(&mut self, db: &Connection, report: &mut Report) -> Result<Option<Release>, StoreError> {
        let Some(moment) = self.moment.clone() else { return Ok(None) };
        let Some(row) = self.held.oldest else { return self.release_open(&moment, report) };
        let Some((clock, shift)) = self.verdict(&moment, row.boot, row.loss.first) else { return Ok(None) };
        let mut select = db.prepare_cached("SELECT data FROM held WHERE id = ?1").doing("read what is held")?;
        let data: Vec<u8> = select.query_row([row.id], |row| row.get(0)).doing("read what is held")?;
        let rows = segment::open(SegmentId(0), data, &self.names.reader()).and_then(|parcel| {
            let rows = parcel.buckets.iter().map(|bucket| bucket.0.rows()).collect::<Result<Vec<_>, _>>();
            rows.map_err(StoreError::damaged(format!("held row {}", row.id)))
        });
        match rows {
            Ok(buckets) => {
                for (key, rows) in buckets {
                    self.restamp(key, rows, clock, shift, report);
                }
                Ok(Some(Release::Row))
            }
            Err(damage) => {
                tracing::error!("{damage}: {} samples that were held are lost", row.loss.samples);
                Ok(Some(Release::Damaged))
            }
        }
    }

    /// Completes a release in the transaction that holds it.
    pub(super) fn settle_release(&mut self, tx: &Connection, release: &Release) -> Result<(), StoreError> {
        let boot = self.held.oldest.map(|row| row.boot);
        if matches!(release, Release::Open) {
            return Ok(());
        }
        let loss = self.held.delete_oldest(tx)?;
        if let (Release::Damaged, Some(loss)) = (release, loss) {
            self.accounts.lost(loss.samples);
            self.losses.add(None, LossReason::Damaged, loss);
        }
        if let Some(boot) = boot.filter(|boot| *boot != self.calendar.number)
            && !Held::has_boot(tx, boot)?
        {
            self.calendar.forget(|number| number != boot);
            self.calendar.save(tx)?;
        }
        Ok(())
    }

    /// Open held buckets are of this boot. By its age alone none is released: it is due before.
    fn release_open(&mut self, moment: &Moment, report: &mut Report) -> Result<Option<Release>, StoreError> {
        if self.bucketer.held_buckets() == 0 {
            return Ok(None);
        }
        let verdict = self.verdict(moment, self.calendar.number, Timestamp::LAST);
        let Some((clock, shift)) = verdict else { return Ok(None) };
        let before = report.restamped + report.unsynced;
        for closed in self.bucketer.take_held(RELEASE_BUCKETS, RELEASE_SAMPLES) {
            let sealed = self.bucketer.seal(closed).map_err(StoreError::damaged("held bucket"))?;
            self.restamp(sealed.key, sealed.rows, clock, shift, report);
        }
        Ok((report.restamped + report.unsynced > before).then_some(Release::Open))
    }

    /// How what is held of a boot, from `first` on, is released: marked how, and moved by how much. `None`: not yet.
    fn verdict(&self, moment: &Moment, boot: u64, first: Timestamp) -> Option<(ClockState, i64)> {
        if let Some(correction) = self.calendar.correction(boot) {
            return Some((ClockState::Restamped, correction));
        }
        let config = &self.setup.clock;
        let is_over = first.plus(config.hold_for) < moment.steady;
        let is_given_up = boot != self.calendar.number || config.unsynced == WhenUnsynced::Flag || is_over;
        is_given_up.then_some((ClockState::Unsynced, 0))
    }

    fn restamp(&mut self, key: BucketKey, rows: Vec<Row>, clock: ClockState, shift: i64, report: &mut Report) {
        let Some(now) = self.moment.as_ref().map(|moment| moment.now) else { return };
        let names = self.names.reader();
        let sensor = sensor_of(key.sensor);
        let policy = names.sensor(sensor).map_or(&self.setup.policies.default, |name| self.setup.policies.of(&name));
        let arrival = Arrival { clock, comparable: clock < ClockState::Unsynced, ..Arrival::at(now) };
        match clock {
            ClockState::Unsynced => report.unsynced += rows.len() as u64,
            _ => report.restamped += rows.len() as u64,
        }
        for mut row in rows {
            row.at = row.at.shifted(shift);
            let weight = names.weight(&row);
            if place(&mut self.bucketer, policy, sensor, (&mut row, weight), arrival, true).is_none() {
                self.accounts.was_duplicate();
            }
        }
    }
}

/// How long an open held bucket lives at most: as long as its samples may be held.
pub(super) fn latest_due(now: Timestamp, hold_for: Duration) -> Option<Timestamp> {
    Some(now.plus(hold_for))
}
