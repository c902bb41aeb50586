//! The way out of the store: sealed buckets, oldest first, a segment at a time.

use std::future::Future;

use super::segment::Entry;
use super::{Growth, Question, StoreError};
use crate::model::{DeadLetter, LossReason, LostBucket, SealedBucket, Timestamp};

/// A segment of sealed buckets; numbers grow with time and are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

/// One segment, as drawn for delivery. Its buckets stay packed until they are needed, so it is small in memory.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Which segment.
    pub id: SegmentId,
    /// Its buckets, oldest first.
    pub buckets: Vec<PackedBucket>,
}

/// A sealed bucket in its compact form.
#[derive(Clone, Debug)]
pub struct PackedBucket(pub(super) Entry);

impl PackedBucket {
    /// Packs a bucket that is in no database (one that holds at least one sample).
    pub fn pack(bucket: &SealedBucket) -> Self {
        super::segment::pack_one(bucket)
    }

    /// The bucket; an error if its bytes are damaged.
    pub fn unpack(&self) -> Result<SealedBucket, StoreError> {
        self.0.unpack()
    }

    /// Its compact form, for when it does not unpack.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// How many samples it holds.
    pub fn samples(&self) -> usize {
        self.0.samples()
    }

    /// What is lost when it is put aside for good; `segment` is the one that it came in.
    pub fn lost(&self, segment: SegmentId, reason: LossReason) -> LostBucket {
        let loss = self.0.loss();
        LostBucket {
            segment: segment.0,
            reason,
            sensor: self.0.sensor(),
            first: loss.first,
            last: loss.last,
            samples: u32::try_from(loss.samples).unwrap_or(u32::MAX),
            packed: if reason == LossReason::Damaged { Vec::new() } else { self.0.repacked() },
        }
    }
}

/// What the forwarder decided about segments it has drawn.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// Segments of which every bucket is delivered or in `dead_letters`: they are deleted.
    pub segments: Vec<SegmentId>,
    /// Buckets that the upstream refused for good; stored in the same commit.
    pub dead_letters: Vec<DeadLetter>,
}

/// An entry of the loss ledger that changes no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Grows with time and is never used twice.
    pub id: i64,
    /// When it was put on record.
    pub at: Timestamp,
    /// Whose readings, if it was one sensor's.
    pub sensor: Option<String>,
    /// From when.
    pub first: Timestamp,
    /// Until when.
    pub last: Timestamp,
    /// How many.
    pub samples: u64,
    /// Why, in a fixed word.
    pub reason: String,
}

/// The forwarder's view of the store.
pub trait Backlog: Send {
    /// The oldest segment after the last one drawn; waits until there is one. `None` when the store has ended and
    /// nothing is left to draw. Dropped half-way, nothing is drawn.
    fn next(&mut self) -> impl Future<Output = Result<Option<Parcel>, StoreError>> + Send;

    /// Draw from the oldest segment again, what was put behind included.
    fn rewind(&mut self);

    /// Whether [`Self::next`] has a segment to draw now.
    fn has_next(&self) -> bool {
        false
    }

    /// Puts everything that waits now behind: [`Self::next`] goes on with what is sealed from now on, [`Self::next_old`]
    /// draws the rest.
    fn split(&mut self) {}

    /// The oldest segment of what was put behind; `None` when all of it is drawn. Dropped half-way, nothing is drawn.
    fn next_old(&mut self) -> impl Future<Output = Result<Option<Parcel>, StoreError>> + Send {
        std::future::ready(Ok(None))
    }

    /// Deletes what is delivered and keeps what was refused; returns when that is on disk, or, for segments that never
    /// were there, when it is certain to be with a later commit.
    fn settle(&mut self, settled: Settled) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether the upstream takes what it is sent: while it does, sealed buckets need not be written before they are sent.
    fn upstream_takes(&mut self, _takes: bool) {}

    /// What open buckets hold of committed readings; nothing if that cannot be told now. Safe to drop.
    fn look(&mut self, _: Question) -> impl Future<Output = Growth> + Send {
        std::future::ready(Growth::default())
    }

    /// Entries of the loss ledger after number `after` that change no more, oldest first, at most `most`.
    fn losses(
        &mut self,
        _after: i64,
        _now: Timestamp,
        _most: usize,
    ) -> impl Future<Output = Result<Vec<Lost>, StoreError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    /// The random id, eight hex digits, that was born with the database file.
    fn store_id(&self) -> &str;
}
