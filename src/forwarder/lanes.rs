//! Two lanes to the upstream: new buckets, and the backlog that an outage or a restart left behind.
//!
//! New buckets go first, so that what people look at is up to date at once; while both wait, the backlog gets so many
//! commands for each one of new buckets. Within a lane everything goes in order. Plain state, no I/O; it holds at most one
//! command's documents for each lane, and those of one that is under way, whatever the backlog.

use super::window::Window;
use crate::model::Timestamp;
use crate::stats::UpstreamStats;
use crate::store::{SegmentId, Settled};
use crate::upstream::{Context, Report};

/// Which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    New,
    Old,
}

/// Both lanes.
pub(super) struct Lanes {
    pub(super) new: Window,
    pub(super) old: Window,
    /// Commands of the backlog for each one of new buckets; 0: there is one lane only.
    share: u32,
    /// Commands of the backlog since the last one of new buckets.
    turns: u32,
    /// Whether the store may have more that was put behind.
    more: bool,
    /// The last segment that was drawn before the rest was put behind: what is left of it goes first, in order.
    before: Option<SegmentId>,
}

impl Lanes {
    pub(super) fn new(context: Context, share: u32) -> Self {
        Self {
            new: Window::new(context.clone()),
            old: Window::new(context),
            share,
            turns: share,
            more: false,
            before: None,
        }
    }

    /// Whether what waits may be put behind at all.
    pub(super) const fn is_split_allowed(&self) -> bool {
        self.share > 0
    }

    /// What waited was put behind.
    pub(super) fn split(&mut self) {
        self.more = true;
        self.before = self.new.last_drawn();
        self.turns = self.share;
    }

    /// Unpacks some buckets more; `false` when both windows hold a command's documents, or all there are.
    pub(super) fn fill_slice(&mut self, limits: (usize, usize), now: Timestamp, stats: &UpstreamStats) -> bool {
        self.new.fill_slice(limits, now, stats) || self.old.fill_slice(limits, now, stats)
    }

    /// Whether a segment of the backlog is wanted.
    pub(super) fn wants_old(&self, limits: (usize, usize)) -> bool {
        self.more && !self.old.has_packed() && self.old.batch(limits) == self.old.len() && self.old.len() < limits.0
    }

    /// All that was put behind is drawn.
    pub(super) const fn drained(&mut self) {
        self.more = false;
    }

    /// Whether any of the backlog is still to be drawn or sent.
    pub(super) fn has_old(&self) -> bool {
        self.more || !self.old.is_empty()
    }

    /// Whose turn it is; `new_may_go`: nothing is waited for on behalf of new buckets. `None` if only they could go.
    pub(super) fn turn(&self, new_may_go: bool) -> Option<Lane> {
        if self.old.is_empty() {
            return None;
        }
        let is_older = self.before.is_some_and(|last| self.new.has_until(last));
        let is_news_turn = new_may_go && !self.new.is_empty() && (is_older || self.turns >= self.share);
        Some(if is_news_turn { Lane::New } else { Lane::Old })
    }

    pub(super) const fn of(&mut self, lane: Lane) -> &mut Window {
        match lane {
            Lane::New => &mut self.new,
            Lane::Old => &mut self.old,
        }
    }

    /// Takes in a report about the first `count` documents of a lane.
    pub(super) fn apply(
        &mut self,
        report: &Report,
        (lane, count): (Lane, usize),
        now: Timestamp,
        stats: &UpstreamStats,
    ) {
        if count > 0 {
            self.turns = if lane == Lane::New { 0 } else { self.turns.saturating_add(1) };
        }
        if report.trouble.is_some() {
            // What the database does take must not wait for what it does not.
            self.before = None;
        }
        self.of(lane).apply(report, count, now, stats);
        let other = if lane == Lane::New { Lane::Old } else { Lane::New };
        // A finished file holds documents of both.
        self.of(other).apply(report, 0, now, stats);
        if report.dropped {
            self.new.clear();
            self.old.clear();
            self.more = false;
        }
    }

    pub(super) fn take_settled(&mut self) -> Settled {
        let (mut settled, old) = (self.new.take_settled(), self.old.take_settled());
        settled.segments.extend(old.segments);
        settled.dead_letters.extend(old.dead_letters);
        settled
    }

    /// Whether a segment is done and not settled yet.
    pub(super) fn has_done(&self) -> bool {
        self.new.has_done() || self.old.has_done()
    }

    /// Whether so much is done that it must be settled before more is drawn.
    pub(super) fn must_settle(&self) -> bool {
        self.new.must_settle() || self.old.must_settle()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.old.is_empty()
    }

    /// Where the window of the oldest document begins that waits.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        [&self.new, &self.old].into_iter().filter_map(Window::oldest).min()
    }

    pub(super) fn open_segments(&self) -> usize {
        self.new.open_segments() + self.old.open_segments()
    }
}

/// When a backlog will be drained, from how fast it has shrunk so far; new buckets that come meanwhile are in the count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    since: Timestamp,
    from: i64,
}

impl Drain {
    /// Shortest time from which anything can be told, in seconds.
    const FIRST_LOOK: f64 = 2.0;

    /// A backlog of so many buckets begins to drain.
    pub(super) const fn begin(now: Timestamp, buckets: i64) -> Self {
        Self { since: now, from: buckets }
    }

    /// Seconds until it is drained if it goes on like this; `None` while it does not shrink.
    pub(super) fn left(&self, now: Timestamp, buckets: i64) -> Option<i64> {
        let (gone, seconds) = (self.from - buckets, now.since(self.since).as_secs_f64());
        (gone > 0 && seconds >= Self::FIRST_LOOK).then(|| (buckets as f64 * seconds / gone as f64).ceil() as i64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_estimate_follows_how_fast_the_backlog_shrinks() {
        let at = |s| Timestamp::EPOCH.plus(Duration::from_secs(s));
        let drain = Drain::begin(at(0), 1000);
        assert_eq!(drain.left(at(1), 900), None, "too early to tell");
        assert_eq!(drain.left(at(10), 800), Some(40));
        assert_eq!(drain.left(at(10), 1001), None, "it grows");
        assert_eq!(drain.left(at(60), 0), Some(0));
    }
}
