//! Sealed buckets that are not written yet: while the upstream takes what it is sent, a bucket is mostly delivered
//! before it need be written at all, and a memory card is spared that.
//!
//! At the seal a pack is made in memory under a number of its own, and the commit's record says so (`frozen`). Its
//! samples are in the journal until a later record says that the pack is `gone`: delivered, or written as a row. So a
//! kill at any moment loses nothing, and the buckets in it never change: replay freezes them at the same record.
//! It is written when it was not delivered within the bound, when the upstream stops taking, when memory is short, when
//! it holds the journal back, and at the end.
//!
//! [`Lazy`] belongs to the engine and is thrown away with it. [`Pool`] is what the outlet sees of it: committed packs
//! only, put there after the commit that froze them, taken away after the one that made them `gone`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::StoreError;
use super::engine::Count;
use super::pack::{Packed, Packer};
use super::record::Frozen;
use crate::model::Timestamp;
use crate::model::bucketer::{Bucketer, Closed};

/// Bytes of packs in memory above which the oldest are written: half a minute at 20,000 readings a second.
const MAX_BYTES: usize = 2 << 20;

/// Committed packs that wait for delivery in memory, and whether the upstream takes what it is sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    up: AtomicBool,
    packs: Mutex<BTreeMap<u64, Arc<Packed>>>,
}

impl Pool {
    /// The oldest after `after`, up to `until`.
    pub(super) fn next(&self, after: u64, until: u64) -> Option<(u64, Arc<Packed>)> {
        let range = (Bound::Excluded(after), Bound::Included(until.max(after.saturating_add(1))));
        self.packs().range(range).next().map(|(id, packed)| (*id, Arc::clone(packed)))
    }

    /// Whether all of these wait here.
    pub(super) fn holds(&self, mut ids: impl Iterator<Item = u64>) -> bool {
        let packs = self.packs();
        ids.all(|id| packs.contains_key(&id))
    }

    /// It is delivered: nobody draws it again.
    pub(super) fn remove(&self, id: u64) {
        self.packs().remove(&id);
    }

    /// How many there are.
    pub(super) fn count(&self) -> Count {
        let mut count = Count::default();
        self.packs().values().for_each(|packed| count.inserted(packed.buckets(), packed.samples.into()));
        count
    }

    /// Whether the upstream takes what it is sent.
    pub(super) fn tell(&self, up: bool) {
        self.0.up.store(up, Ordering::Relaxed);
    }

    fn is_up(&self) -> bool {
        self.0.up.load(Ordering::Relaxed)
    }

    fn packs(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Packed>>> {
        self.0.packs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One pack in memory.
#[derive(Debug)]
pub(super) struct Held {
    pub packed: Arc<Packed>,
    /// Samples of buckets of it that were put aside.
    pub aside: u64,
    /// The lowest record that holds samples of it.
    first_seq: u64,
    since: Timestamp,
}

impl Held {
    /// Samples that it answers for.
    pub(super) fn samples(&self) -> u64 {
        u64::from(self.packed.samples).saturating_sub(self.aside)
    }
}

/// All packs in memory, as the engine sees them.
#[derive(Debug, Default)]
pub(super) struct Lazy {
    bound: Duration,
    pool: Pool,
    held: BTreeMap<u64, Held>,
    bytes: usize,
    /// Frozen, and gone, since the last commit.
    frozen: Vec<u64>,
    gone: Vec<u64>,
}

impl Lazy {
    /// Packs wait for at most `bound`; zero: they never do.
    pub(super) fn new(bound: Duration, pool: Pool) -> Self {
        Self { bound, pool, ..Self::default() }
    }

    /// Whether what is sealed now should wait in memory. What waits from an outage does not matter: new buckets go first.
    pub(super) fn wants(&self) -> bool {
        !self.bound.is_zero() && self.pool.is_up()
    }

    /// Takes a pack in; its record is being written.
    pub(super) fn freeze(&mut self, id: u64, packed: Packed, first_seq: u64, since: Timestamp) {
        self.bytes += packed.weight();
        self.held.insert(id, Held { packed: Arc::new(packed), aside: 0, first_seq, since });
        self.frozen.push(id);
    }

    /// A pack is no longer needed: it is delivered, or written in this commit. `None` if it is not here.
    pub(super) fn take(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(held.packed.weight());
        self.gone.push(id);
        Some(held)
    }

    /// A bucket of a pack went elsewhere; how many of its samples the pack still answered for. `None`: it is not here.
    pub(super) fn take_out(&mut self, id: u64, samples: u64) -> Option<u64> {
        let held = self.held.get_mut(&id)?;
        let taken = samples.min(held.samples());
        held.aside += taken;
        Some(taken)
    }

    /// Samples of all packs.
    pub(super) fn samples(&self) -> u64 {
        self.held.values().map(Held::samples).sum()
    }

    /// Packs to be written now, oldest first; also those that need a record below `horizon`.
    pub(super) fn overdue(&mut self, now: Timestamp, horizon: Option<u64>) -> Vec<u64> {
        let up = self.pool.is_up();
        let mut bytes = self.bytes;
        let mut overdue = Vec::new();
        for (id, held) in &mut self.held {
            // A clock that was set back must not lengthen the wait.
            held.since = held.since.min(now);
            let old = now.since(held.since) >= self.bound || horizon.is_some_and(|horizon| held.first_seq < horizon);
            if !up || old || bytes > MAX_BYTES {
                bytes = bytes.saturating_sub(held.packed.weight());
                overdue.push(*id);
            }
        }
        overdue
    }

    /// The latest sample of them.
    pub(super) fn until(&self) -> Timestamp {
        self.held.values().map(|held| held.packed.last).max().unwrap_or_default()
    }

    /// All of them, for the end.
    pub(super) fn all(&self) -> Vec<u64> {
        self.held.keys().copied().collect()
    }

    /// When the next pack is overdue.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let oldest = self.held.values().map(|held| held.since).min()?;
        Some(if self.pool.is_up() { oldest.plus(self.bound) } else { Timestamp::EPOCH })
    }

    /// The lowest record that is still needed for a pack.
    pub(super) fn first_seq(&self) -> Option<u64> {
        self.held.values().map(|held| held.first_seq).min()
    }

    /// Packs that wait for delivery.
    pub(super) fn waiting(&self) -> Count {
        self.pool.count()
    }

    /// All of them, for who reads without delivering.
    pub(super) fn into_packs(self) -> impl Iterator<Item = Packed> {
        self.pool.packs().clear();
        self.held.into_values().filter_map(|held| Arc::into_inner(held.packed))
    }

    /// Everything up to here is committed: shows it to the outlet.
    pub(super) fn publish(&mut self) {
        let mut packs = self.pool.packs();
        self.gone.drain(..).for_each(|id| drop(packs.remove(&id)));
        for id in self.frozen.drain(..) {
            if let Some(held) = self.held.get(&id) {
                packs.insert(id, Arc::clone(&held.packed));
            }
        }
    }

    /// Everything was read back from disk: what the outlet sees is replaced by it.
    pub(super) fn recovered(&mut self, thawing: Thawing, bucketer: &mut Bucketer) -> Result<(), StoreError> {
        for (id, closed) in thawing.0 {
            let mut packer = Packer::whole();
            let first_seq = closed.iter().map(Closed::first_seq).min().unwrap_or(u64::MAX);
            for closed in closed {
                packer.add(&bucketer.seal(closed).map_err(StoreError::damaged("frozen bucket"))?);
            }
            if let Some(packed) = packer.finish() {
                // Nobody knows since when: it is written with the next commit.
                self.freeze(id, packed, first_seq, Timestamp::EPOCH);
            }
        }
        self.pool.packs().clear();
        self.publish();
        Ok(())
    }
}

/// Frozen buckets during replay: packed at the end only, since most are gone by then.
#[derive(Debug, Default)]
pub(super) struct Thawing(BTreeMap<u64, Vec<Closed>>);

impl Thawing {
    /// A record froze these buckets.
    pub(super) fn freeze(&mut self, frozen: &Frozen, close: impl FnMut(&super::record::FrozenKey) -> Option<Closed>) {
        let closed: Vec<Closed> = frozen.keys.iter().filter_map(close).collect();
        if !closed.is_empty() {
            self.0.insert(frozen.id, closed);
        }
    }

    /// A record says that a pack is gone.
    pub(super) fn gone(&mut self, id: u64, bucketer: &mut Bucketer) {
        self.0.remove(&id).into_iter().flatten().for_each(|closed| bucketer.discard(closed));
    }
}
