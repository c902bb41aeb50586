//! `tipbucket query`: readings of one sensor that are on this gateway, or their rollups.
//!
//! Reads beside the running daemon and changes nothing. Holds one window's samples at a time, so any range may be asked for.

use std::io::{BufWriter, Write};

use anyhow::{Context, bail};
use clap::Args;

use super::printing::{self, Form, Lines};
use super::{ConfigArg, times};
use crate::model::{FieldName, Sample, SensorName, Timestamp};
use crate::store::{Found, View};

/// Most names offered in place of one that does not exist.
const MAX_OFFERED: usize = 3;
/// Sensors beyond this many are not all listed.
const FEW: usize = 12;

/// Shows readings of one sensor that are still on this gateway.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Query {
    #[command(flatten)]
    config: ConfigArg,
    /// Whose readings.
    sensor: String,
    /// From when on: RFC 3339, a date, or so long ago as -1h.
    #[arg(long, value_name = "T", default_value = "-1h", allow_hyphen_values = true)]
    from: String,
    /// Until when, that instant not included.
    #[arg(long, value_name = "T", default_value = "now", allow_hyphen_values = true)]
    to: String,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Form,
    /// Count, least, greatest, sum, first and last of each window in place of the readings; kept for store.keep_rollups.
    #[arg(long)]
    rollups: bool,
}

const EXAMPLE: &str =
    "Reads the store beside the running daemon: what is open, what waits for delivery, and what store.keep_raw keeps
after it. Everything else is upstream.

Example:
  tipbucket query boiler-meter --from -2h
  tipbucket query boiler-meter --from 2026-11-30T12:00:00Z --to 2026-11-30T13:00:00Z --format csv
  tipbucket query boiler-meter --from -30d --rollups --format json | jq .stats.power.max";

impl Query {
    pub(super) fn execute(self, out: &mut impl Write, now: Timestamp) -> anyhow::Result<()> {
        let (from, to) = times::range(&self.from, &self.to, now)?;
        let settings = self.config.load()?;
        let mut view = View::open(&settings.store.path)?;
        let sensor = known(&view, &self.sensor)?;
        let mut out = BufWriter::new(out);
        let told = if self.rollups {
            rollups(&mut view, &sensor, (from, to), self.format, &mut out)?
        } else {
            readings(&mut view, &sensor, (from, to), self.format, &mut out)?
        };
        out.flush()?;
        told.note(&sensor, (from, to), self.rollups, view.vanished)
    }
}

/// What there was to tell.
#[derive(Debug, Default)]
struct Told {
    lines: u64,
    /// Buckets whose samples were given up.
    thinned: u64,
    damaged: Vec<String>,
}

impl Told {
    /// Says on the standard error output what a reader of the result must know.
    fn note(
        self,
        sensor: &SensorName,
        (from, to): (Timestamp, Timestamp),
        rollups: bool,
        vanished: u64,
    ) -> anyhow::Result<()> {
        let mut error = std::io::stderr();
        if self.lines == 0 {
            let (what, key) = if rollups { ("rollups", "keep_rollups") } else { ("readings", "keep_raw") };
            writeln!(
                error,
                "no {what} of {sensor} from {from} to {to} are here (what is delivered is upstream; store.{key} keeps it here, too)"
            )?;
        }
        if self.thinned > 0 {
            let thinned = self.thinned;
            writeln!(
                error,
                "the samples of {thinned} buckets were given up for want of room; --rollups shows what is left"
            )?;
        }
        if vanished > 0 {
            writeln!(error, "some buckets were delivered while they were looked for, and are not among these")?;
        }
        for what in &self.damaged {
            writeln!(error, "left out: {what}")?;
        }
        if self.damaged.is_empty() { Ok(()) } else { bail!("{} buckets cannot be read", self.damaged.len()) }
    }
}

fn readings(
    view: &mut View,
    sensor: &SensorName,
    (from, to): (Timestamp, Timestamp),
    form: Form,
    out: &mut impl Write,
) -> anyhow::Result<Told> {
    let found = view.find(sensor, from, to)?;
    let mut told = Told::default();
    let fields = if form == Form::Json { Vec::new() } else { view.fields(&found)? };
    if form != Form::Json && !(found.is_empty() && form == Form::Table) {
        let names = fields.iter().map(FieldName::as_str);
        Lines::new(form, &mut *out).line(std::iter::once("time").chain(names))?;
    }
    for group in overlapping(&found) {
        let mut samples: Vec<Sample> = Vec::new();
        for found in group {
            match view.bucket(found) {
                Ok(Some(bucket)) => {
                    told.thinned += u64::from(bucket.rollup.is_some());
                    samples.extend(bucket.samples.into_iter().filter(|sample| sample.at >= from && sample.at < to));
                }
                Ok(None) => {}
                Err(error) => told.damaged.push(error.to_string()),
            }
        }
        samples.sort_by_key(|sample| sample.at);
        told.lines += samples.len() as u64;
        for sample in &samples {
            if form == Form::Json {
                printing::reading_json(out, sensor, sample)?;
                continue;
            }
            let cell = |field: &FieldName| {
                sample
                    .fields
                    .iter()
                    .find(|(name, _)| name == field)
                    .map_or_else(String::new, |(_, v)| printing::text(v))
            };
            let cells: Vec<String> = std::iter::once(sample.at.to_string()).chain(fields.iter().map(cell)).collect();
            Lines::new(form, &mut *out).line(cells.iter().map(String::as_str))?;
        }
    }
    Ok(told)
}

fn rollups(
    view: &mut View,
    sensor: &SensorName,
    (from, to): (Timestamp, Timestamp),
    form: Form,
    out: &mut impl Write,
) -> anyhow::Result<Told> {
    let found = view.summaries(sensor, from, to)?;
    let mut told = Told::default();
    if form == Form::Csv || form == Form::Table && !found.is_empty() {
        Lines::new(form, &mut *out).line(printing::ROLLUP_COLUMNS)?;
    }
    for found in &found {
        match view.summary(found) {
            Ok(Some(summary)) => {
                told.lines += 1;
                if form == Form::Json {
                    printing::rollup_json(out, sensor, &summary)?;
                    continue;
                }
                for cells in printing::rollup_cells(&summary) {
                    Lines::new(form, &mut *out).line(cells.iter().map(String::as_str))?;
                }
            }
            Ok(None) => {}
            Err(error) => told.damaged.push(error.to_string()),
        }
    }
    Ok(told)
}

/// Buckets whose windows overlap, together: parts of one window, and windows from before their length was changed.
fn overlapping(found: &[Found]) -> impl Iterator<Item = &[Found]> {
    let mut rest = found;
    std::iter::from_fn(move || {
        let mut end = rest.first()?.window.end();
        let more = rest.iter().skip(1).take_while(|next| {
            let joins = next.window.start() < end;
            end = end.max(next.window.end());
            joins
        });
        let (group, after) = rest.split_at(1 + more.count());
        rest = after;
        Some(group)
    })
}

/// A sensor of the store by its name.
pub(super) fn known(view: &View, name: &str) -> anyhow::Result<SensorName> {
    let sensor = SensorName::new(name).with_context(|| format!("`{name}` is no sensor name"))?;
    if view.sensors().any(|known| *known == sensor) {
        return Ok(sensor);
    }
    let mut names: Vec<&str> = view.sensors().map(SensorName::as_str).collect();
    names.sort_unstable();
    bail!("the store has no sensor `{name}`{}", offer(name, &names))
}

fn offer(name: &str, names: &[&str]) -> String {
    let list = |names: &[&str]| format!("`{}`", names.join("`, `"));
    let lower = name.to_lowercase();
    let far = |other: &str| strsim::damerau_levenshtein(&lower, &other.to_lowercase());
    let mut near: Vec<(usize, &str)> = names.iter().map(|other| (far(other), *other)).collect();
    near.retain(|(far, other)| *far <= 1 + name.chars().count() / 3 || other.to_lowercase().contains(&lower));
    near.sort_unstable();
    let near: Vec<&str> = near.into_iter().take(MAX_OFFERED).map(|(_, name)| name).collect();
    match names.len() {
        _ if !near.is_empty() => format!(" (did you mean {}?)", list(&near)),
        0 => " (it has none yet)".to_owned(),
        1..=FEW => format!(" (it has {})", list(names)),
        many => format!(" (it has {many}, none of a similar name)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_sensors_are_offered() {
        let names = ["boiler-meter", "boiler-temp", "tank"];
        let check = |name, names: &[&str], expected| assert_eq!(offer(name, names), expected);
        check("boiler-metre", &names, " (did you mean `boiler-meter`, `boiler-temp`?)");
        check("BOILER", &names, " (did you mean `boiler-temp`, `boiler-meter`?)");
        check("wind", &names, " (it has `boiler-meter`, `boiler-temp`, `tank`)");
        check("wind", &[], " (it has none yet)");
        check("wind", &["abcdefgh"; 20], " (it has 20, none of a similar name)");
    }
}
