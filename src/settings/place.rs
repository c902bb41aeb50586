//! Where a key stands: its path in the tree, and the file and line (or the environment variable) that set it.

use std::collections::HashMap;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::sources::table::is_bare;

/// One step down the tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// A key's path from the top of the site file, shown as `sources.broker.topics[0].filter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct KeyPath(pub(super) Vec<Step>);

impl KeyPath {
    /// The path of the keys given.
    pub(super) fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| Step::Key((*key).to_owned())).collect())
    }

    /// Reads the form that [`fmt::Display`] writes. Anything odd becomes a key of its own.
    pub(super) fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            if let Some((index, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
                if let Ok(index) = index.parse() {
                    steps.push(Step::Index(index));
                    rest = after;
                    continue;
                }
            } else if let Some((key, after)) = rest.strip_prefix('"').and_then(|r| r.split_once('"')) {
                steps.push(Step::Key(key.to_owned()));
                rest = after;
                continue;
            }
            let end = rest.char_indices().skip(1).find(|(_, c)| ".[".contains(*c)).map_or(rest.len(), |(at, _)| at);
            steps.push(Step::Key(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        Self(steps)
    }

    pub(super) fn key(&self, key: &str) -> Self {
        self.join(&Self(vec![Step::Key(key.to_owned())]))
    }

    pub(super) fn join(&self, further: &Self) -> Self {
        Self([self.0.as_slice(), &further.0].concat())
    }

    pub(super) fn parent(&self) -> Option<Self> {
        Some(Self(self.0.split_last()?.1.to_vec()))
    }

    /// The last key; indices are passed over.
    pub(super) fn last_key(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) => None,
        })
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    if at > 0 {
                        f.write_str(".")?;
                    }
                    if is_bare(key) { f.write_str(key)? } else { write!(f, "{key:?}")? }
                }
            }
        }
        Ok(())
    }
}

/// Where something was said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// In a file as a whole: `layer` is its number in the order of reading.
    File { layer: usize, name: String },
    /// On a line of a file.
    Line { layer: usize, name: String, line: usize },
    /// In an environment variable.
    Variable { name: String },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, .. } => f.write_str(name),
            Self::Line { name, line, .. } => write!(f, "{name}:{line}"),
            Self::Variable { name } => write!(f, "environment {name}"),
        }
    }
}

/// Where every key of every layer stands.
#[derive(Debug, Default)]
pub(super) struct Places {
    layers: Vec<HashMap<KeyPath, Place>>,
}

impl Places {
    /// Adds a file: all that is set in it wins over what stood in earlier ones. Returns the numbers that are too large.
    pub(super) fn add_file(&mut self, name: &str, text: &str, table: &DeTable<'_>) -> Vec<KeyPath> {
        let (layer, lines) = (self.layers.len(), line_starts(text));
        let mut walk = Walk { layer, name, lines, found: HashMap::new(), too_large: Vec::new() };
        let top = Place::File { layer: walk.layer, name: name.to_owned() };
        walk.found.insert(KeyPath::default(), top);
        walk.table(&KeyPath::default(), table);
        self.layers.push(walk.found);
        walk.too_large
    }

    /// Adds an environment variable.
    pub(super) fn add_variable(&mut self, name: &str, path: KeyPath) {
        let place = Place::Variable { name: name.to_owned() };
        // Tables that exist because of this variable alone are its doing too.
        let born = std::iter::successors(path.parent(), KeyPath::parent);
        let born = born.take_while(|path| !self.layers.iter().any(|layer| layer.contains_key(path)));
        let mut layer: HashMap<_, _> = born.map(|path| (path, place.clone())).collect();
        layer.insert(path, place);
        self.layers.push(layer);
    }

    /// Where `path` was last set; for a key that is missing, where the table begins that should hold it.
    pub(super) fn find(&self, path: &KeyPath) -> Option<Place> {
        if let Some(place) = self.layers.iter().rev().find_map(|layer| layer.get(path)) {
            return Some(place.clone());
        }
        let mut path = path.parent()?;
        loop {
            let in_list = matches!(path.0.last(), Some(Step::Index(_)));
            let mut holders = self.layers.iter().filter_map(|layer| layer.get(&path));
            // A list is replaced as a whole by the last layer; a table is spread over all of them.
            let holder = if in_list { holders.next_back() } else { holders.next() };
            if let Some(place) = holder {
                return Some(place.clone());
            }
            path = path.parent()?;
        }
    }
}

/// The byte at which each line starts.
fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

struct Walk<'a> {
    layer: usize,
    name: &'a str,
    lines: Vec<usize>,
    found: HashMap<KeyPath, Place>,
    too_large: Vec<KeyPath>,
}

impl Walk<'_> {
    fn table(&mut self, path: &KeyPath, table: &DeTable<'_>) {
        for (key, value) in table {
            let path = path.key(key.get_ref());
            self.put(path.clone(), key.span().start);
            self.value(&path, value);
        }
    }

    fn value(&mut self, path: &KeyPath, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(path, table),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = path.join(&KeyPath(vec![Step::Index(index)]));
                    self.put(path.clone(), item.span().start);
                    self.value(&path, item);
                }
            }
            single if is_too_large(single) => self.too_large.push(path.clone()),
            _ => {}
        }
    }

    fn put(&mut self, path: KeyPath, byte: usize) {
        let line = self.lines.partition_point(|start| *start <= byte);
        let place = Place::Line { layer: self.layer, name: self.name.to_owned(), line };
        self.found.insert(path, place);
    }
}

/// Whether a number does not fit into 64 bits.
fn is_too_large(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).is_err(),
        DeValue::Float(number) => {
            let text = number.as_str();
            text.parse().is_ok_and(f64::is_infinite) && !text.contains("inf")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_and_read_alike() {
        for text in ["a", "a.b[0].c", "a[1][2]", "sensors.\"x.y z\".window", ""] {
            assert_eq!(KeyPath::parse(text).to_string(), text);
        }
        assert_eq!(KeyPath::parse("a[1].b").0.len(), 3);
        assert_eq!(KeyPath::parse("a[1].b").last_key(), Some("b"));
    }

    #[test]
    fn the_last_layer_that_sets_a_key_is_its_place() {
        let mut places = Places::default();
        for (name, text) in [
            ("a", "[store]\npath = 'x'\nmax_bytes = 1\n\n[[s.topics]]\nf = 1\n[[s.topics]]\ng = [\n  { h = 1 },\n]"),
            ("b", "# more\nstore.max_bytes = 2"),
        ] {
            places.add_file(name, text, DeTable::parse(text).unwrap().get_ref());
        }
        places.add_variable("TIPBUCKET__LOG__LEVEL", KeyPath::of(&["log", "level"]));
        let at = |path: &str| places.find(&KeyPath::parse(path)).map(|place| place.to_string());
        assert_eq!(at("store.path").as_deref(), Some("a:2"));
        assert_eq!(at("store.max_bytes").as_deref(), Some("b:2"));
        assert_eq!(at("store.missing").as_deref(), Some("a:1"));
        assert_eq!(at("s.topics[0].f").as_deref(), Some("a:6"));
        assert_eq!(at("s.topics[1].missing").as_deref(), Some("a:7"));
        assert_eq!(at("s.topics[1].g[0].h").as_deref(), Some("a:9"));
        assert_eq!(at("log.level").as_deref(), Some("environment TIPBUCKET__LOG__LEVEL"));
        assert_eq!(at("site.name").as_deref(), Some("a"));
    }
}
