//! When to ask for an early commit: the broker sends only so many unacknowledged messages (its window), and an
//! acknowledgement waits for a commit. If the window is small, waiting out `commit_every` each time would cap the rate.
//!
//! The window is not told, so it is learned. Silence that ends the moment we acknowledge means that the broker was
//! holding back: as many as were outstanding is its window. Then half a window asks for a commit, so that the broker sends
//! the other half meanwhile. A connection begins with a guess that counts only for messages in quick succession, as when
//! a queue is drained. What was learned is forgotten after a while, because a coincidence looks the same.

use std::time::Duration;

use tokio::time::Instant;

/// Silence before an acknowledgement that may mean the broker is holding back.
const SILENCE: Duration = Duration::from_millis(20);
/// How soon after an acknowledgement a broker that was holding back goes on.
const ANSWER: Duration = Duration::from_millis(50);
/// How long a learned window is believed; after it, one silence of `commit_every` is the price of learning it again.
const BELIEVED: Duration = Duration::from_secs(60);
/// What most brokers allow by default (mosquitto's `max_inflight_messages`).
const USUAL: usize = 20;
/// Longest time from one message to the next that counts as quick succession.
const QUICK: Duration = Duration::from_millis(1);
/// How long the guess of a new connection counts: long enough to drain a queue's first messages and learn.
const GUESSED: Duration = Duration::from_secs(10);

/// What is known of one connection's window.
#[derive(Debug)]
pub(super) struct Window {
    /// Most that we allow ourselves; the window when nothing else is known.
    most: usize,
    size: usize,
    basis: Basis,
    /// Sent to us and not acknowledged.
    outstanding: usize,
    /// Of these, how many no early commit was asked for.
    uncovered: usize,
    /// How many of the latest messages came in quick succession.
    quick: usize,
    last_arrival: Instant,
    watch: Option<Watch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basis {
    Nothing,
    Guess { since: Instant },
    Learned { since: Instant },
}

/// Acknowledged after a silence: does the broker answer at once?
#[derive(Debug)]
struct Watch {
    until: Instant,
    outstanding: usize,
    arrived: usize,
}

impl Window {
    /// A new connection that will have at most `most` unacknowledged messages.
    pub(super) fn new(most: usize, now: Instant) -> Self {
        Self {
            most,
            size: USUAL.min(most),
            basis: Basis::Guess { since: now },
            outstanding: 0,
            uncovered: 0,
            quick: 0,
            last_arrival: now,
            watch: None,
        }
    }

    /// A message arrived that will be acknowledged. Whether its commit is wanted early.
    pub(super) fn arrived(&mut self, now: Instant) -> bool {
        let gap = now.duration_since(self.last_arrival);
        self.quick = if gap <= QUICK { self.quick + 1 } else { 1 };
        self.last_arrival = now;
        self.outstanding += 1;
        self.uncovered += 1;
        self.learn(now);
        if self.outstanding > self.size {
            // It sends more than we believed it would: at least twice that much until something else is learned.
            self.size = (self.outstanding * 2).min(self.most);
        }
        let half = (self.size / 2).max(1);
        let wanted = self.uncovered >= half
            && match self.basis {
                Basis::Learned { .. } => true,
                Basis::Guess { .. } => self.quick >= half || self.outstanding >= self.most / 2,
                Basis::Nothing => self.outstanding >= self.most / 2,
            };
        if wanted {
            self.uncovered = 0;
        }
        wanted
    }

    /// We could not read for a while, so silence up to now means nothing.
    pub(super) fn read_on(&mut self, now: Instant) {
        self.last_arrival = now;
    }

    /// So many messages were acknowledged.
    pub(super) fn acknowledged(&mut self, n: usize, now: Instant) {
        if self.outstanding > 0 && self.watch.is_none() && now.duration_since(self.last_arrival) >= SILENCE {
            self.watch = Some(Watch { until: now + ANSWER, outstanding: self.outstanding, arrived: 0 });
        }
        self.outstanding = self.outstanding.saturating_sub(n);
        self.uncovered = self.uncovered.min(self.outstanding);
    }

    fn learn(&mut self, now: Instant) {
        if let Some(watch) = &mut self.watch {
            if now > watch.until {
                self.watch = None;
            } else {
                watch.arrived += 1;
                if watch.arrived * 2 >= watch.outstanding {
                    self.size = watch.outstanding;
                    self.basis = Basis::Learned { since: now };
                    self.watch = None;
                }
            }
        }
        let over = match self.basis {
            Basis::Nothing => false,
            Basis::Guess { since } => now.duration_since(since) > GUESSED,
            Basis::Learned { since } => now.duration_since(since) > BELIEVED,
        };
        if over {
            self.basis = Basis::Nothing;
            self.size = self.most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker, a store and our window, a millisecond at a time.
    struct Play {
        window: Window,
        now: Instant,
        /// Messages the broker holds, ready to send.
        queued: usize,
        broker_window: usize,
        unacknowledged: usize,
        /// Messages handed over and not committed, and when their commit is due.
        waiting: usize,
        due: Option<Instant>,
        committing: Option<(usize, Instant)>,
        commits: usize,
        taken: usize,
    }

    const COMMIT_EVERY: Duration = Duration::from_secs(1);
    const COMMIT_TAKES: Duration = Duration::from_millis(5);

    impl Play {
        fn new(broker_window: usize) -> Self {
            let now = Instant::now();
            Self {
                window: Window::new(4096, now),
                now,
                queued: 0,
                broker_window,
                unacknowledged: 0,
                waiting: 0,
                due: None,
                committing: None,
                commits: 0,
                taken: 0,
            }
        }

        fn step(&mut self) {
            self.now += Duration::from_millis(1);
            if let Some((n, done)) = self.committing
                && self.now >= done
            {
                self.window.acknowledged(n, self.now);
                self.unacknowledged -= n;
                self.committing = None;
                self.commits += 1;
            }
            // A broker sends at most 100 in a millisecond.
            for _ in 0..100 {
                if self.queued == 0 || self.unacknowledged >= self.broker_window {
                    break;
                }
                self.queued -= 1;
                self.unacknowledged += 1;
                self.waiting += 1;
                self.taken += 1;
                let due = if self.window.arrived(self.now) { self.now } else { self.now + COMMIT_EVERY };
                self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
            }
            if self.committing.is_none() && self.due.is_some_and(|due| self.now >= due) {
                self.committing = Some((std::mem::take(&mut self.waiting), self.now + COMMIT_TAKES));
                self.due = None;
            }
        }

        /// Runs for so many milliseconds; every `every`-th brings `n` new messages. Commits and messages taken in it.
        fn run(&mut self, millis: u64, every: u64, n: usize) -> (usize, usize) {
            let (commits, taken) = (self.commits, self.taken);
            for i in 0..millis {
                if i % every == 0 {
                    self.queued += n;
                }
                self.step();
            }
            (self.commits - commits, self.taken - taken)
        }
    }

    #[test]
    fn a_small_window_does_not_cap_the_rate() {
        let mut play = Play::new(20);
        play.queued = 1_000_000;
        play.run(3_000, 1_000, 0);
        let (_, taken) = play.run(10_000, 1_000, 0);
        // 20 a second without early commits; half a window for each commit of 5 ms is 2,000 a second.
        assert!(taken > 15_000, "{taken}");
    }

    #[test]
    fn a_window_of_one_is_learned() {
        let mut play = Play::new(1);
        play.queued = 1_000_000;
        play.run(5_000, 1_000, 0);
        let (_, taken) = play.run(10_000, 1_000, 0);
        assert!(taken > 1_000, "{taken}");
    }

    #[test]
    fn an_odd_window_costs_one_silence_and_is_then_learned() {
        let mut play = Play::new(7);
        play.queued = 1_000_000;
        play.run(3_000, 1_000, 0);
        let (_, taken) = play.run(10_000, 1_000, 0);
        assert!(taken > 5_000, "{taken}");
    }

    #[test]
    fn a_low_steady_rate_causes_no_early_commits() {
        for (every, n) in [(12, 1), (100, 1), (1_000, 1), (333, 1), (5, 1)] {
            let mut play = Play::new(10_000);
            let (commits, taken) = play.run(60_000, every, n);
            assert!(taken > 50 && commits <= 62, "every {every} ms: {commits} commits for {taken} messages");
        }
    }

    #[test]
    fn a_coincidence_is_forgotten() {
        let mut play = Play::new(10_000);
        // Ten sensors that report together, just when the timed commit of the last round ends.
        play.run(180_000, 1_005, 10);
        let (commits, _) = play.run(60_000, 12, 1);
        play.run(5_000, 12, 1);
        let (later, _) = play.run(60_000, 12, 1);
        assert!(later <= 62, "{commits}, then {later} commits");
    }

    #[test]
    fn our_own_bound_asks_in_time() {
        let mut play = Play::new(100_000);
        play.queued = 1_000_000;
        let (_, taken) = play.run(5_000, 1_000, 0);
        assert!(taken > 100_000, "{taken}");
        assert!(play.window.outstanding <= 4096 + 1_000, "{}", play.window.outstanding);
    }
}
