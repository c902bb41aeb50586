//! The daily byte budget of a metered link. Pure.
//!
//! The driver does not tell what goes over the wire, so it is estimated: documents as zstd packs them (as they are, if the
//! server does not take compressed messages), and measured constants for connections and looks. A day is a day in UTC.

use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

/// One connection to a cluster: TLS, login, greeting, to three nodes.
pub(super) const CONNECT_BYTES: u64 = 30 << 10;
/// One command and its answer, without documents.
pub(super) const COMMAND_BYTES: u64 = 600;
/// What monitoring an open connection costs in a minute: one greeting for each of three nodes.
pub(super) const MINUTE_BYTES: u64 = 3 * 1200;
/// Milliseconds of a day.
const DAY: i64 = 86_400_000;

/// Bytes sent today, and how many may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    most: Option<u64>,
    today: Today,
}

/// What was sent on a day; kept in the notebook over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Today {
    /// Days since 1970.
    pub(super) day: i64,
    pub(super) bytes: u64,
}

impl Meter {
    pub(super) fn new(most: Option<ByteSize>, today: Today) -> Self {
        Self { most: most.map(|most| most.0), today }
    }

    /// Whether anything is counted at all.
    pub(super) const fn is_on(&self) -> bool {
        self.most.is_some()
    }

    /// What was sent today.
    pub(super) const fn today(&self) -> Today {
        self.today
    }

    pub(super) fn add(&mut self, now: Timestamp, bytes: u64) {
        self.turn(now);
        self.today.bytes = self.today.bytes.saturating_add(bytes);
    }

    /// If the budget is used up: how long until the next day, and in words.
    pub(super) fn used_up(&mut self, now: Timestamp) -> Option<(Duration, String)> {
        self.turn(now);
        let most = self.most.filter(|most| self.today.bytes >= *most)?;
        let left = Duration::from_millis((DAY - now.as_millis().rem_euclid(DAY)) as u64);
        let sent = ByteSize(self.today.bytes);
        let text = format!(
            "about {sent} were sent today, and upstream.max_bytes_per_day is {}: delivery goes on at midnight UTC; nothing is lost meanwhile",
            ByteSize(most)
        );
        Some((left, text))
    }

    /// If half of the budget is used up, which is all that live updates may use: how long until the next day, and in words.
    pub(super) fn half_used(&mut self, now: Timestamp) -> Option<(Duration, String)> {
        let half = Self { most: self.most.map(|most| most / 2), today: self.today }.used_up(now);
        let (left, _) = half?;
        Some((left, "half of upstream.max_bytes_per_day is used up; the rest is for complete buckets".to_owned()))
    }

    fn turn(&mut self, now: Timestamp) {
        let day = now.as_millis().div_euclid(DAY);
        if day != self.today.day {
            self.today = Today { day, bytes: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_days_budget_is_used_up_until_midnight() {
        let at = |hours: i64| Timestamp::clamped(20_000 * DAY + hours * 3_600_000);
        let mut meter = Meter::new(Some(ByteSize::mib(1)), Today { day: 20_000, bytes: 1 << 19 });
        assert_eq!(meter.used_up(at(1)), None);
        meter.add(at(2), 1 << 19);
        let (wait, words) = meter.used_up(at(20)).unwrap();
        assert_eq!(wait, Duration::from_secs(4 * 3600));
        assert!(words.contains("1.0 MiB were sent today") && words.contains("nothing is lost"), "{words}");
        assert_eq!(meter.used_up(at(24)), None, "a new day");
        assert_eq!(meter.half_used(at(24)), None);
        meter.add(at(24), 1 << 19);
        assert!(meter.half_used(at(25)).unwrap().1.contains("complete buckets") && meter.used_up(at(25)).is_none());
        meter = Meter::new(Some(ByteSize::mib(1)), Today { day: 20_001, bytes: 0 });
        assert_eq!(meter.today(), Today { day: 20_001, bytes: 0 });
    }

    #[test]
    fn without_a_budget_there_is_no_end() {
        let mut meter = Meter::new(None, Today::default());
        meter.add(Timestamp::EPOCH, u64::MAX);
        meter.add(Timestamp::EPOCH, u64::MAX);
        assert!(!meter.is_on() && meter.used_up(Timestamp::EPOCH).is_none());
    }
}
