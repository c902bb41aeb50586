//! A reading's own time: seconds, milliseconds, microseconds or nanoseconds since 1970, or RFC 3339 text.
//!
//! The unit of a bare number is told by its size: the four ranges do not meet for any time between 1973 and 5138.
//! Whole numbers are divided exactly; what is finer than a millisecond is cut off. A local time without an offset needs a
//! zone; of the hour that stands twice in autumn the one nearer to the arrival is meant, and in the hour that is left out
//! in spring no time is. Where a form is declared, no other is taken.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::node::Node;
use super::{number, quoted};
use crate::model::{Timestamp, Value};

/// Below this a number is seconds: the year 5138.
const SECONDS_BELOW: i128 = 100_000_000_000;
/// Below this a number is milliseconds.
const MILLIS_BELOW: i128 = SECONDS_BELOW * 1_000;
/// Below this a number is microseconds.
const MICROS_BELOW: i128 = MILLIS_BELOW * 1_000;

/// Furthest offset from UTC: 14 hours east (Kiribati), and one hour of summer time.
const MAX_OFFSET_SECONDS: i32 = 15 * 3600;

/// What a time without an offset means.
#[derive(Clone, Copy, Debug)]
pub struct Local<'z> {
    /// The zone, if one is declared.
    pub zone: Option<&'z TimeZone>,
    /// When the payload arrived.
    pub arrival: Timestamp,
}

/// How a time is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A number whose unit is told by its size, RFC 3339, or a local time.
    #[default]
    Auto,
    /// A number in a unit of which a second holds so many; from the epoch on.
    Epoch {
        /// 1, 1,000, 1,000,000 or 1,000,000,000.
        per_second: i64,
    },
    /// Text as in `2026-03-01T13:00:00+01:00`, also without an offset.
    Rfc3339,
    /// Text as in `Sun, 01 Mar 2026 12:00:00 GMT`.
    Rfc2822,
    /// Text as a pattern of `strftime` describes it.
    Pattern(String),
}

impl Format {
    /// The form of that name, or the pattern; the reason why not otherwise.
    pub fn new(text: &str) -> Result<Self, String> {
        let epoch = |per_second| Ok(Self::Epoch { per_second });
        match text {
            "auto" => Ok(Self::Auto),
            "unix_s" => epoch(1),
            "unix_ms" => epoch(1_000),
            "unix_us" => epoch(1_000_000),
            "unix_ns" => epoch(1_000_000_000),
            "rfc3339" => Ok(Self::Rfc3339),
            "rfc2822" => Ok(Self::Rfc2822),
            pattern if pattern.contains('%') => {
                let sample = jiff::Timestamp::UNIX_EPOCH.to_zoned_datetime(TimeZone::UTC);
                match jiff::fmt::strtime::format(pattern, &sample) {
                    Ok(_) => Ok(Self::Pattern(pattern.to_owned())),
                    Err(error) => Err(format!("`{pattern}` is no pattern of a time: {error}")),
                }
            }
            _ => Err(format!(
                "`{text}` is neither auto, unix_s, unix_ms, unix_us, unix_ns, rfc3339, rfc2822 nor a pattern such as \
                 `%d.%m.%Y %H:%M`"
            )),
        }
    }
}

/// The time that a node of a payload claims; `None` for null.
pub(super) fn of_node(node: &Node<'_>, format: &Format, local: Local<'_>) -> Result<Option<Timestamp>, String> {
    let time = match node {
        Node::Null => return Ok(None),
        Node::Scalar(value) => of_value_as(value, format, local),
        Node::Text(text) => of_text_as(text, format, local),
        other => Err(format!("{} is not a time", other.kind())),
    };
    time.map(Some)
}

/// The time that a value claims in the declared form.
pub fn of_value_as(value: &Value, format: &Format, local: Local<'_>) -> Result<Timestamp, String> {
    match (format, value) {
        (Format::Auto, _) => of_value(value, local),
        (_, Value::Text(text)) => of_text_as(text, format, local),
        (Format::Epoch { per_second }, Value::I64(v)) => of_units(i128::from(*v), *per_second),
        (Format::Epoch { per_second }, Value::U64(v)) => of_units(i128::from(*v), *per_second),
        (Format::Epoch { per_second }, Value::F64(v)) => {
            let micros = v * (1e6 / *per_second as f64);
            if micros.abs() > 1e18 {
                return Err(format!("`{v:e}` is not a time"));
            }
            in_calendar((micros.round() as i128).div_euclid(1_000), || format!("`{v}`"))
        }
        // A pattern may be of digits alone: 20260301120000.
        (Format::Pattern(_), Value::I64(v)) => of_text_as(&v.to_string(), format, local),
        (_, Value::Bool(v)) => Err(format!("`{v}` is not a time")),
        _ => Err("a number where the declared form of the time is a text".to_owned()),
    }
}

/// The time that a text claims in the declared form.
pub fn of_text_as(text: &str, format: &Format, local: Local<'_>) -> Result<Timestamp, String> {
    let not = |what: &str| format!("{} is not a time {what}", quoted(text));
    match format {
        Format::Auto => of_text(text, local),
        Format::Epoch { .. } => match number::parse(text.trim()) {
            Some(Ok(value)) => of_value_as(&value, format, local),
            _ => Err(not("in numbers since 1970")),
        },
        Format::Rfc3339 if number::parse(text).is_some() => Err(not("as RFC 3339 has it")),
        Format::Rfc3339 => of_text(text, local),
        Format::Rfc2822 => {
            let parser = jiff::fmt::rfc2822::DateTimeParser::new();
            let time = parser.parse_timestamp(text).map_err(|_| not("as RFC 2822 has it"))?;
            in_calendar(i128::from(time.as_millisecond()), || quoted(text))
        }
        Format::Pattern(pattern) => {
            let broken = jiff::fmt::strtime::parse(pattern, text).map_err(|_| not(&format!("as in `{pattern}`")))?;
            match broken.to_timestamp() {
                Ok(time) => in_calendar(i128::from(time.as_millisecond()), || quoted(text)),
                Err(_) => {
                    let time = broken.to_datetime().map_err(|error| format!("{}: {error}", quoted(text)))?;
                    of_local(time, text, local)
                }
            }
        }
    }
}

fn of_units(v: i128, per_second: i64) -> Result<Timestamp, String> {
    in_calendar((v * 1_000).div_euclid(i128::from(per_second)), || format!("`{v}`"))
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
    let text = text.trim();
    match number::parse(text) {
        Some(Ok(value)) => return of_value(&value, local),
        Some(Err(unfit)) => return Err(format!("time {} {unfit}", quoted(text))),
        None => {}
    }
    if text.contains('[') {
        return Err(format!("time {} names a zone; give an offset only", quoted(text)));
    }
    if let Ok(pieces) = jiff::fmt::temporal::Pieces::parse(text) {
        if pieces.time().is_none() {
            return Err(format!("{} is a day without a time", quoted(text)));
        }
        if pieces.to_numeric_offset().is_some_and(|offset| offset.seconds().abs() > MAX_OFFSET_SECONDS) {
            return Err(format!("time {} has an offset that no place has", quoted(text)));
        }
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
    time.ok_or_else(|| match millis {
        // Local clocks that were never set stand a few hours before 1970 in UTC.
        ..0 => format!("time {} is before 1970: the device's clock was never set", said()),
        _ => format!("time {} is beyond the year 9999", said()),
    })
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
        check(&text("2026-03-01"), Err("a day without a time"));
        check(&text("2026-03-01T12:00:00+14:00"), Ok("2026-02-28T22:00:00.000Z"));
        check(&text("2026-03-01T12:00:00+25:00"), Err("no place has"));
        check(&text(" 2026-03-01T12:00:00Z\n"), Ok("2026-03-01T12:00:00.000Z"));
        check(&text(" 1772366400 "), Ok("2026-03-01T12:00:00.000Z"));
        check(&text("0001-01-01T00:00:00Z"), Err("never set"));
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
    fn a_declared_form_is_the_only_one_taken() {
        let utc = TimeZone::UTC;
        let of = |format: &str, value: &Value| {
            let local = Local { zone: Some(&utc), arrival: Timestamp::EPOCH };
            of_value_as(value, &Format::new(format).unwrap(), local).map(|t| t.to_string())
        };
        let check = |format: &str, value: &Value, expected: Result<&str, &str>| match (of(format, value), expected) {
            (Ok(time), Ok(expected)) => assert_eq!(time, expected, "{format} {value:?}"),
            (Err(words), Err(expected)) => assert!(words.contains(expected), "{format} {value:?}: {words}"),
            other => panic!("{format} {value:?}: {other:?}"),
        };
        check("unix_s", &Value::I64(1_772_366_400), Ok("2026-03-01T12:00:00.000Z"));
        check("unix_s", &Value::F64(1_652_704_957.52), Ok("2022-05-16T12:42:37.520Z"));
        check("unix_s", &Value::I64(1_772_366_400_123), Err("beyond the year"));
        check("unix_ms", &Value::I64(1_772_366_400), Ok("1970-01-21T12:19:26.400Z"));
        check("unix_ns", &text("1772366400123456789"), Ok("2026-03-01T12:00:00.123Z"));
        check("unix_s", &text("2026-03-01T12:00:00Z"), Err("numbers since 1970"));
        check("rfc3339", &Value::I64(1_772_366_400), Err("is a text"));
        check("rfc3339", &text("1772366400"), Err("RFC 3339"));
        check("rfc3339", &text("2026-03-01T13:00:00+01:00"), Ok("2026-03-01T12:00:00.000Z"));
        check("rfc2822", &text("Sun, 01 Mar 2026 12:00:00 GMT"), Ok("2026-03-01T12:00:00.000Z"));
        check("rfc2822", &text("2026-03-01T12:00:00Z"), Err("RFC 2822"));
        check("%d.%m.%Y %H:%M", &text("01.03.2026 12:00"), Ok("2026-03-01T12:00:00.000Z"));
        check("%d.%m.%Y %H:%M %z", &text("01.03.2026 13:00 +0100"), Ok("2026-03-01T12:00:00.000Z"));
        check("%Y%m%d%H%M%S", &Value::I64(20_260_301_120_000), Ok("2026-03-01T12:00:00.000Z"));
        check("%d.%m.%Y %H:%M", &text("03/01/2026"), Err("as in `%d.%m.%Y %H:%M`"));
        check("unix_s", &Value::Bool(true), Err("not a time"));
        check("unix_s", &Value::F64(1e300), Err("not a time"));
        assert!(Format::new("iso").unwrap_err().contains("neither auto"));
        assert!(Format::new("%Q%!").unwrap_err().contains("no pattern"));
    }

    #[test]
    fn nonsense_is_refused_without_overflow() {
        check(&Value::I64(-1), Err("before 1970"));
        check(&Value::I64(i64::MIN), Err("before 1970"));
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
            for format in ["unix_s", "unix_ns", "rfc3339", "rfc2822", "%d.%m.%Y", "%s"] {
                let format = Format::new(format).unwrap();
                let _ = of_text_as(&t, &format, local);
                let _ = of_value_as(&Value::F64(f), &format, local);
                let _ = of_value_as(&Value::I64(i), &format, local);
            }
        }
    }
}
