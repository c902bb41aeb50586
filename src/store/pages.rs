//! How many pages a database has, and how many of them hold something.

use rusqlite::Connection;

use super::StoreError;
use super::error::Doing;

/// Pages of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    /// All of them.
    pub all: u64,
    /// Those that hold nothing.
    pub free: u64,
}

impl Pages {
    /// Counts them.
    pub(super) fn of(db: &Connection) -> Result<Self, StoreError> {
        Ok(Self { all: pragma(db, "PRAGMA page_count")?, free: pragma(db, "PRAGMA freelist_count")? })
    }

    /// Those that hold something.
    pub(super) const fn used(self) -> u64 {
        self.all.saturating_sub(self.free)
    }
}

fn pragma(db: &Connection, sql: &str) -> Result<u64, StoreError> {
    let count = db.prepare_cached(sql).and_then(|mut count| count.query_row([], |row| row.get(0)));
    count.doing("measure the database")
}
