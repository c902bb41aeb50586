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

use super::database::Lock;
use super::engine::{Batch, Engine, Report, Setup};
use super::names::NameReader;
use super::quarantine::{self, Salvage};
use super::{Deliveries, Delivery, Head, Receipt, Settled, StoreError, database};
use crate::clock::Clock;
use crate::model::LossReason;
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

/// What the outlet asks for.
#[derive(Debug)]
pub(super) enum Request {
    /// Delete what is settled, and tell when that is on disk.
    Settle(Settled, oneshot::Sender<()>),
    /// The file cannot be read: look after it.
    Damaged(StoreError),
}

/// The store's task. Ends when every inlet and the outlet are dropped.
#[derive(Debug)]
pub struct Writer {
    pub(super) _lock: Lock,
    pub(super) deliveries: Deliveries,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) engine: Option<Engine>,
    /// What is still to be brought back from a damaged file.
    pub(super) salvage: Option<Salvage>,
    /// The record that a failed commit tried to write: it may be on disk all the same.
    pub(super) tried: Option<u64>,
    pub(super) setup: Setup,
    pub(super) names: NameReader,
    pub(super) head: watch::Sender<Head>,
    pub(super) commit_every: Duration,
    pub(super) clock: Clock,
    pub(super) stats: Stats,
}

/// What was gathered for one commit.
#[derive(Debug, Default)]
struct Gathered {
    batch: Batch,
    weight: usize,
    /// A source cannot go on without this commit.
    urgent: bool,
    replies: Vec<oneshot::Sender<()>>,
}

/// An engine that has committed.
struct Committed {
    engine: Engine,
    salvage: Option<Salvage>,
    report: Report,
    /// The log is long enough to be copied into the file.
    long: bool,
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
            self.bring_back().await?;
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
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) || self.is_due() || self.salvage.is_some() {
                        return Some(gathered);
                    }
                }
                delivery = self.deliveries.next(), if ends.deliveries => match delivery {
                    Some((delivery, weight)) => {
                        gathered.add(delivery, weight);
                        deadline.get_or_insert_with(|| Instant::now() + self.commit_every);
                        // All that wait: setting a timer for each would cost more than taking it.
                        self.take_waiting(&mut gathered);
                        if gathered.urgent || gathered.weight >= FULL_WEIGHT {
                            return Some(gathered);
                        }
                    }
                    None => {
                        ends.deliveries = false;
                        return Some(gathered);
                    }
                },
                request = self.requests.recv(), if ends.settles => match request {
                    Some(Request::Damaged(damage)) => self.quarantine(&damage).await,
                    Some(Request::Settle(settled, reply)) => {
                        gathered.settle(settled, reply);
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
        let longest = if self.salvage.is_some() { SETTLE_WAIT } else { MAX_SLEEP };
        let due = Instant::now() + due.map_or(longest, |due| due.since(self.clock.now()).min(longest));
        deadline.map_or(due, |deadline| deadline.min(due))
    }

    fn is_due(&self) -> bool {
        let now = self.clock.now();
        self.engine.as_ref().is_some_and(|engine| engine.next_due().is_some_and(|due| due <= now))
    }

    /// Commits, however often it must be tried, and tells everyone.
    async fn commit(&mut self, gathered: Gathered, ends: &mut Ends) -> anyhow::Result<()> {
        let Gathered { batch, weight, mut replies, .. } = gathered;
        let mut batch = Arc::new(batch);
        let mut backoff = Backoff::new(RETRY_BASE, RETRY_CAP);
        let long = loop {
            let error = match self.try_commit(&batch).await? {
                Ok(long) => break long,
                Err(error) => error,
            };
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
                    Ok(_) => replies.drain(..).for_each(tell_settled),
                    Err(_) => waiting.settled = Arc::into_inner(settled).map(|batch| batch.settled).unwrap_or_default(),
                }
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_pause(fastrand::f64())) => {}
                request = self.requests.recv(), if ends.settles => match request {
                    // The retry meets the damage itself.
                    Some(Request::Damaged(_)) => {}
                    Some(Request::Settle(settled, reply)) => {
                        waiting.settled.push(settled);
                        replies.push(reply);
                    }
                    None => ends.settles = false,
                },
            }
        };
        self.deliveries.release(weight);
        let batch = Arc::into_inner(batch).expect("the blocking thread gave its share back");
        batch.deliveries.into_iter().filter_map(|delivery| delivery.receipt).for_each(Receipt::fire);
        replies.into_iter().for_each(tell_settled);
        if long { self.checkpoint().await } else { Ok(()) }
    }

    /// One try; whether the log is long then. On an error the engine is gone: the next try reads everything back from disk.
    async fn try_commit(&mut self, batch: &Arc<Batch>) -> anyhow::Result<Result<bool, StoreError>> {
        let (engine, setup, names) = (self.engine.take(), self.setup.clone(), self.names.clone());
        let (shared, now, tried) = (Arc::clone(batch), self.clock.now(), self.tried.take());
        let started = std::time::Instant::now();
        let work = move || -> Result<Committed, (StoreError, Option<u64>)> {
            let (mut engine, salvage) = match engine {
                Some(engine) => (engine, None),
                None => quarantine::open(&setup, &names, now, true).map_err(|error| (error, tried))?,
            };
            if tried.is_some_and(|tried| tried <= engine.last_record()) {
                engine.make_durable().map_err(|error| (error, tried))?;
                return Ok(Committed { engine, salvage, report: Report::default(), long: true });
            }
            let trying = engine.last_record() + 1;
            let report = engine.commit(&shared, now).map_err(|error| (error, Some(trying)))?;
            // If that cannot be told, the checkpoint will tell why.
            let long = engine.is_log_long().unwrap_or(true);
            Ok(Committed { engine, salvage, report, long })
        };
        Ok(match spawn_blocking(work).await.context("the store panicked")? {
            Ok(Committed { engine, salvage, report, long }) => {
                self.tell(&engine, report, started.elapsed());
                self.advance(engine, salvage);
                Ok(long)
            }
            Err((error, tried)) => {
                // A transaction that found no room is rolled back for certain; and settling twice does no harm.
                let certain = matches!(error, StoreError::Full { .. }) || batch.only_settle;
                self.tried = tried.filter(|_| !certain);
                Err(error)
            }
        })
    }

    /// Tells the outlet how far the store is.
    fn advance(&mut self, engine: Engine, salvage: Option<Salvage>) {
        let latest = engine.last_segment();
        self.head.send_if_modified(|head| {
            let before = *head;
            *head = Head { latest, generation: head.generation + u64::from(salvage.is_some()) };
            *head != before
        });
        self.engine = Some(engine);
        self.salvage = salvage.or(self.salvage.take());
    }

    /// The outlet cannot read the file: set it aside and go on with a fresh one.
    async fn quarantine(&mut self, damage: &StoreError) {
        self.stats.store().condition.down(self.clock.now(), damage);
        let (engine, setup, names, now) =
            (self.engine.take(), self.setup.clone(), self.names.clone(), self.clock.now());
        let work = move || {
            drop(engine);
            quarantine::replace(&setup, &names, now)
        };
        // On an error the next commit opens whatever there is then, and reports what is wrong with it.
        match spawn_blocking(work).await {
            Ok(Ok((engine, salvage))) => self.advance(engine, Some(salvage)),
            Ok(Err(error)) => self.stats.store().condition.down(self.clock.now(), error),
            Err(panic) => self.stats.store().condition.down(self.clock.now(), panic),
        }
    }

    /// Brings some of a damaged file back, between two commits.
    async fn bring_back(&mut self) -> anyhow::Result<()> {
        if self.salvage.is_none() || self.engine.is_none() {
            return Ok(());
        }
        let (Some(mut salvage), Some(mut engine)) = (self.salvage.take(), self.engine.take()) else { return Ok(()) };
        let work = move || {
            let done = salvage.step(&engine.db);
            let done = done.and_then(|done| if done { engine.recount().map(|()| done) } else { Ok(done) });
            (engine, salvage, done)
        };
        let (engine, salvage, done) = spawn_blocking(work).await.context("the store panicked")?;
        match done {
            Ok(true) => {
                // What came back is older than what the outlet has seen.
                self.head.send_modify(|head| head.generation += 1);
                engine.tell(self.stats.store());
                self.engine = Some(engine);
            }
            Ok(false) => {
                self.engine = Some(engine);
                self.salvage = Some(salvage);
            }
            Err(error) => {
                // There may be room later, or the fresh file is damaged too; the next commit tells.
                self.stats.store().condition.down(self.clock.now(), &error);
                self.salvage = Some(salvage);
            }
        }
        Ok(())
    }

    /// Copies the log into the file. After the receipts: nobody waits for it.
    async fn checkpoint(&mut self) -> anyhow::Result<()> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        let (engine, result) = spawn_blocking(move || {
            let result = database::checkpoint(&engine.db);
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

    fn tell(&self, engine: &Engine, report: Report, took: Duration) {
        let stats = self.stats.store();
        let now = self.clock.now();
        stats.condition.up(now, format_args!("writing {}", self.setup.path.display()));
        let refused =
            report.lost[LossReason::TooManySensors as usize] + report.lost[LossReason::TooManyFields as usize];
        if refused > 0 {
            let most = self.setup.max_sensors;
            let words = format_args!(
                "site.max_sensors ({most}) is reached, or there are too many field names: readings with further names are \
                 refused and stand in the ledger"
            );
            stats.sensor_condition.lost(now, words);
            stats.sensor_limit.inc_by(refused);
        }
        if report.thinned > 0 {
            let words = format_args!(
                "store.max_bytes is nearly used up: the oldest undelivered buckets keep their rollups only, {} samples went now",
                report.thinned
            );
            stats.room_condition.lost(now, words);
            stats.thinned.inc_by(report.thinned);
        }
        if report.evicted > 0 {
            let words = format_args!(
                "store.max_bytes is used up: the oldest undelivered buckets are deleted, {} now; the ledger tells of which times",
                report.evicted
            );
            stats.room_condition.lost(now, words);
        }
        stats.readings.inc_by(report.readings);
        stats.duplicates.inc_by(report.duplicates);
        stats.redelivered.inc_by(report.redelivered);
        stats.sealed.inc_by(report.sealed);
        stats.late.inc_by(report.late);
        stats.dead_letters.inc_by(report.dead_letters);
        stats.evicted.inc_by(report.evicted);
        if report.committed {
            stats.commits.inc();
            stats.commit_us.set(i64::try_from(took.as_micros()).unwrap_or(i64::MAX));
            stats.last_commit_ms.set(now.as_millis());
        }
        engine.tell(stats);
    }
}

/// A forwarder that is gone need not know.
fn tell_settled(reply: oneshot::Sender<()>) {
    let _ = reply.send(());
}

impl Gathered {
    fn add(&mut self, delivery: Delivery, weight: u32) {
        self.weight += weight as usize;
        self.urgent |= delivery.urgent;
        self.batch.deliveries.push(delivery);
    }

    fn settle(&mut self, settled: Settled, reply: oneshot::Sender<()>) {
        self.batch.settled.push(settled);
        self.replies.push(reply);
    }
}
