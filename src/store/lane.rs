//! One thread for the writer's work on the database, one piece after the other.
//!
//! The runtime's threads for blocking work take turns, and the C library gives each a heap of its own, which keeps what a
//! commit needed for a moment: four threads would keep it four times. One of them waits while the lane works, so that the
//! runtime knows of the work, at its end as well; what comes out goes straight to who waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tracing::dispatcher;

use super::{Closed, StoreError};

type Work = Box<dyn FnOnce() + Send>;

/// A thread that works until this is dropped.
#[derive(Debug)]
pub(super) struct Lane(mpsc::Sender<Work>);

impl Lane {
    pub(super) fn start() -> Result<Self, StoreError> {
        let (to, queue) = mpsc::channel::<Work>();
        // What is logged there goes where it goes here.
        let log = dispatcher::get_default(Clone::clone);
        let works = move || {
            for work in queue {
                // Who waits for it is told: nothing is sent then.
                let _ = catch_unwind(AssertUnwindSafe(|| dispatcher::with_default(&log, work)));
            }
        };
        let started = thread::Builder::new().name("store".to_owned()).spawn(works);
        started.map_err(|cause| StoreError::Unusable(format!("cannot start a thread: {cause}")))?;
        Ok(Self(to))
    }

    /// Has this done, and waits for it. `Closed` if it panicked.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Closed> {
        let (to, done) = oneshot::channel();
        let (works, rests) = mpsc::channel::<()>();
        let work = move || {
            // Dropped at the end, also of a panic.
            let _works = works;
            // Who does not wait any more need not know.
            drop(to.send(work()));
        };
        self.0.send(Box::new(work)).map_err(|_| Closed)?;
        let known = spawn_blocking(move || rests.recv());
        let done = done.await.map_err(|_| Closed);
        drop(known);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_work_is_done_on_one_thread_and_survives_a_panic() {
        let lane = Lane::start().unwrap();
        let first = lane.run(|| thread::current().id()).await.unwrap();
        assert!(lane.run(|| assert_eq!(1, 2, "on purpose")).await.is_err());
        assert_eq!(lane.run(|| thread::current().id()).await.unwrap(), first);
        assert_ne!(first, thread::current().id());
    }
}
