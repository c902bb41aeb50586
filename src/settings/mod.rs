//! The site file, its drop-ins and the environment, as one checked [`Settings`]: joins the parts' own `Config`s and
//! compares them with each other.
//!
//! Three steps: `layers` merges the texts and remembers where each key stands, `read` turns sections into structs,
//! `build` and `check` make them values that hold by themselves. Each step finds everything that is wrong at once; who
//! holds a [`Settings`] need not check again. Values of secret keys never appear in a [`Problem`].

mod build;
mod check;
mod layers;
mod place;
mod problem;
mod read;
mod sections;
pub mod sizes;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::model::{Admission, FieldName, Policies, SensorName, SiteName, SourceName};
use crate::sources::{KINDS, Kind, SourceConfig, devices};
use crate::{clock, store, upstream, web};

pub use problem::{Problem, Problems};
pub use sections::{Bucket, Level, Log, LogFormat, Sensor, Site};

/// Everything a site file says, checked.
#[derive(Debug)]
pub struct Settings {
    /// The installation's name: the first part of every bucket's identity.
    pub site: SiteName,
    /// Most sensors kept.
    pub max_sensors: u32,
    /// When the clock is believed, and what happens until then.
    pub clock: clock::Config,
    /// Zone of devices that send local time without an offset.
    pub timezone: Option<jiff::tz::TimeZone>,
    /// Which times of readings are believed.
    pub admission: Admission,
    /// How readings are put into buckets.
    pub policies: Policies,
    /// What is known of single sensors, for the documents' `meta`.
    pub notes: HashMap<SensorName, Notes>,
    /// The local store.
    pub store: store::Config,
    /// Where complete buckets go.
    pub upstream: upstream::Config,
    /// The inputs, by name; at least one.
    pub sources: Vec<ConfiguredSource>,
    /// The status page.
    pub web: web::Config,
    /// What is logged, and how.
    pub log: Log,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Problem>,
}

/// One `[sources.NAME]`.
#[derive(Debug)]
pub struct ConfiguredSource {
    /// Its name.
    pub name: SourceName,
    /// Its `type`.
    pub kind: &'static str,
    /// Whether the times of its readings may set the clock.
    pub sets_clock: bool,
    /// The rest of the table.
    pub config: Box<dyn SourceConfig>,
}

/// What the site file tells about a sensor beyond its buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Unit of each field; `[sensors.NAME]` wins over what a source declares.
    pub units: BTreeMap<FieldName, String>,
    /// Free tags.
    pub tags: BTreeMap<FieldName, String>,
}

/// Reads the site file `path`, its drop-ins `path.d/*.toml` and the environment's `TIPBUCKET__…`.
pub fn load(path: &Path, environment: impl IntoIterator<Item = (String, String)>) -> Result<Settings, Problems> {
    load_with(KINDS, path, environment)
}

/// As [`load`], with kinds of sources of your own.
pub fn load_with(
    kinds: &'static [Kind],
    path: &Path,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Settings, Problems> {
    let mut merged = match layers::merge(path, environment) {
        Ok(merged) => merged,
        Err(found) => return Err(Problems::of(found)),
    };
    let mut problems = merged.problems;
    for (keys, words) in devices::expand(&mut merged.tree, &path.with_file_name("devices")) {
        let keys = keys.iter().fold(place::KeyPath::default(), |path, key| path.join(&place::KeyPath::parse(key)));
        problems.push(Problem::new(merged.places.find(&keys), format!("`{keys}`: {words}")));
    }
    let sections = read::sections(merged.tree, kinds, &merged.places, &mut problems);
    let mut findings = Findings { places: &merged.places, problems, warnings: Vec::new() };
    check::check(&sections, &mut findings);
    let built = build::build(sections, &mut findings);
    let Findings { problems, warnings, .. } = findings;
    match (Problems::collected(problems), built) {
        (None, Some(settings)) => Ok(Settings { warnings, ..settings }),
        (Some(problems), _) => Err(problems),
        // `build` names a problem whenever it builds nothing; if it ever forgets, say so instead of going on.
        (None, None) => {
            Err(Problems::of(vec![Problem::new(None, "the configuration cannot be used (please report this)")]))
        }
    }
}

/// What the checks found.
struct Findings<'a> {
    places: &'a place::Places,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Findings<'_> {
    /// Something is wrong at `path`.
    fn wrong(&mut self, path: &place::KeyPath, words: impl std::fmt::Display) {
        self.problems.push(Problem::new(self.places.find(path), format!("`{path}`: {words}")));
    }

    /// Something at `path` is allowed, but probably not meant.
    fn warn(&mut self, path: &place::KeyPath, words: impl std::fmt::Display) {
        self.warnings.push(Problem::new(self.places.find(path), format!("`{path}`: {words}")));
    }

    /// Something is wrong, and no key is to blame.
    fn wrong_at_all(&mut self, words: &str) {
        self.problems.push(Problem::new(self.places.find(&place::KeyPath::default()), words));
    }
}
