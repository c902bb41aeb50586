//! What is done while a command is under way: the documents of the next one are made.
//!
//! In slices, between which the command, and everything else, has its turn. It begins when the
//! command waits for the server, and ends when the answer is there. Nothing is drawn that would not be drawn next anyway.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use super::lanes::{Lane, Lanes};
use super::next::MAX_OPEN_SEGMENTS;
use crate::model::Timestamp;
use crate::stats::UpstreamStats;
use crate::store::{Backlog, StoreError};

/// Where the next documents of a lane come from, and where they go.
pub(super) struct Ahead<'a, B> {
    pub(super) backlog: &'a mut B,
    pub(super) lanes: &'a mut Lanes,
    pub(super) lane: Lane,
    /// Most documents and bytes.
    pub(super) limits: (usize, usize),
    pub(super) now: Timestamp,
    pub(super) stats: &'a UpstreamStats,
    pub(super) shutdown: &'a CancellationToken,
    /// The command under way is answered.
    pub(super) answered: &'a AtomicBool,
}

impl<B: Backlog> Ahead<'_, B> {
    /// Makes documents until they fill a command, or the one under way is answered. Dropped half-way, what is made and
    /// drawn stays.
    pub(super) async fn prepare(&mut self) {
        loop {
            yield_now().await;
            if self.answered.load(Ordering::Relaxed) || self.shutdown.is_cancelled() {
                return;
            }
            let window = self.lanes.of(self.lane);
            if window.must_settle() {
                return;
            }
            let goes_on = window.fill_slice(self.limits, self.now, self.stats);
            if !goes_on && (window.has_packed() || window.is_full(self.limits) || !self.draw().await) {
                return;
            }
        }
    }

    /// Draws a segment if there is one now. What is wrong with the store is met again, and told, when the answer is there.
    async fn draw(&mut self) -> bool {
        match self.lane {
            Lane::New if !self.backlog.has_next() || self.lanes.open_segments() >= MAX_OPEN_SEGMENTS => false,
            Lane::New => {
                let Ok(Some(parcel)) = self.backlog.next().await else { return false };
                self.lanes.new.add(parcel);
                true
            }
            Lane::Old if !self.lanes.wants_old(self.limits) || self.lanes.open_segments() >= MAX_OPEN_SEGMENTS => false,
            Lane::Old => {
                match self.backlog.next_old().await {
                    Ok(Some(parcel)) => {
                        self.lanes.old.add(parcel);
                        return true;
                    }
                    Ok(None) | Err(StoreError::Closed(_)) => self.lanes.drained(),
                    Err(_) => {}
                }
                false
            }
        }
    }
}
