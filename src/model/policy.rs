//! What a site decided about its buckets, and which times it believes.

use std::collections::HashMap;
use std::time::Duration;

use super::{LossReason, SensorName, Timestamp, WindowLength};

/// How one sensor's readings are put into buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPolicy {
    /// How long a window is.
    pub window: WindowLength,
    /// Most samples in one bucket.
    pub max_samples: u32,
    /// Most bytes of one bucket's document (rows layout, see [`super::Sample::document_bytes`]).
    pub max_bytes: u32,
    /// How long after its end a window is kept open for readings on their way.
    pub grace: Duration,
    /// Decimal places to which doubles are rounded when they arrive, if any.
    pub decimals: Option<u8>,
}

/// The site's policy, and the sensors that differ from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// What holds unless said otherwise.
    pub default: BucketPolicy,
    /// Sensors with a policy of their own.
    pub by_sensor: HashMap<SensorName, BucketPolicy>,
}

impl Policies {
    /// What holds for `sensor`.
    pub fn of(&self, sensor: &SensorName) -> &BucketPolicy {
        // Mostly no sensor differs, and then nothing need be looked up for each reading.
        if self.by_sensor.is_empty() { &self.default } else { self.by_sensor.get(sensor).unwrap_or(&self.default) }
    }
}

/// Which times of readings are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// How far after its arrival a reading may claim to be.
    pub max_future: Duration,
    /// How old it may claim to be; `None`: as old as it likes.
    pub max_age: Option<Duration>,
}

/// 2000-01-01T00:00:00Z. No gateway measured anything before; such a time is a clock that was never set.
const EARLIEST: Timestamp = Timestamp::clamped(946_684_800_000);
/// 2100-01-01T00:00:00Z: what holds instead of `max_future` while the gateway's own clock is not trusted.
const LATEST: Timestamp = Timestamp::clamped(4_102_444_800_000);

/// Why a reading's time was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Implausible {
    /// Before 2000-01-01.
    #[error("time {0} is before 2000: the device's clock was never set")]
    Past(Timestamp),
    /// Too far after the arrival.
    #[error("time {at} is {} ahead of the gateway's clock, more than max_future", humantime::format_duration(*ahead))]
    Future {
        /// The claimed time.
        at: Timestamp,
        /// How far ahead of the arrival.
        ahead: Duration,
    },
    /// Too long before the arrival.
    #[error("time {at} is {} old, more than max_age", humantime::format_duration(*age))]
    Old {
        /// The claimed time.
        at: Timestamp,
        /// How long before the arrival.
        age: Duration,
    },
    /// After 2100-01-01.
    #[error("time {0} is after 2100: the device's clock is wrong")]
    Absurd(Timestamp),
}

impl Implausible {
    /// The word for it in the loss ledger.
    pub const fn reason(self) -> LossReason {
        match self {
            Self::Past(_) => LossReason::BeforeClock,
            Self::Future { .. } | Self::Absurd(_) => LossReason::TooFarAhead,
            Self::Old { .. } => LossReason::TooOld,
        }
    }
}

impl Admission {
    /// Whether a time of its own, claimed by a reading that arrived `now`, is believed. An unsynced stamp says nothing of
    /// the calendar, so then only the absolute bounds hold: a gateway that woke up in 1970 must not refuse everything.
    pub fn check(self, at: Timestamp, now: Timestamp) -> Result<(), Implausible> {
        if at < EARLIEST {
            Err(Implausible::Past(at))
        } else if now.is_unsynced() {
            if at < LATEST { Ok(()) } else { Err(Implausible::Absurd(at)) }
        } else if at > now.plus(self.max_future) {
            Err(Implausible::Future { at, ahead: at.since(now) })
        } else if self.max_age.is_some_and(|age| at < now.minus(age)) {
            Err(Implausible::Old { at, age: now.since(at) })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_times_are_not_believed() {
        let admission = Admission { max_future: Duration::from_secs(600), max_age: Some(Duration::from_secs(3600)) };
        let now = Timestamp::from_millis(1_796_043_600_000).unwrap();
        assert_eq!(admission.check(now.minus(Duration::from_secs(3600)), now), Ok(()));
        let old = now.minus(Duration::from_secs(3601));
        assert!(matches!(admission.check(old, now), Err(Implausible::Old { .. })));
        assert_eq!(Admission { max_age: None, ..admission }.check(old, now), Ok(()));
        assert_eq!(admission.check(now, now), Ok(()));
        assert_eq!(admission.check(now.plus(Duration::from_secs(600)), now), Ok(()));
        assert!(matches!(admission.check(now.plus(Duration::from_secs(601)), now), Err(Implausible::Future { .. })));
        assert!(matches!(admission.check(Timestamp::EPOCH, now), Err(Implausible::Past(_))));
        let unsynced = Timestamp::EPOCH.unsynced();
        assert_eq!(admission.check(now, unsynced), Ok(()), "1970 is no reason to refuse 2026");
        assert!(matches!(admission.check(Timestamp::EPOCH, unsynced), Err(Implausible::Past(_))));
        assert!(matches!(admission.check(LATEST, unsynced), Err(Implausible::Absurd(_))));
    }
}
