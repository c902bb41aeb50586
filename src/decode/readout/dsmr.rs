//! DSMR P1 (v2.2 to v5, and its kin in Belgium, Luxembourg and Sweden): what a telegram says.
//!
//! A CRC after `!` (v4 and later) must fit; without one (v2.2, v3) the telegram stands by itself. The meter's clock gives
//! the time of everything; a meter behind the meter (gas, water, heat: `0-n:…`) has an older time of its own, and a clock
//! that was never set gives none.

use crc::{CRC_16_ARC, Crc};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use super::object::{Content, Object, content};
use super::{Read, lines};
use crate::decode::quoted;
use crate::decode::telegram::{Context, Measure, Telegram, Untimely};
use crate::model::{LossReason, Timestamp, Value};

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_ARC);
/// No meter had a P1 port before 2007: an earlier time is a clock that was never set.
const FIRST_METER: i64 = 1_167_609_600_000;

/// What names the version.
const VERSION: &[u8] = b"1-3:0.2.8(";

/// The reader of telegrams.
pub const READ: Read = read;

fn read(text: &[u8], context: &Context<'_>, telegram: &mut Telegram) {
    if let Err(why) = check_crc(text) {
        return telegram.refuse("telegram", why);
    }
    let mut clock = Clock::Absent;
    let mut rows: Vec<String> = Vec::new();
    for line in lines(text) {
        match rows.last_mut() {
            // v2.2 and v3 put the gas meter's value on a line of its own.
            Some(last) if line.starts_with('(') => last.push_str(line),
            _ => rows.push(line.to_owned()),
        }
    }
    for object in rows.iter().filter_map(|row| Object::new(row)) {
        if object.code.ends_with(":1.0.0") && object.code.starts_with("0-0") {
            clock = Clock::read(object.groups.first().copied().unwrap_or_default(), context);
        }
    }
    for row in &rows {
        match Object::new(row) {
            Some(object) => take(&object, clock, context, telegram),
            None => telegram.refuse("line", format!("{} is no data line", quoted(row))),
        }
    }
}

/// The meter's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// The telegram has no time (v2.2, v3).
    Absent,
    /// It cannot be right; nor can any other time of this meter.
    Unset,
    At(Timestamp),
}

impl Clock {
    fn read(text: &str, context: &Context<'_>) -> Self {
        match time(text, context) {
            Ok(at) if plausible(at, context).is_ok() => Self::At(at),
            _ => Self::Unset,
        }
    }

    const fn time(self) -> Option<Timestamp> {
        match self {
            Self::At(at) => Some(at),
            Self::Absent | Self::Unset => None,
        }
    }
}

fn take(object: &Object<'_>, clock: Clock, context: &Context<'_>, telegram: &mut Telegram) {
    let measure = |name: &str, value: Value, unit: Option<&str>, at: Option<Timestamp>| Measure {
        name: name.to_owned(),
        value,
        unit: unit.map(str::to_owned),
        at,
        channel: object.channel(),
    };
    match object.groups[..] {
        // The meter's clock, and whatever else is only a time.
        [one] if is_time(one) => {}
        _ if object.is_history => {}
        [one] => match content(object, one) {
            Content::Number(value, unit) => telegram.measures.push(measure(object.code, value, unit, clock.time())),
            Content::Bad(why) => telegram.refuse(object.code, why),
            Content::Other => {}
        },
        // A value with its own time.
        [when, what] if is_time(when) => match (own_time(when, clock, context), content(object, what)) {
            (Ok(at), Content::Number(value, unit @ Some(_))) => {
                add(measure(object.code, value, unit, at), context, telegram);
            }
            (Err(why), _) | (_, Content::Bad(why)) => telegram.refuse(object.code, why),
            (Ok(_), _) => {
                telegram.refuse(object.code, format!("{} bears no unit: no meter is behind it", quoted(what)));
            }
        },
        // v2.2 and v3: `0-1:24.3.0(121030140000)(00)(60)(1)(0-1:24.2.1)(m3)(00024.123)`.
        [when, _, _, "1", name, unit, value] if is_time(when) => {
            match (own_time(when, clock, context), crate::decode::number::parse(value)) {
                (Ok(at), Some(Ok(value))) => add(measure(name, value, Some(unit), at), context, telegram),
                (Err(why), _) => telegram.refuse(name, why),
                _ => telegram.refuse(name, format!("{} is no number", quoted(value))),
            }
        }
        // Logs of failures and of past maxima.
        _ => {}
    }
}

/// The time of a value that has one; nothing if no clock of this meter can be believed.
fn own_time(text: &str, clock: Clock, context: &Context<'_>) -> Result<Option<Timestamp>, String> {
    if clock == Clock::Unset { Ok(None) } else { time(text, context).map(Some) }
}

/// Adds a quantity with a time of its own: among those that are taken, if that time is believed.
fn add(measure: Measure, context: &Context<'_>, telegram: &mut Telegram) {
    match measure.at.map(|at| plausible(at, context)) {
        None | Some(Ok(_)) => telegram.measures.push(measure),
        Some(Err((reason, why))) => telegram.untimely.push(Untimely { measure, reason, why }),
    }
}

fn plausible(at: Timestamp, context: &Context<'_>) -> Result<Timestamp, (LossReason, String)> {
    if at.as_millis() < FIRST_METER {
        let why = format!("time {at} is before 2007: the meter's clock was never set");
        return Err((LossReason::BeforeClock, why));
    }
    context.believed(at)
}

/// `YYMMDDhhmmss`, with `S` (summer) or `W` (winter) after it or without.
fn is_time(text: &str) -> bool {
    matches!(text.len(), 12 | 13) && text.bytes().take(12).all(|b| b.is_ascii_digit())
}

/// Without a zone the letter alone counts, in Central European Time; without a letter, the zone alone.
fn time(text: &str, context: &Context<'_>) -> Result<Timestamp, String> {
    let wrong = || format!("{} is no time", quoted(text));
    if !is_time(text) || !text.is_ascii() {
        return Err(wrong());
    }
    let part = |at: usize| text[at..at + 2].parse::<i8>().unwrap_or(0);
    let year = 2000 + i16::from(part(0));
    let civil = DateTime::new(year, part(2), part(4), part(6), part(8), part(10), 0).map_err(|_| wrong())?;
    let is_summer = match text.as_bytes().get(12) {
        Some(b'S' | b's') => Some(true),
        Some(b'W' | b'w') => Some(false),
        Some(_) => return Err(wrong()),
        None => None,
    };
    let offset = offset(civil, is_summer, context.local.zone)
        .ok_or_else(|| format!("time {} has neither S nor W after it, and no `timezone` is set", quoted(text)))?;
    let millis = offset.to_timestamp(civil).map_err(|_| wrong())?.as_millisecond();
    Timestamp::from_millis(millis).ok_or_else(wrong)
}

fn offset(civil: DateTime, is_summer: Option<bool>, zone: Option<&TimeZone>) -> Option<Offset> {
    match (zone.map(|zone| zone.to_ambiguous_timestamp(civil).offset()), is_summer) {
        (Some(AmbiguousOffset::Unambiguous { offset }), _) => Some(offset),
        (Some(AmbiguousOffset::Gap { before, after } | AmbiguousOffset::Fold { before, after }), summer) => {
            // Summer time has the larger offset.
            let (high, low) = (before.max(after), before.min(after));
            Some(if summer.unwrap_or(false) { high } else { low })
        }
        (None, Some(summer)) => Some(Offset::constant(if summer { 2 } else { 1 })),
        (None, None) => None,
    }
}

/// Whether the four hexadecimal digits after `!`, if there are any, fit.
fn check_crc(text: &[u8]) -> Result<(), String> {
    let end = text.windows(2).rposition(|pair| pair == b"\n!").map_or(text.len(), |at| at + 2);
    let (body, tail) = text.split_at(end);
    let tail = std::str::from_utf8(tail).unwrap_or_default().trim();
    if tail.is_empty() {
        // The version stands in telegrams of DSMR 4 and later, which all have a CRC.
        let has_version = body.windows(VERSION.len()).any(|window| window == VERSION);
        return if has_version {
            Err("has no CRC, but its version has one (is it cut off?)".to_owned())
        } else {
            Ok(())
        };
    }
    let told = (tail.len() == 4).then(|| u16::from_str_radix(tail, 16).ok()).flatten();
    let Some(told) = told else { return Err(format!("{} after `!` is no CRC", quoted(tail))) };
    let computed = CRC.checksum(body);
    if computed == told {
        return Ok(());
    }
    let with_returns: Vec<u8> = body
        .iter()
        .enumerate()
        .flat_map(|(i, b)| {
            let lacks = *b == b'\n' && (i == 0 || body[i - 1] != b'\r');
            lacks.then_some(b'\r').into_iter().chain([*b])
        })
        .collect();
    let hint = match CRC.checksum(&with_returns) == told {
        true => " (it would fit with CR LF line ends: something on the way takes the carriage returns out)",
        false if computed.swap_bytes() == told => " (it would fit with its bytes swapped)",
        false => "",
    };
    Err(format!("CRC is {computed:04X} and not {told:04X}{hint}"))
}
