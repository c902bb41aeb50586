//! A reserve inside the database file, so that a disk which others fill does not stop us: pages that hold nothing, and are
//! given up for readings and for deleting when the file cannot grow.
//!
//! It is a table of empty rows. Blocks set aside by `fallocate` beyond the file's end would cost no writes, but SQLite
//! truncates the file to its size whenever the whole log was copied into it, and the blocks are gone. Rows are written
//! once, a piece now and then, and again only after they had to be given up.

use std::time::Duration;

use rusqlite::Connection;

use super::database::{Budget, PAGE_BYTES};
use super::error::Doing;
use super::pages::Pages;
use super::{StoreError, schema};
use crate::model::Timestamp;

/// One piece: small beside the log, and no long commit on a slow card.
const PIECE_BYTES: u64 = 256 << 10;
/// Pages of a piece: each passes on four bytes of its own, and one holds the row.
const PIECE_PAGES: u64 = PIECE_BYTES.div_ceil(PAGE_BYTES - 4) + 1;
/// Most that is reserved: hours to days of readings.
const MAX_BYTES: u64 = 16 << 20;
/// Share of the budget that is reserved, if that is less.
const SHARE: u64 = 16;
/// Pause between two pieces; the first comes a while after the start, which has other things to do.
const EVERY: Duration = Duration::from_secs(2);
const FIRST: Duration = Duration::from_secs(60);
/// With the budget used up so far there is no need: the file has nearly all it may have.
const MAX_FILL_PERCENT: u64 = 60;

/// The reserve, as it is on disk.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    pieces: u64,
    next: Option<Timestamp>,
}

impl Reserve {
    pub(super) fn load(db: &Connection) -> Result<Self, StoreError> {
        if !schema::has(db, "reserve")? {
            return Ok(Self::default());
        }
        let pieces = db.query_row("SELECT count(*) FROM reserve", [], |row| row.get(0)).doing("read the reserve")?;
        Ok(Self { pieces, next: None })
    }

    /// Whether there is something to give up.
    pub(super) const fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// Whether it is time for another piece.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        let next = *self.next.get_or_insert_with(|| now.plus(FIRST));
        let is_due = now >= next || next.since(now) > FIRST;
        if is_due {
            self.next = Some(now.plus(EVERY));
        }
        is_due
    }

    /// Adds a piece if file, disk and budget have room for it. Free pages of the file are as good.
    pub(super) fn top_up(&mut self, db: &Connection, budget: Budget, fill_percent: u64) -> Result<(), StoreError> {
        let wanted = MAX_BYTES.min(budget.max_pages * PAGE_BYTES / SHARE) / PAGE_BYTES;
        let pages = Pages::of(db)?;
        let there = (self.pieces + 1) * PIECE_PAGES + pages.free;
        if there > wanted || fill_percent > MAX_FILL_PERCENT || pages.all + 4 * PIECE_PAGES > budget.max_pages {
            return Ok(());
        }
        db.execute("INSERT INTO reserve (data) VALUES (zeroblob(?1))", [PIECE_BYTES]).doing("reserve room")?;
        self.pieces += 1;
        Ok(())
    }

    /// Gives a piece up; `false` if there is none.
    pub(super) fn release(&mut self, db: &Connection) -> Result<bool, StoreError> {
        if self.pieces == 0 {
            return Ok(false);
        }
        let sql = "DELETE FROM reserve WHERE id = (SELECT max(id) FROM reserve)";
        let deleted = db.prepare_cached(sql).and_then(|mut delete| delete.execute([])).doing("use the reserve")?;
        self.pieces = if deleted == 0 { 0 } else { self.pieces - 1 };
        Ok(deleted > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::database;

    #[test]
    fn the_reserve_grows_piece_by_piece_and_is_given_up_as_free_pages() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::of(48 << 20);
        let db = database::open_writer(&folder.path().join("t.db"), budget, &Default::default()).unwrap();
        let mut reserve = Reserve::load(&db).unwrap();
        let mut now = Timestamp::clamped(1_796_043_600_000);
        assert!(!reserve.is_due(now));
        assert!(reserve.is_empty(), "not at the start");
        for _ in 0..200 {
            now = now.plus(Duration::from_secs(1));
            if reserve.is_due(now) {
                reserve.top_up(&db, budget, 0).unwrap();
            }
        }
        let pieces = Reserve::load(&db).unwrap().pieces;
        assert_eq!((pieces, reserve.pieces), (10, 10), "a sixteenth of 42 MiB");
        let pages = Pages::of(&db).unwrap();
        assert!(pages.used().abs_diff(10 * PIECE_PAGES) < 40, "{pages:?}");
        assert!(reserve.release(&db).unwrap());
        assert!(Pages::of(&db).unwrap().free >= pages.free + PIECE_PAGES - 2);
        reserve.top_up(&db, budget, 0).unwrap();
        assert_eq!(reserve.pieces, 9, "what is free is reserve enough");
        while reserve.release(&db).unwrap() {}
        assert!(reserve.is_empty());
    }
}
