//! When what waits may be sent: each window's buckets at this gateway's moment, or uploads at times of its own.
//!
//! Plain state, no I/O. Only what a whole fleet would send in the same second is shifted: a backlog and late buckets go at
//! once.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::{Timestamp, Window};
use crate::upstream::Manners;

/// Moments before which nothing is sent.
pub(super) struct Calendar {
    manners: Manners,
    /// The same with what the database's owner ordered.
    ordered: Option<Manners>,
    not_before: Option<Instant>,
    /// The end of the newest window that was shifted.
    seen: Timestamp,
    /// An upload has begun, or its time is fixed, and the backlog is not drained yet.
    uploading: bool,
}

impl Calendar {
    pub(super) const fn new(manners: Manners) -> Self {
        Self { manners, ordered: None, not_before: None, seen: Timestamp::EPOCH, uploading: false }
    }

    /// Takes in what waits: the window of it that ended last.
    pub(super) fn look(&mut self, now: Timestamp, latest: Option<Window>) {
        let Some(window) = latest else { return };
        if let Some(slot) = self.manners.slot(now) {
            if !self.uploading {
                self.uploading = true;
                self.not_before = Some(Instant::now() + slot);
            }
            return;
        }
        let length = Duration::from_secs(window.length().seconds().into());
        let is_fresh = window.end() <= now && now.since(window.end()) < length;
        if is_fresh && window.end() > self.seen {
            self.seen = window.end();
            self.not_before = Some(Instant::now() + self.manners.phase(length));
        }
    }

    /// The moment that has to be waited for, if there is one.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before.filter(|moment| *moment > Instant::now())
    }

    /// Whether uploads have times of their own and one is going on.
    pub(super) const fn is_uploading(&self) -> bool {
        self.uploading
    }

    /// The backlog is drained: what comes now waits for the next upload.
    pub(super) const fn end_upload(&mut self) {
        self.uploading = false;
    }

    /// Spreads connections as ordered; as the site file says if nothing is ordered.
    pub(super) fn splay(&mut self, ordered: Option<Duration>) {
        self.ordered = ordered.map(|splay| self.manners.clone().with_splay(splay));
    }

    /// How long to wait at least before connecting again.
    pub(super) fn next_connection(&self, random: f64) -> Duration {
        self.ordered.as_ref().unwrap_or(&self.manners).next_connection(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SiteName, WindowLength};
    use crate::upstream::Config;

    const START: i64 = 1_796_043_600_000;

    fn calendar(config: &Config) -> Calendar {
        Calendar::new(Manners::new(config, &SiteName::new("greenhouse-7").unwrap()))
    }

    fn window(index: i64) -> Option<Window> {
        let length = WindowLength::from_seconds(600).unwrap();
        Some(length.window_of(at(index * 600)))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::clamped(START + seconds * 1000)
    }

    #[tokio::test(start_paused = true)]
    async fn the_buckets_of_a_window_are_shifted_once() {
        let mut calendar = calendar(&Config::default());
        calendar.look(at(630), window(0));
        let moment = calendar.not_before().expect("this gateway's place is not the very first");
        assert!(moment - Instant::now() < Duration::from_secs(30));
        calendar.look(at(635), window(0));
        assert_eq!(calendar.not_before(), Some(moment));
        tokio::time::sleep(Duration::from_secs(30)).await;
        calendar.look(at(660), window(0));
        assert_eq!(calendar.not_before(), None, "what comes later of the same window goes at once");
        calendar.look(at(1230), window(1));
        assert!(calendar.not_before().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_backlog_and_what_was_cut_are_not_shifted() {
        let mut calendar = calendar(&Config::default());
        for (now, latest) in [(86_400, window(0)), (30, window(0)), (630, None)] {
            calendar.look(at(now), latest);
            assert_eq!(calendar.not_before(), None, "{now}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_goes_on_until_the_backlog_is_drained() {
        let mut calendar = calendar(&Config { upload_every: Some(Duration::from_secs(3600)), ..Config::default() });
        calendar.look(at(86_400), window(0));
        let moment = calendar.not_before().unwrap();
        assert!(calendar.is_uploading());
        tokio::time::sleep_until(moment).await;
        calendar.look(at(90_000), window(1));
        assert_eq!(calendar.not_before(), None);
        calendar.end_upload();
        calendar.look(at(90_000), window(2));
        assert!(calendar.not_before().is_some());
    }
}
