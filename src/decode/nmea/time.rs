//! When a sentence was true: dates that some sentences name, added to the times of day that others name.

use jiff::civil::{Date, Time as Civil};

use super::fields::Cells;
use crate::decode::telegram::Context;
use crate::model::Timestamp;

/// Half a roll-over of the GPS week (1024 weeks): a time further from the arrival than this is another era's.
const HALF_A_ROLL_OVER_MS: u64 = 512 * 7 * 86_400_000;
/// How old the last date may be to be added to a time of day: receivers send one every few seconds.
const DATE_LASTS_MS: u64 = 60_000;

/// The last date and time heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dates {
    /// What was named, and when it arrived.
    last: Option<(Timestamp, Timestamp)>,
}

impl Dates {
    /// Notes the date of a sentence that names one.
    pub(super) fn hear(&mut self, kind: &str, cells: &Cells<'_>, context: &Context<'_>) {
        let named = match kind {
            "RMC" => named_date(cells.at(9)).zip(time_of_day(cells.at(1))),
            "ZDA" => {
                let date = || {
                    let (day, month) = (cells.at(2).parse().ok()?, cells.at(3).parse().ok()?);
                    Date::new(cells.at(4).parse().ok()?, month, day).ok()
                };
                date().zip(time_of_day(cells.at(1)))
            }
            _ => return,
        };
        let at = named.and_then(|(date, time)| joined(date, time)).filter(|at| is_plausible(*at, context));
        self.last = at.map(|at| (at, context.local.arrival));
    }

    /// The sentence's own time, if it has one that can be believed.
    pub(super) fn time(&self, kind: &str, cells: &Cells<'_>, context: &Context<'_>) -> Option<Timestamp> {
        let (last, heard) = self.last?;
        let of_day = match kind {
            "RMC" | "ZDA" => return Some(last),
            "GGA" | "GNS" => cells.at(1),
            "GLL" => cells.at(5),
            _ => return None,
        };
        if context.local.arrival.as_millis().abs_diff(heard.as_millis()) > DATE_LASTS_MS {
            return None;
        }
        let time = time_of_day(of_day)?;
        let last_at = jiff::Timestamp::from_millisecond(last.as_millis()).ok()?;
        let date = jiff::tz::Offset::UTC.to_datetime(last_at).date();
        // Just before or after midnight the date is that of the neighbouring day.
        let near = [date.yesterday().ok(), Some(date), date.tomorrow().ok()];
        let near = near.into_iter().flatten().filter_map(|date| joined(date, time));
        near.min_by_key(|at| at.as_millis().abs_diff(last.as_millis())).filter(|at| is_plausible(*at, context))
    }
}

fn is_plausible(at: Timestamp, context: &Context<'_>) -> bool {
    // An arrival that is not trusted tells nothing of the era.
    let arrival = context.local.arrival;
    let is_near = arrival.is_unsynced() || at.as_millis().abs_diff(arrival.as_millis()) < HALF_A_ROLL_OVER_MS;
    is_near && context.believed(at).is_ok()
}

/// `ddmmyy`.
fn named_date(cell: &str) -> Option<Date> {
    if cell.len() != 6 || !cell.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let part = |at: usize| cell[at..at + 2].parse::<i8>().ok();
    let year = i16::from(part(4)?);
    // GPS began in 1980.
    Date::new(if year >= 80 { 1900 + year } else { 2000 + year }, part(2)?, part(0)?).ok()
}

/// `hhmmss` with up to nine decimals, as milliseconds since midnight. A leap second (60) names none.
fn time_of_day(cell: &str) -> Option<(Civil, i64)> {
    let (whole, fraction) = cell.split_once('.').unwrap_or((cell, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.len() != 6 || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let part = |at: usize| whole[at..at + 2].parse::<i8>().ok();
    let millis = format!("{fraction:0<3}")[..3].parse().ok()?;
    Some((Civil::new(part(0)?, part(2)?, part(4)?, 0).ok()?, millis))
}

fn joined(date: Date, (time, millis): (Civil, i64)) -> Option<Timestamp> {
    let at = jiff::tz::Offset::UTC.to_timestamp(date.to_datetime(time)).ok()?;
    Timestamp::from_millis(at.as_millisecond() + millis)
}
