//! `type = "line"` of the site file, and what it means once it is checked.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use regex::Regex;
use serde::Deserialize;

use super::{Line, Reader};
use crate::decode::line::{Decimal, Form, Rules, Splitter};
use crate::model::{FieldName, MAX_FIELDS, SensorName};
use crate::sources::serial::{DEFAULT_BAUD, Format, Keeper, Letters, Port};
use crate::sources::{Claims, Source, SourceConfig};

/// Longest line unless said otherwise, in bytes.
const DEFAULT_MAX_LINE: usize = 1024;
/// Longest line that may be allowed: a line is a reading, not a file.
const MAX_LINE: usize = 64 << 10;
/// Longest delimiter, in bytes.
const MAX_DELIMITER: usize = 8;

/// A serial port that text comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    port: String,
    #[serde(default = "default_baud")]
    baud: u32,
    #[serde(default)]
    format: Format,
    #[serde(default = "default_delimiter")]
    delimiter: String,
    #[serde(default = "default_max_line")]
    max_line: usize,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    drop_first: bool,
    /// How long nothing may come before the source is told to be out of order; for ever if absent.
    #[serde(default, with = "humantime_serde")]
    silent_after: Option<Duration>,
    decode: Decode,
    sensor: Option<String>,
    sensor_field: Option<String>,
    time_field: Option<String>,
    /// `decode = "regex"`: one expression, or several of which the first that matches counts.
    #[serde(default)]
    pattern: Texts,
    /// `decode = "csv"`: `_` or nothing for a column nobody wants.
    #[serde(default)]
    columns: Vec<String>,
    /// `decode = "csv"`: the character between columns; `decode = "key-value"`: the characters between pairs.
    separator: Option<String>,
    /// `decode = "key-value"`: the characters between key and value.
    assign: Option<String>,
    /// `decode = "key-value"` and `"json"`: what is wanted, as names, or as name = key (or JSON pointer).
    #[serde(default)]
    fields: Wanted,
    #[serde(default)]
    text_fields: Vec<String>,
    #[serde(default)]
    skip: Vec<String>,
    #[serde(default)]
    strip: Vec<String>,
    #[serde(default)]
    decimal: DecimalMark,
    #[serde(default)]
    invalid: BTreeMap<String, Vec<f64>>,
    #[serde(default)]
    limits: BTreeMap<String, [f64; 2]>,
    #[serde(default)]
    units: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Decode {
    Regex,
    Csv,
    KeyValue,
    Json,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
enum DecimalMark {
    #[default]
    #[serde(rename = ".")]
    Point,
    #[serde(rename = ",")]
    Comma,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
enum Texts {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged, expecting = "expected a list of names, or a table of name = key")]
enum Wanted {
    #[default]
    All,
    Names(Vec<String>),
    Map(BTreeMap<String, String>),
}

fn default_baud() -> u32 {
    DEFAULT_BAUD
}
fn default_delimiter() -> String {
    "\n".to_owned()
}
fn default_max_line() -> usize {
    DEFAULT_MAX_LINE
}

/// What is wrong, as (key path, words).
type Wrong = Vec<(String, String)>;

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
}

impl Config {
    /// The source, or everything that is wrong.
    pub(super) fn checked(&self) -> Result<Line, Wrong> {
        let port = Port { path: self.port.clone(), baud: self.baud, format: self.format };
        let mut wrong = port.contradictions();
        let Encoding::Utf8 = self.encoding;
        if self.delimiter.is_empty() || self.delimiter.len() > MAX_DELIMITER {
            wrong.push(("delimiter".into(), format!("must have 1 to {MAX_DELIMITER} bytes, as \"\\n\"")));
        }
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
            invalid: self.invalid.clone().into_iter().collect(),
            limits: self.limits.iter().map(|(name, &[low, high])| (name.clone(), (low, high))).collect(),
            decimal,
        };
        let (place, letters) = (self.port.clone(), Letters::default());
        let reader = Reader { rules, sensor, drop_first: self.drop_first, place, letters, refusals: 0 };
        let splitter = Splitter::new(&self.delimiter, self.max_line);
        Ok(Line { keeper: Keeper::new(port), splitter, reader, silent_after: self.silent_after })
    }

    /// Keys that have no meaning for this `decode`.
    fn stray_keys(&self, wrong: &mut Wrong) {
        use Decode::{Csv, Json, KeyValue, Regex};
        let given = [
            ("pattern", !matches!(self.pattern, Texts::None), &[Regex][..]),
            ("columns", !self.columns.is_empty(), &[Csv]),
            ("separator", self.separator.is_some(), &[Csv, KeyValue]),
            ("assign", self.assign.is_some(), &[KeyValue]),
            ("fields", !matches!(self.fields, Wanted::All), &[KeyValue, Json]),
        ];
        for (key, given, meant_for) in given {
            if given && !meant_for.contains(&self.decode) {
                let name = format!("{:?}", self.decode).to_lowercase();
                wrong.push((key.into(), format!("has no meaning with decode = \"{name}\"")));
            }
        }
    }

    fn form(&self, wrong: &mut Wrong) -> Option<Form> {
        match self.decode {
            Decode::Regex => {
                let patterns = match &self.pattern {
                    Texts::None => Vec::new(),
                    Texts::One(one) => vec![one.clone()],
                    Texts::Many(many) => many.clone(),
                };
                let patterns = expressions("pattern", &patterns, wrong);
                if patterns.iter().any(|p| p.capture_names().flatten().next().is_none()) || patterns.is_empty() {
                    let words = "needs an expression with named groups, as \"^T=(?<temp>[-0-9.]+)$\"";
                    wrong.push(("pattern".into(), words.into()));
                }
                Some(Form::Regex(patterns))
            }
            Decode::Csv => {
                let columns: Vec<_> =
                    self.columns.iter().map(|c| (!c.is_empty() && c != "_").then(|| c.clone())).collect();
                if columns.iter().flatten().next().is_none() {
                    wrong.push(("columns".into(), "names no column, as [\"temp\", \"_\", \"hum\"]".into()));
                }
                let separator = self.separator.as_deref().unwrap_or(",");
                let mut characters = separator.chars();
                let (Some(separator), None) = (characters.next(), characters.next()) else {
                    wrong.push(("separator".into(), "must be one character, as \";\"".into()));
                    return None;
                };
                if separator == ',' && self.decimal == DecimalMark::Comma {
                    wrong.push(("separator".into(), "and `decimal` are both a comma".into()));
                }
                Some(Form::Csv { columns, separator })
            }
            Decode::KeyValue => {
                let comma = if self.decimal == DecimalMark::Comma { "" } else { "," };
                let pairs = self.separator.clone().unwrap_or_else(|| format!(" \t;{comma}"));
                let assign = self.assign.clone().unwrap_or_else(|| "=:".to_owned());
                if pairs.is_empty() || assign.is_empty() || pairs.chars().any(|c| assign.contains(c)) {
                    let words = "and `assign` must not be empty and have no character in common";
                    wrong.push(("separator".into(), words.into()));
                }
                if self.decimal == DecimalMark::Comma && pairs.contains(',') {
                    wrong.push(("separator".into(), "and `decimal` both hold a comma".into()));
                }
                let (pairs, assign) = (pairs.chars().collect(), assign.chars().collect());
                Some(Form::KeyValue { pairs, assign, wanted: self.wanted("") })
            }
            Decode::Json => {
                let wanted = self.wanted("/");
                for (name, pointer) in &wanted {
                    if !pointer.starts_with('/') {
                        wrong.push((format!("fields.{name}"), format!("`{pointer}` is no JSON pointer, as \"/temp\"")));
                    }
                }
                Some(Form::Json { wanted })
            }
        }
    }

    fn wanted(&self, prefix: &str) -> Vec<(String, String)> {
        match &self.fields {
            Wanted::All => Vec::new(),
            Wanted::Names(names) => names.iter().map(|name| (name.clone(), format!("{prefix}{name}"))).collect(),
            Wanted::Map(map) => map.iter().map(|(name, key)| (name.clone(), key.clone())).collect(),
        }
    }

    /// Names must be sound, distinct, and those mentioned elsewhere must exist.
    fn check_names(&self, form: Option<&Form>, wrong: &mut Wrong) {
        let (key, names): (_, Vec<String>) = match form {
            None => return,
            Some(Form::Regex(patterns)) => {
                let groups = patterns.iter().flat_map(|p| p.capture_names().flatten().map(str::to_owned));
                let mut groups: Vec<String> = groups.collect();
                groups.sort();
                groups.dedup();
                ("pattern", groups)
            }
            Some(Form::Csv { columns, .. }) => ("columns", columns.iter().flatten().cloned().collect()),
            Some(Form::KeyValue { wanted, .. } | Form::Json { wanted }) => {
                ("fields", wanted.iter().map(|(name, _)| name.clone()).collect())
            }
        };
        let mut seen = HashSet::new();
        for name in &names {
            match FieldName::new(name) {
                Err(error) => wrong.push((key.into(), error.to_string())),
                Ok(field) if !seen.insert(field.clone()) => {
                    wrong.push((key.into(), format!("two fields bear the name `{field}`")));
                }
                Ok(_) => {}
            }
        }
        if names.len() > MAX_FIELDS {
            wrong.push((key.into(), format!("names {} fields, at most {MAX_FIELDS} are allowed", names.len())));
        }
        let closed = matches!(self.decode, Decode::Regex | Decode::Csv);
        let open = !closed && names.is_empty();
        let mut must_exist = |at: &str, name: &String, even_if_not_a_field: bool| {
            if !(open || names.contains(name) || even_if_not_a_field && !closed) {
                wrong.push((at.to_owned(), format!("`{name}` is not among the names of `{key}`")));
            }
        };
        self.sensor_field.iter().for_each(|name| must_exist("sensor_field", name, true));
        self.time_field.iter().for_each(|name| must_exist("time_field", name, true));
        self.text_fields.iter().for_each(|name| must_exist("text_fields", name, false));
        self.invalid.keys().for_each(|name| must_exist(&format!("invalid.{name}"), name, false));
        self.limits.keys().for_each(|name| must_exist(&format!("limits.{name}"), name, false));
        self.units.keys().for_each(|name| must_exist(&format!("units.{name}"), name, false));
    }
}

fn expressions(key: &str, texts: &[String], wrong: &mut Wrong) -> Vec<Regex> {
    let mut good = Vec::new();
    for text in texts {
        match Regex::new(text) {
            Ok(regex) => good.push(regex),
            Err(error) => {
                let error = error.to_string();
                let last = error.lines().last().unwrap_or_default().trim();
                wrong.push((key.to_owned(), format!("`{text}` is no regular expression: {last}")));
            }
        }
    }
    good
}
