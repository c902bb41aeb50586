//! Segments: many sealed buckets in one row of the database.
//!
//! A payload is `count · (key · flags · length · samples or rollup)…`, framed and compressed together: neighbours of one
//! window resemble each other.

use std::ops::Range;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::engine::Count;
use super::error::Doing;
use super::ledger::Loss;
use super::names::{NameReader, Names};
use super::record::{put_key, read_key};
use super::{PackedBucket, Parcel, SegmentId, StoreError, frame, thin};
use crate::model::bucketer::{BucketKey, SealedRows};
use crate::model::codec;
use crate::model::varint::{self, Damaged, Reader};
use crate::model::{Reading, Rollup, Sample, SealReason, SealedBucket, SensorName, Timestamp};

/// Payload bytes at which a segment is complete: about 16 KiB once compressed.
const TARGET_BYTES: usize = 64 << 10;
/// Most buckets in one segment.
const MAX_BUCKETS: usize = 65_536;

/// A segment ready to be written.
#[derive(Debug)]
pub(super) struct Packed {
    pub buckets: u32,
    pub samples: u32,
    pub first: Timestamp,
    pub last: Timestamp,
    pub data: Vec<u8>,
}

/// Collects sealed buckets into segments.
#[derive(Debug, Default)]
pub(super) struct Packer {
    /// Keep on, whatever the size: the segment exists already.
    whole: bool,
    payload: Vec<u8>,
    buckets: u32,
    samples: u32,
    span: Option<(Timestamp, Timestamp)>,
}

impl Packer {
    /// A packer for the buckets of one segment that exists already.
    pub(super) fn whole() -> Self {
        Self { whole: true, ..Self::default() }
    }

    /// Takes a bucket; gives back a segment when one is complete.
    pub(super) fn add(&mut self, bucket: &SealedRows) -> Option<Packed> {
        let mut block = Vec::with_capacity(bucket.rows.len() * 4);
        codec::encode(&bucket.rows, bucket.key.window.start(), &mut block);
        self.put(&bucket.key, flags(bucket.reason, bucket.late, false), &block);
        if let (Some(first), Some(last)) = (bucket.rows.first(), bucket.rows.last()) {
            self.count(bucket.rows.len() as u32, first.at, last.at);
        }
        let complete = self.payload.len() >= TARGET_BYTES || self.buckets as usize == MAX_BUCKETS;
        (complete && !self.whole).then(|| self.finish()).flatten()
    }

    /// Takes a bucket whose samples were replaced by a rollup, and the rollup's bytes.
    pub(super) fn add_rollup(&mut self, entry: &Entry, rollup: &Rollup, bytes: &[u8]) {
        self.put(&entry.key, flags(entry.reason, entry.late, true), bytes);
        self.count(rollup.count, rollup.first, rollup.last);
    }

    /// Takes a bucket from another segment as it is.
    pub(super) fn add_as_is(&mut self, entry: &Entry) {
        self.put(&entry.key, flags(entry.reason, entry.late, entry.thinned), entry.bytes());
        self.count(0, entry.key.window.start(), entry.key.window.start());
    }

    fn put(&mut self, key: &BucketKey, flags: u8, block: &[u8]) {
        put_key(&mut self.payload, key, None, false);
        self.payload.push(flags);
        varint::put_bytes(&mut self.payload, block);
        self.buckets += 1;
    }

    fn count(&mut self, samples: u32, first: Timestamp, last: Timestamp) {
        self.samples += samples;
        let (from, to) = self.span.unwrap_or((first, last));
        self.span = Some((from.min(first), to.max(last)));
    }

    /// The segment of what was taken since the last; `None` if nothing was.
    pub(super) fn finish(&mut self) -> Option<Packed> {
        let whole = std::mem::take(self);
        let (first, last) = whole.span?;
        let mut payload = Vec::with_capacity(whole.payload.len() + 4);
        varint::put(&mut payload, whole.buckets.into());
        payload.extend_from_slice(&whole.payload);
        Some(Packed { buckets: whole.buckets, samples: whole.samples, first, last, data: frame::seal(&payload) })
    }
}

/// Writes a segment.
pub(super) fn insert(db: &Connection, id: u64, segment: &Packed) -> Result<(), StoreError> {
    let sql =
        "INSERT INTO segment (id, buckets, samples, first, last, thinned, data) VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)";
    let (first, last) = (segment.first.as_millis(), segment.last.as_millis());
    let mut insert = db.prepare_cached(sql).doing("store a segment")?;
    insert
        .execute(params![id, segment.buckets, segment.samples, first, last, segment.data])
        .doing("store a segment")?;
    Ok(())
}

/// Deletes a segment; how many buckets, and samples of them, it held, `None` if it was not there.
pub(super) fn delete(db: &Connection, id: u64) -> Result<Option<(u32, u64)>, StoreError> {
    let sql = "DELETE FROM segment WHERE id = ?1 RETURNING buckets, samples";
    let mut delete = db.prepare_cached(sql).doing("delete a segment")?;
    delete.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional().doing("delete a segment")
}

/// Takes samples out of a segment's account: their bucket went elsewhere, and the segment stays for the others. How many
/// could be taken.
pub(super) fn take_out(db: &Connection, id: u64, samples: u64) -> Result<u64, StoreError> {
    let mut select = db.prepare_cached("SELECT samples FROM segment WHERE id = ?1").doing("read a segment")?;
    let held: Option<u64> = select.query_row([id], |row| row.get(0)).optional().doing("read a segment")?;
    let taken = samples.min(held.unwrap_or(0));
    if taken > 0 {
        let sql = "UPDATE segment SET samples = samples - ?2 WHERE id = ?1";
        let mut update = db.prepare_cached(sql).doing("put a bucket aside")?;
        update.execute(params![id, taken]).doing("put a bucket aside")?;
    }
    Ok(taken)
}

/// A segment as it lies in the database: its number and its frame.
pub(super) type Raw = (u64, Vec<u8>);

/// The oldest segment after `after`.
pub(super) fn read_after(db: &Connection, after: u64) -> Result<Option<Raw>, StoreError> {
    let sql = "SELECT id, data FROM segment WHERE id > ?1 ORDER BY id LIMIT 1";
    let mut select = db.prepare_cached(sql).doing("read the next segment")?;
    select.query_row([after], |row| Ok((row.get(0)?, row.get(1)?))).optional().doing("read the next segment")
}

/// The number of the last segment; 0 if there is none.
pub(super) fn last(db: &Connection) -> Result<u64, StoreError> {
    let last = db.query_row("SELECT id FROM segment ORDER BY id DESC LIMIT 1", [], |row| row.get(0));
    Ok(last.optional().doing("read the last segment")?.unwrap_or(0))
}

/// Counts segments, buckets, and samples. Looks at every row: for the start only.
pub(super) fn count(db: &Connection) -> Result<(Count, u64), StoreError> {
    let sql = "SELECT count(*), coalesce(sum(buckets), 0), coalesce(sum(samples), 0) FROM segment";
    let count = db.query_row(sql, [], |row| Ok((Count { segments: row.get(0)?, buckets: row.get(1)? }, row.get(2)?)));
    count.doing("count the backlog")
}

/// Where one bucket lies inside an unpacked segment.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    key: BucketKey,
    reason: SealReason,
    late: bool,
    thinned: bool,
    payload: Arc<[u8]>,
    block: Range<usize>,
    names: NameReader,
}

/// Opens a segment.
pub(super) fn open(id: SegmentId, data: &[u8], names: &NameReader) -> Result<Parcel, StoreError> {
    let damaged = || StoreError::damaged(format!("segment {}", id.0));
    let payload: Arc<[u8]> = frame::open(data).map_err(damaged())?.into();
    let entries = entries(&payload, names).map_err(damaged())?;
    Ok(Parcel { id, buckets: entries.into_iter().map(PackedBucket).collect() })
}

fn entries(payload: &Arc<[u8]>, names: &NameReader) -> Result<Vec<Entry>, Damaged> {
    let mut input = Reader::new(payload);
    let mut entries = Vec::new();
    for _ in 0..input.bounded(MAX_BUCKETS)? {
        let (key, _) = read_key(&mut input, None)?;
        let flags = input.byte()?;
        let length = input.bytes()?.len();
        let end = payload.len() - input.left();
        entries.push(Entry {
            key,
            reason: reason_of(flags >> 1),
            late: flags & 1 != 0,
            thinned: flags & THINNED != 0,
            payload: Arc::clone(payload),
            block: end - length..end,
            names: names.clone(),
        });
    }
    Ok(entries)
}

impl Entry {
    pub(super) fn unpack(&self) -> Result<SealedBucket, StoreError> {
        let damaged = || StoreError::damaged(format!("bucket of sensor {}", self.key.sensor));
        let sensor = self.names.sensor(self.key.sensor).ok_or(Damaged("sensor without a name")).map_err(damaged())?;
        let (samples, rollup) = if self.thinned {
            (Vec::new(), Some(thin::decode(self.bytes(), &self.names).map_err(damaged())?))
        } else {
            (self.unpack_samples().map_err(damaged())?, None)
        };
        Ok(SealedBucket {
            sensor,
            window: self.key.window,
            part: self.key.part,
            sealed: self.reason,
            late: self.late,
            samples,
            rollup,
        })
    }

    fn unpack_samples(&self) -> Result<Vec<Sample>, Damaged> {
        let mut rows = Vec::new();
        codec::decode(&mut Reader::new(self.bytes()), self.key.window.start(), &mut rows)?;
        let samples = rows.iter().map(|row| self.names.sample(row)).collect::<Option<Vec<_>>>();
        samples.ok_or(Damaged("field without a name"))
    }

    /// A segment of this bucket alone.
    pub(super) fn repacked(&self) -> Vec<u8> {
        let mut packer = Packer::whole();
        packer.add_as_is(self);
        packer.finish().map(|packed| packed.data).unwrap_or_default()
    }

    /// Whose it is, as a number, and its window.
    pub(super) const fn key(&self) -> &BucketKey {
        &self.key
    }

    /// Whether a rollup stands in place of its samples.
    pub(super) const fn is_thinned(&self) -> bool {
        self.thinned
    }

    /// A span that holds every sample, told without unpacking them; and how many there are, none if it is thinned.
    pub(super) fn loss(&self) -> Loss {
        let window = self.key.window;
        let samples = if self.thinned { 0 } else { self.samples() as u64 };
        Loss { first: window.start(), last: window.end(), samples }
    }

    /// Its name in the loss ledger, for one who puts it aside.
    pub(super) fn sensor(&self) -> Option<SensorName> {
        self.names.sensor(self.key.sensor)
    }

    /// Its compact form.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.payload[self.block.clone()]
    }

    /// How many samples it holds.
    pub(super) fn samples(&self) -> usize {
        if self.thinned {
            return thin::count(self.bytes());
        }
        Reader::new(self.bytes()).bounded(codec::MAX_ROWS).unwrap_or(0)
    }
}

const THINNED: u8 = 8;

/// Bit 0: late; bits 1 and 2: why it was closed; bit 3: a rollup stands in place of the samples.
const fn flags(reason: SealReason, late: bool, thinned: bool) -> u8 {
    let reason = match reason {
        SealReason::Window => 0,
        SealReason::Samples => 1,
        SealReason::Bytes => 2,
        SealReason::Late => 3,
    };
    late as u8 | reason << 1 | if thinned { THINNED } else { 0 }
}

const fn reason_of(code: u8) -> SealReason {
    match code & 3 {
        0 => SealReason::Window,
        1 => SealReason::Samples,
        2 => SealReason::Bytes,
        _ => SealReason::Late,
    }
}

/// A bucket with a dictionary of its own.
pub(super) fn pack_one(bucket: &SealedBucket) -> PackedBucket {
    let mut names = Names::with_room_for(1);
    let sensor = names.sensor(&bucket.sensor).expect("there is room for one");
    let reading =
        |sample: &Sample| Reading { sensor: bucket.sensor.clone(), at: sample.at, fields: sample.fields.clone() };
    let rows = bucket
        .samples
        .iter()
        .map(|sample| names.row(&reading(sample), None).expect("a bucket has fewer fields than a site"))
        .collect();
    let key = BucketKey { sensor, window: bucket.window, part: bucket.part };
    let mut packer = Packer::default();
    let complete = packer.add(&SealedRows { key, reason: bucket.sealed, late: bucket.late, rows });
    let packed = complete.or_else(|| packer.finish()).expect("a bucket was added");
    let mut parcel = open(SegmentId(0), &packed.data, &names.reader()).expect("packed just now");
    parcel.buckets.remove(0)
}
