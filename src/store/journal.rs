//! The journal: redo records in fixed slots, each slot one leaf page that is overwritten in place.
//!
//! A record is cut into pieces; a slot holds `record number · low mark · piece · pieces · length · check · bytes`. The low mark
//! is the lowest record that is still needed when this one is written, so trimming the journal writes nothing: slots of
//! older records are simply used again. The free list lives in memory and is found again at start.

use rusqlite::{Connection, params};

use super::StoreError;
use super::database::PAGE_BYTES;
use super::error::Doing;
use crate::model::varint::{Damaged, Reader};

/// What a row of one blob that fills exactly one leaf page holds.
const SLOT_BYTES: usize = PAGE_BYTES as usize - 39;
const HEADER_BYTES: usize = 28;
/// Record bytes in one slot.
const PIECE_BYTES: usize = SLOT_BYTES - HEADER_BYTES;
/// Largest record: 1 GiB would be a bug, not a commit.
const MAX_PIECES: usize = (1 << 30) / PIECE_BYTES;

/// Most slots deleted in one go.
const MAX_SHRINK: usize = 1024;

/// The slots, as they are on disk.
#[derive(Debug, Default)]
pub(super) struct Journal {
    free: Vec<i64>,
    /// Slots in use as (record number, slot), ascending by number.
    used: std::collections::VecDeque<(u64, i64)>,
    slots: i64,
    buffer: Vec<u8>,
}

/// Where a record lies: its number, and the slots of its pieces in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub seq: u64,
    pieces: Vec<(u32, i64)>,
}

/// What the journal held at start.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub journal: Journal,
    /// The highest record number seen; 0 if there is no record.
    pub last: u64,
    /// The record that bears it, needed or not.
    pub newest: Option<Stored>,
    /// The records that are still needed, in order; read one at a time, since together they may be large.
    pub records: Vec<Stored>,
}

impl Journal {
    /// Writes a record. Its slots stay taken until [`Self::trim`] passes its number.
    pub(super) fn write(&mut self, db: &Connection, seq: u64, low: u64, record: &[u8]) -> Result<(), StoreError> {
        let pieces = record.chunks(PIECE_BYTES);
        let count = pieces.len() as u32;
        for (i, piece) in pieces.enumerate() {
            self.buffer.clear();
            self.buffer.extend_from_slice(&seq.to_le_bytes());
            self.buffer.extend_from_slice(&low.to_le_bytes());
            self.buffer.extend_from_slice(&(i as u32).to_le_bytes());
            self.buffer.extend_from_slice(&count.to_le_bytes());
            self.buffer.extend_from_slice(&(piece.len() as u16).to_le_bytes());
            self.buffer.extend_from_slice(&check(&self.buffer).to_le_bytes());
            self.buffer.extend_from_slice(piece);
            self.buffer.resize(SLOT_BYTES, 0);
            let slot = match self.free.pop() {
                Some(slot) => {
                    let mut update =
                        db.prepare_cached("UPDATE slot SET data = ?2 WHERE id = ?1").doing("write the journal")?;
                    update.execute(params![slot, self.buffer]).doing("write the journal")?;
                    slot
                }
                None => {
                    self.slots += 1;
                    let mut insert =
                        db.prepare_cached("INSERT INTO slot (id, data) VALUES (?1, ?2)").doing("grow the journal")?;
                    insert.execute(params![self.slots, self.buffer]).doing("grow the journal")?;
                    self.slots
                }
            };
            self.used.push_back((seq, slot));
        }
        Ok(())
    }

    /// Records below `low` are no longer needed. Call it only when a record that says so is committed.
    pub(super) fn trim(&mut self, low: u64) {
        while let Some(&(seq, slot)) = self.used.front() {
            if seq >= low {
                break;
            }
            self.used.pop_front();
            self.free.push(slot);
        }
    }

    /// Bytes of records that are still needed.
    pub(super) fn live_bytes(&self) -> u64 {
        self.used.len() as u64 * PAGE_BYTES
    }

    /// Bytes of slots that can be used again.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free.len() as u64 * PAGE_BYTES
    }

    /// Deletes free slots, so that others can have their pages; `false` if there are none.
    pub(super) fn shrink(&mut self, db: &Connection) -> Result<bool, StoreError> {
        let rest = self.free.len().saturating_sub(MAX_SHRINK);
        let mut delete = db.prepare_cached("DELETE FROM slot WHERE id = ?1").doing("shrink the journal")?;
        let deleted = self.free.split_off(rest);
        for slot in &deleted {
            delete.execute([slot]).doing("shrink the journal")?;
        }
        Ok(!deleted.is_empty())
    }

    /// The record number half-way through what is still needed.
    pub(super) fn middle(&self) -> Option<u64> {
        self.used.get(self.used.len() / 2).map(|(seq, _)| *seq)
    }

    /// Looks at every slot, and tells where the records from the last low mark on are.
    pub(super) fn read(db: &Connection) -> Result<Replay, StoreError> {
        let mut slots: Vec<(u64, u32, i64)> = Vec::new();
        let mut replay = Replay::default();
        let mut newest = (0, 0);
        let mut select = db.prepare("SELECT id, data FROM slot").doing("read the journal")?;
        let mut rows = select.query([]).doing("read the journal")?;
        while let Some(row) = rows.next().doing("read the journal")? {
            let slot: i64 = row.get(0).doing("read the journal")?;
            replay.journal.slots = replay.journal.slots.max(slot);
            let data = row.get_ref(1).doing("read the journal")?.as_blob().unwrap_or_default();
            match header(data) {
                Ok(header) => {
                    newest = newest.max((header.seq, header.low));
                    slots.push((header.seq, header.piece, slot));
                }
                // It holds nothing that could be used; it is overwritten.
                Err(_) => {
                    tracing::error!("slot {slot} of the journal is damaged: a record that needs it is lost");
                    replay.journal.free.push(slot);
                }
            }
        }
        let (last, low) = newest;
        replay.last = last;
        slots.sort_unstable();
        for &(seq, _, slot) in &slots {
            if seq < low {
                replay.journal.free.push(slot);
            } else {
                replay.journal.used.push_back((seq, slot));
            }
        }
        let piece_of = |&(_, piece, slot): &(u64, u32, i64)| (piece, slot);
        let from = slots.partition_point(|(seq, ..)| *seq < last);
        replay.newest = (last > 0).then(|| Stored { seq: last, pieces: slots[from..].iter().map(piece_of).collect() });
        let needed = slots.partition_point(|(seq, ..)| *seq < low);
        for record in slots[needed..].chunk_by(|a, b| a.0 == b.0) {
            let pieces = record.iter().map(piece_of).collect();
            replay.records.push(Stored { seq: record[0].0, pieces });
        }
        replay.tell_of_gaps(low);
        Ok(replay)
    }
}

impl Replay {
    /// Each commit has a record, so their numbers have no gaps.
    fn tell_of_gaps(&self, low: u64) {
        let expected = (self.last + 1).saturating_sub(low.max(1));
        let missing = expected.saturating_sub(self.records.len() as u64);
        if missing > 0 {
            let last = self.last;
            tracing::error!(
                "{missing} records of the journal between {low} and {last} are missing: what they held is lost"
            );
        }
    }
}

/// Checksum of a slot's header, which no record's own covers; never 0, which is a slot from before there was one.
fn check(header: &[u8]) -> u16 {
    let sum = crc32fast::hash(header);
    ((sum >> 16) as u16 ^ sum as u16).max(1)
}

struct Header {
    seq: u64,
    low: u64,
    piece: u32,
    pieces: u32,
    length: usize,
}

fn header(data: &[u8]) -> Result<Header, Damaged> {
    let mut input = Reader::new(data);
    let header = Header {
        seq: u64::from_le_bytes(input.array()?),
        low: u64::from_le_bytes(input.array()?),
        piece: u32::from_le_bytes(input.array()?),
        pieces: u32::from_le_bytes(input.array()?),
        length: u16::from_le_bytes(input.array()?).into(),
    };
    let sum = u16::from_le_bytes(input.array()?);
    let checked = sum == 0 || sum == check(&data[..HEADER_BYTES - 2]);
    let sound = checked && header.seq > 0 && header.low <= header.seq + 1 && header.piece < header.pieces;
    if sound && header.pieces as usize <= MAX_PIECES && header.length <= input.left() {
        Ok(header)
    } else {
        Err(Damaged("slot header"))
    }
}

impl Stored {
    /// The record's bytes, or why they cannot be had.
    pub(super) fn read(&self, db: &Connection) -> Result<Result<Vec<u8>, Damaged>, StoreError> {
        let mut select = db.prepare_cached("SELECT data FROM slot WHERE id = ?1").doing("read the journal")?;
        let mut record = Vec::with_capacity(self.pieces.len() * PIECE_BYTES);
        for (i, &(piece, slot)) in self.pieces.iter().enumerate() {
            let data: Vec<u8> = select.query_row([slot], |row| row.get(0)).doing("read the journal")?;
            match header(&data) {
                Ok(header) if piece as usize == i && header.pieces as usize == self.pieces.len() => {
                    record.extend_from_slice(&data[HEADER_BYTES..HEADER_BYTES + header.length]);
                }
                _ => return Ok(Err(Damaged("a piece of the record is missing"))),
            }
        }
        Ok(Ok(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE slot (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT").unwrap();
        db
    }

    fn read(db: &Connection) -> Vec<(u64, Vec<u8>)> {
        let records = Journal::read(db).unwrap().records;
        records.iter().map(|record| (record.seq, record.read(db).unwrap().unwrap())).collect()
    }

    #[test]
    fn records_come_back_from_the_low_mark_on_and_slots_are_used_again() {
        let db = database();
        let mut journal = Journal::default();
        let long = vec![7u8; 3 * PIECE_BYTES + 5];
        journal.write(&db, 1, 1, &long).unwrap();
        journal.write(&db, 2, 1, b"two").unwrap();
        assert_eq!(read(&db), [(1, long), (2, b"two".to_vec())]);
        journal.write(&db, 3, 2, b"three").unwrap();
        journal.trim(2);
        assert_eq!(read(&db), [(2, b"two".to_vec()), (3, b"three".to_vec())]);
        let slots = journal.slots;
        for seq in 4..8 {
            journal.write(&db, seq, seq, b"next").unwrap();
            journal.trim(seq);
        }
        assert_eq!(journal.slots, slots);
        let replay = Journal::read(&db).unwrap();
        assert_eq!((replay.last, replay.records.len(), replay.journal.live_bytes()), (7, 1, PAGE_BYTES));
    }

    #[test]
    fn a_slot_fills_exactly_one_page() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(
            "PRAGMA page_size = 1024; CREATE TABLE slot (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT",
        )
        .unwrap();
        let mut journal = Journal::default();
        for seq in 1..=100 {
            journal.write(&db, seq, 1, b"x").unwrap();
        }
        let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        assert!((102..=105).contains(&pages), "{pages}");
    }

    #[test]
    fn a_missing_piece_loses_one_record_only() {
        let db = database();
        let mut journal = Journal::default();
        journal.write(&db, 1, 1, &vec![7u8; 2 * PIECE_BYTES]).unwrap();
        journal.write(&db, 2, 1, b"two").unwrap();
        db.execute("UPDATE slot SET data = zeroblob(985) WHERE id = 2", []).unwrap();
        let records = Journal::read(&db).unwrap().records;
        assert!(records[0].read(&db).unwrap().is_err());
        assert_eq!(records[1].read(&db).unwrap().as_deref(), Ok(&b"two"[..]));
    }

    #[test]
    fn a_header_that_changed_is_not_believed() {
        for byte in 0..HEADER_BYTES {
            let db = database();
            let mut journal = Journal::default();
            journal.write(&db, 1, 1, b"one").unwrap();
            journal.write(&db, 2, 1, b"two").unwrap();
            let mut data: Vec<u8> = db.query_row("SELECT data FROM slot WHERE id = 2", [], |row| row.get(0)).unwrap();
            data[byte] ^= 0x40;
            db.execute("UPDATE slot SET data = ?1 WHERE id = 2", [data]).unwrap();
            assert_eq!(read(&db), [(1, b"one".to_vec())], "byte {byte}");
        }
    }
}
