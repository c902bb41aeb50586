//! Times as people write them on a command line.

use anyhow::{Context, bail};

use crate::model::Timestamp;

/// An instant: RFC 3339, a date (its midnight UTC), `now`, or so long ago as `-1h`.
pub(super) fn parse(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    if text == "now" {
        return Ok(now);
    }
    if let Some(ago) = text.strip_prefix('-') {
        let ago =
            humantime::parse_duration(ago).with_context(|| format!("`{text}` is no time ago such as -90m or -2d"))?;
        return Ok(now.minus(ago));
    }
    let instant = text.parse::<jiff::Timestamp>().or_else(|_| format!("{text}T00:00:00Z").parse());
    let Ok(instant) = instant else {
        bail!("`{text}` is no time (2026-11-30T13:00:00Z, 2026-11-30T14:00:00+01:00, 2026-11-30, -1h or now)")
    };
    Timestamp::from_millis(instant.as_millisecond()).with_context(|| format!("`{text}` is not between 1970 and 9999"))
}

/// A range of time; the end must come after the start.
pub(super) fn range(from: &str, to: &str, now: Timestamp) -> anyhow::Result<(Timestamp, Timestamp)> {
    let range = (parse(from, now).context("--from")?, parse(to, now).context("--to")?);
    if range.0 >= range.1 {
        bail!("--from ({}) is not before --to ({})", range.0, range.1);
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let now = Timestamp::from_millis(1_796_043_600_000).unwrap();
        match (parse(text, now), expected) {
            (Ok(time), Ok(expected)) => assert_eq!(time.to_string(), expected),
            (Err(error), Err(expected)) => assert!(format!("{error:#}").contains(expected), "{error:#}"),
            (got, expected) => panic!("{text}: {got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn times_are_absolute_or_relative() {
        check("now", Ok("2026-11-30T13:00:00.000Z"));
        check("-1h", Ok("2026-11-30T12:00:00.000Z"));
        check("-2d 30m", Ok("2026-11-28T12:30:00.000Z"));
        check("2026-11-30T14:00:00.5+01:00", Ok("2026-11-30T13:00:00.500Z"));
        check("2026-11-30", Ok("2026-11-30T00:00:00.000Z"));
        check("yesterday", Err("no time"));
        check("2026-11-30T14:00:00", Err("no time"));
        check("-soon", Err("no time ago"));
        check("1969-01-01", Err("not between 1970"));
    }

    #[test]
    fn a_range_has_a_direction() {
        let now = Timestamp::from_millis(1_796_043_600_000).unwrap();
        assert!(range("-1h", "-2h", now).unwrap_err().to_string().contains("is not before"));
        assert!(range("-2h", "-1h", now).is_ok());
    }
}
