//! Held series, and what a clock that was set does to open buckets.
//!
//! While the gateway's clock is not trusted, readings that it stamped may be held back: each sensor then has a second
//! series beside its ordinary one, whose buckets lie on the steady time line. They are open buckets like others (in the
//! journal, spilled, restored), but what they hold goes into an ordinary bucket before it goes anywhere else.

use std::time::Duration;

use super::{BucketKey, Bucketer, ClockState, Closed, Place, SealReason};
use crate::Timestamp;

/// Set in a sensor's number it means the sensor's held series. A site has far fewer sensors than that.
const HELD: u32 = 1 << 31;

/// The number of a sensor's held series.
pub const fn held_series(sensor: u32) -> u32 {
    sensor | HELD
}

/// The sensor of a series, be it the ordinary or the held one.
pub const fn sensor_of(series: u32) -> u32 {
    series & !HELD
}

pub(super) const fn is_held(series: u32) -> bool {
    series & HELD != 0
}

impl BucketKey {
    /// Whether it belongs to a held series.
    pub const fn is_held(&self) -> bool {
        is_held(self.sensor)
    }
}

/// How a row arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When, on the clock by which windows end.
    pub now: Timestamp,
    /// What is known of the row's time.
    pub clock: ClockState,
    /// Whether `now` and the row's time can be compared. If not, a bucket is closed its length after it was opened.
    pub comparable: bool,
    /// Whether the row was stamped on arrival: it must not come to lie before one that was stamped earlier.
    pub in_order: bool,
    /// When a bucket that it opens is due at the latest.
    pub latest_due: Option<Timestamp>,
}

impl Arrival {
    /// The usual case: the clock is trusted.
    pub const fn at(now: Timestamp) -> Self {
        Self { now, clock: ClockState::Synced, comparable: true, in_order: false, latest_due: None }
    }
}

impl Bucketer {
    /// How many held buckets are open.
    pub const fn held_buckets(&self) -> usize {
        self.held
    }

    /// Takes up to `most` held buckets out, oldest first, and no more once they hold so many samples. These are the
    /// caller's from now on; the next step says that their buckets are gone.
    pub fn take_held(&mut self, most: usize, samples: usize) -> Vec<Closed> {
        let mut taken = Vec::new();
        let mut count = 0;
        for slot in self.held_slots(most) {
            if count >= samples {
                break;
            }
            let closed = self.take(slot).close(SealReason::Window);
            count += closed.count() as usize;
            self.gone.push(closed.key());
            taken.push(closed);
        }
        taken
    }

    /// Closes up to `most` held buckets, oldest first.
    pub fn close_held(&mut self, most: usize) {
        for slot in self.held_slots(most) {
            self.close(slot, SealReason::Window);
        }
    }

    fn held_slots(&self, most: usize) -> Vec<u32> {
        if self.held == 0 {
            return Vec::new();
        }
        let held = self.open.iter().filter(|(_, open)| open.key.is_held());
        let mut slots: Vec<_> = held.map(|(slot, open)| (open.key.window.start(), open.key, slot as u32)).collect();
        slots.sort_unstable();
        slots.into_iter().take(most).map(|(.., slot)| slot).collect()
    }

    /// The clock says `now`, and may have said a later time before: no ordinary bucket stays open longer than it would if
    /// it were opened now. If it was set back (`stepped`), those that hold a sample ahead of it are due at once, so that
    /// no bucket tells samples in another order than they came. `grace` tells a sensor's.
    pub fn turn_back(&mut self, now: Timestamp, stepped: bool, grace: impl Fn(u32) -> Duration) {
        for (slot, open) in &mut self.open {
            let key = open.key;
            if key.is_held() {
                continue;
            }
            let due = if stepped && open.is_ahead_of(now) {
                open.due.min(now)
            } else {
                open.due.min(key.window.end().max(now).plus(grace(key.sensor)))
            };
            if due != open.due {
                let place = Place { sensor: key.sensor, slot: slot as u32 };
                self.due.remove(&(open.due, place));
                self.due.insert((due, place));
                open.due = due;
            }
        }
    }
}
