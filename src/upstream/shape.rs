//! The shape of a document: what its fields are called, how samples and rollups stand in it; and the presets.
//!
//! A shape is all that differs between the collections of the bucket pattern found in practice. It never changes what is
//! told of a bucket's identity and content: `_id` and hash are the same in every shape. A preset replaces the usual
//! values; a key that has another value than the usual one wins over it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Config, Names};
use crate::model::FieldName;

/// How samples stand in a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One sub-document per sample.
    #[default]
    Rows,
    /// One array per field, `null` where a sample lacks it.
    Columns,
}

/// How the time of a sample is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Times {
    /// `date` in rows, `offset` in columns.
    #[default]
    Auto,
    /// A date.
    Date,
    /// Whole milliseconds since the start of the window.
    Offset,
    /// Whole minutes since the start of the window, seconds cut off.
    Minute,
}

/// Where rollups stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rollups {
    /// One sub-document per field, under `stats`.
    #[default]
    Nested,
    /// Beside `count`, at the top of the document.
    Flat,
    /// Nowhere.
    None,
}

/// Shapes found in practice; docs/DOCUMENTS.md shows each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// `sensorId, hour, count, sum, min, max, samples: [{m, t}]`
    Hourly,
    /// `device_id, hour_bucket, count, created_at, measurements: [{time, temp}]`
    Measurements,
    /// `deviceId, bucketStart, count, sumVal, minVal, maxVal, readings: [{t, val}]`
    Values,
    /// `sensor_id, start, end, count, readings: [{t, v}]`, and with `summary` rollups of shorter intervals
    Readings,
    /// `sensorId, startTs, count, sumTemp, minTemp, maxTemp, samples: [{ts, temp}]`
    Samples,
}

/// The shape of documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// What fields are called.
    pub names: Names,
    /// How samples stand.
    pub layout: Layout,
    /// How their times are written; never `Auto` in a shape made by [`Shape::of`].
    pub times: Times,
    /// Where rollups stand.
    pub rollups: Rollups,
    /// The main field; the bucket's first one if absent.
    pub field: Option<FieldName>,
    /// Length of the intervals of the summary.
    pub summary: Option<Duration>,
}

impl Shape {
    /// The shape that a site file asks for.
    pub fn of(config: &Config) -> Self {
        let base = config.preset.map(Preset::shape).unwrap_or_default();
        let layout = if config.layout == Layout::default() { base.layout } else { config.layout };
        let times = if config.times == Times::default() { base.times } else { config.times };
        let times = match (times, layout) {
            (Times::Auto, Layout::Rows) => Times::Date,
            (Times::Auto, Layout::Columns) => Times::Offset,
            (told, _) => told,
        };
        Self {
            names: config.names.over(&base.names),
            layout,
            times,
            rollups: if config.rollups == Rollups::default() { base.rollups } else { config.rollups },
            field: config.field.as_deref().and_then(|field| FieldName::new(field).ok()),
            summary: config.summary,
        }
    }
}

impl Preset {
    /// What it stands for.
    pub fn shape(self) -> Shape {
        let flat = Shape { rollups: Rollups::Flat, ..Shape::default() };
        match self {
            Self::Hourly => Shape {
                names: named(&[("sensor", "sensorId"), ("start", "hour"), ("samples_t", "m"), ("samples_value", "t")]),
                times: Times::Minute,
                ..flat
            },
            Self::Measurements => Shape {
                names: named(&[
                    ("sensor", "device_id"),
                    ("start", "hour_bucket"),
                    ("first", "created_at"),
                    ("samples", "measurements"),
                    ("samples_t", "time"),
                ]),
                rollups: Rollups::None,
                ..Shape::default()
            },
            Self::Values => Shape {
                names: named(&[
                    ("sensor", "deviceId"),
                    ("start", "bucketStart"),
                    ("stats_sum", "sumVal"),
                    ("stats_min", "minVal"),
                    ("stats_max", "maxVal"),
                    ("samples", "readings"),
                    ("samples_value", "val"),
                ]),
                ..flat
            },
            Self::Readings => Shape {
                names: named(&[
                    ("sensor", "sensor_id"),
                    ("end", "end"),
                    ("samples", "readings"),
                    ("samples_value", "v"),
                    ("stats_avg", "avg"),
                ]),
                rollups: Rollups::None,
                ..Shape::default()
            },
            Self::Samples => Shape {
                names: named(&[
                    ("sensor", "sensorId"),
                    ("start", "startTs"),
                    ("stats_sum", "sum{Field}"),
                    ("stats_min", "min{Field}"),
                    ("stats_max", "max{Field}"),
                    ("samples_t", "ts"),
                ]),
                ..flat
            },
        }
    }
}

/// The usual names without what only tipbucket writes, and with these. Hash, store and schema stay: they prove what is
/// stored, and a collection that holds other documents takes no harm of them.
fn named(words: &[(&str, &str)]) -> Names {
    let usual = toml::Table::try_from(Names::default()).expect("names are a table");
    let left_out = ["site", "part", "end", "first", "last", "stats_first", "stats_last", "sealed", "clock"];
    let table = usual.into_iter().map(|(key, usual)| {
        let word = words.iter().find(|(known, _)| *known == key).map(|(_, word)| (*word).into());
        let usual = if left_out.contains(&key.as_str()) { "".into() } else { usual };
        (key, word.unwrap_or(usual))
    });
    toml::Table::from_iter(table).try_into().expect("the table has the keys of names")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Preset; 5] = [Preset::Hourly, Preset::Measurements, Preset::Values, Preset::Readings, Preset::Samples];

    #[test]
    fn every_preset_is_free_of_contradictions_and_uses_only_names_that_exist() {
        for preset in ALL {
            let shape = preset.shape();
            assert_eq!(shape.names.contradictions(shape.rollups == Rollups::Flat), [], "{preset:?}");
            assert_ne!(shape.names.sensor, "sensor", "{preset:?}: a misspelt key would change nothing");
            let config = Config { preset: Some(preset), ..Config::default() };
            assert_eq!(config.contradictions(), [], "{preset:?}");
        }
    }

    #[test]
    fn what_the_site_file_says_wins_over_the_preset() {
        let mut config = Config { preset: Some(Preset::Hourly), times: Times::Offset, ..Config::default() };
        config.names.sensor = "probe".into();
        let shape = Shape::of(&config);
        assert_eq!((shape.names.sensor.as_str(), shape.names.start.as_str()), ("probe", "hour"));
        assert_eq!((shape.times, shape.rollups), (Times::Offset, Rollups::Flat));
    }

    #[test]
    fn times_are_dates_in_rows_and_offsets_in_columns() {
        let of = |layout| Shape::of(&Config { layout, ..Config::default() }).times;
        assert_eq!((of(Layout::Rows), of(Layout::Columns)), (Times::Date, Times::Offset));
    }
}
