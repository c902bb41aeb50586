//! What is put aside for good: buckets that the upstream refused, and segments that cannot be read any more. Each becomes
//! a dead letter and a loss in the same commit, once.

use rusqlite::{Connection, OptionalExtension};

use super::error::Doing;
use super::ledger::Loss;
use super::state::State;
use super::{SegmentId, StoreError, letters, segment};
use crate::model::{DeadLetter, LetterKind, LossReason, LostBucket, Timestamp};

/// A bucket that was put aside before, and its segment was not deleted in time, is no second letter.
pub(super) fn forget_known(db: &Connection, letters: &mut Vec<&DeadLetter>) -> Result<(), StoreError> {
    let mut failed = None;
    letters.retain(|letter| {
        let known = letter.lost.is_some()
            && letters::is_known(db, letter).unwrap_or_else(|error| {
                failed = Some(error);
                false
            });
        !known
    });
    failed.map_or(Ok(()), Err)
}

/// The samples of a bucket that goes to the dead letters are in the ledger from then on.
pub(super) fn put_aside(db: &Connection, state: &mut State, letter: &DeadLetter) -> Result<(), StoreError> {
    let Some(lost) = &letter.lost else { return Ok(()) };
    let samples = match state.lazy.take_out(lost.segment, lost.samples.into()) {
        Some(samples) => samples,
        None => {
            let samples = segment::take_out(db, lost.segment, lost.samples.into())?;
            state.backlog.lost(samples);
            samples
        }
    };
    state.accounts.lost(samples);
    // None, although it held some: its segment is gone, and they stand in the ledger as evicted.
    if samples > 0 || lost.samples == 0 {
        let sensor = lost.sensor.as_ref().and_then(|sensor| state.names.known_sensor(sensor));
        state.losses.add(sensor, lost.reason, Loss { first: lost.first, last: lost.last, samples });
    }
    Ok(())
}

/// Segments that cannot be read become dead letters as they are; what they held goes into the ledger.
pub(super) fn take_broken(
    db: &Connection,
    state: &mut State,
    broken: &[(SegmentId, String)],
    now: Timestamp,
) -> Result<Vec<DeadLetter>, StoreError> {
    let mut letters = Vec::new();
    for (SegmentId(id), why) in broken {
        let sql = "SELECT first, last, samples, data FROM segment WHERE id = ?1";
        let row = db.query_row(sql, [id], |row| {
            let time = |i| Ok::<_, rusqlite::Error>(Timestamp::clamped(row.get(i)?));
            Ok((Loss { first: time(0)?, last: time(1)?, samples: row.get(2)? }, row.get(3)?))
        });
        let Some((loss, payload)) = row.optional().doing("read a damaged segment")? else { continue };
        tracing::error!("segment {id} is put aside as a dead letter: {why}; {} readings are lost", loss.samples);
        state.losses.add(None, LossReason::Damaged, loss);
        let deleted = segment::delete(db, *id)?;
        state.backlog.deleted(deleted);
        state.accounts.lost(loss.samples);
        let lost = LostBucket {
            segment: *id,
            reason: LossReason::Damaged,
            sensor: None,
            first: loss.first,
            last: loss.last,
            samples: u32::try_from(loss.samples).unwrap_or(u32::MAX),
            packed: Vec::new(),
        };
        let (place, reason) = (format!("segment {id}"), why.clone());
        let kind = LetterKind::Segment;
        letters.push(DeadLetter { at: now, kind, source: None, place, reason, payload, lost: Some(lost) });
    }
    Ok(letters)
}
