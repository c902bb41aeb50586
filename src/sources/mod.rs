//! Sources: bytes and messages into readings. A new kind of source is one file and one row in [`KINDS`].
//!
//! Every source runs under [`supervise`]: an error or a panic is reported, counted and followed by a new start after a
//! pause; one broken sensor never stops another. Sources are dropped, not told to stop, so each await may be the last.

pub mod devices;
mod line;
mod modbus_rtu;
pub mod mqtt;
pub mod serial;
mod simulated;
pub mod table;
mod telegrams;

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

pub use self::serial::recording::Recording;

use crate::clock::Clock;
use crate::decode::damp::Damper;
use crate::decode::shape::Options;
use crate::model::backoff::Backoff;
use crate::model::{Admission, DeadLetter, FieldName, Fields, LetterKind, SensorName, SourceName, Timestamp};
use crate::stats::SourceStats;
use crate::store::{Closed, Delivery, Inlet};

/// First pause after a source failed.
const RESTART_BASE: Duration = Duration::from_secs(1);
/// Longest pause: a device that is plugged in again is read again within it.
const RESTART_CAP: Duration = Duration::from_secs(30);
/// Longest payload kept in a dead letter; a longer one is cut and says so.
const MAX_LETTER_BYTES: usize = 64 << 10;

/// A kind of source, as `type = "…"` names it.
#[derive(Debug)]
pub struct Kind {
    /// The word in the site file.
    pub name: &'static str,
    /// Reads the rest of the source's table.
    pub read: ReadTable,
}

/// Reads a source's table.
pub type ReadTable = fn(config::Value) -> Result<Box<dyn SourceConfig>, ReadError>;

/// A source's run, boxed so that sources of all kinds are one type.
pub type Run<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>>;

/// Every kind there is.
pub const KINDS: &[Kind] = &[
    telegrams::BINARY,
    telegrams::DSMR,
    telegrams::IEC,
    line::KIND,
    modbus_rtu::KIND,
    modbus_rtu::TCP,
    mqtt::KIND,
    telegrams::NMEA,
    simulated::KIND,
    telegrams::SML,
];

/// A source's table that cannot be read: where in it, and why (serde's words).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Path of the offending key inside the table, as `topics[0].filter`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// Reads a source's table as a `T`.
fn read<T: DeserializeOwned + SourceConfig + 'static>(
    table: config::Value,
) -> Result<Box<dyn SourceConfig>, ReadError> {
    Ok(Box::new(table::read::<T>(table)?))
}

/// What one source's table in the site file says.
pub trait SourceConfig: Debug + Send {
    /// What this source takes for itself, for the cross-check against the others.
    fn claims(&self) -> Claims;
    /// Contradictions inside the table, each as (key path inside it, words).
    fn contradictions(&self) -> Vec<(String, String)>;
    /// Whether its readings bear times of their own, by which the clock might be set.
    fn tells_time(&self) -> bool {
        false
    }
    /// The source itself.
    fn build(self: Box<Self>) -> Box<dyn Source>;
    /// The source, reading a recording once instead of what the table names; `over` is told at its end. `None` if this
    /// kind has nothing that could be recorded.
    fn replay(self: Box<Self>, _recording: Recording, _over: Arc<tokio::sync::Notify>) -> Option<Box<dyn Source>> {
        None
    }
    /// Makes it a mere listener, beside a gateway that is at work with the same table.
    fn listen_only(&mut self) {}
}

/// What only one source may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The serial port.
    pub port: Option<String>,
    /// Broker address and client id.
    pub client: Option<(String, String)>,
    /// Sensors whose names are fixed in the table.
    pub sensors: Vec<String>,
    /// Whether whoever sends keeps each reading until we confirm it.
    pub resends: bool,
    /// Units declared there, as (sensor, field, unit).
    pub units: Vec<(String, String, String)>,
}

/// A source at work.
pub trait Source: Send {
    /// Reads and hands over, until an error ends it (the supervisor starts it again) or it is dropped.
    fn run<'a>(&'a mut self, intake: &'a Intake) -> Run<'a>;
}

/// What a source is given: the way into the store, the time, its counters.
#[derive(Clone, Debug)]
pub struct Intake {
    /// The source's name.
    pub name: SourceName,
    /// The time of arrival. While it is not trusted these are unsynced stamps (see [`Timestamp`]).
    pub clock: Clock,
    /// Its counters and condition.
    pub stats: Arc<SourceStats>,
    /// Which times are believed.
    pub admission: Admission,
    /// What a device's time without an offset means; `None`: it is refused.
    pub timezone: Option<jiff::tz::TimeZone>,
    /// The way into the store.
    pub inlet: Inlet,
}

impl Intake {
    /// Counts a delivery and hands it to the store; waits while the store is behind.
    pub async fn deliver(&self, delivery: Delivery) -> Result<(), Closed> {
        self.stats.messages.inc();
        self.stats.readings.inc_by(delivery.readings.len() as u64);
        if let Some(letter) = delivery.dead_letters.first() {
            self.stats.refused.inc_by(delivery.dead_letters.len() as u64);
            let words =
                format_args!("`{}` sent what cannot be taken: {} (kept as a dead letter)", letter.place, letter.reason);
            self.stats.refusals.down(letter.at, words);
        }
        if self.clock.wants_offers() && !delivery.stamped {
            let own = delivery.readings.iter().map(|reading| reading.at).filter(|at| !at.is_unsynced());
            own.max().into_iter().for_each(|at| self.clock.offer(at));
        }
        self.inlet.push(delivery).await
    }

    /// The fields of a reading that are kept under the options that depend on earlier values; what is left out is counted.
    pub(crate) fn damped<'o>(
        &self,
        damper: &mut Damper,
        fields: Fields,
        (sensor, at): (&SensorName, Timestamp),
        options: impl Fn(&FieldName) -> Option<&'o Options>,
    ) -> Fields {
        let damped = damper.keep(fields, (sensor, at), options);
        self.stats.left_out.inc_by(damped.left_out.len() as u64);
        self.stats.rollovers.inc_by(damped.fallen.len() as u64);
        for name in &damped.left_out {
            self.stats
                .tap
                .refused(name.as_str(), "left out: a change below its deadband, or sooner than its min_interval");
        }
        for name in &damped.fallen {
            tracing::warn!("source {}: counter `{name}` of {sensor} fell: it was reset, or ran over", self.name);
        }
        damped.fields
    }

    /// A dead letter from this source; an over-long payload is cut, and the reason says so.
    pub fn letter(&self, at: Timestamp, place: &str, reason: impl std::fmt::Display, payload: &[u8]) -> DeadLetter {
        self.letter_of(at, place, reason, (payload, payload.len()))
    }

    /// The same of a payload of which only the first part is here, and how long it was.
    pub fn letter_of(
        &self,
        at: Timestamp,
        place: &str,
        reason: impl std::fmt::Display,
        (payload, length): (&[u8], usize),
    ) -> DeadLetter {
        let kept = payload.get(..MAX_LETTER_BYTES).unwrap_or(payload);
        let cut =
            if kept.len() < length { format!(" (first {} of {length} bytes kept)", kept.len()) } else { String::new() };
        DeadLetter {
            at: at.plain(),
            kind: LetterKind::Payload,
            source: Some(self.name.clone()),
            place: place.to_owned(),
            reason: format!("{reason}{cut}"),
            payload: kept.to_vec(),
            lost: None,
        }
    }
}

/// Runs a source for ever: starts it again after an error or a panic, with a growing pause. Ends only by being dropped,
/// or when the store has ended.
pub async fn supervise(mut source: Box<dyn Source>, intake: Intake) {
    let mut backoff = Backoff::new(RESTART_BASE, RESTART_CAP);
    loop {
        let started = tokio::time::Instant::now();
        let run = CatchPanic(AssertUnwindSafe(source.run(&intake)));
        let failure = match run.await {
            Ok(Ok(())) => "ended without a reason".to_owned(),
            Ok(Err(error)) if error.is::<Closed>() => return,
            Ok(Err(error)) => format!("{error:#}"),
            Err(panic) => format!("panicked: {panic} (please report this)"),
        };
        if started.elapsed() > RESTART_CAP {
            backoff.reset();
        }
        intake.stats.restarts.inc();
        intake.stats.condition.down(intake.clock.now(), failure);
        tokio::time::sleep(backoff.next_pause(fastrand::f64())).await;
    }
}

/// Polls a future and turns a panic into an error that holds its message.
struct CatchPanic<'a>(AssertUnwindSafe<Run<'a>>);

impl Future for CatchPanic<'_> {
    type Output = Result<anyhow::Result<()>, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        let inner = &mut self.0.0;
        match std::panic::catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                std::task::Poll::Ready(Err(text.unwrap_or_else(|| "no message".to_owned())))
            }
        }
    }
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod accounts;
#[cfg(test)]
#[path = "offers_tests.rs"]
mod offers;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;

    struct Flaky(u32);

    impl Source for Flaky {
        fn run<'a>(&'a mut self, _: &'a Intake) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
            Box::pin(async move {
                self.0 += 1;
                match self.0 {
                    1 => anyhow::bail!("line broke"),
                    2 => panic!("bug"),
                    _ => Err(Closed.into()),
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_panics_are_followed_by_a_new_start() {
        let name = SourceName::new("flaky").unwrap();
        let stats = Stats::default().source(&name, "test");
        let intake = Intake {
            name,
            clock: Clock::virtual_from(Timestamp::EPOCH),
            stats: Arc::clone(&stats),
            admission: Admission::default(),
            timezone: None,
            inlet: crate::store::inlet().0,
        };
        supervise(Box::new(Flaky(0)), intake).await;
        assert_eq!(stats.restarts.get(), 2);
        assert!(stats.condition.get().detail.contains("panicked: bug"));
    }
}
