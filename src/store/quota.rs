//! The disk budget: when it is nearly used up the oldest undelivered segments are thinned, or evicted, and what is lost
//! by that is put on record.

use rusqlite::{Connection, OptionalExtension};

use super::database::{self, Budget};
use super::error::Doing;
use super::ledger::Loss;
use super::state::State;
use super::{SegmentId, StoreError, WhenFull, segment, thin};
use crate::model::{LossReason, Timestamp};

/// Share of the pages above which room is made, in percent.
const SOFT_LIMIT_PERCENT: u64 = 95;
/// Most segments thinned or evicted in one commit; more are needed only if one commit brought more.
const MAX_SEGMENTS: usize = 16;

/// Makes room until the file is below its soft limit: thins while there is something to thin, if that is wanted, and
/// evicts then. How many samples were thinned, and how many buckets evicted.
pub(super) fn make_room(db: &Connection, state: &mut State, budget: Budget) -> Result<(u64, u64), StoreError> {
    let (mut thinned, mut evicted) = (0, 0);
    for _ in 0..MAX_SEGMENTS {
        let used = database::used_pages(db)?;
        if used * 100 <= budget.max_pages * SOFT_LIMIT_PERCENT {
            break;
        }
        if state.setup.when_full == WhenFull::Thin
            && let Some((id, samples)) =
                thin::oldest(db, state.thinned_until, &state.setup.site, &state.names, &mut state.losses)?
        {
            state.thinned_until = id;
            state.accounts.lost(samples);
            thinned += samples;
        } else {
            match evict_oldest(db, state)? {
                Some(buckets) => {
                    state.backlog.deleted(Some(buckets));
                    evicted += u64::from(buckets);
                }
                None => break,
            }
        }
    }
    Ok((thinned, evicted))
}

/// Deletes the oldest segment; how many buckets it held.
fn evict_oldest(db: &Connection, state: &mut State) -> Result<Option<u32>, StoreError> {
    let sql = "SELECT id, first, last, samples, data FROM segment ORDER BY id LIMIT 1";
    let oldest = db.query_row(sql, [], |row| {
        let time = |i| Ok::<_, rusqlite::Error>(Timestamp::clamped(row.get(i)?));
        let loss = Loss { first: time(1)?, last: time(2)?, samples: row.get(3)? };
        Ok((row.get::<_, u64>(0)?, loss, row.get::<_, Vec<u8>>(4)?))
    });
    let Some((id, mut left, data)) = oldest.optional().doing("read the oldest segment")? else { return Ok(None) };
    // Of a thinned bucket the samples are in the ledger already; that its rollup goes too is told with a count of 0.
    if let Ok(parcel) = segment::open(SegmentId(id), &data, &state.names.reader()) {
        for bucket in &parcel.buckets {
            let loss = bucket.0.loss();
            let samples = left.samples.min(loss.samples);
            left.samples -= samples;
            state.losses.add(Some(bucket.0.key().sensor), LossReason::Evicted, Loss { samples, ..loss });
        }
    }
    if left.samples > 0 {
        state.losses.add(None, LossReason::Evicted, left);
    }
    let deleted = segment::delete(db, id)?;
    state.accounts.lost(deleted.map_or(0, |(_, samples)| samples));
    Ok(deleted.map(|(buckets, _)| buckets))
}
