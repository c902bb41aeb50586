//! One open bucket, and what it becomes.

use std::time::Duration;

use super::filter::TimeFilter;
use super::pieces::{Chain, Pieces};
use super::{BucketKey, Groups, Opened, Pushed, codec};
use crate::codec::Row;
use crate::varint::{Damaged, Reader};
use crate::{BucketPolicy, ClockState, SealReason, Timestamp};

/// After this many small blocks at its end a bucket joins them into one: columns of one row compress poorly.
const JOIN_BLOCKS: u16 = 32;
/// A block of so many rows is not small: joining it would cost more time than it saves memory.
const WHOLE_ROWS: usize = 8;
/// How far an arrival's stamp may lie before an earlier one: deliveries of several tasks overtake each other by less.
const MAX_OVERTAKING: Duration = Duration::from_secs(1);

/// An open bucket.
#[derive(Debug)]
pub struct Open {
    /// Its identity.
    pub key: BucketKey,
    /// When it is closed.
    pub due: Timestamp,
    /// Whether it was opened after its window's earlier bucket was closed.
    pub late: bool,
    /// What is known of its samples' times.
    pub clock: ClockState,
    pub(super) first_seq: u64,
    pending: Vec<Row>,
    /// How many were pending at the last step: the next will hardly have more.
    usual: u16,
    /// Blocks, the last `small_blocks` of which, from `joined` on, wait to be joined.
    data: Chain,
    joined: u32,
    small_blocks: u16,
    latest: Timestamp,
    /// The times that are there; made when the first sample comes out of order.
    times: Option<Box<TimeFilter>>,
    count: u32,
    bytes: u32,
    told: bool,
}

/// A bucket that was closed, in its compact form. Its samples lie where those of open buckets do, until it is sealed.
#[derive(Debug)]
pub struct Closed {
    key: BucketKey,
    reason: SealReason,
    late: bool,
    clock: ClockState,
    first_seq: u64,
    data: Chain,
    /// What came since the last step.
    pending: Vec<Row>,
    /// What is not told of it yet.
    opened: Option<Opened>,
    count: u32,
}

impl Closed {
    /// Its identity.
    pub const fn key(&self) -> BucketKey {
        self.key
    }

    /// The lowest record that holds samples of it.
    pub const fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Why it was closed.
    pub const fn reason(&self) -> SealReason {
        self.reason
    }

    /// How many samples it holds.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    pub(super) const fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Encodes what was pushed last; the block goes into the bucket and into the record `seq`.
    pub(super) fn flush(&mut self, seq: u64, groups: &mut Groups, pieces: &mut Pieces) {
        let opened = self.opened.take();
        let block = groups.push(self.key, opened, |out| codec::encode(&self.pending, self.key.window.start(), out));
        pieces.append(&mut self.data, block);
        self.pending = Vec::new();
        self.first_seq = self.first_seq.min(seq);
    }

    /// Forgets its samples.
    pub(super) fn discard(mut self, pieces: &mut Pieces) {
        pieces.give_back(&mut self.data);
    }

    pub(super) fn seal(mut self, pieces: &mut Pieces) -> Result<SealedRows, Damaged> {
        let mut rows = Vec::with_capacity(self.count as usize);
        let mut blocks = Vec::new();
        pieces.read(&self.data, 0, &mut blocks);
        pieces.give_back(&mut self.data);
        decode(&blocks, self.key, &mut rows)?;
        rows.extend(self.pending);
        rows.sort_by_key(|row| row.at);
        let Self { key, reason, late, clock, .. } = self;
        Ok(SealedRows { key, reason, late, clock, rows })
    }
}

/// Unpacks all of a bucket's blocks.
fn decode(blocks: &[u8], key: BucketKey, rows: &mut Vec<Row>) -> Result<(), Damaged> {
    let mut input = Reader::new(blocks);
    while input.left() > 0 {
        codec::decode(&mut input, key.window.start(), rows)?;
    }
    Ok(())
}

/// A bucket that was closed: its rows in time order, equal times in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRows {
    /// Its identity.
    pub key: BucketKey,
    /// Why it was closed.
    pub reason: SealReason,
    /// Whether it was opened after its window's earlier bucket was closed.
    pub late: bool,
    /// What is known of its samples' times.
    pub clock: ClockState,
    /// Its samples.
    pub rows: Vec<Row>,
}

impl Open {
    pub(super) fn new(key: BucketKey, opened: Opened, first_seq: u64) -> Self {
        let Opened { due, late, clock } = opened;
        Self {
            key,
            due,
            late,
            clock,
            first_seq,
            pending: Vec::new(),
            usual: 0,
            data: Chain::EMPTY,
            joined: 0,
            small_blocks: 0,
            latest: Timestamp::EPOCH,
            times: None,
            count: 0,
            bytes: 0,
            told: false,
        }
    }

    /// Bytes its samples take in memory; those pushed since the last step are not among them.
    pub(super) const fn bytes(&self) -> usize {
        self.data.taken()
    }

    /// Its latest sample.
    pub const fn latest(&self) -> Timestamp {
        self.latest
    }

    /// How many samples it holds.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Its samples as blocks whose base is the window's start; those pushed since the last step are not among them.
    pub(super) fn blocks(&self, pieces: &Pieces) -> Vec<u8> {
        let mut blocks = Vec::new();
        pieces.read(&self.data, 0, &mut blocks);
        blocks
    }

    /// Its samples so far, in order of arrival.
    pub(super) fn rows(&self, pieces: &Pieces) -> Result<Vec<Row>, Damaged> {
        let mut rows = Vec::with_capacity(self.count as usize);
        decode(&self.blocks(pieces), self.key, &mut rows)?;
        rows.extend(self.pending.iter().cloned());
        Ok(rows)
    }

    /// It takes nothing more.
    pub(super) fn close(mut self, reason: SealReason) -> Closed {
        let opened = self.untold();
        let Self { key, late, clock, first_seq, data, pending, count, .. } = self;
        Closed { key, reason, late, clock, first_seq, data, pending, opened, count }
    }

    /// Forgets its samples.
    pub(super) fn discard(mut self, pieces: &mut Pieces) {
        pieces.give_back(&mut self.data);
    }

    pub(super) const fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What must be told of it with its next samples.
    fn untold(&mut self) -> Option<Opened> {
        let Self { due, late, clock, .. } = *self;
        (!std::mem::replace(&mut self.told, true)).then_some(Opened { due, late, clock })
    }

    pub(super) fn is_full(&self, weight: u32, policy: &BucketPolicy) -> bool {
        self.count >= policy.max_samples.min(codec::MAX_ROWS as u32)
            || (self.count > 0 && self.bytes.saturating_add(weight) > policy.max_bytes)
    }

    pub(super) fn full_reason(&self, policy: &BucketPolicy) -> SealReason {
        if self.count >= policy.max_samples.min(codec::MAX_ROWS as u32) {
            SealReason::Samples
        } else {
            SealReason::Bytes
        }
    }

    /// Why it is closed when its time is over.
    pub(super) const fn time_reason(&self) -> SealReason {
        if self.late { SealReason::Late } else { SealReason::Window }
    }

    /// Whether it holds a sample later than `now`.
    pub(super) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.count > 0 && self.latest > now
    }

    /// Whether it holds a sample so much later than `at` that a stamp of `at` means a clock that was set back.
    pub(super) fn has_passed(&self, at: Timestamp) -> bool {
        self.is_ahead_of(at.plus(MAX_OVERTAKING))
    }

    /// Whether exactly this sample is there. In-order arrival, the usual case, needs no look at the others.
    pub(super) fn holds(&mut self, row: &Row, pieces: &Pieces) -> bool {
        if self.count == 0 || row.at > self.latest {
            return false;
        }
        if self.times.is_none() {
            let mut times = TimeFilter::with_room_for(self.count as usize);
            self.rows(pieces).unwrap_or_default().iter().for_each(|row| {
                times.add(row.at);
            });
            self.times = Some(Box::new(times));
        }
        self.times.as_ref().is_some_and(|times| times.may_hold(row.at))
            && (self.pending.contains(row) || self.rows(pieces).is_ok_and(|rows| rows.contains(row)))
    }

    /// Takes a row unless it holds it already.
    pub(super) fn push(&mut self, row: &mut Row, weight: u32, clock: ClockState, pieces: &Pieces) -> Pushed {
        if self.holds(row, pieces) {
            return Pushed::Duplicate;
        }
        self.add(std::mem::take(row), weight, clock);
        Pushed::Kept
    }

    fn add(&mut self, row: Row, weight: u32, clock: ClockState) {
        if clock > self.clock {
            self.clock = clock;
            self.told = false;
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(weight);
        self.latest = self.latest.max(row.at);
        if self.times.as_mut().is_some_and(|times| !times.add(row.at)) {
            self.times = None;
        }
        if self.pending.capacity() == 0 {
            self.pending.reserve_exact(usize::from(self.usual).max(1));
        }
        self.pending.push(row);
    }

    /// Encodes what was pushed; the block goes into the bucket and into the record `seq`.
    pub(super) fn flush(&mut self, seq: u64, groups: &mut Groups, pieces: &mut Pieces) -> Result<(), Damaged> {
        let opened = self.untold();
        let pending = std::mem::take(&mut self.pending);
        let block = groups.push(self.key, opened, |out| codec::encode(&pending, self.key.window.start(), out));
        self.usual = pending.len().min(usize::from(u16::MAX)) as u16;
        self.first_seq = self.first_seq.min(seq);
        self.append(block, pending.len(), pieces)
    }

    /// Takes back blocks that were written earlier.
    pub(super) fn absorb(
        &mut self,
        blocks: &[u8],
        seq: u64,
        weigh: impl Fn(&Row) -> u32,
        pieces: &mut Pieces,
    ) -> Result<(), Damaged> {
        let mut rows = Vec::new();
        decode(blocks, self.key, &mut rows)?;
        for row in &rows {
            self.count += 1;
            self.bytes = self.bytes.saturating_add(weigh(row));
            self.latest = self.latest.max(row.at);
        }
        self.first_seq = self.first_seq.min(seq);
        self.told = true;
        self.times = None;
        self.append(blocks, rows.len(), pieces)
    }

    fn append(&mut self, blocks: &[u8], rows: usize, pieces: &mut Pieces) -> Result<(), Damaged> {
        pieces.append(&mut self.data, blocks);
        if rows >= WHOLE_ROWS && self.small_blocks == 0 {
            self.joined = self.data.len() as u32;
            return Ok(());
        }
        self.small_blocks += 1;
        if self.small_blocks < JOIN_BLOCKS {
            return Ok(());
        }
        let (mut small, mut rows) = (Vec::new(), Vec::new());
        pieces.read(&self.data, self.joined as usize, &mut small);
        decode(&small, self.key, &mut rows)?;
        small.clear();
        codec::encode(&rows, self.key.window.start(), &mut small);
        pieces.truncate(&mut self.data, self.joined as usize);
        pieces.append(&mut self.data, &small);
        self.joined = self.data.len() as u32;
        self.small_blocks = 0;
        Ok(())
    }
}
