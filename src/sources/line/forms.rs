//! What a `line` table says about its lines: which form they have, and whether the names in it fit together.

use std::collections::{BTreeMap, HashMap, HashSet};

use regex::Regex;

use super::config::{
    Config, DecimalMark, Decode, FixedConfig, MAX_DELIMITER, MAX_LINE, Notation, Texts, Wanted, Wrong,
};
use crate::decode::line::{FixedColumn, Form, Splitter};
use crate::decode::shape::{Options, Plain};
use crate::model::{FieldName, MAX_FIELDS};

impl Config {
    pub(super) fn splitter(&self, wrong: &mut Wrong) -> Splitter {
        let delimiters = self.delimiter.list();
        let mut bad = |words: String| wrong.push(("delimiter".into(), words));
        match &delimiters[..] {
            [one] if !(1..=MAX_DELIMITER).contains(&one.len()) => {
                bad(format!("must have 1 to {MAX_DELIMITER} bytes, as \"\\n\""));
            }
            [_] => {}
            [] => bad("names nothing that ends a line".into()),
            many if many.iter().any(|one| one.len() != 1) => bad("of several, each must be one byte".into()),
            _ => {}
        }
        let first = delimiters.first().map_or("\n", String::as_str);
        let others: Vec<u8> = delimiters.iter().skip(1).filter_map(|other| other.bytes().next()).collect();
        Splitter::new(first, self.max_line).or_any_of(&others)
    }

    /// What is done to the values, by name.
    pub(super) fn options(&self, wrong: &mut Wrong) -> HashMap<String, Options> {
        let names: HashSet<&String> = self.optioned().into_iter().map(|(_, name)| name).collect();
        let options = |name: &String| {
            let limits = self.limits.get(name);
            Options {
                scale: self.scale.get(name).copied(),
                offset: self.offset.get(name).copied(),
                decimals: self.decimals.get(name).copied(),
                min: limits.map(|limits| limits[0]),
                max: limits.map(|limits| limits[1]),
                invalid: self.invalid.get(name).into_iter().flatten().copied().map(Plain::Decimal).collect(),
                words: self.words.get(name).cloned().unwrap_or_default(),
                counter: self.counters.contains(name),
                deadband: self.deadband.get(name).copied(),
                min_interval: self.min_interval.get(name).map(|interval| interval.0),
                ..Options::default()
            }
        };
        let options: HashMap<String, Options> = names.into_iter().map(|name| (name.clone(), options(name))).collect();
        for (name, options) in &options {
            let limits = self.limits.contains_key(name);
            wrong.extend(options.contradictions().into_iter().map(|(key, words)| {
                let key = if limits && matches!(key, "min" | "max") { "limits" } else { key };
                (format!("{key}.{name}"), words)
            }));
        }
        options
    }

    /// Every name that an option is given for, and the option's key.
    fn optioned(&self) -> Vec<(&'static str, &String)> {
        fn keyed<'c, V>(key: &'static str, table: &'c BTreeMap<String, V>) -> Vec<(&'static str, &'c String)> {
            table.keys().map(|name| (key, name)).collect()
        }
        [
            keyed("invalid", &self.invalid),
            keyed("limits", &self.limits),
            keyed("scale", &self.scale),
            keyed("offset", &self.offset),
            keyed("decimals", &self.decimals),
            keyed("words", &self.words),
            keyed("deadband", &self.deadband),
            keyed("min_interval", &self.min_interval),
            self.counters.iter().map(|name| ("counters", name)).collect(),
        ]
        .concat()
    }

    /// Keys that have no meaning for this `decode`.
    pub(super) fn stray_keys(&self, wrong: &mut Wrong) {
        use Decode::{Csv, Fixed, Json, KeyValue, Regex};
        let given = [
            ("pattern", !matches!(self.pattern, Texts::None), &[Regex][..]),
            ("columns", !self.columns.is_empty(), &[Csv]),
            ("separator", self.separator.is_some(), &[Csv, KeyValue]),
            ("assign", self.assign.is_some(), &[KeyValue]),
            ("fixed", !self.fixed.is_empty(), &[Fixed]),
            ("prefix", !self.prefix.is_empty(), &[Fixed]),
            ("fields", !matches!(self.fields, Wanted::All), &[KeyValue, Json]),
        ];
        for (key, given, meant_for) in given {
            if given && !meant_for.contains(&self.decode) {
                let name = format!("{:?}", self.decode).to_lowercase();
                wrong.push((key.into(), format!("has no meaning with decode = \"{name}\"")));
            }
        }
    }

    pub(super) fn form(&self, wrong: &mut Wrong) -> Option<Form> {
        match self.decode {
            Decode::Regex => {
                let patterns = expressions("pattern", &self.pattern.list(), wrong);
                if patterns.iter().any(|p| p.capture_names().flatten().next().is_none()) || patterns.is_empty() {
                    let words = "needs an expression with named groups, as \"^T=(?<temp>[-0-9.]+)$\"";
                    wrong.push(("pattern".into(), words.into()));
                }
                Some(Form::Regex(patterns))
            }
            Decode::Csv => self.csv(wrong),
            Decode::KeyValue => Some(self.key_value(wrong)),
            Decode::Fixed => Some(self.fixed(wrong)),
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

    fn csv(&self, wrong: &mut Wrong) -> Option<Form> {
        let columns: Vec<_> = self.columns.iter().map(|c| (!c.is_empty() && c != "_").then(|| c.clone())).collect();
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

    fn key_value(&self, wrong: &mut Wrong) -> Form {
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
        Form::KeyValue { pairs: pairs.chars().collect(), assign: assign.chars().collect(), wanted: self.wanted("") }
    }

    fn fixed(&self, wrong: &mut Wrong) -> Form {
        let is_bad = |f: &FixedConfig| f.width == 0 || f.at > MAX_LINE || f.width > MAX_LINE;
        if self.fixed.is_empty() || self.fixed.iter().any(is_bad) {
            let words = "needs places of values, as [{ field = \"t\", at = 0, width = 8 }]";
            wrong.push(("fixed".into(), words.into()));
        }
        let column = |f: &FixedConfig| FixedColumn {
            name: f.field.clone(),
            at: f.at,
            width: f.width,
            hex: (f.notation != Notation::Decimal).then_some(f.notation == Notation::SignedHex),
        };
        Form::Fixed { prefix: self.prefix.clone(), columns: self.fixed.iter().map(column).collect() }
    }

    fn wanted(&self, prefix: &str) -> Vec<(String, String)> {
        match &self.fields {
            Wanted::All => Vec::new(),
            Wanted::Names(names) => names.iter().map(|name| (name.clone(), format!("{prefix}{name}"))).collect(),
            Wanted::Map(map) => map.iter().map(|(name, key)| (name.clone(), key.clone())).collect(),
        }
    }

    /// Names must be sound, distinct, and those mentioned elsewhere must exist.
    pub(super) fn check_names(&self, form: Option<&Form>, wrong: &mut Wrong) {
        let Some((key, names)) = form.map(names_of) else { return };
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
        let closed = matches!(self.decode, Decode::Regex | Decode::Csv | Decode::Fixed);
        let open = !closed && names.is_empty();
        let mut must_exist = |at: &str, name: &String, even_if_not_a_field: bool| {
            if !(open || names.contains(name) || even_if_not_a_field && !closed) {
                wrong.push((at.to_owned(), format!("`{name}` is not among the names of `{key}`")));
            }
        };
        self.sensor_field.iter().for_each(|name| must_exist("sensor_field", name, true));
        self.time_field.iter().for_each(|name| must_exist("time_field", name, true));
        self.text_fields.iter().for_each(|name| must_exist("text_fields", name, false));
        self.optioned().into_iter().for_each(|(key, name)| must_exist(&format!("{key}.{name}"), name, false));
        self.units.keys().for_each(|name| must_exist(&format!("units.{name}"), name, false));
    }
}

impl Texts {
    fn list(&self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::One(one) => vec![one.clone()],
            Self::Many(many) => many.clone(),
        }
    }
}

pub(super) fn expressions(key: &str, texts: &[String], wrong: &mut Wrong) -> Vec<Regex> {
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

/// The names in a form, and the key under which they stand.
fn names_of(form: &Form) -> (&'static str, Vec<String>) {
    match form {
        Form::Regex(patterns) => {
            let groups = patterns.iter().flat_map(|p| p.capture_names().flatten().map(str::to_owned));
            let mut groups: Vec<String> = groups.collect();
            groups.sort();
            groups.dedup();
            ("pattern", groups)
        }
        Form::Fixed { columns, .. } => ("fixed", columns.iter().map(|c| c.name.clone()).collect()),
        Form::Csv { columns, .. } => ("columns", columns.iter().flatten().cloned().collect()),
        Form::KeyValue { wanted, .. } | Form::Json { wanted } => {
            ("fields", wanted.iter().map(|(name, _)| name.clone()).collect())
        }
    }
}
