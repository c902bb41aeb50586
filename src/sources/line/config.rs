//! `type = "line"` of the site file, and what it means once it is checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;

use super::forms::expressions;
use super::{Line, Reader};
use crate::decode::damp::Damper;
use crate::decode::line::Rules;
use crate::decode::shape::{Decimal, Plain};
use crate::model::{FieldName, SensorName};
use crate::sources::serial::{DEFAULT_BAUD, Format, Keeper, Letters, Port};
use crate::sources::{Claims, Recording, Source, SourceConfig};

/// Longest line unless said otherwise, in bytes.
const DEFAULT_MAX_LINE: usize = 1024;
/// Longest line that may be allowed: a line is a reading, not a file.
pub(super) const MAX_LINE: usize = 64 << 10;
/// Longest delimiter, in bytes.
pub(super) const MAX_DELIMITER: usize = 8;

/// A serial port that text comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) port: String,
    #[serde(default = "default_baud")]
    pub(super) baud: u32,
    #[serde(default)]
    pub(super) format: Format,
    #[serde(default = "default_delimiter")]
    pub(super) delimiter: Texts,
    #[serde(default = "default_max_line")]
    pub(super) max_line: usize,
    #[serde(default)]
    pub(super) encoding: Encoding,
    #[serde(default)]
    pub(super) drop_first: bool,
    /// How long nothing may come before the source is told to be out of order; for ever if absent.
    #[serde(default, with = "humantime_serde")]
    pub(super) silent_after: Option<Duration>,
    pub(super) decode: Decode,
    pub(super) sensor: Option<String>,
    pub(super) sensor_field: Option<String>,
    pub(super) time_field: Option<String>,
    /// `decode = "regex"`: one expression, or several of which the first that matches counts.
    #[serde(default)]
    pub(super) pattern: Texts,
    /// `decode = "csv"`: `_` or nothing for a column nobody wants.
    #[serde(default)]
    pub(super) columns: Vec<String>,
    /// `decode = "csv"`: the character between columns; `decode = "key-value"`: the characters between pairs.
    pub(super) separator: Option<String>,
    /// `decode = "key-value"`: the characters between key and value.
    pub(super) assign: Option<String>,
    /// `decode = "key-value"` and `"json"`: what is wanted, as names, or as name = key (or JSON pointer).
    #[serde(default)]
    pub(super) fields: Wanted,
    #[serde(default)]
    pub(super) text_fields: Vec<String>,
    #[serde(default)]
    pub(super) skip: Vec<String>,
    #[serde(default)]
    pub(super) strip: Vec<String>,
    #[serde(default)]
    pub(super) decimal: DecimalMark,
    #[serde(default)]
    pub(super) invalid: BTreeMap<String, Vec<f64>>,
    #[serde(default)]
    pub(super) limits: BTreeMap<String, [f64; 2]>,
    #[serde(default)]
    pub(super) units: BTreeMap<String, String>,
    /// Multiplied with the number.
    #[serde(default)]
    pub(super) scale: BTreeMap<String, f64>,
    /// Added after scaling.
    #[serde(default)]
    pub(super) offset: BTreeMap<String, f64>,
    /// Decimal places kept.
    #[serde(default)]
    pub(super) decimals: BTreeMap<String, u8>,
    /// Texts that are values.
    #[serde(default)]
    pub(super) words: BTreeMap<String, BTreeMap<String, Plain>>,
    /// Fields that only grow; when one falls that is noted.
    #[serde(default)]
    pub(super) counters: Vec<String>,
    /// A smaller change since the last value that was taken is left out.
    #[serde(default)]
    pub(super) deadband: BTreeMap<String, f64>,
    /// A value that comes sooner after the last one that was taken is left out.
    #[serde(default)]
    pub(super) min_interval: BTreeMap<String, Interval>,
    /// What may stand behind a number and means nothing: units.
    #[serde(default)]
    pub(super) suffixes: Vec<String>,
    /// `decode = "fixed"`: what every line begins with.
    #[serde(default)]
    pub(super) prefix: String,
    /// `decode = "fixed"`: where each value stands.
    #[serde(default)]
    pub(super) fixed: Vec<FixedConfig>,
}

/// A time such as `"10s"`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Interval(#[serde(with = "humantime_serde")] pub(super) Duration);

/// A value in a fixed place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FixedConfig {
    pub(super) field: String,
    pub(super) at: usize,
    pub(super) width: usize,
    #[serde(default)]
    pub(super) notation: Notation,
}

/// How a number in a fixed place is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Notation {
    #[default]
    Decimal,
    Hex,
    SignedHex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Decode {
    Regex,
    Csv,
    KeyValue,
    Fixed,
    Json,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
pub(super) enum DecimalMark {
    #[default]
    #[serde(rename = ".")]
    Point,
    #[serde(rename = ",")]
    Comma,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
pub(super) enum Texts {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged, expecting = "expected a list of names, or a table of name = key")]
pub(super) enum Wanted {
    #[default]
    All,
    Names(Vec<String>),
    Map(BTreeMap<String, String>),
}

fn default_baud() -> u32 {
    DEFAULT_BAUD
}
fn default_delimiter() -> Texts {
    Texts::One("\n".to_owned())
}
fn default_max_line() -> usize {
    DEFAULT_MAX_LINE
}

/// What is wrong, as (key path, words).
pub(super) type Wrong = Vec<(String, String)>;

impl SourceConfig for Config {
    fn claims(&self) -> Claims {
        let units = self.sensor.iter().flat_map(|sensor| {
            self.units.iter().map(move |(field, unit)| (sensor.clone(), field.clone(), unit.clone()))
        });
        Claims {
            port: Some(self.port.clone()),
            sensors: self.sensor.iter().cloned().collect(),
            units: units.collect(),
            ..Claims::default()
        }
    }

    fn tells_time(&self) -> bool {
        self.time_field.is_some()
    }

    fn contradictions(&self) -> Wrong {
        self.checked().err().unwrap_or_default()
    }

    fn build(self: Box<Self>) -> Box<dyn Source> {
        Box::new(self.checked().expect("a table without contradictions can be built"))
    }

    fn replay(self: Box<Self>, recording: Recording, over: Arc<Notify>) -> Option<Box<dyn Source>> {
        let mut source = self.checked().expect("a table without contradictions can be built");
        source.keeper.replay(recording, over, false);
        Some(Box::new(source))
    }
}

impl Config {
    /// The source, or everything that is wrong.
    pub(super) fn checked(&self) -> Result<Line, Wrong> {
        let port = Port { path: self.port.clone(), baud: self.baud, format: self.format };
        let mut wrong = port.contradictions();
        let Encoding::Utf8 = self.encoding;
        let splitter = self.splitter(&mut wrong);
        if !(1..=MAX_LINE).contains(&self.max_line) {
            wrong.push(("max_line".into(), format!("{} is not between 1 and {MAX_LINE} bytes", self.max_line)));
        }
        if self.silent_after.is_some_and(|patience| patience < Duration::from_secs(1)) {
            wrong.push(("silent_after".into(), "must be at least 1s".into()));
        }
        self.stray_keys(&mut wrong);
        let sensor = self.sensor.as_deref().map(SensorName::new).transpose().map_err(|e| e.to_string());
        let sensor = sensor.unwrap_or_else(|words| {
            wrong.push(("sensor".into(), words));
            None
        });
        if self.sensor.is_some() == self.sensor_field.is_some() {
            let words = "name the sensor, or the field that names it by `sensor_field`, and not both";
            wrong.push(("sensor".into(), words.into()));
        }
        let skip = expressions("skip", &self.skip, &mut wrong);
        let strip = expressions("strip", &self.strip, &mut wrong);
        let form = self.form(&mut wrong);
        let options = self.options(&mut wrong);
        self.check_names(form.as_ref(), &mut wrong);
        let (Some(form), true) = (form, wrong.is_empty()) else { return Err(wrong) };
        let decimal = if self.decimal == DecimalMark::Comma { Decimal::Comma } else { Decimal::Point };
        let rules = Rules {
            form,
            skip,
            strip,
            sensor_field: self.sensor_field.clone(),
            time_field: self.time_field.clone(),
            text_fields: self.text_fields.clone(),
            decimal,
            suffixes: self.suffixes.clone(),
            hex_fields: self
                .fixed
                .iter()
                .filter(|f| f.notation != Notation::Decimal)
                .map(|f| f.field.clone())
                .collect(),
            options,
        };
        let (place, letters) = (self.port.clone(), Letters::default());
        let with_memory = rules.options.iter().filter(|(_, options)| options.has_memory());
        let memory = with_memory.filter_map(|(name, options)| Some((FieldName::new(name).ok()?, options.clone())));
        let memory = memory.collect();
        let (drop_first, damper) = (self.drop_first, Damper::default());
        let reader = Reader { rules, sensor, drop_first, place, letters, refusals: 0, memory, damper };
        Ok(Line { keeper: Keeper::new(port), splitter, reader, silent_after: self.silent_after })
    }
}
