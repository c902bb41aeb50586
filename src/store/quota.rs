//! The disk budget: how full it is, what makes room, and when nothing more is taken.
//!
//! Room is made from what is needed least: the journal's free slots, the
//! reserve, then a set of damaged files that has been read out, then, by
//! `when_full`, samples whose rollups stay, then whole segments, oldest first. Every limit is a state that is left again.

use rusqlite::{Connection, OptionalExtension};

use super::database::{Budget, PAGE_BYTES};
use super::error::Doing;
use super::ledger::Loss;
use super::pages::Pages;
use super::quarantine;
use super::state::State;
use super::{SegmentId, StoreError, WhenFull, segment, thin};
use crate::model::{LossReason, Timestamp};

/// Share of the pages above which room is made, and above which nothing is taken with `when_full = "refuse"`; in percent.
const SOFT_LIMIT_PERCENT: u64 = 95;
/// Share above which the journal is kept short, at the price of some more writes.
const TIGHT_PERCENT: u64 = 80;
/// Share above which nothing is taken although room was made: what is left is for deleting and for the ledger.
const HARD_LIMIT_PERCENT: u64 = 98;
/// Most segments thinned or evicted in one commit; more are needed only if one commit brought more.
const MAX_SEGMENTS: usize = 16;
/// Shares of the pages at which a warning, and an error, is told; in percent.
const ALARMS: [u64; 2] = [70, 90];
/// An alarm ends so many percent below its beginning, so that it does not come and go.
const HYSTERESIS: u64 = 5;
/// Pages that must have become free before a commit that found no room is tried again.
const LEAST_GAIN: u64 = 64;

/// How full the budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fill {
    /// Pages that hold something, those of a set of damaged files included.
    pub used: u64,
    /// Pages there may be.
    pub most: u64,
}

impl Fill {
    /// Measures it. A set of damaged files that is still being read out is not counted: its rows are on their way here.
    pub(super) fn of(pages: Pages, state: &State, budget: Budget) -> Self {
        let aside = if state.aside.is_busy { 0 } else { state.aside.bytes.div_ceil(PAGE_BYTES) };
        Self { used: pages.used() + aside, most: budget.max_pages.max(1) }
    }

    /// In percent.
    pub(super) const fn percent(self) -> u64 {
        self.used * 100 / self.most
    }

    /// Whether the journal is kept short.
    pub(super) const fn is_tight(self) -> bool {
        self.used * 100 > self.most * TIGHT_PERCENT
    }

    /// Whether room must be made.
    pub(super) const fn is_high(self) -> bool {
        self.used * 100 > self.most * SOFT_LIMIT_PERCENT
    }

    /// Whether readings can be taken.
    pub(super) const fn has_room(self, when_full: WhenFull) -> bool {
        match when_full {
            WhenFull::Refuse => !self.is_high(),
            WhenFull::Thin | WhenFull::Evict => self.used * 100 <= self.most * HARD_LIMIT_PERCENT,
        }
    }

    /// Whether there is clearly more room than there was.
    pub(super) const fn is_better_than(self, before: Self) -> bool {
        self.used + LEAST_GAIN <= before.used || self.most >= before.most + LEAST_GAIN
    }
}

/// Tells once when the budget is used up to 70 and to 90 percent, and once when it is not any more.
#[derive(Debug, Default)]
pub(super) struct Alarm(u64);

impl Alarm {
    /// The alarm that stands now, in percent; 0 for none.
    pub(super) fn update(&mut self, fill: Fill, tell: impl FnOnce(u64, u64)) -> u64 {
        let percent = fill.percent();
        let reached = ALARMS.into_iter().filter(|alarm| percent >= *alarm).max().unwrap_or(0);
        let held = ALARMS.into_iter().filter(|alarm| *alarm <= self.0 && percent + HYSTERESIS > *alarm).max();
        let now = reached.max(held.unwrap_or(0));
        if now != self.0 {
            let before = std::mem::replace(&mut self.0, now);
            tell(before, now);
        }
        now
    }
}

/// Whether there may be something that makes room.
pub(super) fn can_make_room(state: &State) -> bool {
    let journal = state.journal.live_bytes() > state.least_journal() || state.journal.free_bytes() > 0;
    journal || !state.reserve.is_empty() || state.aside.bytes > 0 || state.setup.when_full != WhenFull::Refuse
}

/// Makes room until the budget is below its soft limit. How many samples were thinned, and how many buckets evicted.
pub(super) fn make_room(db: &Connection, state: &mut State, budget: Budget) -> Result<(u64, u64), StoreError> {
    let (mut thinned, mut evicted) = (0, 0);
    for _ in 0..MAX_SEGMENTS {
        if !Fill::of(Pages::of(db)?, state, budget).is_high() {
            break;
        }
        // From what is needed least to what is needed most.
        if state.journal.shrink(db)? || state.reserve.release(db)? || quarantine::drop_oldest(state) {
            continue;
        }
        if state.setup.when_full == WhenFull::Refuse {
            break;
        }
        if state.setup.when_full == WhenFull::Thin
            && let Some((id, samples)) =
                thin::oldest(db, state.thinned_until, &state.setup.site, &state.names, &mut state.losses)?
        {
            state.thinned_until = id;
            state.backlog.lost(samples);
            state.accounts.lost(samples);
            thinned += samples;
        } else if let Some(buckets) = evict_oldest(db, state)? {
            evicted += u64::from(buckets);
        } else if let Some(loss) = state.held.delete_oldest(db)? {
            state.accounts.lost(loss.samples);
            state.losses.add(None, LossReason::Evicted, loss);
            evicted += 1;
        } else {
            break;
        }
    }
    Ok((thinned, evicted))
}

/// Deletes the oldest segment; how many buckets it held.
fn evict_oldest(db: &Connection, state: &mut State) -> Result<Option<u32>, StoreError> {
    let sql = "SELECT id, first, last, samples, data FROM segment ORDER BY id LIMIT 1";
    let oldest = db.query_row(sql, [], |row| {
        let time = |i| Ok::<_, rusqlite::Error>(Timestamp::clamped(row.get(i)?));
        let loss = Loss { first: time(1)?, last: time(2)?, samples: row.get(3)? };
        Ok((row.get::<_, u64>(0)?, loss, row.get::<_, Vec<u8>>(4)?))
    });
    let Some((id, mut left, data)) = oldest.optional().doing("read the oldest segment")? else { return Ok(None) };
    // Of a thinned bucket the samples are in the ledger already; that its rollup goes too is told with a count of 0.
    if let Ok(parcel) = segment::open(SegmentId(id), data, &state.names.reader()) {
        for bucket in &parcel.buckets {
            let loss = bucket.0.loss();
            let samples = left.samples.min(loss.samples);
            left.samples -= samples;
            state.losses.add(Some(bucket.0.key.sensor), LossReason::Evicted, Loss { samples, ..loss });
        }
    }
    if left.samples > 0 {
        state.losses.add(None, LossReason::Evicted, left);
    }
    let deleted = segment::delete(db, id)?;
    state.backlog.deleted(deleted);
    state.accounts.lost(deleted.map_or(0, |(_, samples)| samples));
    Ok(deleted.map(|(buckets, _)| buckets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_told_once_for_each_crossing() {
        let mut alarm = Alarm::default();
        let mut told = Vec::new();
        for percent in [10, 69, 70, 66, 71, 66, 65, 72, 89, 90, 97, 86, 91, 85, 64, 95, 0] {
            alarm.update(Fill { used: percent, most: 100 }, |before, now| told.push((percent, before, now)));
        }
        let expected =
            [(70, 0, 70), (65, 70, 0), (72, 0, 70), (90, 70, 90), (85, 90, 70), (64, 70, 0), (95, 0, 90), (0, 90, 0)];
        assert_eq!(told, expected);
    }

    #[test]
    fn readings_are_taken_up_to_the_limit_of_the_policy() {
        let room = |used, when_full| Fill { used, most: 1000 }.has_room(when_full);
        assert!(room(950, WhenFull::Refuse) && !room(951, WhenFull::Refuse));
        for when_full in [WhenFull::Thin, WhenFull::Evict] {
            assert!(room(980, when_full) && !room(981, when_full));
        }
    }
}
