//! The forwarder: sealed buckets out of the store, in two lanes, into the upstream, until each is delivered or refused.
//!
//! It holds at most three commands' documents, whatever the backlog: of the one under way, and of the next of either lane,
//! which are made meanwhile. A segment is settled
//! (deleted) when each of its buckets is proven stored or put aside as a dead letter: while the next command is under way,
//! or at once if there is none. Nothing else is remembered, and nothing on disk says what was sent: after a restart
//! everything unsettled is sent again, which is harmless. It never fails because the database does: it reports a condition,
//! waits with jitter and tries again.

mod ahead;
mod calendar;
mod lanes;
mod live;
mod next;
mod reports;
#[cfg(test)]
mod tests;
mod way;
mod window;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::model::Timestamp;
use crate::model::backoff::Backoff;
use crate::stats::Stats;
use crate::store::{Backlog, Settled, StoreError};
use crate::upstream::{Context, Report, Trouble, TroubleKind, Tuning, Upstream};
use ahead::Ahead;
use calendar::Calendar;
use lanes::{Drain, Lane, Lanes};
use live::Live;
use reports::Reports;
use way::Way;

/// How long a delivery in flight may go on after the daemon was told to stop.
const LAST_DELIVERY: Duration = Duration::from_secs(4);
/// How long closing the upstream may take then: finishing an archive file, or leaving a connection that hangs.
const LAST_CLOSE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(1));
/// So many probes of a stopped line come early.
const EARLY_PROBES: u32 = 3;
/// Pauses begin small again when everything went well for this long.
const HEALTHY: Duration = Duration::from_secs(300);
/// Pauses after the store could not do what it was asked.
const STORE_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Delivers until the store has ended or `shutdown` is cancelled; then finishes what is in flight, for at most a few
/// seconds, and settles it.
pub async fn run(
    backlog: impl Backlog,
    upstream: Upstream,
    clock: Clock,
    stats: Stats,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let context = upstream.context(backlog.store_id());
    let (tuning, place) = (upstream.tuning().clone(), upstream.place());
    Forwarder::new(backlog, upstream, context, &tuning, place, clock, stats, shutdown).run().await
}

struct Forwarder<B, W> {
    backlog: B,
    way: W,
    lanes: Lanes,
    drain: Option<Drain>,
    place: String,
    clock: Clock,
    stats: Stats,
    shutdown: CancellationToken,
    retry: Backoff,
    overload: Backoff,
    probe: (Duration, Duration),
    calendar: Calendar,
    /// Set where open buckets are sent too.
    live: Option<Live>,
    reports: Reports,
    /// Whether the upstream was reached since the start.
    greeted: bool,
    healthy_since: Option<Instant>,
    /// Troubles in a row that a person must put right.
    stops: u32,
    pause: Option<Duration>,
    ended: bool,
    /// The last report made everything be drawn again.
    rewound: bool,
}

/// How a delivery ended.
enum Sent {
    Answered,
    /// The daemon stops, and it was not answered in time.
    CutOff,
    StoreEnded,
}

/// What there is to do next.
enum Next {
    Greet,
    Report,
    Deliver(Lane),
    Live,
    Attend,
    Pause,
    Stop,
}

impl<B: Backlog, W: Way> Forwarder<B, W> {
    #[expect(clippy::too_many_arguments, reason = "one caller, which has them at hand")]
    fn new(
        backlog: B,
        way: W,
        context: Context,
        tuning: &Tuning,
        place: String,
        clock: Clock,
        stats: Stats,
        shutdown: CancellationToken,
    ) -> Self {
        let manners = way.manners();
        let pause = Some(manners.first_connection()).filter(|pause| !pause.is_zero());
        Self {
            backlog,
            reports: Reports::new(way.reports_every()),
            live: way.live_every().map(|every| Live::new(every, tuning.calm, context.clone())),
            way,
            lanes: Lanes::new(context, manners.backlog_share),
            drain: None,
            calendar: Calendar::new(manners),
            greeted: false,
            healthy_since: None,
            place,
            clock,
            stats,
            shutdown,
            retry: Backoff::new(tuning.retry.0, tuning.retry.1),
            overload: Backoff::new(tuning.overload.0, tuning.overload.1),
            probe: tuning.probe,
            stops: 0,
            pause,
            ended: false,
            rewound: false,
        }
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let mut last_close = LAST_CLOSE.0;
        loop {
            self.rest().await;
            match self.next().await {
                Next::Greet => self.greet().await,
                Next::Report => self.report().await,
                Next::Deliver(lane) => match self.deliver(lane).await {
                    Sent::CutOff => {
                        last_close = LAST_CLOSE.1;
                        break;
                    }
                    Sent::StoreEnded => break,
                    Sent::Answered if self.may_settle_later() => continue,
                    Sent::Answered => {}
                },
                Next::Live => self.show().await,
                Next::Attend => {
                    let report = self.way.attend().await;
                    self.apply(report, (Lane::New, 0), false);
                }
                Next::Pause => {}
                Next::Stop => break,
            }
            if !self.settle().await {
                break;
            }
        }
        match timeout(last_close, self.way.close()).await {
            Ok(report) => self.apply(report, (Lane::New, 0), false),
            Err(_) => tracing::warn!("the upstream did not close in time; what it held is sent again after the start"),
        }
        self.settle().await;
        Ok(())
    }

    /// The pause that the last step asked for.
    async fn rest(&mut self) {
        if let Some(pause) = self.pause.take() {
            tokio::select! {
                () = sleep(pause) => {}
                () = self.shutdown.cancelled() => {}
            }
        }
    }

    /// The first contact, so that `status` tells early whether the upstream can be reached.
    async fn greet(&mut self) {
        let shutdown = self.shutdown.clone();
        let report = tokio::select! {
            biased;
            report = self.way.greet() => report,
            () = shutdown.cancelled() => return,
        };
        self.greeted = report.trouble.is_none();
        let reached = report.reached;
        self.apply(report, (Lane::New, 0), reached);
    }

    /// One delivery. What earlier ones finished is settled meanwhile, and the next one's documents are made: the server need
    /// wait neither for our disk nor for our processor.
    async fn deliver(&mut self, lane: Lane) -> Sent {
        let done = self.lanes.take_settled();
        let (now, limits) = (self.clock.now(), self.way.limits());
        let window = self.lanes.of(lane);
        let (count, store) = (window.batch(limits), window.store().to_owned());
        let mut documents = window.take(count, now);
        let bytes = documents.iter().map(crate::upstream::Document::bytes).sum();
        let (started, answered) = (Instant::now(), AtomicBool::new(false));
        let delivering = async {
            let report = self.way.deliver(&mut documents, &store).await;
            answered.store(true, Ordering::Relaxed);
            report
        };
        let (backlog, lanes, shutdown) = (&mut self.backlog, &mut self.lanes, &self.shutdown);
        // Before all is well it is not certain that what comes next is what is drawn next.
        let is_well = self.healthy_since.is_some();
        let stats = self.stats.upstream();
        let meanwhile = async {
            let is_settled = settle(backlog, done, shutdown).await;
            if is_settled && is_well {
                Ahead { backlog, lanes, lane, limits, now, stats, shutdown, answered: &answered }.prepare().await;
            }
            is_settled
        };
        let both = tokio::select! {
            biased;
            both = async { tokio::join!(delivering, meanwhile) } => Some(both),
            () = async { shutdown.cancelled().await; sleep(LAST_DELIVERY).await } => None,
        };
        self.lanes.of(lane).put_back(documents);
        let Some((report, is_settled)) = both else {
            tracing::warn!("the delivery in flight did not end in time; it is sent again after the start");
            return Sent::CutOff;
        };
        tracing::debug!(
            ?lane,
            documents = count,
            elapsed_ms = started.elapsed().as_millis() as u64,
            "delivery answered"
        );
        let went_well = report.trouble.is_none();
        self.apply(report, (lane, count), true);
        self.live.iter_mut().for_each(|live| live.turn = true);
        if went_well {
            self.pause = self.reports.slow_down(bytes, started.elapsed());
        }
        if is_settled { Sent::Answered } else { Sent::StoreEnded }
    }

    /// Whether what is done may wait for the next delivery: there is no pause, and nothing that is done is drawn again.
    fn may_settle_later(&self) -> bool {
        self.pause.is_none() && !self.rewound && !self.shutdown.is_cancelled()
    }

    /// Takes in a report about the first documents of a lane. No I/O.
    fn apply(&mut self, report: Report, sent: (Lane, usize), tried: bool) {
        let now = self.clock.now();
        let stats = self.stats.upstream();
        stats.conflicts.inc_by(report.conflicts);
        self.lanes.apply(&report, sent, now, stats);
        self.rewound = report.dropped;
        if report.dropped {
            self.backlog.rewind();
            self.ended = false;
        }
        match report.trouble {
            Some(trouble) => {
                self.backlog.upstream_takes(false);
                self.troubled(trouble);
            }
            None if tried || report.flushed => {
                self.backlog.upstream_takes(!self.calendar.is_uploading());
                stats.condition.up(now, &self.place);
                self.recovered(now);
                if self.healthy_since.get_or_insert_with(Instant::now).elapsed() >= HEALTHY {
                    self.retry.reset();
                    self.overload.reset();
                }
                self.stops = 0;
            }
            None => {}
        }
    }

    /// After trouble, and after the start: what waited meanwhile goes behind what comes now.
    fn recovered(&mut self, now: Timestamp) {
        let waiting = self.stats.store().backlog_buckets.get();
        if self.healthy_since.is_none() && self.lanes.is_split_allowed() {
            self.backlog.split();
            self.lanes.split();
            self.drain = Some(Drain::begin(now, waiting));
        }
        self.drain = self.drain.filter(|_| self.lanes.has_old());
        let left = self.drain.and_then(|drain| drain.left(now, waiting));
        self.stats.upstream().drained_in_s.set(left.unwrap_or(-1));
    }

    fn troubled(&mut self, trouble: Trouble) {
        let stats = self.stats.upstream();
        stats.drained_in_s.set(-1);
        stats.failures.inc();
        let random = fastrand::f64();
        let pause = match trouble.kind {
            TroubleKind::Transient => self.retry.next_pause(random),
            TroubleKind::Overload => self.overload.next_pause(random),
            TroubleKind::Stopped if self.stops < EARLY_PROBES => self.probe.0.mul_f64(0.1 * random.max(0.5)),
            TroubleKind::Stopped => self.probe.0 + self.probe.1.saturating_sub(self.probe.0).mul_f64(random),
        };
        let pause = pause.max(trouble.wait.unwrap_or_default().min(self.probe.1));
        let pause = if trouble.reconnects { pause.max(self.calendar.next_connection(fastrand::f64())) } else { pause };
        self.healthy_since = None;
        self.live.iter_mut().for_each(|live| live.trouble(&trouble.text));
        let now = self.clock.now();
        self.reports.last_error = Some((now, trouble.text.clone()));
        if trouble.kind == TroubleKind::Stopped {
            self.stops = self.stops.saturating_add(1);
            let text = format_args!("delivery is stopped until this is put right: {}", trouble.text);
            stats.condition.lost(now, text);
        } else {
            stats.condition.down(now, trouble.text);
        }
        self.pause = Some(pause);
    }

    /// Tells the store what is done. `false` when the store has ended or the daemon stops.
    async fn settle(&mut self) -> bool {
        let done = self.lanes.take_settled();
        settle(&mut self.backlog, done, &self.shutdown).await
    }
}

/// Tells the store what is done; tries until it is on disk. `false` when the store has ended or the daemon stops. Dropped
/// half-way, it is drawn and sent again after the next start.
async fn settle<B: Backlog>(backlog: &mut B, done: Settled, shutdown: &CancellationToken) -> bool {
    if done.segments.is_empty() && done.dead_letters.is_empty() {
        return true;
    }
    let mut backoff = Backoff::new(STORE_RETRY.0, STORE_RETRY.1);
    loop {
        let again = Settled { segments: done.segments.clone(), dead_letters: done.dead_letters.clone() };
        match backlog.settle(again).await {
            Ok(()) => return true,
            Err(StoreError::Closed(_)) => return false,
            Err(error) => tracing::warn!("cannot store that buckets are delivered: {error}"),
        }
        if shutdown.is_cancelled() {
            return false;
        }
        tokio::select! {
            () = sleep(backoff.next_pause(fastrand::f64())) => {}
            () = shutdown.cancelled() => {}
        }
    }
}
