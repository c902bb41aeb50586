//! An instant as the whole product keeps it: milliseconds since the Unix epoch, UTC, within the years 1970 to 9999
//! (to the end of 9999-12-29, so that every time zone's reading of it has four digits of year).
//!
//! Milliseconds because that is what a BSON date holds; finer source times are rounded down once, at the edge.
//!
//! An arrival is also told as a `Timestamp`. While the gateway's clock is not trusted it is an *unsynced stamp*: its
//! place on the steady time line, lifted into years that no reading has. So each stamp says for itself which clock it
//! came from, however long it was under way; whoever takes it in puts it down again ([`Timestamp::plain`]).

use std::fmt;
use std::time::Duration;

/// 9999-12-29T23:59:59.999Z.
const LAST_MILLIS: i64 = 253_402_127_999_999;
/// How far unsynced stamps are lifted, in milliseconds: 1970 becomes the year 5962, long after any plausible time.
const LIFT_MILLIS: i64 = 126_000_000_000_000;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The first instant that can be told.
    pub const EPOCH: Self = Self(0);
    /// The last instant that can be told.
    pub const LAST: Self = Self(LAST_MILLIS);

    /// The instant `millis` after the epoch, or `None` outside the years 1970 to 9999.
    pub const fn from_millis(millis: i64) -> Option<Self> {
        if millis >= 0 && millis <= LAST_MILLIS { Some(Self(millis)) } else { None }
    }

    /// As [`Self::from_millis`], with instants outside moved to the nearest end.
    pub const fn clamped(millis: i64) -> Self {
        if millis < 0 {
            Self(0)
        } else if millis > LAST_MILLIS {
            Self(LAST_MILLIS)
        } else {
            Self(millis)
        }
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant and `duration` later (at most the last instant there is).
    pub fn plus(self, duration: Duration) -> Self {
        Self::clamped(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This instant and `duration` earlier (at least the epoch).
    pub fn minus(self, duration: Duration) -> Self {
        Self::clamped(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This instant as the stamp of a clock that is not trusted.
    pub const fn unsynced(self) -> Self {
        Self::clamped(self.0.saturating_add(LIFT_MILLIS))
    }

    /// Whether this is the stamp of a clock that was not trusted.
    pub const fn is_unsynced(self) -> bool {
        self.0 >= LIFT_MILLIS
    }

    /// The instant itself, whatever is known of the clock that told it.
    pub const fn plain(self) -> Self {
        if self.is_unsynced() { Self(self.0 - LIFT_MILLIS) } else { self }
    }

    /// This instant moved by so many milliseconds, within the calendar.
    pub const fn shifted(self, millis: i64) -> Self {
        Self::clamped(self.0.saturating_add(millis))
    }

    /// ISO 8601 basic form with milliseconds, fixed width so that text order is time order: `20261130T130000.000Z`.
    pub fn basic(self) -> String {
        self.to_string().replace(['-', ':'], "")
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 with milliseconds: `2026-11-30T13:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(millis: i64, rfc3339: &str, basic: &str) {
        let t = Timestamp::from_millis(millis).unwrap();
        assert_eq!(t.to_string(), rfc3339);
        assert_eq!(t.basic(), basic);
    }

    #[test]
    fn text_forms_have_a_fixed_width() {
        check(0, "1970-01-01T00:00:00.000Z", "19700101T000000.000Z");
        check(1_796_043_600_000, "2026-11-30T13:00:00.000Z", "20261130T130000.000Z");
        check(LAST_MILLIS, "9999-12-29T23:59:59.999Z", "99991229T235959.999Z");
    }

    #[test]
    fn a_stamp_says_whether_its_clock_was_trusted() {
        let t = Timestamp::from_millis(1_796_043_600_000).unwrap();
        assert!(!t.is_unsynced() && t.unsynced().is_unsynced() && Timestamp::EPOCH.unsynced().is_unsynced());
        assert_eq!((t.unsynced().plain(), t.plain()), (t, t));
    }

    #[test]
    fn instants_outside_the_calendar_are_refused() {
        assert_eq!(Timestamp::from_millis(-1), None);
        assert_eq!(Timestamp::from_millis(LAST_MILLIS + 1), None);
        assert_eq!(Timestamp::LAST.plus(Duration::from_secs(1)), Timestamp::LAST);
        assert_eq!(Timestamp::EPOCH.minus(Duration::from_secs(1)), Timestamp::EPOCH);
    }
}
