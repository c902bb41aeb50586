//! Segments: sealed buckets that wait for delivery, a pack to a row. Numbers grow with time and are never used twice.

use crate::model::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::StoreError;
use super::engine::Count;
use super::error::Doing;
pub(super) use super::pack::{Entry, Packed, Packer, open, pack_one};

/// Writes a segment; `false` if it is there already, as after damage to the journal.
pub(super) fn insert(db: &Connection, id: u64, segment: &Packed) -> Result<bool, StoreError> {
    let sql =
        "INSERT INTO segment (id, buckets, samples, first, last, thinned, data) VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)
               ON CONFLICT (id) DO NOTHING";
    let (first, last) = (segment.first.as_millis(), segment.last.as_millis());
    let mut insert = db.prepare_cached(sql).doing("store a segment")?;
    let inserted = insert
        .execute(params![id, segment.buckets(), segment.samples, first, last, segment.seal()])
        .doing("store a segment")?;
    Ok(inserted > 0)
}

/// Deletes a segment; how many buckets, and samples of them, it held, `None` if it was not there.
pub(super) fn delete(db: &Connection, id: u64) -> Result<Option<(u32, u64)>, StoreError> {
    let sql = "DELETE FROM segment WHERE id = ?1 RETURNING buckets, samples";
    let mut delete = db.prepare_cached(sql).doing("delete a segment")?;
    delete.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional().doing("delete a segment")
}

/// Takes samples out of a segment's account: their bucket went elsewhere, and the segment stays for the others. How many
/// could be taken.
pub(super) fn take_out(db: &Connection, id: u64, samples: u64) -> Result<u64, StoreError> {
    let mut select = db.prepare_cached("SELECT samples FROM segment WHERE id = ?1").doing("read a segment")?;
    let held: Option<u64> = select.query_row([id], |row| row.get(0)).optional().doing("read a segment")?;
    let taken = samples.min(held.unwrap_or(0));
    if taken > 0 {
        let sql = "UPDATE segment SET samples = samples - ?2 WHERE id = ?1";
        let mut update = db.prepare_cached(sql).doing("put a bucket aside")?;
        update.execute(params![id, taken]).doing("put a bucket aside")?;
    }
    Ok(taken)
}

/// A segment as it lies in the database: its number and its frames.
pub(super) type Raw = (u64, Vec<u8>);

/// The oldest segment after `after`, up to `until`.
pub(super) fn read_after(db: &Connection, after: u64, until: u64) -> Result<Option<Raw>, StoreError> {
    let sql = "SELECT id, data FROM segment WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT 1";
    let mut select = db.prepare_cached(sql).doing("read the next segment")?;
    select.query_row([after, until], |row| Ok((row.get(0)?, row.get(1)?))).optional().doing("read the next segment")
}

/// One segment as it lies in the database.
pub(super) fn read(db: &Connection, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let mut select = db.prepare_cached("SELECT data FROM segment WHERE id = ?1").doing("read a segment")?;
    select.query_row([id], |row| row.get(0)).optional().doing("read a segment")
}

/// The number of the last segment; 0 if there is none.
pub(super) fn last(db: &Connection) -> Result<u64, StoreError> {
    let last = db.query_row("SELECT id FROM segment ORDER BY id DESC LIMIT 1", [], |row| row.get(0));
    Ok(last.optional().doing("read the last segment")?.unwrap_or(0))
}

/// The latest sample of the last segment.
pub(super) fn until(db: &Connection) -> Result<Timestamp, StoreError> {
    let last = db.query_row("SELECT last FROM segment ORDER BY id DESC LIMIT 1", [], |row| row.get(0));
    Ok(Timestamp::clamped(last.optional().doing("read the last segment")?.unwrap_or(0)))
}

/// Counts what waits. Looks at every row: for a start after damage, or of a file of an earlier release.
pub(super) fn count(db: &Connection) -> Result<Count, StoreError> {
    let sql = "SELECT count(*), coalesce(sum(buckets), 0), coalesce(sum(samples), 0) FROM segment";
    db.query_row(sql, [], |row| Ok(Count { segments: row.get(0)?, buckets: row.get(1)?, samples: row.get(2)? }))
        .doing("count the backlog")
}
