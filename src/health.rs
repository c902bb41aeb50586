//! Health: what systemd is told. READY when readings can be taken, STATUS in one line, WATCHDOG only while the store's
//! task really goes round, STOPPING at the end.
//!
//! The watchdog watches progress, not existence: the store's task counts its rounds (at least one a second, also while
//! the disk is full), and no ping is sent while that count stands still, so a hung disk or a blocked runtime ends in a
//! restart. An upstream that is away is no reason for one.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

use crate::stats::Stats;

/// How often systemd's status line is renewed where there is no watchdog.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// Whether the process was started by systemd and wants to be told; then everything here does something.
#[derive(Debug)]
pub struct Health {
    stats: Stats,
    every: Duration,
    watchdog: bool,
}

impl Health {
    /// Reads what systemd asked for.
    pub fn new(stats: Stats) -> Self {
        let watchdog = sd_notify::watchdog_enabled();
        // A third of the limit: one missed ping is no reason to be killed.
        let every = watchdog.map_or(STATUS_EVERY, |limit| (limit / 3).clamp(Duration::from_millis(100), STATUS_EVERY));
        Self { stats, every, watchdog: watchdog.is_some() }
    }

    /// Readings can be taken.
    pub fn ready(&self) {
        tell(&[NotifyState::Ready, NotifyState::Status(&summary(&self.stats))]);
    }

    /// The end has begun.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Tells systemd how things stand, for ever. Loses nothing when dropped.
    pub async fn run(&self) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut progress = Progress::default();
        loop {
            ticks.tick().await;
            let status = summary(&self.stats);
            if self.watchdog && progress.is_made(&self.stats) {
                tell(&[NotifyState::Watchdog, NotifyState::Status(&status)]);
            } else {
                tell(&[NotifyState::Status(&status)]);
            }
        }
    }
}

/// Whether the store's task goes round.
#[derive(Debug, Default)]
struct Progress {
    before: Option<u64>,
}

impl Progress {
    /// Since the last time it was asked.
    fn is_made(&mut self, stats: &Stats) -> bool {
        let rounds = stats.store().rounds.get();
        self.before.replace(rounds) != Some(rounds)
    }
}

/// One line for `systemctl status`.
fn summary(stats: &Stats) -> String {
    let store = stats.store();
    let sources = stats.sources();
    let down = sources.iter().filter(|source| source.condition.get().up == Some(false)).count();
    let upstream = match stats.upstream().condition.get().up {
        Some(true) => "up",
        Some(false) => "away",
        None => "not tried yet",
    };
    format!(
        "{} readings of {} sensors, {} buckets to deliver, upstream {upstream}, {down} of {} sources down",
        store.readings.get(),
        store.sensors.get(),
        store.backlog_buckets.get(),
        sources.len()
    )
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("cannot tell systemd: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_stands_still_is_no_reason_for_a_ping() {
        let (stats, mut progress) = (Stats::default(), Progress::default());
        stats.store().rounds.inc();
        assert!(progress.is_made(&stats));
        assert!(!progress.is_made(&stats) && !progress.is_made(&stats));
        stats.store().rounds.inc();
        assert!(progress.is_made(&stats));
    }

    #[test]
    fn the_status_line_says_what_matters() {
        let stats = Stats::default();
        stats.store().readings.inc_by(7);
        assert_eq!(
            summary(&stats),
            "7 readings of 0 sensors, 0 buckets to deliver, upstream not tried yet, 0 of 0 sources down"
        );
    }
}
