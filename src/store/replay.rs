//! What the records of the journal do to memory at a start.
//!
//! Most samples in a long journal belong to buckets that a later record closes for good. One look ahead tells which, so
//! that only the rest is taken in: a journal of 16 MiB may hold millions of samples.

use std::collections::HashMap;

use rusqlite::Connection;
use smallvec::SmallVec;

use super::journal::Stored;
use super::lazy::Thawing;
use super::record::{FrozenKey, Record};
use super::recovery::policy_of;
use super::state::State;
use super::{StoreError, frame};
use crate::model::bucketer::BucketKey;
use crate::model::varint::Damaged;

/// Most stretches of windows that are known to be over; what a further bucket held is taken in, and forgotten again.
const MAX_STRETCHES: usize = 1 << 16;

/// Series, length of its windows in seconds, part.
type Series = (u32, u32, u32);
/// First and last window of each.
type Stretches = SmallVec<[(i64, i64); 1]>;

/// Buckets that some record closes for good.
#[derive(Debug, Default)]
struct Over {
    /// A regular sensor has one.
    stretches: HashMap<Series, Stretches, foldhash::fast::RandomState>,
    count: usize,
}

impl Over {
    fn add(&mut self, key: &BucketKey) {
        if self.count >= MAX_STRETCHES {
            return;
        }
        let index = key.window.index();
        let stretches = self.stretches.entry(series(key)).or_default();
        match stretches.iter_mut().find(|(_, last)| last.checked_add(1) == Some(index)) {
            Some((_, last)) => *last = index,
            None => {
                stretches.push((index, index));
                self.count += 1;
            }
        }
    }

    fn holds(&self, key: &BucketKey) -> bool {
        let index = key.window.index();
        let stretches = self.stretches.get(&series(key));
        stretches.is_some_and(|stretches| stretches.iter().any(|(first, last)| (*first..=*last).contains(&index)))
    }
}

fn series(key: &BucketKey) -> Series {
    (key.sensor, key.window.length().seconds(), key.part)
}

/// Reads records one by one.
#[derive(Debug)]
pub(super) struct Replaying {
    /// Until which record each spilled bucket is complete.
    spilled_until: HashMap<BucketKey, u64>,
    over: Over,
    thawing: Thawing,
}

impl Replaying {
    /// Looks ahead. What cannot be read is left for the replay to meet.
    pub(super) fn of(
        db: &Connection,
        records: &[Stored],
        spilled_until: HashMap<BucketKey, u64>,
    ) -> Result<Self, StoreError> {
        let (mut over, mut frozen) = (Over::default(), HashMap::<u64, Vec<FrozenKey>>::new());
        for stored in records {
            let Ok(record) = read(db, stored)? else { continue };
            record.seals.iter().for_each(|key| over.add(key));
            for keys in record.gone.iter().filter_map(|id| frozen.remove(id)) {
                keys.iter().for_each(|(key, _)| over.add(key));
            }
            frozen.extend(record.frozen.into_iter().map(|pack| (pack.id, pack.keys)));
        }
        Ok(Self { spilled_until, over, thawing: Thawing::default() })
    }

    /// Applies one record.
    pub(super) fn apply(&mut self, state: &mut State, seq: u64, record: &Record) -> Result<(), Damaged> {
        state.next_segment = state.next_segment.max(record.next_segment);
        if seq > state.snapshot_seq {
            record.traces.iter().for_each(|trace| state.redelivery.apply(trace));
        }
        let names = state.names.reader();
        for group in record.groups.iter() {
            if self.spilled_until.get(&group.key).is_some_and(|until| seq <= *until) {
                continue;
            }
            if self.over.holds(&group.key) {
                if group.opened.is_some() {
                    state.bucketer.mark_used(group.key)?;
                }
                continue;
            }
            let policy = policy_of(&state.setup, &state.names, group.key.sensor);
            state.bucketer.restore(group, seq, policy, |row| names.weight(row))?;
        }
        for key in &record.seals {
            state.bucketer.forget(*key);
        }
        for frozen in &record.frozen {
            self.thawing.freeze(frozen, |(key, reason)| state.bucketer.freeze(*key, *reason));
        }
        record.gone.iter().for_each(|id| self.thawing.gone(*id, &mut state.bucketer));
        Ok(())
    }

    /// The packs that wait in memory after the last record.
    pub(super) fn finish(self) -> Thawing {
        self.thawing
    }
}

/// One record, or why it cannot be had.
pub(super) fn read(db: &Connection, stored: &Stored) -> Result<Result<Record, Damaged>, StoreError> {
    Ok(stored.read(db)?.and_then(|bytes| Record::decode(&frame::open(&bytes)?)))
}
