//! `tipbucket export`: every reading on this gateway, of all sensors or some, in a time range.
//!
//! Reads beside the running daemon and changes nothing. Goes through the store in the order in which buckets were sealed,
//! one segment at a time, so its memory does not depend on how much there is.

use std::collections::HashSet;
use std::io::{BufWriter, Write};

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::printing::{self, Form, Lines};
use super::{ConfigArg, query, times};
use crate::model::{SealedBucket, SensorName, Timestamp};
use crate::store::{Summary, View};

/// Writes all readings that are still on this gateway.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Export {
    #[command(flatten)]
    config: ConfigArg,
    /// Only this sensor; may be given several times.
    #[arg(long = "sensor", value_name = "NAME")]
    sensors: Vec<String>,
    /// From when on: RFC 3339, a date, or so long ago as -1h. Without it from the beginning.
    #[arg(long, value_name = "T", default_value = "1970-01-01", hide_default_value = true, allow_hyphen_values = true)]
    from: String,
    /// Until when, that instant not included. Without it to the end.
    #[arg(long, value_name = "T", default_value = "9999-12-29", hide_default_value = true, allow_hyphen_values = true)]
    to: String,
    /// How it is written.
    #[arg(long, value_enum, default_value_t)]
    format: Lined,
}

/// How readings of many sensors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Lined {
    /// A JSON object on each line: sensor, time, fields.
    #[default]
    Json,
    /// A line for each value: sensor, time, field, value.
    Csv,
}

const EXAMPLE: &str = "Bucket by bucket: the readings of one are in the order of their times, buckets in that of their sealing, open ones last.
A bucket whose samples were given up is one JSON line with its rollups.

Example:
  tipbucket export > everything.jsonl
  tipbucket export --from -1d --sensor boiler-meter --format csv > day.csv";

impl Export {
    pub(super) fn execute(self, out: &mut impl Write, now: Timestamp) -> anyhow::Result<()> {
        let (from, to) = times::range(&self.from, &self.to, now)?;
        let settings = self.config.load()?;
        let mut view = View::open(&settings.store.path)?;
        let wanted =
            self.sensors.iter().map(|name| query::known(&view, name)).collect::<anyhow::Result<HashSet<_>>>()?;
        let mut out = BufWriter::new(out);
        if self.format == Lined::Csv {
            Lines::new(Form::Csv, &mut out).line(["sensor", "time", "field", "value"])?;
        }
        let mut damaged = 0;
        let mut thinned = 0;
        for pack in view.packs(from, to) {
            let buckets = match view.buckets(&pack) {
                Ok(buckets) => buckets,
                Err(error) => vec![Err(error)],
            };
            for bucket in buckets {
                match bucket {
                    Ok(bucket) if !wanted.is_empty() && !wanted.contains(&bucket.sensor) => {}
                    Ok(bucket) => thinned += u64::from(self.write(&bucket, (from, to), &mut out)?),
                    Err(error) => {
                        damaged += 1;
                        writeln!(std::io::stderr(), "left out: {error}")?;
                    }
                }
            }
        }
        out.flush()?;
        if thinned > 0 && self.format == Lined::Csv {
            writeln!(
                std::io::stderr(),
                "{thinned} buckets have no samples any more; `--format json` shows their rollups"
            )?;
        }
        if damaged > 0 { bail!("{damaged} segments or buckets cannot be read") } else { Ok(()) }
    }

    /// Writes one bucket; whether its samples are gone.
    fn write(
        &self,
        bucket: &SealedBucket,
        (from, to): (Timestamp, Timestamp),
        out: &mut impl Write,
    ) -> anyhow::Result<bool> {
        if let Some(rollup) = &bucket.rollup {
            let meets = rollup.first < to && rollup.last >= from;
            if meets && self.format == Lined::Json {
                printing::rollup_json(out, &bucket.sensor, &summary(bucket, rollup.first, rollup.last))?;
            }
            return Ok(meets);
        }
        for sample in bucket.samples.iter().filter(|sample| sample.at >= from && sample.at < to) {
            if self.format == Lined::Json {
                printing::reading_json(out, &bucket.sensor, sample)?;
                continue;
            }
            let (sensor, time): (&SensorName, String) = (&bucket.sensor, sample.at.to_string());
            for (field, value) in &sample.fields {
                let value = printing::text(value);
                Lines::new(Form::Csv, &mut *out).line([sensor.as_str(), &time, field.as_str(), &value])?;
            }
        }
        Ok(false)
    }
}

fn summary(bucket: &SealedBucket, first: Timestamp, last: Timestamp) -> Summary {
    let (window, part, count) = (bucket.window, bucket.part, bucket.count());
    Summary { window, part, open: false, count, first, last, stats: bucket.stats() }
}
