//! The loss ledger: everything that was accepted, or offered, and will not be delivered. Durable and itself bounded.

use rusqlite::{Connection, params};

use super::StoreError;
use super::error::Doing;
use crate::model::Timestamp;

/// Most entries; the oldest make room, and the counters still tell of all.
const MAX_ENTRIES: i64 = 10_000;

/// One loss: which samples, how many, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    pub first: Timestamp,
    pub last: Timestamp,
    pub samples: u64,
}

impl Loss {
    /// One sample more.
    pub(super) fn add(lost: &mut Option<Self>, at: Timestamp) {
        let loss = lost.get_or_insert(Self { first: at, last: at, samples: 0 });
        loss.first = loss.first.min(at);
        loss.last = loss.last.max(at);
        loss.samples += 1;
    }
}

/// Puts a loss on record, in the transaction that makes it one.
pub(super) fn record(db: &Connection, now: Timestamp, loss: Loss, reason: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO ledger (at, sensor, first, last, samples, reason) VALUES (?1, NULL, ?2, ?3, ?4, ?5)";
    let mut insert = db.prepare_cached(sql).doing("put a loss on record")?;
    let (first, last) = (loss.first.as_millis(), loss.last.as_millis());
    insert.execute(params![now.as_millis(), first, last, loss.samples, reason]).doing("put a loss on record")?;
    let sql = "DELETE FROM ledger WHERE id <= (SELECT max(id) FROM ledger) - ?1";
    let mut trim = db.prepare_cached(sql).doing("trim the ledger")?;
    trim.execute([MAX_ENTRIES]).doing("trim the ledger")?;
    Ok(())
}
