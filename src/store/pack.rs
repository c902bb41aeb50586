//! Sealed buckets packed together, about 64 KiB at a time: neighbours of one window resemble each other.
//!
//! A pack is a head and a body. The head lists the buckets: key, flags, length of its block, and its rollup; the body
//! holds the blocks of samples one after the other. On disk each is a frame of its own, `length of the head's frame ·
//! version · head · body`, so that rollups are read without unpacking a sample. Files of the first release hold a single
//! frame of `count · (key · flags · length · block)…`, told by its version, which stands in the same place.

use std::ops::Range;
use std::sync::Arc;

use super::body::Body;
use super::ledger::Loss;
use super::names::{NameReader, Names};
use super::record::{put_key, read_key};
use super::rollups::RowRollup;
use super::{PackedBucket, Parcel, SegmentId, StoreError, frame, thin};
use crate::model::bucketer::{BucketKey, SealedRows};
use crate::model::codec::{self, Row};
use crate::model::varint::{self, Damaged, Reader};
use crate::model::{ClockState, Reading, Rollup, Sample, SealReason, SealedBucket, SensorName, Timestamp};

/// Body bytes at which a pack is complete: about 16 KiB once compressed.
const TARGET_BYTES: usize = 64 << 10;
/// Most buckets in one pack.
const MAX_BUCKETS: usize = 65_536;
/// What stands after the first four bytes; the frames of the first release have 1 there.
const VERSION: u8 = 2;

/// Buckets that belong together: one segment.
#[derive(Debug)]
pub(super) struct Packed {
    pub samples: u32,
    pub first: Timestamp,
    pub last: Timestamp,
    /// Its buckets in order, and why each was closed.
    pub keys: Vec<(BucketKey, SealReason)>,
    head: Vec<u8>,
    body: Arc<[u8]>,
}

/// Collects sealed buckets into packs.
#[derive(Debug, Default)]
pub(super) struct Packer {
    /// Keep on, whatever the size: the segment exists already.
    whole: bool,
    head: Vec<u8>,
    body: Vec<u8>,
    keys: Vec<(BucketKey, SealReason)>,
    samples: u32,
    span: Option<(Timestamp, Timestamp)>,
    scratch: Vec<u8>,
}

impl Packer {
    /// A packer for the buckets of one segment that exists already.
    pub(super) fn whole() -> Self {
        Self { whole: true, ..Self::default() }
    }

    /// Takes a bucket; gives back a pack when one is complete.
    pub(super) fn add(&mut self, bucket: &SealedRows) -> Option<Packed> {
        let rollup = RowRollup::of(&bucket.rows)?;
        let from = self.body.len();
        codec::encode(&bucket.rows, bucket.key.window.start(), &mut self.body);
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        rollup.encode(bucket.key.window.start(), &mut bytes);
        self.list(
            &bucket.key,
            bucket.reason,
            flags(bucket.reason, bucket.late, bucket.clock, false),
            self.body.len() - from,
            &bytes,
        );
        self.scratch = bytes;
        self.count(rollup.count, rollup.first, rollup.last);
        let complete = self.body.len() >= TARGET_BYTES || self.keys.len() == MAX_BUCKETS;
        (complete && !self.whole).then(|| self.finish()).flatten()
    }

    /// Takes a bucket whose samples were replaced by a rollup, and the rollup's bytes.
    pub(super) fn add_rollup(&mut self, entry: &Entry, rollup: &Rollup, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        self.list(&entry.key, entry.reason, flags(entry.reason, entry.late, entry.clock, true), bytes.len(), &[]);
        self.count(rollup.count, rollup.first, rollup.last);
    }

    /// Takes a bucket from another segment as it is.
    pub(super) fn add_as_is(&mut self, entry: &Entry) {
        self.body.extend_from_slice(entry.bytes());
        let flags = flags(entry.reason, entry.late, entry.clock, entry.thinned);
        self.list(&entry.key, entry.reason, flags, entry.bytes().len(), &entry.rollup);
        self.count(0, entry.key.window.start(), entry.key.window.start());
    }

    fn list(&mut self, key: &BucketKey, reason: SealReason, flags: u8, block: usize, rollup: &[u8]) {
        put_key(&mut self.head, key, self.keys.last().map(|(key, _)| key), false);
        self.head.push(flags);
        varint::put(&mut self.head, block as u64);
        varint::put_bytes(&mut self.head, rollup);
        self.keys.push((*key, reason));
    }

    fn count(&mut self, samples: u32, first: Timestamp, last: Timestamp) {
        self.samples += samples;
        let (from, to) = self.span.unwrap_or((first, last));
        self.span = Some((from.min(first), to.max(last)));
    }

    /// The pack of what was taken since the last; `None` if nothing was.
    pub(super) fn finish(&mut self) -> Option<Packed> {
        let whole = std::mem::take(self);
        let (first, last) = whole.span?;
        let mut head = Vec::with_capacity(whole.head.len() + 4);
        varint::put(&mut head, whole.keys.len() as u64);
        head.extend_from_slice(&whole.head);
        Some(Packed { samples: whole.samples, first, last, keys: whole.keys, head, body: whole.body.into() })
    }
}

impl Packed {
    /// How many buckets it holds.
    pub(super) fn buckets(&self) -> u32 {
        self.keys.len() as u32
    }

    /// Bytes it takes in memory, about.
    pub(super) fn weight(&self) -> usize {
        self.head.len() + self.body.len() + self.keys.len() * size_of::<(BucketKey, SealReason)>()
    }

    /// Its form on disk.
    pub(super) fn seal(&self) -> Vec<u8> {
        let (head, body) = (frame::seal(&self.head), frame::seal(&self.body));
        let mut data = Vec::with_capacity(5 + head.len() + body.len());
        data.extend_from_slice(&(head.len() as u32).to_le_bytes());
        data.push(VERSION);
        data.extend_from_slice(&head);
        data.extend_from_slice(&body);
        data
    }

    /// What is drawn of it for delivery.
    pub(super) fn parcel(&self, id: SegmentId, names: &NameReader) -> Result<Parcel, StoreError> {
        let listed = listed(&self.head).map_err(StoreError::damaged(format!("segment {}", id.0)))?;
        parcel(id, listed, &Body::Plain(Arc::clone(&self.body)), names)
    }

    /// Its buckets without their samples.
    pub(super) fn listed(&self) -> Result<Vec<Listed>, Damaged> {
        listed(&self.head)
    }
}

/// One bucket as the head tells of it.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub key: BucketKey,
    pub flags: u8,
    /// Where in the body its block lies.
    block: Range<usize>,
    /// Its rollup in compact form; empty for a bucket that was thinned, or is from a file of the first release.
    pub rollup: Vec<u8>,
}

impl Listed {
    /// Its rollup, if it has one.
    pub(super) fn rollup(&self) -> Result<Option<RowRollup>, Damaged> {
        if self.rollup.is_empty() {
            return Ok(None);
        }
        RowRollup::decode(&mut Reader::new(&self.rollup), self.key.window.start()).map(Some)
    }
}

/// Appends a bucket of which only the rollup is kept.
pub(super) fn put_listed(out: &mut Vec<u8>, listed: &Listed, previous: Option<&BucketKey>) {
    put_key(out, &listed.key, previous, false);
    out.push(listed.flags);
    varint::put(out, 0);
    varint::put_bytes(out, &listed.rollup);
}

/// Reads a head.
pub(super) fn listed(head: &[u8]) -> Result<Vec<Listed>, Damaged> {
    let mut input = Reader::new(head);
    let mut listed: Vec<Listed> = Vec::new();
    let mut from = 0usize;
    for _ in 0..input.bounded(MAX_BUCKETS)? {
        let (key, _) = read_key(&mut input, listed.last().map(|listed| &listed.key))?;
        let flags = input.byte()?;
        let to = from.checked_add(input.u32()? as usize).ok_or(Damaged("block out of range"))?;
        listed.push(Listed { key, flags, block: from..to, rollup: input.bytes()?.to_vec() });
        from = to;
    }
    Ok(listed)
}

/// The frames of head and body.
type Frames<'a> = (&'a [u8], &'a [u8]);

/// The two frames of a segment; `None` if it was written by the first release.
fn frames(data: &[u8]) -> Result<Option<Frames<'_>>, Damaged> {
    let mut input = Reader::new(data);
    let length = u32::from_le_bytes(input.array()?) as usize;
    if input.byte()? != VERSION {
        return Ok(None);
    }
    Ok(Some((input.take(length)?, input.rest())))
}

/// The buckets of a segment without their samples: unpacks the head only, unless the first release wrote it.
pub(super) fn list(id: u64, data: &[u8]) -> Result<Vec<Listed>, StoreError> {
    let read = || match frames(data)? {
        Some((head, _)) => listed(&frame::open(head)?),
        None => listed_by_first_release(&frame::open(data)?),
    };
    read().map_err(StoreError::damaged(format!("segment {id}")))
}

/// Opens a segment. Its checksums are compared at once; its samples are unpacked where the first of them is wanted.
pub(super) fn open(id: SegmentId, data: Vec<u8>, names: &NameReader) -> Result<Parcel, StoreError> {
    let damaged = || StoreError::damaged(format!("segment {}", id.0));
    let Some((head, body)) = frames(&data).map_err(damaged())? else {
        let payload = frame::open(&data).map_err(damaged())?;
        let listed = listed_by_first_release(&payload).map_err(damaged())?;
        return parcel(id, listed, &Body::Plain(payload.into()), names);
    };
    let head = frame::open(head).and_then(|head| listed(&head)).map_err(damaged())?;
    let from = data.len() - body.len();
    parcel(id, head, &Body::framed(data, from).map_err(damaged())?, names)
}

fn listed_by_first_release(payload: &[u8]) -> Result<Vec<Listed>, Damaged> {
    let mut input = Reader::new(payload);
    let mut entries = Vec::new();
    for _ in 0..input.bounded(MAX_BUCKETS)? {
        let (key, _) = read_key(&mut input, None)?;
        let flags = input.byte()?;
        let length = input.bytes()?.len();
        let end = payload.len() - input.left();
        entries.push(Listed { key, flags, block: end - length..end, rollup: Vec::new() });
    }
    Ok(entries)
}

fn parcel(id: SegmentId, listed: Vec<Listed>, body: &Body, names: &NameReader) -> Result<Parcel, StoreError> {
    if listed.iter().any(|listed| listed.block.end > body.len()) {
        return Err(StoreError::damaged(format!("segment {}", id.0))(Damaged("block out of range")));
    }
    let entry = |listed: Listed| Entry {
        key: listed.key,
        reason: reason_of(listed.flags >> 1),
        late: listed.flags & 1 != 0,
        clock: ClockState::of_code(listed.flags >> 4),
        thinned: listed.flags & THINNED != 0,
        body: body.clone(),
        block: listed.block,
        rollup: listed.rollup,
        names: names.clone(),
    };
    Ok(Parcel { id, buckets: listed.into_iter().map(entry).map(PackedBucket).collect() })
}

/// One bucket of an open pack.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: BucketKey,
    reason: SealReason,
    late: bool,
    clock: ClockState,
    thinned: bool,
    body: Body,
    block: Range<usize>,
    rollup: Vec<u8>,
    names: NameReader,
}

impl Entry {
    pub(super) fn unpack(&self) -> Result<SealedBucket, StoreError> {
        let damaged = || StoreError::damaged(format!("bucket of sensor {}", self.key.sensor));
        let sensor = self.names.sensor(self.key.sensor).ok_or(Damaged("sensor without a name")).map_err(damaged())?;
        let block = self.block().map_err(damaged())?;
        let (samples, rollup) = if self.thinned {
            (Vec::new(), Some(thin::decode(block, &self.names).map_err(damaged())?))
        } else {
            let (_, rows) = self.rows().map_err(damaged())?;
            (self.names.samples(rows).ok_or(Damaged("field without a name")).map_err(damaged())?, None)
        };
        Ok(SealedBucket {
            sensor,
            window: self.key.window,
            part: self.key.part,
            sealed: self.reason,
            late: self.late,
            clock: self.clock,
            samples,
            rollup,
        })
    }

    /// Its key and its samples as rows.
    pub(super) fn rows(&self) -> Result<(BucketKey, Vec<codec::Row>), Damaged> {
        let mut rows = Vec::new();
        codec::decode(&mut Reader::new(self.block()?), self.key.window.start(), &mut rows)?;
        Ok((self.key, rows))
    }

    /// A segment of this bucket alone.
    pub(super) fn repacked(&self) -> Vec<u8> {
        let mut packer = Packer::whole();
        packer.add_as_is(self);
        packer.finish().map(|packed| packed.seal()).unwrap_or_default()
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

    fn block(&self) -> Result<&[u8], Damaged> {
        self.body.blocks().map(|blocks| &blocks[self.block.clone()])
    }

    /// Its compact form; what there is of it, if it does not unpack.
    pub(super) fn bytes(&self) -> &[u8] {
        self.block().unwrap_or_else(|_| self.body.raw())
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

/// Bit 0: late; bits 1 and 2: why it was closed; bit 3: a rollup stands in place of the samples; bits 4 and 5: what is
/// known of its samples' times.
pub(super) const fn flags(reason: SealReason, late: bool, clock: ClockState, thinned: bool) -> u8 {
    late as u8 | reason_code(reason) << 1 | if thinned { THINNED } else { 0 } | clock.code() << 4
}

/// A reason as a number below 4.
pub(super) const fn reason_code(reason: SealReason) -> u8 {
    match reason {
        SealReason::Window => 0,
        SealReason::Samples => 1,
        SealReason::Bytes => 2,
        SealReason::Late => 3,
    }
}

/// The reason with this number.
pub(super) const fn reason_of(code: u8) -> SealReason {
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
    let row = |sample: &Sample| {
        let mut row = Row::default();
        let fits = names.fill(&mut row, &reading(sample), None);
        debug_assert!(fits, "a bucket has fewer fields than a site");
        row
    };
    let rows = bucket.samples.iter().map(row).collect();
    let key = BucketKey { sensor, window: bucket.window, part: bucket.part };
    let mut packer = Packer::default();
    let complete = packer.add(&SealedRows { key, reason: bucket.sealed, late: bucket.late, clock: bucket.clock, rows });
    let packed = complete.or_else(|| packer.finish()).expect("a bucket was added");
    let mut parcel = packed.parcel(SegmentId(0), &names.reader()).expect("packed just now");
    parcel.buckets.remove(0)
}
