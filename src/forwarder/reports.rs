//! Reports to the fleet, gaps, and the orders of the database's owner.
//!
//! The first report goes with the first contact, later ones once in their time, while there is a connection anyway. Only a
//! pause that was ordered is asked after without one: it may have been lifted.

use std::time::Duration;

use tokio::time::Instant;

use super::Forwarder;
use super::way::Way;
use crate::model::Timestamp;
use crate::store::Backlog;
use crate::upstream::{Gap, Orders, Vitals};

/// Most gaps in one report.
const MAX_GAPS: usize = 100;

/// When the next report is due, and what was ordered.
pub(super) struct Reports {
    every: Option<Duration>,
    next: Option<Instant>,
    pub(super) orders: Orders,
    pub(super) last_error: Option<(Timestamp, String)>,
    /// Whether a pause was told as the upstream's condition.
    pub(super) is_paused: bool,
}

impl Reports {
    pub(super) const fn new(every: Option<Duration>) -> Self {
        let orders = Orders { max_rate: None, pause_until: None, splay: None };
        Self { every, next: None, orders, last_error: None, is_paused: false }
    }

    /// The moment of the next report, if there is one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.every.map(|_| self.next.unwrap_or_else(Instant::now))
    }

    pub(super) fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    /// How much longer nothing may be sent.
    pub(super) fn paused(&self, now: Timestamp) -> Option<Duration> {
        self.orders.pause_until.filter(|until| *until > now).map(|until| until.since(now))
    }

    /// The pause after a command of so many bytes that took so long.
    pub(super) fn slow_down(&self, bytes: usize, elapsed: Duration) -> Option<Duration> {
        let rate = self.orders.max_rate?;
        Duration::from_secs_f64(bytes as f64 / rate as f64).checked_sub(elapsed)
    }

    /// A report was made; `random` is a uniform number in `[0, 1)`.
    fn done(&mut self, random: f64) {
        // Up to a tenth sooner or later: gateways that reported together drift apart.
        self.next = self.every.map(|every| Instant::now() + every.mul_f64(0.9 + 0.2 * random));
    }
}

impl<B: Backlog, W: Way> Forwarder<B, W> {
    /// Reports how this gateway is, stores gaps, takes orders.
    pub(super) async fn report(&mut self) {
        let vitals = self.vitals();
        let shutdown = self.shutdown.clone();
        let orders = tokio::select! {
            biased;
            orders = self.way.report(&vitals) => orders,
            () = shutdown.cancelled() => return,
        };
        self.reports.done(fastrand::f64());
        if let Some(orders) = orders {
            self.obey(orders);
        }
        let after = self.way.gaps_after();
        let gaps: Vec<Gap> = match self.backlog.losses(after, self.clock.now(), MAX_GAPS).await {
            Ok(lost) => lost
                .into_iter()
                .map(|lost| Gap {
                    id: lost.id,
                    at: lost.at,
                    sensor: lost.sensor,
                    first: lost.first,
                    last: lost.last,
                    samples: lost.samples,
                    reason: lost.reason,
                })
                .collect(),
            Err(error) => {
                tracing::debug!("the loss ledger cannot be read: {error}");
                return;
            }
        };
        if !gaps.is_empty() {
            let store = self.backlog.store_id().to_owned();
            tokio::select! {
                biased;
                _ = self.way.gaps(&gaps, &store) => {}
                () = shutdown.cancelled() => {}
            }
        }
    }

    fn obey(&mut self, orders: Orders) {
        if orders != self.reports.orders {
            let told = |what: Option<String>| what.unwrap_or_else(|| "none".to_owned());
            tracing::info!(
                "upstream: orders of the database's owner: rate {}, pause until {}, splay {}",
                told(orders.max_rate.map(|rate| format!("{rate} bytes/s"))),
                told(orders.pause_until.map(|until| until.to_string())),
                told(orders.splay.map(|splay| humantime::format_duration(splay).to_string())),
            );
        }
        self.calendar.splay(orders.splay);
        self.reports.orders = orders;
    }

    fn vitals(&self) -> Vitals {
        let (stats, store) = (self.stats.upstream(), self.stats.store());
        Vitals {
            backlog: store.backlog_buckets.get(),
            oldest_unsent: self.lanes.oldest(),
            delivered: (stats.buckets.get(), stats.readings.get()),
            refused: (stats.refused.get(), stats.conflicts.get()),
            last_error: self.reports.last_error.clone(),
            store: self.backlog.store_id().to_owned(),
        }
    }
}
