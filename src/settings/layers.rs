//! The layers of a configuration: the site file, its drop-ins in the order of their names, the environment.
//!
//! The `config` crate merges them (tables key by key, everything else as a whole); the `toml` crate is asked a second time
//! for the line of every key, which `config` does not keep.

use std::path::{Path, PathBuf};

use config::{Config, ConfigError, File, FileFormat, Map, Source, Value, ValueKind};
use toml::de::DeTable;

use super::place::{KeyPath, Place, Places, Step};
use super::problem::{Problem, may_hold_secret};
use crate::sources::table::ENVIRONMENT;

/// Environment variables that belong to us begin with this; `__` separates the keys.
const PREFIX: &str = "TIPBUCKET__";
/// Largest file read: a site of 10,000 sensors with a table each is below it.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Deepest key an environment variable may name.
const MAX_DEPTH: usize = 16;

/// The merged tree, and where each key of it was set.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) tree: Map<String, Value>,
    pub(super) places: Places,
    /// What is wrong with single variables; the rest can be read all the same.
    pub(super) problems: Vec<Problem>,
}

/// Reads and merges all layers.
pub(super) fn merge(
    path: &Path,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Merged, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut places = Places::default();
    let mut files = Vec::new();
    match drop_ins(path) {
        Ok(found) => files.extend(std::iter::once(path.to_owned()).chain(found)),
        Err(problem) => problems.push(problem),
    }
    let mut builder = Config::builder();
    for (layer, file) in files.iter().enumerate() {
        let name = file.display().to_string();
        let read = read_text(file).map_err(|problem| vec![problem]);
        match read.and_then(|text| add_file(&mut places, layer, &name, &text).map(|()| text)) {
            Ok(text) => builder = builder.add_source(File::from_str(&text, FileFormat::Toml)),
            Err(found) => problems.extend(found),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let built = builder.build().map_err(|error| vec![Problem::new(None, unreadable(path, &error))])?;
    let mut tree = built.cache.into_table().unwrap_or_default();
    let mut variables: Vec<_> = environment.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    variables.sort();
    for (name, text) in variables {
        // An empty variable is one that is not set: environment files cannot unset.
        if text.is_empty() {
            continue;
        }
        match Variable::new(&tree, &name, &text) {
            Ok(variable) => {
                places.add_variable(&name, variable.path.clone());
                tree = lay_over(tree, variable).map_err(|error| vec![Problem::new(None, error.to_string())])?;
            }
            Err(words) => problems.push(Problem::new(Some(Place::Variable { name }), words)),
        }
    }
    Ok(Merged { tree, places, problems })
}

/// `site.toml.d/*.toml` beside `site.toml`, by name. A folder that is not there holds nothing.
fn drop_ins(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let mut folder = path.as_os_str().to_owned();
    folder.push(".d");
    let folder = PathBuf::from(folder);
    let cannot =
        |error: std::io::Error| Problem::new(None, format!("cannot read folder {}: {error}", folder.display()));
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let file = entry.map_err(cannot)?.path();
        let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if file.extension().is_some_and(|ending| ending == "toml") && !hidden {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

fn read_text(file: &Path) -> Result<String, Problem> {
    let cannot = |why: String| Problem::new(None, format!("cannot read {}: {why}", file.display()));
    let size = std::fs::metadata(file).map_err(|error| cannot(hinted(&error)))?.len();
    if size > MAX_FILE_BYTES {
        return Err(cannot(format!("it has {size} bytes, at most {MAX_FILE_BYTES} are read")));
    }
    let bytes = std::fs::read(file).map_err(|error| cannot(hinted(&error)))?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        cannot(format!("line {line} is not UTF-8 (save the file as UTF-8)"))
    })
}

fn hinted(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file (name another with --config)".to_owned(),
        std::io::ErrorKind::PermissionDenied => format!("{error} (may this user read it?)"),
        _ => error.to_string(),
    }
}

fn unreadable(path: &Path, error: &ConfigError) -> String {
    format!("cannot read {}: {error}", path.display())
}

/// Notes where each key stands, or tells every syntax error.
fn add_file(places: &mut Places, layer: usize, name: &str, text: &str) -> Result<(), Vec<Problem>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| syntax(layer, name, text, error)).collect());
    }
    let too_large = places.add_file(name, text, table.get_ref());
    let words = |path| format!("`{path}`: the number is too large");
    let problems: Vec<_> = too_large.into_iter().map(|path| Problem::new(places.find(&path), words(path))).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// A syntax error with the toml crate's own picture of it, unless the line may hold a secret.
fn syntax(layer: usize, name: &str, text: &str, error: &toml::de::Error) -> Problem {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..start].iter().filter(|b| **b == b'\n').count() + 1;
    let place = Place::Line { layer, name: name.to_owned(), line };
    if may_hold_secret(text.lines().nth(line - 1).unwrap_or_default()) {
        let words = format!("syntax error: {} (the line is not shown, it may hold a secret)", error.message());
        return Problem::new(Some(place), words);
    }
    let picture: Vec<_> = error.to_string().trim_end().lines().map(|line| format!("  {line}")).collect();
    Problem::new(Some(place), format!("syntax error\n{}", picture.join("\n")))
}

/// One environment variable as a layer of its own.
#[derive(Clone, Debug)]
struct Variable {
    path: KeyPath,
    value: Value,
}

impl Variable {
    /// `TIPBUCKET__SOURCES__BOILER_ROOM__BAUD`: each part finds the key that is there already and is spelt alike (`boiler-room`),
    /// otherwise it is the key in lower case.
    fn new(tree: &Map<String, Value>, name: &str, text: &str) -> Result<Self, String> {
        let parts: Vec<_> = name[PREFIX.len()..].split("__").collect();
        if parts.len() > MAX_DEPTH || parts.iter().any(|part| part.is_empty()) {
            return Err(
                "no key is named like this (write TIPBUCKET__SECTION__KEY, as in TIPBUCKET__STORE__PATH)".into()
            );
        }
        let mut table = Some(tree);
        let mut steps = Vec::new();
        for part in parts {
            let same =
                |key: &&String| key.replace(|c: char| !c.is_ascii_alphanumeric(), "_").eq_ignore_ascii_case(part);
            let mut known: Vec<_> = table.into_iter().flat_map(Map::keys).filter(same).collect();
            known.sort();
            let key = known.first().map_or_else(|| part.to_lowercase(), |key| (*key).clone());
            table = match table.and_then(|table| table.get(&key)).map(|value| &value.kind) {
                Some(ValueKind::Table(inner)) => Some(inner),
                _ => None,
            };
            steps.push(Step::Key(key));
        }
        let value = parse(text)?;
        if steps.len() == 1 && !matches!(value.kind, ValueKind::Table(_)) {
            return Err(format!("a section cannot be set to a value (name a key in it, as in {name}__KEY)"));
        }
        Ok(Self { path: KeyPath(steps), value })
    }
}

/// A list or an inline table as TOML; everything else as text, which a number or a truth value is read from later.
fn parse(text: &str) -> Result<Value, String> {
    let origin = ENVIRONMENT.to_owned();
    if !text.trim_start().starts_with(['[', '{']) {
        return Ok(Value::new(Some(&origin), text));
    }
    let file = File::from_str(&format!("value = {text}"), FileFormat::Toml);
    let mut table = file.collect().map_err(|_| "the list or table is not well formed TOML".to_owned())?;
    table.remove("value").ok_or_else(|| "the list or table is not well formed TOML".to_owned())
}

impl Source for Variable {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        let nest = |inner: Value, step: &Step| match step {
            Step::Key(key) => Value::new(None, Map::from_iter([(key.clone(), inner)])),
            Step::Index(_) => inner,
        };
        self.path.0.iter().rev().fold(self.value.clone(), nest).into_table()
    }
}

/// The tree with one more layer on top.
fn lay_over(tree: Map<String, Value>, layer: Variable) -> Result<Map<String, Value>, ConfigError> {
    #[derive(Clone, Debug)]
    struct Below(Map<String, Value>);
    impl Source for Below {
        fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
            Box::new(self.clone())
        }
        fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
            Ok(self.0.clone())
        }
    }
    Config::builder().add_source(Below(tree)).add_source(layer).build()?.cache.into_table()
}
