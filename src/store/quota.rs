//! The disk budget: when it is nearly used up the oldest undelivered segments make room, and the loss is put on record.

use rusqlite::{Connection, params};

use super::database::{self, Budget};
use super::engine::Count;
use super::error::Doing;
use super::{StoreError, segment};
use crate::model::Timestamp;

/// Share of the pages above which room is made, in percent.
const SOFT_LIMIT_PERCENT: u64 = 95;
/// Most segments evicted in one commit; more are needed only if one commit brought more.
const MAX_EVICTIONS: usize = 64;
/// Most entries of the loss ledger; the oldest make room.
const MAX_LEDGER: i64 = 10_000;

/// Deletes oldest segments until the file is below its soft limit; how many buckets went.
pub(super) fn make_room(
    db: &Connection,
    budget: Budget,
    now: Timestamp,
    backlog: &mut Count,
) -> Result<u64, StoreError> {
    let mut evicted = 0;
    for _ in 0..MAX_EVICTIONS {
        let used = database::used_pages(db)?;
        if used * 100 <= budget.max_pages * SOFT_LIMIT_PERCENT {
            break;
        }
        let sql = "INSERT INTO ledger (at, sensor, first, last, samples, reason)
                   SELECT ?1, NULL, first, last, samples, 'evicted' FROM segment ORDER BY id LIMIT 1 RETURNING
                   (SELECT id FROM segment ORDER BY id LIMIT 1)";
        let oldest = rusqlite::OptionalExtension::optional(
            db.query_row(sql, params![now.as_millis()], |row| row.get::<_, u64>(0)),
        );
        let Some(oldest) = oldest.doing("put an eviction on record")? else { break };
        let buckets = segment::delete(db, oldest)?;
        backlog.deleted(buckets);
        evicted += u64::from(buckets.unwrap_or(0));
    }
    if evicted > 0 {
        db.execute("DELETE FROM ledger WHERE id <= (SELECT max(id) FROM ledger) - ?1", [MAX_LEDGER])
            .doing("trim the ledger")?;
    }
    Ok(evicted)
}
