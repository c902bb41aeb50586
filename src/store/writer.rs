//! The one task that writes: takes what waits, commits it together, tells the sources, looks after the log.
//!
//! A batch is committed when its oldest delivery has waited `commit_every` (or longer, if every sender keeps what it sent
//! until the receipt), when it is large, or when a source cannot go on without it. When a commit fails the batch is kept and tried again on a fresh engine; meanwhile the inlets fill up
//! and the sources wait, and what the forwarder settles is still written, since that makes room.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::database::Lock;
use super::engine::{Batch, Engine, Report, Setup};
use super::gathered::{Gathered, SETTLE_WAIT, tell_settled};
use super::lane::Lane;
use super::names::NameReader;
use super::open::Compact;
use super::quarantine::{self, Salvage};
use super::quota::Alarm;
use super::room::Level;
use super::waiting::Waiting;
use super::{Deliveries, Head, Question, Receipt, SegmentId, Settled, StoreError, calendar, database, orders};
use crate::clock::Clock;
use crate::model::backoff::Backoff;
use crate::stats::Stats;

/// Weight of deliveries at which a batch is committed at once: about 64 KiB of journal.
const FULL_WEIGHT: usize = 1 << 20;
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
    /// A segment cannot be read: put it aside.
    Broken(SegmentId, String),
    /// Tell what open buckets hold.
    Look(Question, oneshot::Sender<Compact>),
}

/// The store's task. Ends when every inlet and the outlet are dropped.
#[derive(Debug)]
pub struct Writer {
    pub(super) _lock: Lock,
    /// Where SQLite works.
    pub(super) lane: Lane,
    pub(super) deliveries: Deliveries,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) engine: Option<Engine>,
    /// What is still to be brought back from a damaged file.
    pub(super) salvage: Option<Salvage>,
    /// The record that a failed commit tried to write: it may be on disk all the same.
    pub(super) tried: Option<u64>,
    /// A commit found no room although there seemed to be some.
    pub(super) found_no_room: bool,
    /// What came while a commit was tried again and again.
    pub(super) waiting: Waiting,
    pub(super) alarm: Alarm,
    pub(super) setup: Setup,
    pub(super) names: NameReader,
    pub(super) head: watch::Sender<Head>,
    pub(super) commit_every: Duration,
    pub(super) commit_every_resendable: Duration,
    pub(super) clock: Clock,
    pub(super) stats: Stats,
}

/// An engine that has committed.
struct Committed {
    engine: Engine,
    salvage: Option<Salvage>,
    report: Report,
    level: Option<Level>,
    /// The log is long enough to be copied into the file.
    long: bool,
}

/// A commit that failed.
struct Failed {
    error: StoreError,
    /// The record that may be on disk all the same.
    tried: Option<u64>,
    /// The engine, if it found no room before it began.
    engine: Option<Box<(Engine, Option<Salvage>)>>,
}

impl Failed {
    const fn at(error: StoreError, tried: Option<u64>) -> Self {
        Self { error, tried, engine: None }
    }
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
            self.lane.run(move || engine.close()).await.context("the store panicked")??;
        }
        Ok(())
    }

    /// Waits for the next reason to commit; `None` when both ends are closed and nothing is left. What it took would be
    /// lost if it were dropped half-way: only [`Self::run`] awaits it.
    async fn gather(&mut self, ends: &mut Ends) -> Option<Gathered> {
        let mut gathered = Gathered::default();
        gathered.batch.turned_away = self.waiting.turned_away();
        while gathered.weight < FULL_WEIGHT
            && let Some((delivery, weight)) = self.waiting.pop()
        {
            gathered.add(delivery, weight);
        }
        if !gathered.is_empty() {
            return Some(gathered);
        }
        let mut deadline: Option<Instant> = None;
        while ends.deliveries || ends.settles {
            self.stats.store().rounds.inc();
            let wake = self.wake(deadline);
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(wake) => {
                    calendar::tell(&self.clock, self.stats.store());
                    if let Some(orders) = orders::waiting(&self.setup.path) {
                        gathered.batch.orders = orders;
                        return Some(gathered);
                    }
                    let is_time = deadline.is_some_and(|deadline| deadline <= Instant::now());
                    if is_time || self.is_due() || self.salvage.is_some() || self.is_releasing() {
                        return Some(gathered);
                    }
                }
                delivery = self.deliveries.next(), if ends.deliveries => match delivery {
                    Some((delivery, weight)) => {
                        gathered.add(delivery, weight);
                        // All that wait: setting a timer for each would cost more than taking it.
                        self.take_waiting(&mut gathered);
                        let wait = if gathered.pressing { self.commit_every } else { self.commit_every_resendable };
                        let until = Instant::now() + wait;
                        deadline = Some(deadline.map_or(until, |deadline| deadline.min(until)));
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
                    Some(Request::Broken(segment, why)) => {
                        gathered.batch.broken.push((segment, why));
                        deadline.get_or_insert_with(|| Instant::now() + SETTLE_WAIT);
                    }
                    Some(Request::Look(question, reply)) => {
                        // Who does not wait any more need not know.
                        let _ = self.engine.as_ref().map(|engine| reply.send(engine.look(&question)));
                    }
                    Some(Request::Settle(settled, reply)) => {
                        let wait = Instant::now() + gathered.settle(settled, reply, &self.setup.pool);
                        if let Some(engine) = &self.engine {
                            engine.tell_backlog(self.stats.store());
                        }
                        deadline = Some(deadline.map_or(wait, |deadline| deadline.min(wait)));
                    }
                    None => ends.settles = false,
                },
            }
        }
        (!gathered.is_empty()).then_some(gathered)
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
        let longest = if self.salvage.is_some() || self.is_releasing() { SETTLE_WAIT } else { MAX_SLEEP };
        let due = Instant::now() + due.map_or(longest, |due| due.since(self.clock.now()).min(longest));
        deadline.map_or(due, |deadline| deadline.min(due))
    }

    fn is_due(&self) -> bool {
        let now = self.clock.now();
        self.engine.as_ref().is_some_and(|engine| engine.next_due().is_some_and(|due| due <= now))
    }

    /// Whether there is something to release; looks at the clock, which may be trusted meanwhile.
    fn is_releasing(&self) -> bool {
        let moment = self.clock.look();
        self.engine.as_ref().is_some_and(|engine| engine.is_releasing(&moment))
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
            let tried = Arc::get_mut(&mut batch).expect("the blocking thread gave its share back");
            let mut only = Batch { only_settle: true, ..Batch::default() };
            only.turned_away = self.waiting.turned_away();
            if matches!(error, StoreError::Full { .. }) {
                only.settled = std::mem::take(&mut tried.settled);
            }
            if !only.settled.is_empty() || (!only.turned_away.is_empty() && self.tried.is_none()) {
                // What is delivered makes room, so it goes first and alone; and what is lost is put on record.
                let only = Arc::new(only);
                match self.try_commit(&only).await? {
                    Ok(_) => replies.drain(..).for_each(tell_settled),
                    Err(_) => {
                        let only = Arc::into_inner(only).unwrap_or_default();
                        tried.settled = only.settled;
                        self.waiting.put_back(only.turned_away);
                    }
                }
            } else {
                self.waiting.put_back(only.turned_away);
            }
            self.wait(backoff.next_pause(fastrand::f64()), tried, &mut replies, ends).await;
        };
        self.deliveries.release(weight);
        let batch = Arc::into_inner(batch).expect("the blocking thread gave its share back");
        if !batch.orders.is_empty() {
            orders::done(&self.setup.path);
        }
        batch.deliveries.into_iter().filter_map(|delivery| delivery.receipt).for_each(Receipt::fire);
        replies.into_iter().for_each(tell_settled);
        if long { self.checkpoint().await } else { Ok(()) }
    }

    /// Waits before a commit is tried again. What the forwarder settles ends the wait, since it makes room; what sources
    /// send waits with it, as long as there is room for it in memory.
    async fn wait(
        &mut self,
        pause: Duration,
        tried: &mut Batch,
        replies: &mut Vec<oneshot::Sender<()>>,
        ends: &mut Ends,
    ) {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(until) => return,
                request = self.requests.recv(), if ends.settles => match request {
                    // The retry, or the next pass, meets the damage itself.
                    Some(Request::Damaged(_) | Request::Broken(..) | Request::Look(..)) => {}
                    Some(Request::Settle(settled, reply)) => {
                        tried.settled.push(settled);
                        replies.push(reply);
                        return;
                    }
                    None => ends.settles = false,
                },
                delivery = self.deliveries.next(), if ends.deliveries && self.waiting.has_room() => match delivery {
                    Some((delivery, weight)) => {
                        let released = self.waiting.push(delivery, weight);
                        self.deliveries.release(released);
                    }
                    None => ends.deliveries = false,
                },
            }
        }
    }

    /// One try; whether the log is long then. On an error the engine is gone: the next try reads everything back from disk.
    async fn try_commit(&mut self, batch: &Arc<Batch>) -> anyhow::Result<Result<bool, StoreError>> {
        let (engine, setup, names) = (self.engine.take(), self.setup.clone(), self.names.clone());
        let (shared, moment, tried) = (Arc::clone(batch), self.clock.look(), self.tried.take());
        let now = moment.now;
        let started = std::time::Instant::now();
        let found_no_room = std::mem::take(&mut self.found_no_room);
        let work = move || -> Result<Committed, Failed> {
            let (mut engine, salvage) = match engine {
                Some(engine) => (engine, None),
                None => quarantine::open(&setup, &names, now, true).map_err(|error| Failed::at(error, tried))?,
            };
            if found_no_room {
                engine.found_no_room(now);
            }
            if tried.is_some_and(|tried| tried <= engine.last_record()) {
                engine.make_durable().map_err(|error| Failed::at(error, tried))?;
                let level = engine.level().ok();
                return Ok(Committed { engine, salvage, report: Report::default(), level, long: true });
            }
            let mut trying = engine.last_record() + 1;
            let taken = engine.take_moment(&moment).and_then(|()| {
                trying = engine.last_record() + 1;
                engine.commit(&shared, now)
            });
            match taken {
                Ok(mut report) => {
                    // Not worth failing for: the next commit meets the same trouble and reports it.
                    let _ = engine.top_up(now);
                    // If that cannot be told, the checkpoint will tell why.
                    let long = engine.is_log_long().unwrap_or(true);
                    report.written = engine.wear.take();
                    let level = engine.level().ok();
                    Ok(Committed { engine, salvage, report, level, long })
                }
                Err(error) if engine.is_sound() => {
                    Err(Failed { error, tried: None, engine: Some(Box::new((engine, salvage))) })
                }
                Err(error) => Err(Failed::at(error, Some(trying))),
            }
        };
        Ok(match self.lane.run(work).await.context("the store panicked")? {
            Ok(Committed { engine, salvage, report, level, long }) => {
                self.tell(&engine, level, report, started.elapsed());
                self.advance(engine, salvage);
                Ok(long)
            }
            Err(Failed { error, tried, engine }) => {
                // A transaction that found no room is rolled back for certain; and settling twice does no harm.
                let full = matches!(error, StoreError::Full { .. });
                self.tried = tried.filter(|_| !full && !batch.only_settle);
                match engine {
                    Some(sound) => {
                        let (engine, salvage) = *sound;
                        self.tell_level(&engine, engine.level().ok());
                        self.advance(engine, salvage);
                    }
                    None => self.found_no_room = full,
                }
                Err(error)
            }
        })
    }

    /// Tells the outlet how far the store is.
    pub(super) fn advance(&mut self, engine: Engine, salvage: Option<Salvage>) {
        let latest = engine.last_segment();
        self.head.send_if_modified(|head| {
            let before = *head;
            *head = Head { latest, generation: head.generation + u64::from(salvage.is_some()) };
            *head != before
        });
        self.engine = engine.is_sound().then_some(engine);
        self.salvage = salvage.or(self.salvage.take());
    }

    /// Copies the log into the file. After the receipts: nobody waits for it.
    async fn checkpoint(&mut self) -> anyhow::Result<()> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        let path = self.setup.path.clone();
        let work = move || {
            let result = database::checkpoint_and_measure(&engine.db, &path);
            (engine, result)
        };
        let (engine, result) = self.lane.run(work).await.context("the store panicked")?;
        match result {
            Ok(written) => {
                self.stats.store().written.inc_by(written);
                self.engine = Some(engine);
            }
            // The next commit begins with a fresh connection.
            Err(error) => self.stats.store().condition.down(self.clock.now(), &error),
        }
        Ok(())
    }
}
