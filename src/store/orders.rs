//! What an operator orders about dead letters: send them again, or drop them.
//!
//! One process writes to a store. Beside a running daemon an order is a small file next to the database, which the daemon
//! looks for once a second, carries out in one commit and deletes; whoever may write into the store's folder may order.
//! Without a daemon the order is carried out here, under the store's lock.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::database::Lock;
use super::engine::{Batch, Setup};
use super::error::Doing;
use super::names::NameReader;
use super::state::State;
use super::{SegmentId, StoreError, recovery, segment};
use crate::model::Timestamp;

/// Most orders in one file; more follow one file after the other.
const MAX_ORDERS: usize = 2000;
/// Longest file that is read, and written: no order is longer than 27 bytes.
pub(super) const MAX_BYTES: u64 = 64 << 10;
/// The last line: what has no such line is still being written.
const END: &str = "end";
/// How long a daemon may take, and how often it is looked whether it is done.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);

/// An order about one dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Put the bucket back among those that wait for delivery.
    Retry(i64),
    /// Delete it.
    Drop(i64),
}

impl Order {
    fn parse(line: &str) -> Option<Self> {
        let (word, id) = line.split_once(' ')?;
        let id = id.parse().ok()?;
        match word {
            "retry" => Some(Self::Retry(id)),
            "drop" => Some(Self::Drop(id)),
            _ => None,
        }
    }

    fn line(self) -> String {
        match self {
            Self::Retry(id) => format!("retry {id}\n"),
            Self::Drop(id) => format!("drop {id}\n"),
        }
    }
}

/// Has orders carried out, by the daemon if one runs; returns when that is on disk.
pub(super) fn give(setup: Setup, orders: &[Order], now: Timestamp) -> Result<(), StoreError> {
    match Lock::take(&setup.path) {
        Ok(_lock) => {
            let mut engine = recovery::recover(setup, &NameReader::default())?;
            let batch = Batch { orders: orders.to_vec(), only_settle: true, ..Batch::default() };
            engine.write(&batch, now, false)?;
            engine.close()
        }
        Err(StoreError::Held(_)) => orders.chunks(MAX_ORDERS).try_for_each(|orders| hand_over(&setup.path, orders)),
        Err(error) => Err(error),
    }
}

fn hand_over(path: &Path, orders: &[Order]) -> Result<(), StoreError> {
    let file = place(path);
    let unusable = |cause: io::Error| {
        StoreError::Unusable(format!("cannot hand an order to the daemon by {}: {cause}", file.display()))
    };
    let mut text: String = orders.iter().map(|order| order.line()).collect();
    text.push_str(END);
    text.push('\n');
    let open = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&file);
    let mut open = match open {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(StoreError::Unusable(format!(
                "{} is there already: another order is being carried out (if not, delete it)",
                file.display()
            )));
        }
        open => open.map_err(unusable)?,
    };
    open.write_all(text.as_bytes()).and_then(|()| open.sync_all()).map_err(unusable)?;
    let mut waited = Duration::ZERO;
    while file.exists() {
        if waited >= PATIENCE {
            // Nobody takes it; and it must not be carried out when nobody expects it any more.
            fs::remove_file(&file).map_err(unusable)?;
            return Err(StoreError::Unusable(
                "the daemon holds the store and does not take orders (is its disk full?)".to_owned(),
            ));
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    Ok(())
}

/// Where orders for the daemon of the store at `path` are.
pub(super) fn place(path: &Path) -> PathBuf {
    path.with_added_extension("orders")
}

/// The orders that wait; `None` if there are none. A file that makes no sense is deleted, and that is told.
pub(super) fn waiting(path: &Path) -> Option<Vec<Order>> {
    let file = place(path);
    let size = fs::metadata(&file).ok()?.len();
    let text = if size <= MAX_BYTES { fs::read_to_string(&file) } else { Err(io::ErrorKind::FileTooLarge.into()) };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            tracing::warn!("{} cannot be read and is deleted: {error}", file.display());
            done(path);
            return None;
        }
    };
    let whole = text.strip_suffix('\n')?.strip_suffix(END)?;
    Some(whole.lines().filter_map(Order::parse).collect())
}

/// They are carried out.
pub(super) fn done(path: &Path) {
    let file = place(path);
    if let Err(error) = fs::remove_file(&file)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("cannot delete {}: {error}", file.display());
    }
}

/// Carries one out, in the transaction of a commit. A letter that is gone, or was never a bucket, is passed over.
pub(super) fn carry_out(db: &Connection, state: &mut State, order: Order) -> Result<(), StoreError> {
    let (Order::Retry(id) | Order::Drop(id)) = order;
    if let Order::Retry(_) = order {
        let sql = "SELECT packed, place FROM dead_letter WHERE id = ?1 AND packed IS NOT NULL";
        let found = db.query_row(sql, [id], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?)));
        let Some((packed, place)) = found.optional().doing("read a dead letter")? else { return Ok(()) };
        let parcel = match segment::open(SegmentId(0), packed.clone(), &state.names.reader()) {
            Ok(parcel) if parcel.buckets.len() == 1 => parcel,
            _ => {
                tracing::error!("dead letter {id} cannot be sent again: what is stored of it is damaged");
                return Ok(());
            }
        };
        let bucket = &parcel.buckets[0].0;
        let loss = bucket.loss();
        let sql =
            "INSERT INTO segment (id, buckets, samples, first, last, thinned, data) VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6)";
        let (first, last) = (loss.first.as_millis(), loss.last.as_millis());
        let row = params![state.next_segment, loss.samples, first, last, bucket.is_thinned(), packed];
        db.execute(sql, row).doing("put a dead letter back")?;
        state.next_segment += 1;
        state.backlog.inserted(1, loss.samples);
        // It was put on record when it was refused; now it is accepted anew.
        state.accounts.kept(loss.samples);
        tracing::info!("dead letter {id} (`{place}`) is sent again");
    }
    db.execute("DELETE FROM dead_letter WHERE id = ?1", [id]).doing("delete a dead letter").map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_taken_when_they_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        let check = |text: &str, expected: Option<Vec<Order>>| {
            fs::write(place(&path), text).unwrap();
            assert_eq!(waiting(&path), expected, "{text:?}");
        };
        assert_eq!(waiting(&path), None);
        check("retry 17\ndrop 3\nend\n", Some(vec![Order::Retry(17), Order::Drop(3)]));
        check("retry 17\ndrop 3\n", None);
        check("retry 17\nexplode 4\ndrop x\nend\n", Some(vec![Order::Retry(17)]));
        fs::write(place(&path), [0xFF; 100]).unwrap();
        assert_eq!(waiting(&path), None);
        assert!(!place(&path).exists(), "what makes no sense is not looked at for ever");
    }

    #[test]
    fn the_longest_file_can_be_read() {
        let longest = Order::Retry(i64::MIN).line().len() * MAX_ORDERS + END.len() + 1;
        assert!(longest as u64 <= MAX_BYTES, "{longest}");
    }
}
