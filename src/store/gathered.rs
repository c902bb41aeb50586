//! What the writer gathers for one commit: deliveries, and what the forwarder settled.

use std::time::Duration;

use tokio::sync::oneshot;

use super::engine::Batch;
use super::lazy::Pool;
use super::{Delivery, Settled};

/// Longest wait of a settlement: several share a commit, and the forwarder is not held up.
pub(super) const SETTLE_WAIT: Duration = Duration::from_millis(20);
/// Longest wait of a settlement that deletes nothing from the file: it goes along with a commit of readings.
const RIDE_WAIT: Duration = Duration::from_secs(10);

/// What was gathered for one commit.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub batch: Batch,
    pub weight: usize,
    /// A source cannot go on without this commit.
    pub urgent: bool,
    /// It holds what would be lost for good if the process died now: nobody keeps it until a receipt.
    pub pressing: bool,
    pub replies: Vec<oneshot::Sender<()>>,
}

impl Gathered {
    /// Whether there is nothing to commit.
    pub(super) fn is_empty(&self) -> bool {
        let batch = &self.batch;
        batch.settled.is_empty()
            && batch.deliveries.is_empty()
            && batch.turned_away.is_empty()
            && batch.broken.is_empty()
    }

    pub(super) fn add(&mut self, delivery: Delivery, weight: u32) {
        self.weight += weight as usize;
        self.urgent |= delivery.urgent;
        self.pressing |= delivery.receipt.is_none();
        self.batch.deliveries.push(delivery);
    }

    /// Takes a settlement in; how long it may wait for its commit. What was never written is forgotten at once: if the
    /// record of that is lost it is sent again, and found to be there.
    pub(super) fn settle(&mut self, settled: Settled, reply: oneshot::Sender<()>, pool: &Pool) -> Duration {
        let ids = || settled.segments.iter().map(|id| id.0);
        if settled.dead_letters.is_empty() && pool.holds(ids()) {
            ids().for_each(|id| pool.remove(id));
            tell_settled(reply);
            self.batch.settled.push(settled);
            return RIDE_WAIT;
        }
        self.batch.settled.push(settled);
        self.replies.push(reply);
        SETTLE_WAIT
    }
}

/// A forwarder that is gone need not know.
pub(super) fn tell_settled(reply: oneshot::Sender<()>) {
    let _ = reply.send(());
}
