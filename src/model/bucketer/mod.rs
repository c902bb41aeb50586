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
mod groups;
mod held;
mod open;
mod pieces;
mod sensors;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use groups::{Group, Groups};
pub use held::{Arrival, held_series, sensor_of};
pub use open::{Closed, Open, SealedRows};
use pieces::Pieces;
use sensors::{Sensor, Sensors};
use slab::Slab;

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
    pub groups: Groups,
    /// Buckets that were closed, still in their compact form: thousands may end with one window.
    pub closed: Vec<Closed>,
    /// Held buckets whose samples are elsewhere now.
    pub gone: Vec<BucketKey>,
}

/// All open buckets of a site.
#[derive(Debug, Default)]
pub struct Bucketer {
    sensors: Sensors,
    open: Slab<Open>,
    /// Where their samples lie, and those of closed ones that are not sealed.
    pieces: Pieces,
    due: BTreeSet<(Timestamp, Place)>,
    /// Who got something since the last step; a slot may be another's meanwhile.
    touched: Vec<u32>,
    closing: Vec<Closed>,
    gone: Vec<BucketKey>,
    held: usize,
}

/// Where an open bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    sensor: u32,
    slot: u32,
}

impl Bucketer {
    /// Puts a row into its bucket, and takes it out of the caller's hands unless it is a duplicate. `weight` is what it
    /// adds to the document in bytes. Never part of its caller, which is compiled for size and would copy rows slowly.
    #[inline(never)]
    pub fn push(&mut self, sensor: u32, row: &mut Row, weight: u32, policy: &BucketPolicy, arrival: Arrival) -> Pushed {
        let state = self.sensors.entry(sensor);
        let is_its = |open: &Open| open.key.window.length() == policy.window && open.key.window.contains(row.at);
        let fits = |open: &Open| is_its(open) && open.clock.shares_with(arrival.clock);
        let takes = |open: &Open| !(open.is_full(weight, policy) || arrival.in_order && open.has_passed(row.at));
        // Every reading passes here: one look at the sensor, one at its bucket.
        let mut spent = None;
        for &slot in &state.open {
            let open = &self.open[slot as usize];
            if fits(open) {
                if takes(open) {
                    return self.put(slot, row, weight, policy, arrival.clock);
                }
                spent = spent.or(Some(slot));
            }
        }
        // An open bucket that is there is full, or ahead of a clock that was set back.
        if let Some(spent) = spent {
            let open = &mut self.open[spent as usize];
            let full = open.is_full(weight, policy);
            // A copy of one of its samples needs no new bucket.
            if full && open.holds(row, &self.pieces) {
                return Pushed::Duplicate;
            }
            let reason = if full { open.full_reason(policy) } else { open.time_reason() };
            self.close(spent, reason);
        }
        let slot = self.open_bucket(sensor, policy.window.window_of(row.at), policy, arrival);
        self.put(slot, row, weight, policy, arrival.clock)
    }

    #[inline]
    fn put(&mut self, slot: u32, row: &mut Row, weight: u32, policy: &BucketPolicy, clock: ClockState) -> Pushed {
        let open = &mut self.open[slot as usize];
        let is_first = !open.has_pending();
        let pushed = open.push(row, weight, clock, &self.pieces);
        if is_first && pushed == Pushed::Kept {
            self.touched.push(slot);
        }
        if open.is_full(0, policy) {
            let reason = open.full_reason(policy);
            self.close(slot, reason);
        }
        pushed
    }

    /// Closes the largest buckets if all together take more than `most` bytes, until they take an eighth less.
    pub fn close_largest(&mut self, most: usize) {
        let mut left = self.pieces.bytes();
        if left <= most {
            return;
        }
        let sealable = self.open.iter().filter(|(_, open)| !open.key.is_held());
        let mut open: Vec<_> = sealable.map(|(slot, open)| (open.bytes(), open.key, slot as u32)).collect();
        open.sort_unstable_by(|a, b| b.cmp(a));
        for (_, _, slot) in open {
            if left <= most - most / 8 {
                break;
            }
            left -= self.open[slot as usize].bytes();
            self.close(slot, SealReason::Bytes);
        }
    }

    /// Closes buckets that are due `now`, the longest due first, at most `most` of them.
    pub fn close_due(&mut self, now: Timestamp, most: usize) {
        for _ in 0..most {
            let Some(&(at, place)) = self.due.first() else { break };
            if at > now {
                break;
            }
            let reason = self.open[place.slot as usize].time_reason();
            self.close(place.slot, reason);
        }
    }

    /// When the next bucket is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many buckets are open.
    pub fn open_buckets(&self) -> usize {
        self.open.len()
    }

    /// Whether anything happened since the last step.
    pub fn has_news(&self) -> bool {
        !self.touched.is_empty() || !self.closing.is_empty() || !self.gone.is_empty()
    }

    /// Everything that happened since the last step; `seq` is the number of the record that will hold it.
    pub fn step(&mut self, seq: u64) -> Result<Step, Damaged> {
        enum Gainer {
            Open(u32),
            Closed(u32),
        }
        let mut closing = std::mem::take(&mut self.closing);
        closing.sort_unstable_by_key(Closed::key);
        let touched = std::mem::take(&mut self.touched);
        let open = touched.iter().filter_map(|slot| Some((self.open.get(*slot as usize)?.key, Gainer::Open(*slot))));
        let closed = closing.iter().enumerate().filter(|(_, closed)| closed.has_pending());
        let mut gainers = Vec::with_capacity(touched.len() + closing.len());
        gainers.extend(open.chain(closed.map(|(i, closed)| (closed.key(), Gainer::Closed(i as u32)))));
        gainers.sort_unstable_by_key(|(key, _)| *key);
        let mut groups = Groups::with_capacity(gainers.len());
        for (_, gainer) in gainers {
            match gainer {
                Gainer::Closed(place) => closing[place as usize].flush(seq, &mut groups, &mut self.pieces),
                Gainer::Open(slot) => {
                    let open = &mut self.open[slot as usize];
                    // What is noted twice, or in another's name, has nothing more.
                    if open.has_pending() {
                        open.flush(seq, &mut groups, &mut self.pieces)?;
                    }
                }
            }
        }
        Ok(Step { groups, closed: closing, gone: std::mem::take(&mut self.gone) })
    }

    /// Unpacks a closed bucket, puts its samples in time order, and gives their room back.
    pub fn seal(&mut self, closed: Closed) -> Result<SealedRows, Damaged> {
        closed.seal(&mut self.pieces)
    }

    /// A closed bucket is needed no more: gives its room back.
    pub fn discard(&mut self, closed: Closed) {
        closed.discard(&mut self.pieces);
    }

    /// The lowest record number that an open bucket still needs; `None` if none is open. Only right after a step.
    pub fn first_seq(&self) -> Option<u64> {
        self.open_iter().map(|open| open.first_seq).min()
    }

    /// The open buckets, in no particular order.
    pub fn open_iter(&self) -> impl Iterator<Item = &Open> {
        self.open.iter().map(|(_, open)| open)
    }

    /// A bucket's samples as blocks whose base is the window's start; those pushed since the last step are not among them.
    pub fn blocks(&self, open: &Open) -> Vec<u8> {
        open.blocks(&self.pieces)
    }

    /// A bucket's samples so far, in order of arrival.
    pub fn rows(&self, open: &Open) -> Result<Vec<Row>, Damaged> {
        open.rows(&self.pieces)
    }

    /// A bucket, if it is open.
    pub fn find(&self, key: BucketKey) -> Option<&Open> {
        self.slot(key).map(|slot| &self.open[slot as usize])
    }

    /// The records before `horizon` are about to go: which buckets need one, and must be kept elsewhere as they are after
    /// record `seq`. They are noted to need only later records.
    pub fn spill_before(&mut self, horizon: u64, seq: u64) -> Vec<BucketKey> {
        let needy = self.open.iter_mut().filter(|(_, open)| open.first_seq < horizon);
        let spill = |(_, open): (usize, &mut Open)| {
            open.first_seq = seq + 1;
            open.key
        };
        needy.map(spill).collect()
    }

    /// Takes back one bucket's samples from a record, or from where they were spilled to. `weigh` tells a row's bytes.
    pub fn restore(
        &mut self,
        group: Group<'_>,
        seq: u64,
        policy: &BucketPolicy,
        weigh: impl Fn(&Row) -> u32,
    ) -> Result<(), Damaged> {
        sensors::known(group.key.sensor)?;
        let slot = self.slot(group.key).unwrap_or_else(|| {
            let due = group.key.window.end().plus(policy.grace);
            let unknown = Opened { due, late: group.key.part > 0, clock: ClockState::Synced };
            self.insert(Open::new(group.key, group.opened.unwrap_or(unknown), seq))
        });
        let open = &mut self.open[slot as usize];
        if let Some(opened) = group.opened {
            open.clock = opened.clock;
        }
        open.absorb(group.block, seq, weigh, &mut self.pieces)
    }

    /// A bucket was there that need not be taken back: nothing else may bear its name.
    pub fn mark_used(&mut self, key: BucketKey) -> Result<(), Damaged> {
        sensors::known(key.sensor)?;
        self.mark(key);
        Ok(())
    }

    fn mark(&mut self, key: BucketKey) -> &mut Sensor {
        let state = self.sensors.entry(key.sensor);
        state.used.get_or_insert_with(|| Used::new(key.window.length())).mark(key.window, key.part);
        state
    }

    /// A record says that this bucket was sealed: it is in a segment.
    pub fn forget(&mut self, key: BucketKey) {
        if let Some(slot) = self.slot(key) {
            self.take(slot).discard(&mut self.pieces);
        }
    }

    /// A record says that this bucket was closed: it takes nothing more. `None` if it is not open.
    pub fn freeze(&mut self, key: BucketKey, reason: SealReason) -> Option<Closed> {
        self.slot(key).map(|slot| self.take(slot).close(reason))
    }

    /// What a sensor has used, for the snapshot.
    pub fn used(&self) -> impl Iterator<Item = (u32, &Used)> {
        self.sensors.iter().filter_map(|(series, state)| Some((series, state.used.as_ref()?)))
    }

    /// Takes back what a sensor has used.
    pub fn restore_used(&mut self, sensor: u32, used: Used) -> Result<(), Damaged> {
        self.sensors.entry(sensors::known(sensor)?).used = Some(used);
        Ok(())
    }

    fn open_bucket(&mut self, sensor: u32, window: Window, policy: &BucketPolicy, arrival: Arrival) -> u32 {
        let state = self.sensors.entry(sensor);
        if state.open.len() >= MAX_OPEN_PER_SENSOR {
            let key = |slot: &u32| self.open[*slot as usize].key;
            let oldest = *state.open.iter().min_by_key(|slot| key(slot)).expect("many are open");
            let reason = self.open[oldest as usize].time_reason();
            self.close(oldest, reason);
        }
        let state = self.sensors.entry(sensor);
        let part = state.used.as_ref().map_or(0, |used| used.next_part(window));
        let Arrival { now, clock, .. } = arrival;
        let end = if arrival.comparable { window.end() } else { now.shifted(window.length().millis()) };
        let due = end.max(now).plus(policy.grace);
        let due = arrival.latest_due.map_or(due, |latest| due.min(latest));
        // A further part is late when the window's time was over; before that it only continues a full bucket.
        let late = part > 0 && now >= end.plus(policy.grace);
        self.insert(Open::new(BucketKey { sensor, window, part }, Opened { due, late, clock }, u64::MAX))
    }

    fn insert(&mut self, open: Open) -> u32 {
        let (key, due) = (open.key, open.due);
        let slot = self.open.insert(open) as u32;
        self.due.insert((due, Place { sensor: key.sensor, slot }));
        self.held += usize::from(key.is_held());
        self.mark(key).open.push(slot);
        slot
    }

    fn close(&mut self, slot: u32, reason: SealReason) {
        let closed = self.take(slot).close(reason);
        self.closing.push(closed);
    }

    fn take(&mut self, slot: u32) -> Open {
        let open = self.open.remove(slot as usize);
        let sensor = open.key.sensor;
        self.due.remove(&(open.due, Place { sensor, slot }));
        self.held -= usize::from(open.key.is_held());
        self.sensors.entry(sensor).open.retain(|other| *other != slot);
        open
    }

    fn slot(&self, key: BucketKey) -> Option<u32> {
        let state = self.sensors.get(key.sensor)?;
        state.open.iter().copied().find(|slot| self.open[*slot as usize].key == key)
    }
}
