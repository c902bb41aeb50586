//! Open buckets, for dashboards that cannot wait: brought up to date every few seconds, while all is well.
//!
//! What is sent here is a courtesy: the sealed bucket replaces it, whatever became of it. So it keeps out of the way of
//! delivery: it asks the store for what is committed and holds one command of it, it takes turns with complete buckets and
//! uses half of the time at most, and it is off while there is trouble, for some time after, and while a backlog waits.
//! Then it comes back by itself.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::lanes::Lane;
use super::way::Way;
use super::{Forwarder, Next};
use crate::model::Timestamp;
use crate::model::bucketer::BucketKey;
use crate::stats::UpstreamStats;
use crate::store::{Backlog, Growth, Question};
use crate::upstream::{Context, Known, LiveReport, LiveUpdate, MAX_DOCUMENT_BYTES, Report, Shown, live_update};

/// How long the store may take to answer: it is asked again next time.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of an update for each sample, about, to ask for no more than a command holds.
const SAMPLE_BYTES: usize = 48;
/// How long open buckets are left alone after most of them were refused.
const REFUSED: Duration = Duration::from_secs(300);
/// A bucket whose `_id` was found taken so often in a row is left alone: something else stands there.
const MAX_TAKEN: u8 = 3;

/// Open buckets and what is known of their documents.
pub(super) struct Live {
    every: Duration,
    calm: Duration,
    context: Context,
    shown: HashMap<BucketKey, State>,
    /// When the next look is due, when this pass began, and behind which bucket it goes on.
    next: Instant,
    began: Instant,
    after: Option<BucketKey>,
    /// Until when it is off, and why.
    off: Option<(Instant, String)>,
    /// Complete buckets had their turn.
    pub(super) turn: bool,
    is_on: bool,
    /// Why it is not, as was told.
    why: String,
}

#[derive(Clone, Copy, Default)]
struct State {
    known: Option<Known>,
    taken: u8,
}

impl Live {
    pub(super) fn new(every: Duration, calm: Duration, context: Context) -> Self {
        let now = Instant::now();
        Self {
            every,
            calm,
            context,
            shown: HashMap::new(),
            next: now,
            began: now,
            after: None,
            off: None,
            turn: true,
            is_on: false,
            why: String::new(),
        }
    }

    /// When it wants to do something.
    pub(super) fn due(&self) -> Instant {
        self.off.as_ref().map_or(self.next, |(until, _)| self.next.max(*until))
    }

    /// Something went wrong: off until nothing did for a while.
    pub(super) fn trouble(&mut self, text: &str) {
        let calm = humantime::format_duration(self.calm);
        self.off = Some((Instant::now() + self.calm, format!("{text} (until nothing goes wrong for {calm})")));
    }

    /// Switches on or off.
    fn switch(&mut self, off: Option<String>, now: Timestamp, stats: &UpstreamStats) {
        match off {
            Some(why) => {
                if self.is_on || self.why != why {
                    stats.live.down(now, format_args!("open buckets are not sent now: {why}"));
                }
                self.why = why;
                self.is_on = false;
                self.after = None;
                self.shown.clear();
            }
            None => {
                let every = humantime::format_duration(self.every);
                stats.live.up(now, format_args!("open buckets are sent every {every}"));
                self.off = None;
                self.why.clear();
                if !self.is_on {
                    self.is_on = true;
                    self.next = Instant::now();
                }
            }
        }
    }

    /// What is to be asked of the store.
    fn question(&mut self, (buckets, bytes): (usize, usize)) -> Question {
        if self.after.is_none() {
            self.began = Instant::now();
        }
        let count = |state: &State| match state {
            State { taken: MAX_TAKEN, .. } => u32::MAX,
            State { known, .. } => known.map_or(0, |known| known.samples),
        };
        let known = self.shown.iter().map(|(key, state)| (*key, count(state))).collect();
        Question { known, after: self.after, buckets, samples: bytes / SAMPLE_BYTES }
    }

    /// The updates of one command, and whose they are.
    fn updates(&mut self, growth: Growth, most: usize, now: Timestamp) -> (Vec<BucketKey>, Vec<LiveUpdate>) {
        for key in &growth.closed {
            self.shown.remove(key);
        }
        let (mut keys, mut updates, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut more = growth.more;
        for growing in growth.growing {
            let state = self.shown.entry(growing.key).or_default();
            let update = live_update(&growing.bucket, state.known, &self.context, now);
            bytes += update.bytes();
            if update.bytes() > MAX_DOCUMENT_BYTES {
                state.taken = MAX_TAKEN;
            } else if bytes > most && !updates.is_empty() {
                more = true;
                break;
            } else {
                keys.push(growing.key);
                updates.push(update);
            }
        }
        self.after = keys.last().copied().filter(|_| more);
        (keys, updates)
    }

    /// A command is answered, or there was none: when to go on.
    fn rest(&mut self) {
        let now = Instant::now();
        self.turn = false;
        self.next = if self.after.is_some() { now } else { (self.began + self.every).max(now + (now - self.began)) };
    }

    /// Takes in what became of updates.
    fn apply(&mut self, report: &LiveReport, sent: (&[BucketKey], &[LiveUpdate]), stats: &UpstreamStats) {
        for ((key, update), fate) in sent.0.iter().zip(sent.1).zip(&report.fates) {
            let state = self.shown.entry(*key).or_default();
            let whole = Some(update.then).filter(|_| update.whole);
            stats.live_updates.inc();
            if matches!(fate, Shown::Done | Shown::Made) {
                stats.live_readings.inc_by(update.gained.into());
            }
            *state = match fate {
                Shown::Done => State { known: Some(update.then), taken: 0 },
                Shown::Made => State { known: whole, taken: 0 },
                Shown::Taken => State { known: whole, taken: (state.taken + 1).min(MAX_TAKEN) },
                Shown::Refused(words) if update.whole => {
                    tracing::debug!("the open bucket `{}` is refused: {words}", update.id);
                    State { known: None, taken: MAX_TAKEN }
                }
                Shown::Refused(_) | Shown::Unknown => State { known: None, taken: state.taken },
            };
        }
        self.refused(report, sent.1);
        if let Some((long, why)) = &report.off {
            self.off = Some((Instant::now() + *long, why.clone()));
        }
    }

    /// Most of what was sent whole is refused: that is not the buckets' fault.
    fn refused(&mut self, report: &LiveReport, sent: &[LiveUpdate]) {
        let whole = || sent.iter().zip(&report.fates).filter(|(update, _)| update.whole);
        let words = whole().filter_map(|(_, fate)| match fate {
            Shown::Refused(words) => Some(words),
            _ => None,
        });
        let (count, words) = (words.clone().count(), words.clone().next());
        if let Some(words) = words.filter(|_| count * 2 > whole().count()) {
            let why = format!(
                "the database refuses them: {words} (tipbucket upstream init makes a validator that takes them)"
            );
            self.off = Some((Instant::now() + REFUSED, why));
        }
    }
}

impl<B: Backlog, W: Way> Forwarder<B, W> {
    /// Whether open buckets are to be looked at now; switches them on and off.
    pub(super) fn wants_live(&mut self) -> bool {
        let Some(live) = &mut self.live else { return false };
        let (now, stats) = (self.clock.now(), self.stats.upstream());
        // While complete buckets are in trouble it is theirs to find out that it is over.
        let is_stuck = self.healthy_since.is_none() && !self.lanes.is_empty();
        let lasts = |until: &Instant| is_stuck || *until > Instant::now();
        let trouble = live.off.as_ref().filter(|(until, _)| lasts(until)).map(|(_, why)| why.clone());
        let backlog = || self.lanes.has_old().then(|| "what waited is sent first".to_owned());
        let off = trouble.or_else(backlog);
        let is_off = off.is_some();
        live.switch(off, now, stats);
        let others_may_go = !self.lanes.is_empty() && self.calendar.not_before().is_none();
        !is_off && !self.ended && live.due() <= Instant::now() && (live.turn || !others_may_go)
    }

    /// When open buckets are to be looked at.
    pub(super) fn live_due(&self) -> Option<Instant> {
        let is_stuck = self.healthy_since.is_none() && !self.lanes.is_empty();
        let may = !self.ended && !self.lanes.has_old() && !is_stuck;
        self.live.as_ref().filter(|_| may).map(Live::due)
    }

    /// The database's owner wants nothing now.
    pub(super) fn pause_live(&mut self, why: &str) {
        if let Some(live) = &mut self.live {
            live.switch(Some(why.to_owned()), self.clock.now(), self.stats.upstream());
        }
    }

    /// One command of open buckets. What the daemon's end leaves undone is nobody's loss.
    pub(super) async fn show(&mut self) {
        let limits = self.way.limits();
        let Some(live) = &mut self.live else { return };
        let looked = timeout(LOOK, self.backlog.look(live.question(limits))).await;
        let (keys, updates) = live.updates(looked.unwrap_or_default(), limits.1, self.clock.now());
        if updates.is_empty() {
            return live.rest();
        }
        let (shutdown, started) = (self.shutdown.clone(), Instant::now());
        let report = tokio::select! {
            biased;
            report = self.way.live(&updates) => report,
            () = shutdown.cancelled() => return,
        };
        live.apply(&report, (&keys, &updates), self.stats.upstream());
        live.rest();
        let (went_well, tried) = (report.trouble.is_none(), report.off.is_none());
        self.apply(Report { trouble: report.trouble, ..Report::default() }, (Lane::New, 0), tried);
        if went_well {
            let bytes = updates.iter().map(LiveUpdate::bytes).sum();
            self.pause = self.reports.slow_down(bytes, started.elapsed());
        }
    }

    /// [`Next::Live`] if that is to be done now.
    pub(super) fn live_next(&mut self) -> Option<Next> {
        self.wants_live().then_some(Next::Live)
    }
}
