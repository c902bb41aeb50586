//! What the tables of all kinds of telegrams have in common, and the source that comes of it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::Deserialize;

use super::ask::Ask;
use super::taker::{Taker, Wanted};
use super::{Keeper, Telegrams};
use crate::decode::shape::{Options, Plain, field_table};
use crate::decode::telegram::Decoder;
use crate::model::{FieldName, MAX_FIELDS, SensorName};
use crate::sources::Claims;
use crate::sources::serial::{Format, Port};

/// What is wrong, as (key path, words).
pub(super) type Wrong = Vec<(String, String)>;

/// Shortest patience and shortest time between two polls.
const SHORTEST: Duration = Duration::from_millis(10);

/// The keys that every such table has.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) port: Port,
    pub(super) sensor: String,
    pub(super) fields: BTreeMap<String, Field>,
    pub(super) silent_after: Option<Duration>,
    pub(super) min_interval: Duration,
}

/// A field that is wanted: its name in the telegram, or that and what is done to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a name in the telegram, or a table of `from`, `unit`, `scale`, `offset`, `decimals`, `min`, `max`, \
                 `invalid`, `counter`, `deadband`, `min_interval`"
)]
pub(super) enum Field {
    From(String),
    Table(FieldTable),
}

field_table! {
    /// The long form.
    pub(super) struct FieldTable {
        from: String,
        /// Values that mean "none".
        #[serde(default)]
        invalid: Vec<Plain>,
    }
}

impl Field {
    fn from(&self) -> &str {
        match self {
            Self::From(from) => from,
            Self::Table(table) => &table.from,
        }
    }

    fn unit(&self) -> Option<&String> {
        match self {
            Self::From(_) => None,
            Self::Table(table) => table.unit.as_ref(),
        }
    }

    fn options(&self) -> Options {
        match self {
            Self::From(_) => Options::default(),
            Self::Table(table) => Options { invalid: table.invalid.clone(), ..table.options() },
        }
    }
}

impl Shared {
    pub(super) fn new(path: &str, baud: u32, format: Format, sensor: &str) -> Self {
        Self {
            port: Port { path: path.to_owned(), baud, format },
            sensor: sensor.to_owned(),
            fields: BTreeMap::new(),
            silent_after: None,
            min_interval: Duration::ZERO,
        }
    }

    pub(super) fn claims(&self) -> Claims {
        let units = self
            .fields
            .iter()
            .filter_map(|(name, field)| Some((self.sensor.clone(), name.clone(), field.unit()?.clone())));
        Claims {
            port: Some(self.port.path.clone()),
            sensors: vec![self.sensor.clone()],
            units: units.collect(),
            ..Claims::default()
        }
    }

    /// What is taken, or everything that is wrong so far.
    pub(super) fn taker(&self, wrong: &mut Wrong) -> Option<Taker> {
        wrong.extend(self.port.contradictions());
        if self.silent_after.is_some_and(|patience| patience < Duration::from_secs(1)) {
            wrong.push(("silent_after".into(), "must be at least 1s".into()));
        }
        let sensor = SensorName::new(&self.sensor).map_err(|e| wrong.push(("sensor".into(), e.to_string()))).ok();
        if self.fields.len() > MAX_FIELDS {
            wrong.push((
                "fields".into(),
                format!("names {} fields, at most {MAX_FIELDS} are allowed", self.fields.len()),
            ));
        }
        let mut wanted = Vec::new();
        let mut seen = HashSet::new();
        for (name, field) in &self.fields {
            let at = |key: &str| format!("fields.{name}{key}");
            let options = field.options();
            wrong.extend(options.contradictions().into_iter().map(|(key, words)| (at(&format!(".{key}")), words)));
            match FieldName::new(name) {
                Err(error) => wrong.push((at(""), error.to_string())),
                Ok(field) if !seen.insert(field.clone()) => {
                    wrong.push((at(""), format!("two fields bear the name `{field}`")));
                }
                Ok(named) => {
                    wanted.push(Wanted { field: named, from: field.from().to_owned(), options });
                }
            }
        }
        let with_memory = wanted.iter().filter(|wanted| wanted.options.has_memory());
        let memory = with_memory.map(|wanted| (wanted.field.clone(), wanted.options.clone())).collect();
        let mut taker = Taker::new(sensor?, wanted, self.port.path.clone());
        taker.memory = memory;
        taker.min_interval = self.min_interval;
        Some(taker)
    }

    /// The source.
    pub(super) fn source(&self, decoder: Box<dyn Decoder>, taker: Taker, ask: Option<Ask>) -> Telegrams {
        let (keeper, silent_after) = (Keeper::new(self.port.clone()), self.silent_after);
        Telegrams { keeper, decoder, taker, ask, silent_after, unread: Vec::new(), has_telegram: false }
    }
}

/// Adds what is wrong with a poll's rhythm.
pub(super) fn check_rhythm(poll: Duration, timeout: Duration, wrong: &mut Wrong) {
    for (key, time) in [("poll", poll), ("timeout", timeout)] {
        if time < SHORTEST {
            wrong.push((key.into(), "must be at least 10ms".into()));
        }
    }
}
