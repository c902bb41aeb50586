//! Dead letters: kept in bounded number and size, the oldest make room.

use rusqlite::{Connection, params};

use super::StoreError;
use super::error::Doing;
use super::ledger::{self, Loss};
use crate::model::{DeadLetter, LetterKind, Timestamp};

/// Most dead letters of each kind kept; whoever looks wants the latest, and the counters tell of all.
const MAX_LETTERS: i64 = 1000;
/// Most bytes of undecodable payloads kept.
const MAX_PAYLOAD_BYTES: i64 = 8 << 20;
/// Most bytes of refused buckets kept.
const MAX_BUCKET_BYTES: i64 = 16 << 20;
/// Most of one commit that are kept: a flood of garbage must not become a flood of writes.
const MAX_PER_COMMIT: usize = 50;

/// Stores letters, within the bounds.
pub(super) fn store(db: &Connection, letters: &[&DeadLetter], now: Timestamp) -> Result<(), StoreError> {
    if letters.is_empty() {
        return Ok(());
    }
    let (buckets, payloads): (Vec<&DeadLetter>, Vec<&DeadLetter>) =
        letters.iter().partition(|l| l.kind == LetterKind::Bucket);
    let skipped = payloads.len().saturating_sub(MAX_PER_COMMIT);
    for letter in buckets.iter().chain(payloads.iter().skip(skipped)) {
        let mut insert = db
            .prepare_cached(
                "INSERT INTO dead_letter (at, kind, source, place, reason, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .doing("store a dead letter")?;
        let kind = match letter.kind {
            LetterKind::Payload => "payload",
            LetterKind::Bucket => "bucket",
        };
        let source = letter.source.as_ref().map(|source| source.as_str());
        let row = params![letter.at.as_millis(), kind, source, letter.place, letter.reason, letter.payload];
        insert.execute(row).doing("store a dead letter")?;
    }
    // Refused buckets held accepted readings: they do not make room for undecodable payloads, and their end is a loss.
    trim(db, "payload", MAX_PAYLOAD_BYTES)?;
    let lost = trim(db, "bucket", MAX_BUCKET_BYTES)?;
    if lost > 0 {
        tracing::error!("{lost} dead letters of buckets made room for later ones");
        ledger::record(db, now, Loss { first: now, last: now, samples: lost }, "dead letters (buckets) made room")?;
    }
    Ok(())
}

/// Deletes the oldest letters of a kind beyond the bounds; how many.
fn trim(db: &Connection, kind: &str, max_bytes: i64) -> Result<u64, StoreError> {
    let sql = "DELETE FROM dead_letter WHERE id IN (SELECT id FROM (
                   SELECT id, sum(length(payload)) OVER (ORDER BY id DESC) AS bytes, row_number() OVER (ORDER BY id DESC) AS place
                   FROM dead_letter WHERE kind = ?1) WHERE bytes > ?2 OR place > ?3)";
    let mut trim = db.prepare_cached(sql).doing("trim the dead letters")?;
    Ok(trim.execute(params![kind, max_bytes, MAX_LETTERS]).doing("trim the dead letters")? as u64)
}
