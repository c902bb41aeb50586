//! The disk budget: when it is nearly used up the oldest undelivered segments make room, and the loss is put on record.

use rusqlite::{Connection, OptionalExtension};

use super::database::Budget;
use super::engine::Count;
use super::error::Doing;
use super::ledger::{self, Loss};
use super::{StoreError, segment};
use crate::model::Timestamp;

/// Share of the pages above which room is made, in percent.
const SOFT_LIMIT_PERCENT: u64 = 95;
/// Most segments evicted in one commit; more are needed only if one commit brought more.
const MAX_EVICTIONS: usize = 64;

/// Deletes oldest segments until the file is below its soft limit; how many buckets went.
pub(super) fn make_room(
    db: &Connection,
    budget: Budget,
    now: Timestamp,
    backlog: &mut Count,
) -> Result<u64, StoreError> {
    let mut evicted = 0;
    for _ in 0..MAX_EVICTIONS {
        let pragma = |name: &str| db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, u64>(0));
        let used = pragma("page_count")
            .and_then(|pages| Ok(pages - pragma("freelist_count")?))
            .doing("measure the database")?;
        if used * 100 <= budget.max_pages * SOFT_LIMIT_PERCENT {
            break;
        }
        let sql = "SELECT id, first, last, samples FROM segment ORDER BY id LIMIT 1";
        let oldest = db.query_row(sql, [], |row| {
            let time = |i| Ok::<_, rusqlite::Error>(Timestamp::clamped(row.get(i)?));
            Ok((row.get::<_, u64>(0)?, Loss { first: time(1)?, last: time(2)?, samples: row.get(3)? }))
        });
        let Some((oldest, loss)) = oldest.optional().doing("read the oldest segment")? else { break };
        ledger::record(db, now, loss, "evicted")?;
        let buckets = segment::delete(db, oldest)?;
        backlog.deleted(buckets);
        evicted += u64::from(buckets.unwrap_or(0));
    }
    Ok(evicted)
}
