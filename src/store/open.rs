//! What open buckets hold of committed readings, for those who cannot wait for the seal.
//!
//! It is asked for, not sent: between two commits memory says what the disk says, so what is told here cannot be lost any
//! more, nothing is queued, and who never asks costs nothing. The writer only copies compact bytes, as many as are asked
//! for; they are unpacked on another thread.

use std::collections::HashMap;

use super::StoreError;
use super::engine::Engine;
use super::names::NameReader;
use crate::model::bucketer::{BucketKey, Open};
use crate::model::varint::Reader;
use crate::model::{ClockState, SealReason, SealedBucket, codec};

/// Most bytes of compact samples in one answer, some 25,000 samples; one bucket may always take more.
const MAX_BYTES: usize = 64 << 10;

/// What is known already, and how much more is wanted.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// How many samples are known of which buckets; those that hold no more are passed over.
    pub known: HashMap<BucketKey, u32>,
    /// Begin behind this one.
    pub after: Option<BucketKey>,
    /// Most buckets in the answer,
    pub buckets: usize,
    /// and most samples in them that are not known; one bucket may always have more.
    pub samples: usize,
}

/// Open buckets that hold more than is known.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    /// In the order of their keys.
    pub growing: Vec<Growing>,
    /// Known ones that are not open any more.
    pub closed: Vec<BucketKey>,
    /// Behind the last one there are others.
    pub more: bool,
}

/// An open bucket.
#[derive(Clone, Debug)]
pub struct Growing {
    /// Its identity.
    pub key: BucketKey,
    /// What it holds, its samples in the order in which they came. Why it was closed is not known yet.
    pub bucket: SealedBucket,
}

/// The same in compact form.
#[derive(Debug, Default)]
pub(super) struct Compact {
    growing: Vec<Block>,
    closed: Vec<BucketKey>,
    more: bool,
}

#[derive(Debug)]
struct Block {
    key: BucketKey,
    late: bool,
    clock: ClockState,
    samples: Vec<u8>,
}

impl Engine {
    /// Answers a question about open buckets. What waits for a trusted clock is not told: its times are not known.
    pub(super) fn look(&self, question: &Question) -> Compact {
        let bucketer = &self.state.bucketer;
        let known = |open: &Open| question.known.get(&open.key).copied().unwrap_or(0);
        let is_news = |open: &&Open| {
            !open.key.is_held() && open.count() > known(open) && question.after.is_none_or(|after| open.key > after)
        };
        let mut news: Vec<&Open> = bucketer.open_iter().filter(is_news).collect();
        news.sort_unstable_by_key(|open| open.key);
        let (mut bytes, mut samples, mut growing) = (0, 0, Vec::new());
        for open in &news {
            let blocks = bucketer.blocks(open);
            bytes += blocks.len();
            samples += (open.count() - known(open)) as usize;
            let is_full = growing.len() >= question.buckets || bytes > MAX_BYTES || samples > question.samples;
            if is_full && !growing.is_empty() {
                break;
            }
            let Open { key, late, clock, .. } = **open;
            growing.push(Block { key, late, clock, samples: blocks });
        }
        let more = growing.len() < news.len();
        let closed = question.known.keys().copied().filter(|key| bucketer.find(*key).is_none()).collect();
        Compact { growing, closed, more }
    }
}

impl Compact {
    /// Unpacks it. A bucket that cannot be unpacked is left out: the store tells of it when it is sealed.
    pub(super) fn unpack(self, names: &NameReader) -> Growth {
        let growing = self.growing.iter().filter_map(|block| block.unpack(names).ok());
        Growth { growing: growing.collect(), closed: self.closed, more: self.more }
    }
}

impl Block {
    fn unpack(&self, names: &NameReader) -> Result<Growing, StoreError> {
        let damaged = || StoreError::damaged("open bucket");
        let missing = crate::model::varint::Damaged("a name is missing");
        let (mut rows, mut input) = (Vec::new(), Reader::new(&self.samples));
        while input.left() > 0 {
            codec::decode(&mut input, self.key.window.start(), &mut rows).map_err(damaged())?;
        }
        let samples = names.samples(rows);
        let (Some(sensor), Some(samples)) = (names.sensor(self.key.sensor), samples) else {
            return Err(damaged()(missing));
        };
        let bucket = SealedBucket {
            sensor,
            window: self.key.window,
            part: self.key.part,
            sealed: SealReason::Window,
            late: self.late,
            clock: self.clock,
            samples,
            rollup: None,
        };
        Ok(Growing { key: self.key, bucket })
    }
}
