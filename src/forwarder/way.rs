//! A way out, as the forwarder sees it.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::upstream::{Document, Gap, LiveReport, LiveUpdate, Manners, Orders, Report, Upstream, Vitals};

/// A way out, as the forwarder sees it.
pub(super) trait Way: Send {
    /// When to send and when to connect.
    fn manners(&self) -> Manners {
        Manners::none()
    }
    /// Whether it can be used, before there is anything to send.
    fn greet(&mut self) -> impl Future<Output = Report> + Send {
        std::future::ready(Report::default())
    }
    /// How often [`Self::report`] is wanted.
    fn reports_every(&self) -> Option<Duration> {
        None
    }
    /// Whether there is a connection.
    fn is_open(&self) -> bool {
        false
    }
    /// Tells how the gateway is; gives orders.
    fn report(&mut self, _: &Vitals) -> impl Future<Output = Option<Orders>> + Send {
        std::future::ready(None)
    }
    /// The number of the last gap that is stored.
    fn gaps_after(&self) -> i64 {
        0
    }
    /// Stores gaps; whether all are there.
    fn gaps(&mut self, _: &[Gap], _store: &str) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }
    /// How often [`Self::live`] is wanted.
    fn live_every(&self) -> Option<Duration> {
        None
    }
    /// Brings documents of open buckets up to date.
    fn live(&mut self, _: &[LiveUpdate]) -> impl Future<Output = LiveReport> + Send {
        std::future::ready(LiveReport::default())
    }
    fn limits(&self) -> (usize, usize);
    fn deliver(&mut self, documents: &mut [Document], store: &str) -> impl Future<Output = Report> + Send;
    fn due(&self) -> Option<Instant>;
    fn attend(&mut self) -> impl Future<Output = Report> + Send;
    fn close(&mut self) -> impl Future<Output = Report> + Send;
}

impl Way for Upstream {
    fn manners(&self) -> Manners {
        self.manners()
    }

    async fn greet(&mut self) -> Report {
        self.greet().await
    }

    fn reports_every(&self) -> Option<Duration> {
        self.reports_every()
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    async fn report(&mut self, vitals: &Vitals) -> Option<Orders> {
        self.report(vitals).await
    }

    fn gaps_after(&self) -> i64 {
        self.gaps_after()
    }

    async fn gaps(&mut self, gaps: &[Gap], store: &str) -> bool {
        self.gaps(gaps, store).await
    }

    fn live_every(&self) -> Option<Duration> {
        self.live_every()
    }

    async fn live(&mut self, updates: &[LiveUpdate]) -> LiveReport {
        self.live(updates).await
    }

    fn limits(&self) -> (usize, usize) {
        self.limits()
    }

    async fn deliver(&mut self, documents: &mut [Document], store: &str) -> Report {
        self.deliver(documents, store).await
    }

    fn due(&self) -> Option<Instant> {
        self.due()
    }

    async fn attend(&mut self) -> Report {
        self.attend().await
    }

    async fn close(&mut self) -> Report {
        self.close().await
    }
}
