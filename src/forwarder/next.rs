//! What there is to do next: draws segments into the lanes, and waits while there is nothing to do.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

use super::lanes::Lane;
use super::way::Way;
use super::{Forwarder, Next};
use crate::store::{Backlog, Parcel, StoreError};

/// How long a window that is not full waits for the next segment.
const GATHER: Duration = Duration::from_millis(20);
/// Most segments whose buckets wait in an unfinished archive file; then the file is finished early.
pub(super) const MAX_OPEN_SEGMENTS: usize = 10_000;
/// A backlog from which nothing has come for this long is drained.
const DRAINED: Duration = Duration::from_secs(1);

/// What came of waiting for a segment.
enum Drawn {
    Next(Next),
    Parcel(Result<Option<Parcel>, StoreError>),
    Nothing,
}

impl<B: Backlog, W: Way> Forwarder<B, W> {
    /// Fills the windows; waits while there is nothing to do.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            if self.shutdown.is_cancelled() {
                return Next::Stop;
            }
            if !self.greeted {
                return Next::Greet;
            }
            let (now, limits) = (self.clock.now(), self.way.limits());
            let paused = self.reports.paused(now);
            if self.reports.is_due() && self.healthy_since.is_some() && (self.way.is_open() || paused.is_some()) {
                return Next::Report;
            }
            if paused.is_none() && std::mem::take(&mut self.reports.is_paused) {
                self.stats.upstream().condition.up(now, &self.place);
            }
            if let Some(left) = paused {
                self.reports.is_paused = true;
                let words = "paused by the database's owner (`pauseUntil` in `_control`); nothing is lost meanwhile";
                self.stats.upstream().condition.down(now, words);
                self.pause_live(words);
                self.backlog.upstream_takes(false);
                let asked = self.reports.due().map(|due| due.saturating_duration_since(Instant::now()));
                self.pause = Some(left.min(asked.unwrap_or(left)));
                return Next::Pause;
            }
            while self.lanes.fill_slice(limits, now, self.stats.upstream()) {
                yield_now().await;
            }
            if self.lanes.must_settle() {
                return Next::Pause;
            }
            self.calendar.look(now, self.lanes.new.latest_window());
            if let Some(next) = self.live_next() {
                // What is done is settled first.
                return if self.lanes.has_done() { Next::Pause } else { next };
            }
            if self.lanes.open_segments() >= MAX_OPEN_SEGMENTS {
                return self.deliver_any().unwrap_or(Next::Attend);
            }
            if self.lanes.wants_old(limits) {
                match self.backlog.next_old().await {
                    Ok(Some(parcel)) => self.lanes.old.add(parcel),
                    Ok(None) | Err(StoreError::Closed(_)) => self.lanes.drained(),
                    Err(error) => return self.undrawn(&error),
                }
                continue;
            }
            let drawn = match self.draw().await {
                Drawn::Next(next) => return next,
                Drawn::Nothing => continue,
                Drawn::Parcel(drawn) => drawn,
            };
            match drawn {
                Ok(Some(parcel)) => self.lanes.new.add(parcel),
                Ok(None) | Err(StoreError::Closed(_)) => self.ended = true,
                Err(error) => return self.undrawn(&error),
            }
        }
    }

    fn undrawn(&mut self, error: &StoreError) -> Next {
        tracing::error!("cannot draw the next buckets from the store: {error}");
        self.pause = Some(self.retry.next_pause(fastrand::f64()));
        self.deliver_any().unwrap_or(Next::Pause)
    }

    fn deliver_any(&self) -> Option<Next> {
        let lane = if self.lanes.new.is_empty() { Lane::Old } else { Lane::New };
        (!self.lanes.is_empty()).then_some(Next::Deliver(lane))
    }

    /// The next new segment, or what else comes first.
    async fn draw(&mut self) -> Drawn {
        let not_before = self.calendar.not_before().filter(|_| !self.lanes.new.is_empty() && !self.ended);
        if let Some(lane) = self.lanes.turn(not_before.is_none()) {
            if !self.ended && self.backlog.has_next() && !self.lanes.new.has_packed() {
                return Drawn::Parcel(self.backlog.next().await);
            }
            return Drawn::Next(Next::Deliver(lane));
        }
        if self.ended {
            return Drawn::Next(self.deliver_any().unwrap_or(Next::Stop));
        }
        let goes_now = self.lanes.new.has_packed() && not_before.is_none();
        if self.lanes.has_done() && !goes_now && !self.backlog.has_next() {
            // Nothing goes out soon, during which it could be settled.
            return Drawn::Next(Next::Pause);
        }
        if self.lanes.new.has_packed() {
            let Some(not_before) = not_before else { return Drawn::Next(Next::Deliver(Lane::New)) };
            let wake = self.live_due().map_or(not_before, |due| due.min(not_before));
            tokio::select! {
                () = sleep_until(wake) => {}
                () = self.shutdown.cancelled() => {}
            }
            return Drawn::Nothing;
        }
        if self.lanes.new.is_empty() {
            let report = self.reports.due().filter(|_| self.way.is_open() && self.healthy_since.is_some());
            let look = report.into_iter().chain(self.live_due()).min();
            let due = self.way.due().into_iter().chain(look).min();
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => Drawn::Next(Next::Stop),
                () = until(due) => match look {
                    Some(look) if Some(look) == due => Drawn::Nothing,
                    _ => Drawn::Next(Next::Attend),
                },
                drawn = self.backlog.next() => Drawn::Parcel(drawn),
                () = sleep(DRAINED), if self.calendar.is_uploading() => {
                    self.calendar.end_upload();
                    Drawn::Nothing
                }
            }
        } else {
            let wake = not_before.map(|moment| self.live_due().map_or(moment, |due| due.min(moment)));
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => Drawn::Next(Next::Stop),
                drawn = self.backlog.next() => Drawn::Parcel(drawn),
                () = sleep_until(wake.unwrap_or_else(|| Instant::now() + GATHER)) => match not_before {
                    Some(_) => Drawn::Nothing,
                    None => Drawn::Next(Next::Deliver(Lane::New)),
                },
            }
        }
    }
}

/// Waits until `due`; for ever if nothing is.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
