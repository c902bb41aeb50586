//! The disk budget: when it is nearly used up the oldest undelivered segments are thinned, or evicted, and what is lost
//! by that is put on record.

use rusqlite::{Connection, OptionalExtension};

use super::database::{self, Budget};
use super::error::Doing;
use super::ledger::{self, Loss};
use super::state::State;
use super::{StoreError, WhenFull, segment, thin};
use crate::model::Timestamp;

/// Share of the pages above which room is made, in percent.
const SOFT_LIMIT_PERCENT: u64 = 95;
/// Most segments thinned or evicted in one commit; more are needed only if one commit brought more.
const MAX_SEGMENTS: usize = 16;

/// Makes room until the file is below its soft limit: thins while there is something to thin, if that is wanted, and
/// evicts then. How many samples were thinned, and how many buckets evicted.
pub(super) fn make_room(
    db: &Connection,
    state: &mut State,
    budget: Budget,
    now: Timestamp,
) -> Result<(u64, u64), StoreError> {
    let (mut thinned, mut evicted) = (0, 0);
    for _ in 0..MAX_SEGMENTS {
        let used = database::used_pages(db)?;
        if used * 100 <= budget.max_pages * SOFT_LIMIT_PERCENT {
            break;
        }
        if state.setup.when_full == WhenFull::Thin
            && let Some((id, samples)) = thin::oldest(db, state.thinned_until, &state.setup.site, &state.names, now)?
        {
            state.thinned_until = id;
            thinned += samples;
        } else {
            match evict_oldest(db, now)? {
                Some(buckets) => {
                    state.backlog.deleted(Some(buckets));
                    evicted += u64::from(buckets);
                }
                None => match state.held.delete_oldest(db)? {
                    Some(loss) => {
                        ledger::record(db, now, loss, "evicted while held")?;
                        evicted += 1;
                    }
                    None => break,
                },
            }
        }
    }
    Ok((thinned, evicted))
}

/// Deletes the oldest segment; how many buckets it held.
fn evict_oldest(db: &Connection, now: Timestamp) -> Result<Option<u32>, StoreError> {
    let sql = "SELECT id, first, last, samples * (1 - thinned) FROM segment ORDER BY id LIMIT 1";
    let oldest = db.query_row(sql, [], |row| {
        let time = |i| Ok::<_, rusqlite::Error>(Timestamp::clamped(row.get(i)?));
        Ok((row.get::<_, u64>(0)?, Loss { first: time(1)?, last: time(2)?, samples: row.get(3)? }))
    });
    let Some((oldest, loss)) = oldest.optional().doing("read the oldest segment")? else { return Ok(None) };
    // Samples of a thinned segment are in the ledger already; now their rollups go too.
    ledger::record(db, now, loss, "evicted")?;
    segment::delete(db, oldest)
}
