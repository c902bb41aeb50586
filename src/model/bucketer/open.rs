//! One open bucket, and what it becomes.

use std::time::Duration;

use super::filter::TimeFilter;
use super::{BucketKey, Group, Opened, Pushed, codec};
use crate::codec::Row;
use crate::varint::{Damaged, Reader};
use crate::{BucketPolicy, ClockState, SealReason, Timestamp};

/// After this many small blocks at its end a bucket joins them into one: columns of one row compress poorly.
const JOIN_BLOCKS: u32 = 32;
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
    pub(super) pending: Vec<Row>,
    /// How many were pending at the last step: the next will hardly have more.
    usual: u16,
    /// Whole blocks, the last `small_blocks` of which, from `joined` on, wait to be joined.
    data: Vec<u8>,
    joined: usize,
    small_blocks: u32,
    latest: Timestamp,
    /// The times that are there; made when the first sample comes out of order.
    times: Option<TimeFilter>,
    count: u32,
    bytes: u32,
    told: bool,
}

/// A bucket that was closed, in its compact form.
#[derive(Debug)]
pub struct Closed {
    pub(super) open: Open,
    pub(super) reason: SealReason,
}

impl Closed {
    /// Its identity.
    pub const fn key(&self) -> BucketKey {
        self.open.key
    }

    /// The lowest record that holds samples of it.
    pub const fn first_seq(&self) -> u64 {
        self.open.first_seq
    }

    /// Why it was closed.
    pub const fn reason(&self) -> SealReason {
        self.reason
    }

    /// Unpacks it and puts its samples in time order.
    pub fn seal(self) -> Result<SealedRows, Damaged> {
        let mut rows = self.open.rows()?;
        rows.sort_by_key(|row| row.at);
        let Open { key, late, clock, .. } = self.open;
        Ok(SealedRows { key, reason: self.reason, late, clock, rows })
    }
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
            data: Vec::new(),
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
        self.data.len()
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
    pub fn blocks(&self) -> &[u8] {
        &self.data
    }

    /// Its samples so far, in order of arrival.
    pub fn rows(&self) -> Result<Vec<Row>, Damaged> {
        let mut rows = Vec::with_capacity(self.count as usize);
        let mut input = Reader::new(&self.data);
        while input.left() > 0 {
            codec::decode(&mut input, self.key.window.start(), &mut rows)?;
        }
        rows.extend(self.pending.iter().cloned());
        Ok(rows)
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
    pub(super) fn holds(&mut self, row: &Row) -> bool {
        if self.count == 0 || row.at > self.latest {
            return false;
        }
        if self.times.is_none() {
            let mut times = TimeFilter::with_room_for(self.count as usize);
            self.rows().unwrap_or_default().iter().for_each(|row| {
                times.add(row.at);
            });
            self.times = Some(times);
        }
        self.times.as_ref().is_some_and(|times| times.may_hold(row.at))
            && (self.pending.contains(row) || self.rows().is_ok_and(|rows| rows.contains(row)))
    }

    /// Takes a row unless it holds it already; notes its key if it had nothing pending.
    pub(super) fn push(
        &mut self,
        row: &mut Row,
        weight: u32,
        clock: ClockState,
        touched: &mut Vec<BucketKey>,
    ) -> Pushed {
        if self.holds(row) {
            return Pushed::Duplicate;
        }
        if self.pending.is_empty() {
            touched.push(self.key);
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
    pub(super) fn flush(&mut self, seq: u64) -> Result<Group, Damaged> {
        let mut block = Vec::with_capacity(8 + 4 * self.pending.len());
        codec::encode(&self.pending, self.key.window.start(), &mut block);
        let rows = self.pending.len();
        self.usual = rows.min(usize::from(u16::MAX)) as u16;
        self.pending = Vec::new();
        self.append(&block, rows)?;
        self.first_seq = self.first_seq.min(seq);
        let opened = (!self.told).then_some(Opened { due: self.due, late: self.late, clock: self.clock });
        self.told = true;
        Ok(Group { key: self.key, opened, block })
    }

    /// Takes back blocks that were written earlier.
    pub(super) fn absorb(&mut self, blocks: &[u8], seq: u64, weigh: impl Fn(&Row) -> u32) -> Result<(), Damaged> {
        let mut rows = Vec::new();
        let mut input = Reader::new(blocks);
        while input.left() > 0 {
            codec::decode(&mut input, self.key.window.start(), &mut rows)?;
        }
        for row in &rows {
            self.count += 1;
            self.bytes = self.bytes.saturating_add(weigh(row));
            self.latest = self.latest.max(row.at);
        }
        self.first_seq = self.first_seq.min(seq);
        self.told = true;
        self.times = None;
        self.append(blocks, rows.len())
    }

    fn append(&mut self, blocks: &[u8], rows: usize) -> Result<(), Damaged> {
        // Thousands of buckets grow at a time: doubling each would waste half of their memory.
        let needed = self.data.len() + blocks.len();
        if needed > self.data.capacity() {
            self.data.reserve_exact(blocks.len() + needed / 8 + 8);
        }
        self.data.extend_from_slice(blocks);
        if rows >= WHOLE_ROWS && self.small_blocks == 0 {
            self.joined = self.data.len();
            return Ok(());
        }
        self.small_blocks += 1;
        if self.small_blocks < JOIN_BLOCKS {
            return Ok(());
        }
        let mut rows = Vec::new();
        let mut input = Reader::new(&self.data[self.joined..]);
        while input.left() > 0 {
            codec::decode(&mut input, self.key.window.start(), &mut rows)?;
        }
        self.data.truncate(self.joined);
        codec::encode(&rows, self.key.window.start(), &mut self.data);
        self.data.shrink_to(self.data.len() + self.data.len() / 8);
        self.joined = self.data.len();
        self.small_blocks = 0;
        Ok(())
    }
}
