//! MongoDB, by inserts that may be repeated.
//!
//! One wire command at a time, unordered, majority and journaled, with a deadline of our own: the driver has none for a
//! whole operation. `_id` is the guarantee, for weeks offline and after a lost reply; the driver's retry is a courtesy.
//! `classify` says what an answer means, `deliver` acts on it, `client` is the only file that talks to the driver.

mod advice;
mod breaker;
mod classify;
mod client;
mod deliver;
#[cfg(test)]
mod deliver_tests;
mod pace;

use tokio::time::Instant;

pub(super) use advice::plain;

use super::{Config, Document, Report, TroubleKind, Tuning};
use crate::model::SiteName;
use breaker::Breaker;
use client::Link;
use pace::Pace;

/// A collection to deliver to.
#[derive(Debug)]
pub(super) struct Mongo {
    link: Link,
    pace: Pace,
    breaker: Breaker,
    idle: std::time::Duration,
    used: Option<Instant>,
}

impl Mongo {
    pub(super) fn new(config: &Config, site: &SiteName, tuning: &Tuning) -> Self {
        let link = Link::new(config.clone(), site, tuning.clone());
        Self { link, pace: Pace::new(), breaker: Breaker::default(), idle: tuning.idle, used: None }
    }

    pub(super) const fn limits(&self) -> (usize, usize) {
        self.pace.limits()
    }

    pub(super) async fn deliver(&mut self, documents: &mut [Document], store: &str) -> Report {
        let started = Instant::now();
        let bytes = documents.iter().map(Document::bytes).sum();
        let outcome = deliver::deliver(&mut self.link, &mut self.breaker, documents, store).await;
        self.used = Some(Instant::now());
        let report = outcome.report;
        match report.trouble.as_ref().map(|trouble| trouble.kind) {
            None => self.pace.answered(started.elapsed(), bytes),
            Some(TroubleKind::Stopped) => self.pace.stopped(outcome.whole),
            Some(_) => self.pace.troubled(),
        }
        if outcome.hang_up {
            self.close().await;
        }
        report
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.used.map(|used| used + self.idle)
    }

    pub(super) async fn close(&mut self) {
        self.used = None;
        self.link.close().await;
    }
}
