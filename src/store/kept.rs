//! What stays here after its delivery, for `tipbucket query`: whole segments for `keep_raw`, rollups for `keep_rollups`.
//!
//! Both lie in tables of their own, so that what waits for delivery is found and deleted as fast as without them. Rollups
//! are gathered in memory into rows of some 10 KiB and written with a commit that takes place anyway; a kill costs the
//! rollups of what was delivered within the last [`WAIT`], never anything undelivered. Everything here goes before
//! anything that is not delivered, as soon as the file is fuller than [`LIMIT_PERCENT`].

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::database::Budget;
use super::error::Doing;
use super::names::Names;
use super::pack::{self, Entry, Listed, Packed};
use super::pages::Pages;
use super::rollups::RowRollup;
use super::{Parcel, SegmentId, StoreError, frame, segment};
use crate::model::bucketer::BucketKey;
use crate::model::{Timestamp, varint};

/// Bytes of rollups that make a row: about 10 KiB once compressed.
const ROW_BYTES: usize = 24 << 10;
/// Longest time rollups wait for the rest of their row.
const WAIT: Duration = Duration::from_secs(600);
/// Share of the file's pages in use above which kept data goes, in percent: the rest is for what is not delivered.
const LIMIT_PERCENT: u64 = 60;
/// Most rows deleted in one commit.
const MAX_DELETES: usize = 16;

/// The tables, and what waits to be written to one of them.
#[derive(Debug, Default)]
pub(super) struct Kept {
    raw: Shelf,
    rollups: Shelf,
    /// Rollups as in a pack's head, without the count before them.
    pending: Vec<u8>,
    buckets: u64,
    previous: Option<BucketKey>,
    span: Option<(Timestamp, Timestamp)>,
    since: Option<Timestamp>,
}

/// One table.
#[derive(Debug, Default)]
struct Shelf {
    table: &'static str,
    keep: Duration,
    /// Its first row and that row's last instant; not known before the first look.
    oldest: Option<Option<(i64, Timestamp)>>,
}

impl Kept {
    pub(super) fn new(raw: Duration, rollups: Duration) -> Self {
        Self {
            raw: Shelf { table: "kept_segment", keep: raw, oldest: None },
            rollups: Shelf { table: "kept_rollup", keep: rollups, oldest: None },
            ..Self::default()
        }
    }

    /// A pack was delivered before it was written.
    pub(super) fn take_pack(
        &mut self,
        db: &Connection,
        id: u64,
        packed: &Packed,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if !self.raw.keep.is_zero() {
            let sql = "INSERT OR REPLACE INTO kept_segment (id, first, last, data) VALUES (?1, ?2, ?3, ?4)";
            let (first, last) = (packed.first.as_millis(), packed.last.as_millis());
            let mut insert = db.prepare_cached(sql).doing("keep a segment")?;
            insert.execute(params![id, first, last, packed.seal()]).doing("keep a segment")?;
            self.raw.oldest = None;
        }
        if !self.rollups.keep.is_zero() {
            let listed = packed.listed().map_err(StoreError::damaged(format!("segment {id}")))?;
            listed.iter().for_each(|listed| self.gather(listed, now));
        }
        Ok(())
    }

    /// A segment was delivered and is about to be deleted.
    pub(super) fn take_row(
        &mut self,
        db: &Connection,
        id: u64,
        names: &Names,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if !self.raw.keep.is_zero() {
            let sql = "INSERT OR REPLACE INTO kept_segment (id, first, last, data)
                       SELECT id, first, last, data FROM segment WHERE id = ?1";
            let mut insert = db.prepare_cached(sql).doing("keep a segment")?;
            insert.execute([id]).doing("keep a segment")?;
            self.raw.oldest = None;
        }
        if !self.rollups.keep.is_zero()
            && let Some(data) = segment::read(db, id)?
        {
            // What does not unpack became a dead letter; nothing is left of it to keep.
            let listed = pack::list(id, &data).unwrap_or_default();
            if listed.iter().all(|listed| !listed.rollup.is_empty()) {
                listed.iter().for_each(|listed| self.gather(listed, now));
            } else if let Ok(parcel) = pack::open(SegmentId(id), data, &names.reader()) {
                self.gather_unpacked(&listed, &parcel, names, now);
            }
        }
        Ok(())
    }

    /// Buckets whose rollup is not in front: thinned ones, and those of the first release.
    fn gather_unpacked(&mut self, listed: &[Listed], parcel: &Parcel, names: &Names, now: Timestamp) {
        for (listed, packed) in listed.iter().zip(&parcel.buckets) {
            let mut listed = listed.clone();
            if listed.rollup.is_empty() {
                let Some(rollup) = rollup_of(&packed.0, names) else { continue };
                rollup.encode(listed.key.window.start(), &mut listed.rollup);
            }
            self.gather(&listed, now);
        }
    }

    fn gather(&mut self, listed: &Listed, now: Timestamp) {
        pack::put_listed(&mut self.pending, listed, self.previous.as_ref());
        self.previous = Some(listed.key);
        self.buckets += 1;
        let (start, end) = (listed.key.window.start(), listed.key.window.end());
        let (from, to) = self.span.unwrap_or((start, end));
        self.span = Some((from.min(start), to.max(end)));
        self.since.get_or_insert(now);
    }

    /// Writes gathered rollups if they make a row, have waited long enough, or this is the end.
    pub(super) fn write(&mut self, db: &Connection, now: Timestamp, last: bool) -> Result<(), StoreError> {
        let waited = self.since.is_some_and(|since| now.since(since) >= WAIT || now < since);
        if !(self.pending.len() >= ROW_BYTES || waited || last) {
            return Ok(());
        }
        let Some((first, last)) = self.span.take() else { return Ok(()) };
        let mut payload = Vec::with_capacity(self.pending.len() + 4);
        varint::put(&mut payload, std::mem::take(&mut self.buckets));
        payload.append(&mut self.pending);
        (self.previous, self.since) = (None, None);
        let sql = "INSERT INTO kept_rollup (first, last, data) VALUES (?1, ?2, ?3)";
        let mut insert = db.prepare_cached(sql).doing("keep rollups")?;
        insert.execute(params![first.as_millis(), last.as_millis(), frame::seal(&payload)]).doing("keep rollups")?;
        if self.rollups.oldest == Some(None) {
            self.rollups.oldest = None;
        }
        Ok(())
    }

    /// Deletes what is older than it need be, and the oldest while room is short: raw buckets before rollups.
    pub(super) fn make_room(&mut self, db: &Connection, budget: Budget, now: Timestamp) -> Result<(), StoreError> {
        for _ in 0..MAX_DELETES {
            if self.raw.expire(db, now)? || self.rollups.expire(db, now)? {
                continue;
            }
            if self.raw.oldest(db)?.is_none() && self.rollups.oldest(db)?.is_none() {
                break;
            }
            if Pages::of(db)?.used() * 100 <= budget.max_pages * LIMIT_PERCENT {
                break;
            }
            if !self.raw.delete_oldest(db)? {
                self.rollups.delete_oldest(db)?;
            }
        }
        Ok(())
    }
}

impl Shelf {
    fn oldest(&mut self, db: &Connection) -> Result<Option<(i64, Timestamp)>, StoreError> {
        if let Some(known) = self.oldest {
            return Ok(known);
        }
        let sql = format!("SELECT id, last FROM {} ORDER BY id LIMIT 1", self.table);
        let mut select = db.prepare_cached(&sql).doing("read what is kept")?;
        let oldest = select.query_row([], |row| Ok((row.get(0)?, Timestamp::clamped(row.get(1)?)))).optional();
        let oldest = oldest.doing("read what is kept")?;
        self.oldest = Some(oldest);
        Ok(oldest)
    }

    /// Deletes the oldest row if it was kept long enough.
    fn expire(&mut self, db: &Connection, now: Timestamp) -> Result<bool, StoreError> {
        match self.oldest(db)? {
            Some((_, last)) if last.plus(self.keep) < now => self.delete_oldest(db),
            _ => Ok(false),
        }
    }

    fn delete_oldest(&mut self, db: &Connection) -> Result<bool, StoreError> {
        let Some((id, _)) = self.oldest(db)? else { return Ok(false) };
        let sql = format!("DELETE FROM {} WHERE id = ?1", self.table);
        db.prepare_cached(&sql).and_then(|mut delete| delete.execute([id])).doing("delete what was kept")?;
        self.oldest = None;
        Ok(true)
    }
}

/// The rollup of a bucket that comes without one.
fn rollup_of(entry: &Entry, names: &Names) -> Option<RowRollup> {
    let bucket = entry.unpack().ok()?;
    let (first, last) = bucket.span()?;
    let number = |(name, stats)| Some((names.known_field(&name)?, stats));
    let stats = bucket.stats().into_iter().map(number).collect::<Option<_>>()?;
    Some(RowRollup { count: bucket.count(), first, last, stats })
}
