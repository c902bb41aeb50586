//! MongoDB, by inserts that may be repeated.
//!
//! One wire command at a time, unordered, majority and journaled, with a deadline of our own: the driver has none for a
//! whole operation. `_id` is the guarantee, for weeks offline and after a lost reply; the driver's retry is a courtesy.
//! `classify` says what an answer means, `deliver` acts on it, `client` and `wire` talk to the driver.

pub(super) mod admin;
mod advice;
mod append;
mod breaker;
mod classify;
mod client;
mod deliver;
#[cfg(test)]
mod deliver_tests;
mod fleet;
mod groups;
mod hangups;
#[cfg(test)]
mod hangups_tests;
mod live;
mod pace;
mod problem;
mod series;
#[cfg(test)]
mod series_tests;
mod srv;
mod tls;
mod updates;
#[cfg(test)]
mod updates_tests;
mod wire;

use std::time::Duration;

use tokio::time::Instant;

pub(super) use advice::argument;
pub use client::ZSTD_LEVEL;
pub(crate) use hangups::Hangups;

use super::meter::{COMMAND_BYTES, CONNECT_BYTES, MINUTE_BYTES, Meter};
use super::notebook::Notebook;
use super::{Config, Connection, Document, Fate, Mode, Report, Trouble, TroubleKind, Tuning};
use crate::clock::Clock;
use crate::model::SiteName;
use breaker::Breaker;
use client::Link;
use pace::Pace;
use series::Fence;

/// Buckets that come more rarely than this are not waited for with a connection.
const RARE: Duration = Duration::from_secs(600);

/// A collection to deliver to.
#[derive(Debug)]
pub(super) struct Mongo {
    link: Link,
    pace: Pace,
    breaker: Breaker,
    /// Set where buckets go into a time series collection.
    fence: Option<Fence>,
    /// Readings go one by one into documents that others write too.
    appends: bool,
    meter: Meter,
    clock: Clock,
    connection: Connection,
    /// How long a connection without work is kept, when it is kept and when it is not.
    idle: (Duration, Duration),
    used: Option<Instant>,
    /// Between the last two deliveries that were not one burst.
    gap: Option<Duration>,
    /// What was told to the meter: connections, and until when the open one was paid for.
    paid: (u64, Option<Instant>),
    /// Collections that reports may not use, as was told.
    told: Vec<String>,
}

impl Mongo {
    pub(super) fn new(config: &Config, site: &SiteName, tuning: &Tuning, clock: Clock, notebook: Notebook) -> Self {
        let meter = Meter::new(config.max_bytes_per_day, notebook.notes.today);
        let started = (clock.now(), Instant::now());
        let fence = Fence { started, quarantine: tuning.quarantine };
        let link = Link::new(config.clone(), site, tuning.clone(), notebook);
        Self {
            link,
            pace: Pace::new(),
            breaker: Breaker::default(),
            fence: Some(fence).filter(|_| config.mode == Mode::Timeseries),
            appends: config.mode == Mode::Append,
            meter,
            clock,
            connection: config.connection,
            idle: (tuning.idle, tuning.hang_up),
            used: None,
            gap: None,
            paid: (0, None),
            told: Vec::new(),
        }
    }

    pub(super) const fn limits(&self) -> (usize, usize) {
        self.pace.limits()
    }

    /// Connects and says whether the database can be used.
    pub(super) async fn greet(&mut self) -> Report {
        if let Some(report) = self.over_budget(0) {
            return report;
        }
        let mut greeting = self.link.greet().await;
        if greeting.is_ok() && self.fence.is_some() {
            greeting = self.link.prepare_series().await;
        }
        let trouble = greeting.err().map(|problem| deliver::trouble_of(&problem));
        self.used = Some(Instant::now());
        self.pay(2 * COMMAND_BYTES);
        if trouble.as_ref().is_some_and(|trouble| trouble.reconnects) {
            self.close().await;
        }
        Report { reached: trouble.is_none(), trouble, ..Report::default() }
    }

    pub(super) async fn deliver(&mut self, documents: &mut [Document], store: &str) -> Report {
        if let Some(report) = self.over_budget(documents.len()) {
            return report;
        }
        let started = Instant::now();
        if let Some(gap) = self.used.map(|used| started - used).filter(|gap| *gap > self.idle.1) {
            self.gap = Some(gap);
        }
        let bytes = documents.iter().map(Document::bytes).sum();
        let wire = if self.meter.is_on() { self.packed(documents) } else { 0 };
        let outcome = match self.fence {
            Some(fence) => series::deliver(&mut self.link, &mut self.breaker, documents, fence).await,
            None if self.appends => append::deliver(&mut self.link, &mut self.breaker, documents).await,
            None => deliver::deliver(&mut self.link, &mut self.breaker, documents, store).await,
        };
        self.used = Some(Instant::now());
        self.pay(wire + COMMAND_BYTES);
        let mut report = outcome.report;
        let unsent = documents.iter().zip(&report.fates).filter(|(_, fate)| **fate == Fate::Unsent);
        let suspects = hangups::suspects(unsent.map(|(document, _)| document));
        match report.trouble.as_ref().map(|trouble| trouble.kind) {
            None => self.pace.answered(started.elapsed(), bytes),
            Some(TroubleKind::Stopped) => self.pace.stopped(outcome.whole),
            // What is wrong with a suspect says nothing of how much the others may be.
            Some(_) if suspects.0 > 0 => {}
            Some(_) => self.pace.troubled(),
        }
        self.pace.besides(suspects);
        if let Some(version) = self.link.server().and_then(|server| server.version.as_deref()) {
            for fate in &mut report.fates {
                if let Fate::Refused(words) = fate {
                    words.push_str("; server version ");
                    words.push_str(version);
                }
            }
        }
        if outcome.hang_up {
            self.close().await;
        }
        report
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let (kept, given_up) = self.idle;
        let idle = match self.connection {
            Connection::Held => return None,
            Connection::DutyCycle => given_up,
            Connection::Auto if self.gap.is_some_and(|gap| gap > RARE) => given_up,
            Connection::Auto => kept,
        };
        self.link.since().and(self.used).map(|used| used + idle)
    }

    pub(super) async fn close(&mut self) {
        self.pay(0);
        self.link.close().await;
    }

    /// The answer to everything while the day's budget is used up.
    fn over_budget(&mut self, documents: usize) -> Option<Report> {
        let (wait, text) = self.meter.used_up(self.clock.now())?;
        let trouble = Some(Trouble { kind: TroubleKind::Overload, text, wait: Some(wait), reconnects: false });
        Some(Report { fates: vec![Fate::Unsent; documents], trouble, ..Report::default() })
    }

    /// What documents take on the wire.
    fn packed(&self, documents: &[Document]) -> u64 {
        let raw: Vec<u8> = documents
            .iter()
            .flat_map(|document| {
                if document.rows.is_empty() {
                    document.bson().as_bytes().to_vec()
                } else {
                    document.rows.iter().flat_map(|row| row.as_bytes()).copied().collect()
                }
            })
            .collect();
        match self.link.server() {
            Some(server) if server.compresses => {
                zstd::bulk::compress(&raw, ZSTD_LEVEL).map_or(raw.len(), |packed| packed.len()) as u64
            }
            _ => raw.len() as u64,
        }
    }

    /// Tells the meter what was sent, what new connections cost, and the time the open one has been watched.
    fn pay(&mut self, bytes: u64) {
        if !self.meter.is_on() {
            return;
        }
        let (connects, until) = self.paid;
        let now = Instant::now();
        let fresh = (self.link.connects() - connects) * CONNECT_BYTES;
        let minutes = self.link.since().map_or(0, |since| (now - until.unwrap_or(since).max(since)).as_secs() / 60);
        if minutes > 0 || until.is_none() {
            self.paid.1 = Some(now);
        }
        self.paid.0 = self.link.connects();
        self.meter.add(self.clock.now(), bytes + fresh + minutes * MINUTE_BYTES);
        self.link.notebook.notes.today = self.meter.today();
    }
}
