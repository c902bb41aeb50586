//! The forwarder: sealed buckets out of the store, oldest first, into the upstream, until each is delivered or refused.
//!
//! It holds a window of at most one command's documents, whatever the backlog. A segment is settled (deleted) when each
//! of its buckets is proven stored or put aside as a dead letter; nothing else is remembered, and nothing on disk says
//! what was sent: after a restart everything unsettled is sent again, which is harmless. It never fails because the
//! database does: it reports a condition, waits with jitter and tries again.

mod calendar;
#[cfg(test)]
mod tests;
mod way;
mod window;

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::model::backoff::Backoff;
use crate::stats::Stats;
use crate::store::{Backlog, Parcel, Settled, StoreError};
use crate::upstream::{Context, Report, Trouble, TroubleKind, Tuning, Upstream};
use calendar::Calendar;
use way::Way;
use window::Window;

/// How long a delivery in flight may go on after the daemon was told to stop.
const LAST_DELIVERY: Duration = Duration::from_secs(4);
/// How long closing the upstream may take then: finishing an archive file, or leaving a connection that hangs.
const LAST_CLOSE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(1));
/// How long a window that is not full waits for the next segment.
const GATHER: Duration = Duration::from_millis(20);
/// So many probes of a stopped line come early.
const EARLY_PROBES: u32 = 3;
/// Most segments whose buckets wait in an unfinished archive file; then the file is finished early.
const MAX_OPEN_SEGMENTS: usize = 10_000;
/// A backlog from which nothing has come for this long is drained.
const DRAINED: Duration = Duration::from_secs(1);
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
    window: Window,
    place: String,
    clock: Clock,
    stats: Stats,
    shutdown: CancellationToken,
    retry: Backoff,
    overload: Backoff,
    probe: (Duration, Duration),
    calendar: Calendar,
    /// Whether the upstream was reached since the start.
    greeted: bool,
    healthy_since: Option<Instant>,
    /// Troubles in a row that a person must put right.
    stops: u32,
    pause: Option<Duration>,
    ended: bool,
}

/// What came of waiting for a segment.
enum Drawn {
    Next(Next),
    Parcel(Result<Option<Parcel>, StoreError>),
    Nothing,
}

/// What there is to do next.
enum Next {
    Greet,
    Deliver,
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
            way,
            window: Window::new(context),
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
        }
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let mut last_close = LAST_CLOSE.0;
        loop {
            self.rest().await;
            match self.next().await {
                Next::Greet => self.greet().await,
                Next::Deliver => {
                    if !self.deliver().await {
                        last_close = LAST_CLOSE.1;
                        break;
                    }
                }
                Next::Attend => {
                    let report = self.way.attend().await;
                    self.apply(report, 0, false);
                }
                Next::Pause => {}
                Next::Stop => break,
            }
            if !self.settle().await? {
                break;
            }
        }
        match timeout(last_close, self.way.close()).await {
            Ok(report) => self.apply(report, 0, false),
            Err(_) => tracing::warn!("the upstream did not close in time; what it held is sent again after the start"),
        }
        self.settle().await?;
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

    /// Fills the window; waits while there is nothing to do.
    async fn next(&mut self) -> Next {
        loop {
            if self.shutdown.is_cancelled() {
                return Next::Stop;
            }
            if !self.greeted {
                return Next::Greet;
            }
            let now = self.clock.now();
            self.window.fill(self.way.limits(), now, self.stats.upstream());
            if self.window.is_settleable() {
                return Next::Pause;
            }
            self.calendar.look(now, self.window.latest_window());
            if self.window.open_segments() >= MAX_OPEN_SEGMENTS {
                return if self.window.is_empty() { Next::Attend } else { Next::Deliver };
            }
            let drawn = match self.draw().await {
                Drawn::Next(next) => return next,
                Drawn::Nothing => continue,
                Drawn::Parcel(drawn) => drawn,
            };
            match drawn {
                Ok(Some(parcel)) => self.window.add(parcel),
                Ok(None) | Err(StoreError::Closed(_)) => self.ended = true,
                Err(error) => {
                    tracing::error!("cannot draw the next buckets from the store: {error}");
                    self.pause = Some(self.retry.next_pause(fastrand::f64()));
                    return if self.window.is_empty() { Next::Pause } else { Next::Deliver };
                }
            }
        }
    }

    /// The next segment, or what else comes first.
    async fn draw(&mut self) -> Drawn {
        if self.ended {
            return Drawn::Next(if self.window.is_empty() { Next::Stop } else { Next::Deliver });
        }
        let not_before = self.calendar.not_before().filter(|_| !self.window.is_empty());
        if self.window.has_packed() {
            let Some(not_before) = not_before else { return Drawn::Next(Next::Deliver) };
            tokio::select! {
                () = tokio::time::sleep_until(not_before) => {}
                () = self.shutdown.cancelled() => {}
            }
            return Drawn::Nothing;
        }
        if self.window.is_empty() {
            let due = self.way.due();
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => Drawn::Next(Next::Stop),
                () = until(due) => Drawn::Next(Next::Attend),
                drawn = self.backlog.next() => Drawn::Parcel(drawn),
                () = sleep(DRAINED), if self.calendar.is_uploading() => {
                    self.calendar.end_upload();
                    Drawn::Nothing
                }
            }
        } else {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => Drawn::Next(Next::Stop),
                drawn = self.backlog.next() => Drawn::Parcel(drawn),
                () = tokio::time::sleep_until(not_before.unwrap_or_else(|| Instant::now() + GATHER)) => match not_before {
                    Some(_) => Drawn::Nothing,
                    None => Drawn::Next(Next::Deliver),
                },
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
        self.apply(report, 0, reached);
    }

    /// One delivery; `false` if the daemon stops and it did not end in time.
    async fn deliver(&mut self) -> bool {
        let count = self.window.batch(self.way.limits());
        let shutdown = self.shutdown.clone();
        let (documents, store) = self.window.first(count, self.clock.now());
        let started = Instant::now();
        let report = tokio::select! {
            biased;
            report = self.way.deliver(documents, store) => report,
            () = async { shutdown.cancelled().await; sleep(LAST_DELIVERY).await } => {
                tracing::warn!("the delivery in flight did not end in time; it is sent again after the start");
                return false;
            }
        };
        tracing::debug!(documents = count, elapsed_ms = started.elapsed().as_millis() as u64, "delivery answered");
        self.apply(report, count, true);
        true
    }

    /// Takes in a report about the first `count` documents. No I/O.
    fn apply(&mut self, report: Report, count: usize, tried: bool) {
        let now = self.clock.now();
        let stats = self.stats.upstream();
        stats.conflicts.inc_by(report.conflicts);
        self.window.apply(&report, count, now, stats);
        if report.dropped {
            self.window.clear();
            self.backlog.rewind();
            self.ended = false;
        }
        match report.trouble {
            Some(trouble) => {
                self.backlog.upstream_takes(false);
                self.troubled(trouble);
            }
            None if tried || report.flushed => {
                self.backlog.upstream_takes(true);
                stats.condition.up(now, &self.place);
                if self.healthy_since.get_or_insert_with(Instant::now).elapsed() >= HEALTHY {
                    self.retry.reset();
                    self.overload.reset();
                }
                self.stops = 0;
            }
            None => {}
        }
    }

    fn troubled(&mut self, trouble: Trouble) {
        let stats = self.stats.upstream();
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
        let now = self.clock.now();
        if trouble.kind == TroubleKind::Stopped {
            self.stops = self.stops.saturating_add(1);
            let text = format_args!("delivery is stopped until this is put right: {}", trouble.text);
            stats.condition.lost(now, text);
        } else {
            stats.condition.down(now, trouble.text);
        }
        self.pause = Some(pause);
    }

    /// Tells the store what is done; tries until it is on disk. `false` when the store has ended or the daemon stops.
    async fn settle(&mut self) -> anyhow::Result<bool> {
        let settled = self.window.take_settled();
        if settled.segments.is_empty() && settled.dead_letters.is_empty() {
            return Ok(true);
        }
        let mut backoff = Backoff::new(STORE_RETRY.0, STORE_RETRY.1);
        loop {
            let again = Settled { segments: settled.segments.clone(), dead_letters: settled.dead_letters.clone() };
            match self.backlog.settle(again).await {
                Ok(()) => return Ok(true),
                Err(StoreError::Closed(_)) => return Ok(false),
                Err(error) => tracing::warn!("cannot store that buckets are delivered: {error}"),
            }
            if self.shutdown.is_cancelled() {
                return Ok(false);
            }
            tokio::select! {
                () = sleep(backoff.next_pause(fastrand::f64())) => {}
                () = self.shutdown.cancelled() => {}
            }
        }
    }
}

/// Waits until `due`; for ever if nothing is.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
