//! The one task that writes: takes what waits, commits it together, tells the sources, looks after the log.
//!
//! A batch is committed when its oldest delivery has waited `commit_every`, when it is large, or when a source cannot go
//! on without it. When a commit fails the batch is kept and tried again on a fresh engine; meanwhile the inlets fill up
//! and the sources wait, and what the forwarder settles is still written, since that makes room.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::engine::{Batch, Engine, Report, Setup};
use super::names::NameReader;
use super::{Deliveries, Delivery, Receipt, Settled, StoreError};
use crate::clock::Clock;
use crate::model::backoff::Backoff;
use crate::stats::Stats;

/// Weight of deliveries at which a batch is committed at once: about 64 KiB of journal.
const FULL_WEIGHT: usize = 1 << 20;
/// Longest wait of a settlement: several share a commit, and the forwarder is not held up.
const SETTLE_WAIT: Duration = Duration::from_millis(20);
/// Longest sleep towards a wall clock time, since that clock may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// Pauses after a failed commit.
const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(30);

/// A settlement and whom to tell that it is on disk.
pub(super) type Settle = (Settled, oneshot::Sender<()>);

/// The store's task. Ends when every inlet and the outlet are dropped.
#[derive(Debug)]
pub struct Writer {
    pub(super) _lock: std::fs::File,
    pub(super) deliveries: Deliveries,
    pub(super) settles: mpsc::Receiver<Settle>,
    pub(super) engine: Option<Engine>,
    pub(super) setup: Setup,
    pub(super) names: NameReader,
    pub(super) latest: watch::Sender<u64>,
    pub(super) commit_every: Duration,
    pub(super) clock: Clock,
    pub(super) stats: Stats,
}

/// What was gathered for one commit.
#[derive(Debug, Default)]
struct Gathered {
    batch: Batch,
    weight: usize,
    replies: Vec<oneshot::Sender<()>>,
}

/// Which of the two ends are still open.
#[derive(Debug)]
struct Ends {
    deliveries: bool,
    settles: bool,
}

impl Writer {
    /// Writes until both ends are closed and everything is on disk; then brings the file into order.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let mut ends = Ends { deliveries: true, settles: true };
        while let Some(gathered) = self.gather(&mut ends).await {
            self.commit(gathered, &mut ends).await?;
        }
        if let Some(engine) = self.engine.take() {
            spawn_blocking(move || engine.close()).await.context("the store panicked")??;
        }
        Ok(())
    }

    /// Waits for the next reason to commit; `None` when both ends are closed and nothing is left. What it took would be
    /// lost if it were dropped half-way: only [`Self::run`] awaits it.
    async fn gather(&mut self, ends: &mut Ends) -> Option<Gathered> {
        let mut gathered = Gathered::default();
        let mut deadline: Option<Instant> = None;
        while ends.deliveries || ends.settles {
            self.stats.store().rounds.inc();
            let wake = self.wake(deadline);
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(wake) => {
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) || self.is_due() {
                        return Some(gathered);
                    }
                }
                delivery = self.deliveries.next(), if ends.deliveries => match delivery {
                    Some((delivery, weight)) => {
                        let urgent = delivery.urgent;
                        gathered.add(delivery, weight);
                        deadline.get_or_insert_with(|| Instant::now() + self.commit_every);
                        if urgent || gathered.weight >= FULL_WEIGHT {
                            self.take_waiting(&mut gathered);
                            return Some(gathered);
                        }
                    }
                    None => {
                        ends.deliveries = false;
                        return Some(gathered);
                    }
                },
                settle = self.settles.recv(), if ends.settles => match settle {
                    Some(settle) => {
                        gathered.settle(settle);
                        let soon = Instant::now() + SETTLE_WAIT;
                        deadline = Some(deadline.map_or(soon, |deadline| deadline.min(soon)));
                    }
                    None => ends.settles = false,
                },
            }
        }
        (!gathered.replies.is_empty()).then_some(gathered)
    }

    fn take_waiting(&mut self, gathered: &mut Gathered) {
        while gathered.weight < FULL_WEIGHT
            && let Some((delivery, weight)) = self.deliveries.try_next()
        {
            gathered.add(delivery, weight);
        }
    }

    /// When to look again: at the deadline, or when a bucket is due.
    fn wake(&self, deadline: Option<Instant>) -> Instant {
        let due = self.engine.as_ref().and_then(Engine::next_due);
        let due = Instant::now() + due.map_or(MAX_SLEEP, |due| due.since(self.clock.now()).min(MAX_SLEEP));
        deadline.map_or(due, |deadline| deadline.min(due))
    }

    fn is_due(&self) -> bool {
        let now = self.clock.now();
        self.engine.as_ref().is_some_and(|engine| engine.next_due().is_some_and(|due| due <= now))
    }

    /// Commits, however often it must be tried, and tells everyone.
    async fn commit(&mut self, gathered: Gathered, ends: &mut Ends) -> anyhow::Result<()> {
        let Gathered { batch, weight, mut replies } = gathered;
        let mut batch = Arc::new(batch);
        let mut backoff = Backoff::new(RETRY_BASE, RETRY_CAP);
        while let Err(error) = self.try_commit(&batch).await? {
            self.stats.store().rounds.inc();
            self.stats.store().condition.down(self.clock.now(), &error);
            let waiting = Arc::get_mut(&mut batch).expect("the blocking thread gave its share back");
            if matches!(error, StoreError::Full { .. }) && !waiting.settled.is_empty() {
                // What is delivered makes room, so it goes first and alone.
                let settled = Arc::new(Batch {
                    settled: std::mem::take(&mut waiting.settled),
                    only_settle: true,
                    ..Batch::default()
                });
                match self.try_commit(&settled).await? {
                    Ok(()) => replies.drain(..).for_each(tell_settled),
                    Err(_) => waiting.settled = Arc::into_inner(settled).map(|batch| batch.settled).unwrap_or_default(),
                }
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_pause(fastrand::f64())) => {}
                settle = self.settles.recv(), if ends.settles => match settle {
                    Some((settled, reply)) => {
                        waiting.settled.push(settled);
                        replies.push(reply);
                    }
                    None => ends.settles = false,
                },
            }
        }
        self.deliveries.release(weight);
        let batch = Arc::into_inner(batch).expect("the blocking thread gave its share back");
        batch.deliveries.into_iter().filter_map(|delivery| delivery.receipt).for_each(Receipt::fire);
        replies.into_iter().for_each(tell_settled);
        self.checkpoint().await
    }

    /// One try. On an error the engine is gone: the next try reads everything back from disk.
    async fn try_commit(&mut self, batch: &Arc<Batch>) -> anyhow::Result<Result<(), StoreError>> {
        let (engine, setup, names) = (self.engine.take(), self.setup.clone(), self.names.clone());
        let (shared, now) = (Arc::clone(batch), self.clock.now());
        let started = std::time::Instant::now();
        let work = move || -> Result<(Engine, Report, u64), StoreError> {
            let mut engine = engine.map_or_else(|| Engine::open(setup, &names), Ok)?;
            let report = engine.commit(&shared, now)?;
            drop(shared);
            let bytes = engine.bytes()?;
            Ok((engine, report, bytes))
        };
        Ok(match spawn_blocking(work).await.context("the store panicked")? {
            Ok((engine, report, bytes)) => {
                self.tell(&engine, report, bytes, started.elapsed());
                self.latest.send_if_modified(|latest| {
                    std::mem::replace(latest, engine.last_segment()) != engine.last_segment()
                });
                self.engine = Some(engine);
                Ok(())
            }
            Err(error) => Err(error),
        })
    }

    async fn checkpoint(&mut self) -> anyhow::Result<()> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        let (engine, result) = spawn_blocking(move || {
            let result = engine.checkpoint_if_long();
            (engine, result)
        })
        .await
        .context("the store panicked")?;
        match result {
            Ok(()) => self.engine = Some(engine),
            // The next commit begins with a fresh connection.
            Err(error) => self.stats.store().condition.down(self.clock.now(), &error),
        }
        Ok(())
    }

    fn tell(&self, engine: &Engine, report: Report, bytes: u64, took: Duration) {
        let stats = self.stats.store();
        let now = self.clock.now();
        stats.condition.up(now, format_args!("writing {}", self.setup.path.display()));
        if report.sensor_limit > 0 {
            stats.sensor_condition.down(
                now,
                format_args!(
                    "site.max_sensors ({}) is reached: readings of further sensors are refused",
                    self.setup.max_sensors
                ),
            );
        }
        stats.readings.inc_by(report.readings);
        stats.duplicates.inc_by(report.duplicates);
        stats.redelivered.inc_by(report.redelivered);
        stats.sensor_limit.inc_by(report.sensor_limit);
        stats.sealed.inc_by(report.sealed);
        stats.late.inc_by(report.late);
        stats.dead_letters.inc_by(report.dead_letters);
        stats.evicted.inc_by(report.evicted);
        if report.committed {
            stats.commits.inc();
            stats.commit_us.set(i64::try_from(took.as_micros()).unwrap_or(i64::MAX));
            stats.last_commit_ms.set(now.as_millis());
        }
        engine.tell(stats, bytes);
    }
}

/// A forwarder that is gone need not know.
fn tell_settled(reply: oneshot::Sender<()>) {
    let _ = reply.send(());
}

impl Gathered {
    fn add(&mut self, delivery: Delivery, weight: u32) {
        self.weight += weight as usize;
        self.batch.deliveries.push(delivery);
    }

    fn settle(&mut self, (settled, reply): Settle) {
        self.batch.settled.push(settled);
        self.replies.push(reply);
    }
}
