//! Dead letters: kept in bounded number and size, the oldest make room.

use rusqlite::{Connection, params};

use super::StoreError;
use super::database::{Budget, PAGE_BYTES};
use super::error::Doing;
use crate::model::{DeadLetter, LetterKind};

/// Most dead letters of each kind kept; whoever looks wants the latest, and the counters tell of all.
const MAX_LETTERS: i64 = 1000;
/// Most bytes of undecodable payloads kept.
const MAX_PAYLOAD_BYTES: i64 = 8 << 20;
/// Most bytes of refused buckets kept.
const MAX_BUCKET_BYTES: i64 = 16 << 20;
/// Share of the disk budget that each kind may have, if that is less: letters must not crowd readings out.
const SHARE: u64 = 8;
/// What each kind may always have: less than its share of the smallest budget that a site file may give.
const LEAST_BYTES: i64 = 4 << 20;
/// Most of one commit that are kept: a flood of garbage must not become a flood of writes.
const MAX_PER_COMMIT: usize = 50;

/// Stores letters, within the bounds. What makes room is no loss: undecodable payloads are no readings, and the samples
/// of buckets are in the ledger since they were put aside.
pub(super) fn store(db: &Connection, letters: &[&DeadLetter], budget: Budget) -> Result<(), StoreError> {
    if letters.is_empty() {
        return Ok(());
    }
    let (payloads, others): (Vec<&DeadLetter>, Vec<&DeadLetter>) =
        letters.iter().partition(|l| l.kind == LetterKind::Payload);
    let skipped = payloads.len().saturating_sub(MAX_PER_COMMIT);
    for letter in others.iter().chain(payloads.iter().skip(skipped)) {
        let sql = "INSERT INTO dead_letter (at, kind, source, place, reason, payload, packed, samples)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let mut insert = db.prepare_cached(sql).doing("store a dead letter")?;
        let source = letter.source.as_ref().map(|source| source.as_str());
        let (packed, samples) = letter
            .lost
            .as_ref()
            .map_or((None, 0), |lost| ((!lost.packed.is_empty()).then_some(&lost.packed), lost.samples));
        let (at, kind) = (letter.at.as_millis(), letter.kind.word());
        let row = params![at, kind, source, letter.place, letter.reason, letter.payload, packed, samples];
        insert.execute(row).doing("store a dead letter")?;
    }
    // Each kind by itself: a flood of undecodable payloads must not push refused buckets out.
    let share = i64::try_from(budget.max_pages * PAGE_BYTES / SHARE).unwrap_or(i64::MAX).max(LEAST_BYTES);
    trim(db, LetterKind::Payload, MAX_PAYLOAD_BYTES.min(share))?;
    trim(db, LetterKind::Segment, MAX_PAYLOAD_BYTES.min(share))?;
    let gone = trim(db, LetterKind::Bucket, MAX_BUCKET_BYTES.min(share))?;
    if gone > 0 {
        tracing::error!("{gone} dead letters of buckets made room for later ones; they cannot be sent again");
    }
    Ok(())
}

/// Whether this bucket was put aside before: the daemon may have ended between that and the deletion of its segment.
pub(super) fn is_known(db: &Connection, letter: &DeadLetter) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM dead_letter WHERE kind = ?1 AND place = ?2 AND payload = ?3 LIMIT 1";
    let mut select = db.prepare_cached(sql).doing("look for a dead letter")?;
    select.exists(params![letter.kind.word(), letter.place, letter.payload]).doing("look for a dead letter")
}

/// Deletes the oldest letters of a kind beyond the bounds; how many.
fn trim(db: &Connection, kind: LetterKind, max_bytes: i64) -> Result<u64, StoreError> {
    let sql = "DELETE FROM dead_letter WHERE id IN (SELECT id FROM (
                   SELECT id, sum(length(payload) + coalesce(length(packed), 0)) OVER (ORDER BY id DESC) AS bytes,
                          row_number() OVER (ORDER BY id DESC) AS place
                   FROM dead_letter WHERE kind = ?1) WHERE bytes > ?2 OR place > ?3)";
    let mut trim = db.prepare_cached(sql).doing("trim the dead letters")?;
    Ok(trim.execute(params![kind.word(), max_bytes, MAX_LETTERS]).doing("trim the dead letters")? as u64)
}
