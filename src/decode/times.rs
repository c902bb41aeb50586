//! A reading's own time: seconds, milliseconds, microseconds or nanoseconds since 1970, or RFC 3339 text.
//!
//! The unit of a bare number is told by its size: the four ranges do not meet for any time between 1973 and 5138.
//! Whole numbers are divided exactly; what is finer than a millisecond is cut off. A local time without an offset needs a
//! zone; of the hour that stands twice in autumn the one nearer to the arrival is meant, and in the hour that is left out
//! in spring no time is.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::{number, quoted};
use crate::model::{Timestamp, Value};

/// Below this a number is seconds: the year 5138.
const SECONDS_BELOW: i128 = 100_000_000_000;
/// Below this a number is milliseconds.
const MILLIS_BELOW: i128 = SECONDS_BELOW * 1_000;
/// Below this a number is microseconds.
const MICROS_BELOW: i128 = MILLIS_BELOW * 1_000;

/// What a time without an offset means.
#[derive(Clone, Copy, Debug)]
pub struct Local<'z> {
    /// The zone, if one is declared.
    pub zone: Option<&'z TimeZone>,
    /// When the payload arrived.
    pub arrival: Timestamp,
}

/// The zone of that name (`Europe/Amsterdam`), or in POSIX form (`CET-1CEST,M3.5.0,M10.5.0/3`); the reason why not otherwise.
pub fn zone(name: &str) -> Result<TimeZone, String> {
    let zone = TimeZone::get(name).or_else(|e| TimeZone::posix(name).map_err(|_| e));
    zone.map_err(|_| format!("time zone `{name}` is not known here (is it spelt as in Europe/Amsterdam?)"))
}

/// The time that a value claims, or why it claims none.
pub fn of_value(value: &Value, local: Local<'_>) -> Result<Timestamp, String> {
    match value {
        Value::I64(v) => of_whole(i128::from(*v)),
        Value::U64(v) => of_whole(i128::from(*v)),
        Value::F64(v) => of_decimal(*v),
        Value::Text(text) => of_text(text, local),
        Value::Bool(v) => Err(format!("`{v}` is not a time")),
    }
}

/// The time that a text claims: a number in a text, RFC 3339 with an offset, or a local time.
pub fn of_text(text: &str, local: Local<'_>) -> Result<Timestamp, String> {
    match number::parse(text) {
        Some(Ok(value)) => return of_value(&value, local),
        Some(Err(unfit)) => return Err(format!("time {} {unfit}", quoted(text))),
        None => {}
    }
    if text.contains('[') {
        return Err(format!("time {} names a zone; give an offset only", quoted(text)));
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return in_calendar(i128::from(time.as_millisecond()), || quoted(text));
    }
    match text.parse::<DateTime>() {
        Ok(time) => of_local(time, text, local),
        Err(_) => Err(format!("{} is not a time (RFC 3339, or a number since 1970)", quoted(text))),
    }
}

fn of_local(time: DateTime, text: &str, Local { zone, arrival }: Local<'_>) -> Result<Timestamp, String> {
    let Some(zone) = zone else {
        let remedy = "send `Z` or `+01:00` after it, or give `timezone`";
        return Err(format!("time {} has no offset from UTC ({remedy})", quoted(text)));
    };
    let at = |offset: jiff::tz::Offset| {
        let millis = offset.to_timestamp(time).map(|t| i128::from(t.as_millisecond())).unwrap_or(i128::MAX);
        in_calendar(millis, || quoted(text))
    };
    match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => at(offset),
        AmbiguousOffset::Gap { .. } => {
            Err(format!("time {} does not exist: the clock was put forward then", quoted(text)))
        }
        AmbiguousOffset::Fold { before, after } => {
            let (first, second) = (at(before)?, at(after)?);
            let apart = |t: Timestamp| t.as_millis().abs_diff(arrival.as_millis());
            Ok(if apart(first) <= apart(second) { first } else { second })
        }
    }
}

fn of_whole(v: i128) -> Result<Timestamp, String> {
    let millis = match v.abs() {
        n if n < SECONDS_BELOW => v * 1_000,
        n if n < MILLIS_BELOW => v,
        n if n < MICROS_BELOW => v.div_euclid(1_000),
        _ => v.div_euclid(1_000_000),
    };
    in_calendar(millis, || format!("`{v}`"))
}

fn of_decimal(v: f64) -> Result<Timestamp, String> {
    // Through whole nanoseconds of the unit's own size, so that 1652704957.52 s is not cut to .519.
    let micros = match v.abs() {
        n if n < SECONDS_BELOW as f64 => v * 1e6,
        n if n < MILLIS_BELOW as f64 => v * 1e3,
        n if n < MICROS_BELOW as f64 => v,
        n if n < (MICROS_BELOW * 1_000) as f64 => v / 1e3,
        _ => return Err(format!("`{v:e}` is not a time")),
    };
    in_calendar((micros.round() as i128).div_euclid(1_000), || format!("`{v}`"))
}

fn in_calendar(millis: i128, said: impl Fn() -> String) -> Result<Timestamp, String> {
    let time = i64::try_from(millis).ok().and_then(Timestamp::from_millis);
    time.ok_or_else(|| format!("time {} is outside the years 1970 to 9999", said()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &Value, expected: Result<&str, &str>) {
        let local = Local { zone: None, arrival: Timestamp::EPOCH };
        let got = of_value(value, local).map(|t| t.to_string());
        match expected {
            Ok(time) => assert_eq!(got.as_deref(), Ok(time), "{value:?}"),
            Err(words) => assert!(got.clone().is_err_and(|e| e.contains(words)), "{value:?}: {got:?}"),
        }
    }

    fn text(t: &str) -> Value {
        Value::text(t).unwrap()
    }

    #[test]
    fn the_unit_of_a_number_is_told_by_its_size() {
        check(&Value::I64(1_772_366_400), Ok("2026-03-01T12:00:00.000Z"));
        check(&Value::I64(1_772_366_400_123), Ok("2026-03-01T12:00:00.123Z"));
        check(&Value::I64(1_772_366_400_123_456), Ok("2026-03-01T12:00:00.123Z"));
        check(&Value::I64(1_772_366_400_123_456_789), Ok("2026-03-01T12:00:00.123Z"));
        check(&Value::F64(1_652_704_957.52), Ok("2022-05-16T12:42:37.520Z"));
        check(&Value::F64(1.663830962276e12), Ok("2022-09-22T07:16:02.276Z"));
        check(&text("1743724331"), Ok("2025-04-03T23:52:11.000Z"));
    }

    #[test]
    fn text_needs_an_offset() {
        check(&text("2026-03-01T13:00:00+01:00"), Ok("2026-03-01T12:00:00.000Z"));
        check(&text("2026-03-01 13:00:00"), Err("no offset"));
        check(&text("2026-02-30T12:00:00Z"), Err("not a time"));
        check(&text("01/03/2026 12:00"), Err("not a time"));
        check(&text(""), Err("not a time"));
    }

    #[test]
    fn a_local_time_is_read_in_its_zone() {
        let zone = zone("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let of = |time: &str, arrival: &str| {
            let arrival: jiff::Timestamp = arrival.parse().unwrap();
            let arrival = Timestamp::from_millis(arrival.as_millisecond()).unwrap();
            of_text(time, Local { zone: Some(&zone), arrival }).map(|t| t.to_string())
        };
        let any = "2026-03-01T12:00:00Z";
        assert_eq!(of("2026-03-01 13:00:00", any).unwrap(), "2026-03-01T12:00:00.000Z");
        assert_eq!(of("2026-07-01T13:00:00", any).unwrap(), "2026-07-01T11:00:00.000Z");
        assert_eq!(of("2026-10-25T02:30:00", "2026-10-25T00:31:00Z").unwrap(), "2026-10-25T00:30:00.000Z");
        assert_eq!(of("2026-10-25T02:30:00", "2026-10-25T01:31:00Z").unwrap(), "2026-10-25T01:30:00.000Z");
        assert!(of("2026-03-29T02:30:00", any).unwrap_err().contains("does not exist"));
        assert_eq!(of("2026-03-01T13:00:00Z", any).unwrap(), "2026-03-01T13:00:00.000Z");
        assert!(super::zone("Mars/Olympus").unwrap_err().contains("not known"));
    }

    #[test]
    fn nonsense_is_refused_without_overflow() {
        check(&Value::I64(-1), Err("outside"));
        check(&Value::I64(i64::MIN), Err("outside"));
        check(&Value::F64(1e30), Err("not a time"));
        check(&Value::Bool(true), Err("not a time"));
        check(&Value::U64(u64::MAX), Ok("2554-07-21T23:34:33.709Z"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(t: String, f: f64, i: i64) {
            let local = Local { zone: None, arrival: Timestamp::EPOCH };
            let _ = of_text(&t, local);
            let _ = of_value(&Value::F64(f), local);
            let _ = of_value(&Value::I64(i), local);
        }
    }
}
