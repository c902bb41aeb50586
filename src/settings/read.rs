//! Takes the merged tree apart, section by section. What cannot be read is noted and taken out of the tree, and reading is
//! tried again: so one pass finds everything.

use std::collections::{BTreeMap, HashSet};

use config::{Map, Value, ValueKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::place::{KeyPath, Places, Step};
use super::problem::{Problem, bad_value, suggestion, unknown_key};
use super::sections::{Bucket, Log, Sensor, Site};
use crate::sources::{Kind, ReadError, SourceConfig, table};
use crate::{clock, store, upstream, web};

/// Most bad keys looked for in one table: more than a person wants to read at once.
const MAX_TRIES: usize = 100;
/// The sections of the site file.
const SECTIONS: [&str; 9] = ["site", "clock", "store", "bucket", "sensors", "upstream", "sources", "web", "log"];

/// All sections as they were read, before they are checked against each other. A section with bad keys has the defaults
/// in their place, so that the checks can go on.
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) site: Site,
    pub(super) clock: clock::Config,
    pub(super) store: store::Config,
    pub(super) bucket: Bucket,
    pub(super) sensors: BTreeMap<String, Sensor>,
    pub(super) upstream: Option<upstream::Config>,
    pub(super) sources: Vec<SourceEntry>,
    /// Whether any source was named, even one that could not be read.
    pub(super) any_source: bool,
    pub(super) web: web::Config,
    pub(super) log: Log,
}

/// One `[sources.NAME]`.
#[derive(Debug)]
pub(super) struct SourceEntry {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) config: Box<dyn SourceConfig>,
    /// Whether its times may set the clock.
    pub(super) sets_clock: bool,
    /// Nothing was wrong with it.
    pub(super) whole: bool,
}

/// Reads every section; what is wrong is added to `problems`.
pub(super) fn sections(
    mut tree: Map<String, Value>,
    kinds: &'static [Kind],
    places: &Places,
    problems: &mut Vec<Problem>,
) -> Sections {
    let mut reader = Reader { places, problems };
    let mut take = |name: &str| tree.remove(name).unwrap_or_else(|| Value::new(None, Map::<String, Value>::new()));
    let (sensors, sources) = (take("sensors"), take("sources"));
    let sections = Sections {
        site: reader.section("site", take("site")).unwrap_or_default(),
        clock: reader.section("clock", take("clock")).unwrap_or_default(),
        store: reader.section("store", take("store")).unwrap_or_default(),
        bucket: reader.section("bucket", take("bucket")).unwrap_or_default(),
        upstream: reader.section("upstream", take("upstream")),
        web: reader.section("web", take("web")).unwrap_or_default(),
        log: reader.section("log", take("log")).unwrap_or_default(),
        sensors: reader.sensors(sensors),
        any_source: !matches!(&sources.kind, ValueKind::Table(table) if table.is_empty()),
        sources: reader.sources(sources, kinds),
    };
    for name in tree.keys() {
        reader.say(&KeyPath::of(&[name]), |path| {
            format!("unknown section `[{path}]`{}", suggestion(name, &SECTIONS, "allowed here: "))
        });
    }
    sections
}

struct Reader<'a> {
    places: &'a Places,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn say(&mut self, path: &KeyPath, words: impl FnOnce(&KeyPath) -> String) {
        self.problems.push(Problem::new(self.places.find(path), words(path)));
    }

    fn section<T: DeserializeOwned>(&mut self, name: &str, value: Value) -> Option<T> {
        self.table(&KeyPath::of(&[name]), value, table::read::<T>)
    }

    fn sensors(&mut self, value: Value) -> BTreeMap<String, Sensor> {
        let top = KeyPath::of(&["sensors"]);
        let mut sensors = BTreeMap::new();
        for (name, value) in self.tables(&top, value) {
            if let Some(sensor) = self.table(&top.key(&name), value, table::read::<Sensor>) {
                sensors.insert(name, sensor);
            }
        }
        sensors
    }

    fn sources(&mut self, value: Value, kinds: &'static [Kind]) -> Vec<SourceEntry> {
        let top = KeyPath::of(&["sources"]);
        let mut sources = Vec::new();
        for (name, value) in self.tables(&top, value) {
            let path = top.key(&name);
            let Some((kind, mut value)) = self.kind(&path, value, kinds) else { continue };
            let before = self.problems.len();
            let sets_clock = self.sets_clock(&path, &mut value);
            if let Some(config) = self.table(&path, value, kind.read) {
                let whole = self.problems.len() == before;
                sources.push(SourceEntry { name, kind: kind.name, config, sets_clock, whole });
            }
        }
        sources
    }

    /// The entries of a table of tables, by name.
    fn tables(&mut self, path: &KeyPath, value: Value) -> BTreeMap<String, Value> {
        match value.kind {
            ValueKind::Table(table) => table.into_iter().collect(),
            other => {
                self.not_a_table(path, &other);
                BTreeMap::new()
            }
        }
    }

    fn not_a_table(&mut self, path: &KeyPath, found: &ValueKind) {
        let found = match found {
            ValueKind::Array(_) => "a list",
            _ => "a single value",
        };
        self.say(path, |path| format!("`{path}` is {found}, expected a table (write `[{path}]` on a line of its own)"));
    }

    /// Takes `type` out of a source's table and finds its row.
    fn kind(&mut self, path: &KeyPath, value: Value, kinds: &'static [Kind]) -> Option<(&'static Kind, Value)> {
        #[derive(Deserialize)]
        struct Type(String);
        let origin = value.origin().map(str::to_owned);
        let mut entries = match value.kind {
            ValueKind::Table(entries) => entries,
            other => {
                self.not_a_table(path, &other);
                return None;
            }
        };
        let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
        let at = path.key("type");
        let Some(word) = entries.remove("type") else {
            self.say(&at, |at| format!("`{at}` is missing (one of: `{}`)", names.join("`, `")));
            return None;
        };
        let word = match table::read::<Type>(word) {
            Ok(Type(word)) => word,
            Err(error) => {
                self.say(&at, |at| bad_value(at, &error.message));
                return None;
            }
        };
        let Some(kind) = kinds.iter().find(|kind| kind.name == word) else {
            self.say(&at, |at| {
                format!("`{at}`: there is no kind of source {word:?}{}", suggestion(&word, &names, "there are: "))
            });
            return None;
        };
        Some((kind, Value::new(origin.as_ref(), entries)))
    }

    /// Takes `sets_clock` out of a source's table: sources of every kind may have it.
    fn sets_clock(&mut self, path: &KeyPath, value: &mut Value) -> bool {
        #[derive(Deserialize)]
        struct Flag(bool);
        let ValueKind::Table(entries) = &mut value.kind else { return false };
        let Some(flag) = entries.remove("sets_clock") else { return false };
        match table::read::<Flag>(flag) {
            Ok(Flag(flag)) => flag,
            Err(error) => {
                self.say(&path.key("sets_clock"), |at| bad_value(at, &error.message));
                false
            }
        }
    }

    /// Reads one table, as often as something is wrong with it. `None` if nothing usable is left.
    fn table<T>(
        &mut self,
        base: &KeyPath,
        mut value: Value,
        read: impl Fn(Value) -> Result<T, ReadError>,
    ) -> Option<T> {
        if !matches!(value.kind, ValueKind::Table(_)) {
            self.not_a_table(base, &value.kind);
            return None;
        }
        let mut taken = Taken::default();
        for _ in 0..MAX_TRIES {
            let error = match read(value.clone()) {
                Ok(done) => return Some(done),
                Err(error) => error,
            };
            let inside = KeyPath::parse(&error.path);
            let removed = match named_in(&error.message) {
                Some(Named::Unknown(key)) => {
                    let inside = if inside.last_key() == Some(key) { inside } else { inside.key(key) };
                    self.say(&base.join(&taken.original(&inside)), |path| unknown_key(path, &error.message));
                    taken.remove(&mut value, inside)
                }
                Some(Named::Missing(key)) => {
                    let original = taken.original(&inside).key(key);
                    if !taken.is_gone(&original) {
                        self.say(&base.join(&original), |path| format!("`{path}` is missing"));
                    }
                    taken.remove(&mut value, inside)
                }
                None => {
                    self.say(&base.join(&taken.original(&inside)), |path| bad_value(path, &error.message));
                    taken.remove(&mut value, inside)
                }
            };
            if !removed {
                return None;
            }
        }
        None
    }
}

/// What serde's message is about, where it names a key.
enum Named<'a> {
    Unknown(&'a str),
    Missing(&'a str),
}

fn named_in(message: &str) -> Option<Named<'_>> {
    let quoted = |rest: &'static str| message.strip_prefix(rest)?.split_once('`').map(|(key, _)| key);
    quoted("unknown field `").map(Named::Unknown).or_else(|| quoted("missing field `").map(Named::Missing)).or_else(
        || {
            // The config crate's own words.
            message
                .strip_prefix("missing configuration field \"")?
                .split_once('"')
                .map(|(key, _)| Named::Missing(key.rsplit('.').next().unwrap_or(key)))
        },
    )
}

/// What was taken out of a table so far.
#[derive(Default)]
struct Taken {
    /// Elements of lists, as (list's path, index at the time), in the order of their removal.
    elements: Vec<(KeyPath, usize)>,
    /// Everything, by its path in the file.
    gone: HashSet<KeyPath>,
}

impl Taken {
    fn is_gone(&self, original: &KeyPath) -> bool {
        self.gone.contains(original)
    }

    /// The path in the file of what is now at `path`: elements before it may have been taken out.
    fn original(&self, path: &KeyPath) -> KeyPath {
        let mut path = path.clone();
        for (list, removed) in self.elements.iter().rev() {
            let at = list.0.len();
            if path.0.len() > at
                && path.0[..at] == list.0[..]
                && let Step::Index(index) = &mut path.0[at]
                && *index >= *removed
            {
                *index += 1;
            }
        }
        path
    }

    /// Takes out what is at `path`, or the nearest thing around it that exists; `false` if that is the whole table.
    fn remove(&mut self, value: &mut Value, mut path: KeyPath) -> bool {
        loop {
            let original = self.original(&path);
            let Some((last, parents)) = path.0.split_last() else { return false };
            let parent = parents.iter().try_fold(&mut *value, descend);
            match (parent.map(|parent| &mut parent.kind), last) {
                (Some(ValueKind::Table(table)), Step::Key(key)) if table.contains_key(key) => {
                    table.remove(key);
                    self.gone.insert(original);
                    return true;
                }
                (Some(ValueKind::Array(items)), Step::Index(index)) if *index < items.len() => {
                    items.remove(*index);
                    self.gone.insert(original);
                    self.elements.push((KeyPath(parents.to_vec()), *index));
                    return true;
                }
                _ => {}
            }
            path.0.pop();
        }
    }
}

fn descend<'v>(value: &'v mut Value, step: &Step) -> Option<&'v mut Value> {
    match (&mut value.kind, step) {
        (ValueKind::Table(table), Step::Key(key)) => table.get_mut(key),
        (ValueKind::Array(items), Step::Index(index)) => items.get_mut(*index),
        _ => None,
    }
}
