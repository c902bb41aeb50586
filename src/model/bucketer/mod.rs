//! The bucketer: which reading goes into which bucket, and when a bucket is closed.
//!
//! Pure state: [`Bucketer::push`] takes readings, [`Bucketer::close_due`] closes what its time is over for, and
//! [`Bucketer::step`] hands out everything that happened since the last step, ready to be written as one redo record.
//! If that write fails the whole bucketer is thrown away and made anew from the records that are on disk
//! ([`Bucketer::restore`]): there is one way to recover, and a failed commit takes it too.
//!
//! Open buckets hold their samples in the compact form of [`codec`], 2–3 bytes for a regular one-field sample. What is
//! pushed waits as rows until the step encodes it; the same bytes go into the record and into the bucket.
//!
//! What must stay true: a bucket's identity (sensor, window, part) is given once ([`Used`]); the same sample twice in
//! one bucket is kept once; nothing here depends on the order in which other sensors' readings come.

mod filter;
mod held;
mod open;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

pub use held::{Arrival, held_series, sensor_of};
pub use open::{Closed, Open, SealedRows};
use smallvec::SmallVec;

use super::codec::{self, Row};
use super::varint::Damaged;
use super::{BucketPolicy, ClockState, SealReason, Timestamp, Used, Window};

/// Most buckets one sensor may have open; a device that replays a long history meets it, and its oldest is closed.
pub const MAX_OPEN_PER_SENSOR: usize = 256;

/// A bucket's identity within the site. Sensors are numbers of the store's dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketKey {
    /// Whose.
    pub sensor: u32,
    /// Which window.
    pub window: Window,
    /// Which part of the window.
    pub part: u32,
}

/// What became of a pushed reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in a bucket.
    Kept,
    /// It was there already.
    Duplicate,
}

/// Samples that one bucket gained in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which bucket.
    pub key: BucketKey,
    /// Told when this step opened it, or when the least certain of its samples came with this step.
    pub opened: Option<Opened>,
    /// The samples, as a block whose base is the window's start.
    pub block: Vec<u8>,
}

/// What is told once of an open bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// When it is due.
    pub due: Timestamp,
    /// Whether it was opened after its window's earlier bucket was closed.
    pub late: bool,
    /// What is known of its samples' times.
    pub clock: ClockState,
}

/// Everything that happened since the last step. Groups and closed buckets are in order of their keys.
#[derive(Debug, Default)]
pub struct Step {
    /// What buckets gained.
    pub groups: Vec<Group>,
    /// Buckets that were closed, still in their compact form: thousands may end with one window.
    pub closed: Vec<Closed>,
    /// Held buckets whose samples are elsewhere now.
    pub gone: Vec<BucketKey>,
}

/// All open buckets of a site.
#[derive(Debug, Default)]
pub struct Bucketer {
    sensors: HashMap<u32, Sensor, foldhash::fast::RandomState>,
    due: BTreeSet<(Timestamp, BucketKey)>,
    touched: Vec<BucketKey>,
    closing: Vec<Closed>,
    gone: Vec<BucketKey>,
    open: usize,
    /// Bytes of the samples in open buckets.
    bytes: usize,
    held: usize,
}

#[derive(Debug, Default)]
struct Sensor {
    open: SmallVec<[Box<Open>; 1]>,
    used: Option<Used>,
}

impl Bucketer {
    /// Puts a row into its bucket, and takes it out of the caller's hands unless it is a duplicate. `weight` is what it
    /// adds to the document in bytes. Never part of its caller, which is compiled for size and would copy rows slowly.
    #[inline(never)]
    pub fn push(&mut self, sensor: u32, row: &mut Row, weight: u32, policy: &BucketPolicy, arrival: Arrival) -> Pushed {
        let state = self.sensors.entry(sensor).or_default();
        let is_its = |open: &Open| open.key.window.length() == policy.window && open.key.window.contains(row.at);
        let fits = |open: &Open| is_its(open) && open.clock.shares_with(arrival.clock);
        let takes = |open: &Open| !(open.is_full(weight, policy) || arrival.in_order && open.has_passed(row.at));
        // Every reading passes here: one look at the sensor, one at its bucket.
        let usual = state.open.iter_mut().enumerate().find(|(_, open)| fits(open) && takes(open));
        if let Some((place, open)) = usual {
            let pushed = open.push(row, weight, arrival.clock, &mut self.touched);
            if open.is_full(0, policy) {
                let reason = open.full_reason(policy);
                self.close(sensor, place, reason);
            }
            return pushed;
        }
        // An open bucket that is there is full, or ahead of a clock that was set back.
        if let Some(spent) = state.open.iter().position(|open| fits(open)) {
            let open = &mut state.open[spent];
            let full = open.is_full(weight, policy);
            // A copy of one of its samples needs no new bucket.
            if full && open.holds(row) {
                return Pushed::Duplicate;
            }
            let reason = if full { open.full_reason(policy) } else { open.time_reason() };
            self.close(sensor, spent, reason);
        }
        let place = self.open_bucket(sensor, policy.window.window_of(row.at), policy, arrival);
        let open = &mut self.sensors.get_mut(&sensor).expect("made above").open[place];
        let pushed = open.push(row, weight, arrival.clock, &mut self.touched);
        if open.is_full(0, policy) {
            let reason = open.full_reason(policy);
            self.close(sensor, place, reason);
        }
        pushed
    }

    /// Closes the largest buckets if all together take more than `most` bytes, until they take an eighth less.
    pub fn close_largest(&mut self, most: usize) {
        if self.bytes <= most {
            return;
        }
        let sealable = self.open_iter().filter(|open| !open.key.is_held());
        let mut open: Vec<_> = sealable.map(|open| (open.bytes(), open.key)).collect();
        open.sort_unstable_by(|a, b| b.cmp(a));
        for (_, key) in open {
            if self.bytes <= most - most / 8 {
                break;
            }
            let Some(state) = self.sensors.get(&key.sensor) else { continue };
            if let Some(place) = state.open.iter().position(|open| open.key == key) {
                self.close(key.sensor, place, SealReason::Bytes);
            }
        }
    }

    /// Closes buckets that are due `now`, the longest due first, at most `most` of them.
    pub fn close_due(&mut self, now: Timestamp, most: usize) {
        for _ in 0..most {
            let Some(&(at, key)) = self.due.first() else { break };
            if at > now {
                break;
            }
            self.due.pop_first();
            let Some(state) = self.sensors.get(&key.sensor) else { continue };
            if let Some(place) = state.open.iter().position(|open| open.key == key) {
                let reason = state.open[place].time_reason();
                self.close(key.sensor, place, reason);
            }
        }
    }

    /// When the next bucket is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many buckets are open.
    pub const fn open_buckets(&self) -> usize {
        self.open
    }

    /// Whether anything happened since the last step.
    pub fn has_news(&self) -> bool {
        !self.touched.is_empty() || !self.closing.is_empty() || !self.gone.is_empty()
    }

    /// Everything that happened since the last step; `seq` is the number of the record that will hold it.
    pub fn step(&mut self, seq: u64) -> Result<Step, Damaged> {
        let mut step = Step::default();
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        let mut closing = std::mem::take(&mut self.closing);
        closing.sort_unstable_by_key(Closed::key);
        for key in touched {
            if let Ok(place) = closing.binary_search_by_key(&key, Closed::key) {
                step.groups.push(closing[place].open.flush(seq)?);
                continue;
            }
            let Some(open) = self.find(key) else { continue };
            let before = open.bytes();
            step.groups.push(open.flush(seq)?);
            let after = open.bytes();
            self.bytes = self.bytes + after - before;
        }
        step.closed = closing;
        step.gone = std::mem::take(&mut self.gone);
        Ok(step)
    }

    /// The lowest record number that an open bucket still needs; `None` if none is open. Only right after a step.
    pub fn first_seq(&self) -> Option<u64> {
        self.open_iter().map(|open| open.first_seq).min()
    }

    /// The open buckets, in no particular order.
    pub fn open_iter(&self) -> impl Iterator<Item = &Open> {
        self.sensors.values().flat_map(|state| state.open.iter().map(|open| &**open))
    }

    /// Whether a bucket is open.
    pub fn is_open(&self, key: BucketKey) -> bool {
        self.sensors.get(&key.sensor).is_some_and(|state| state.open.iter().any(|open| open.key == key))
    }

    /// The records before `horizon` are about to go: hands out every bucket that needs one, so that it can be kept
    /// elsewhere as it is after record `seq`, and notes that it needs only later records.
    pub fn spill_before(&mut self, horizon: u64, seq: u64) -> Vec<&Open> {
        let mut spilled = Vec::new();
        for open in self.sensors.values_mut().flat_map(|state| state.open.iter_mut()) {
            if open.first_seq < horizon {
                open.first_seq = seq + 1;
                spilled.push(&**open);
            }
        }
        spilled
    }

    /// Takes back one bucket's samples from a record, or from where they were spilled to. `weigh` tells a row's bytes.
    pub fn restore(
        &mut self,
        group: &Group,
        seq: u64,
        policy: &BucketPolicy,
        weigh: impl Fn(&Row) -> u32,
    ) -> Result<(), Damaged> {
        match (self.find(group.key), group.opened) {
            (Some(open), Some(opened)) => open.clock = opened.clock,
            (Some(_), None) => {}
            (None, opened) => {
                let due = group.key.window.end().plus(policy.grace);
                let unknown = Opened { due, late: group.key.part > 0, clock: ClockState::Synced };
                self.insert(Open::new(group.key, opened.unwrap_or(unknown), seq));
            }
        }
        let open = self.find(group.key).expect("inserted above");
        let before = open.bytes();
        let done = open.absorb(&group.block, seq, weigh);
        let after = open.bytes();
        self.bytes = self.bytes + after - before;
        done
    }

    /// A record says that this bucket was sealed: it is in a segment.
    pub fn forget(&mut self, key: BucketKey) {
        self.take(key);
    }

    /// A record says that this bucket was closed: it takes nothing more. `None` if it is not open.
    pub fn freeze(&mut self, key: BucketKey, reason: SealReason) -> Option<Closed> {
        self.take(key).map(|open| Closed { open, reason })
    }

    /// What a sensor has used, for the snapshot.
    pub fn used(&self) -> impl Iterator<Item = (u32, &Used)> {
        self.sensors.iter().filter_map(|(sensor, state)| state.used.as_ref().map(|used| (*sensor, used)))
    }

    /// Takes back what a sensor has used.
    pub fn restore_used(&mut self, sensor: u32, used: Used) {
        self.sensors.entry(sensor).or_default().used = Some(used);
    }

    fn open_bucket(&mut self, sensor: u32, window: Window, policy: &BucketPolicy, arrival: Arrival) -> usize {
        let state = self.sensors.entry(sensor).or_default();
        if state.open.len() >= MAX_OPEN_PER_SENSOR {
            let oldest = (0..state.open.len()).min_by_key(|&i| state.open[i].key).expect("many are open");
            let reason = state.open[oldest].time_reason();
            self.close(sensor, oldest, reason);
        }
        let state = self.sensors.entry(sensor).or_default();
        let part = state.used.as_ref().map_or(0, |used| used.next_part(window));
        let Arrival { now, clock, .. } = arrival;
        let end = if arrival.comparable { window.end() } else { now.shifted(window.length().millis()) };
        let due = end.max(now).plus(policy.grace);
        let due = arrival.latest_due.map_or(due, |latest| due.min(latest));
        // A further part is late when the window's time was over; before that it only continues a full bucket.
        let late = part > 0 && now >= end.plus(policy.grace);
        self.insert(Open::new(BucketKey { sensor, window, part }, Opened { due, late, clock }, u64::MAX))
    }

    fn insert(&mut self, open: Open) -> usize {
        let key = open.key;
        self.due.insert((open.due, key));
        self.open += 1;
        self.held += usize::from(key.is_held());
        let state = self.sensors.entry(key.sensor).or_default();
        state.used.get_or_insert_with(|| Used::new(key.window.length())).mark(key.window, key.part);
        state.open.push(Box::new(open));
        state.open.len() - 1
    }

    fn close(&mut self, sensor: u32, place: usize, reason: SealReason) {
        let key = self.sensors[&sensor].open[place].key;
        let open = self.take(key).expect("the caller found it there");
        self.closing.push(Closed { open, reason });
    }

    fn take(&mut self, key: BucketKey) -> Option<Open> {
        let state = self.sensors.get_mut(&key.sensor)?;
        let place = state.open.iter().position(|open| open.key == key)?;
        let open = state.open.remove(place);
        self.due.remove(&(open.due, key));
        self.open -= 1;
        self.bytes -= open.bytes();
        self.held -= usize::from(key.is_held());
        Some(*open)
    }

    fn find(&mut self, key: BucketKey) -> Option<&mut Open> {
        self.sensors.get_mut(&key.sensor)?.open.iter_mut().find(|open| open.key == key).map(|open| &mut **open)
    }
}
