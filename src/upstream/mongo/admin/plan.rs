//! What a database needs for a site: collection, validator, indexes, views, a role with the least privileges. Pure.

use mongodb::bson::{Bson, Document, doc};

use super::views::views;
use crate::upstream::collection::PLACEHOLDERS;
use crate::upstream::fleet::{CONTROL, GAPS, GATEWAYS};
use crate::upstream::mongo::client::series_options;
use crate::upstream::{Config, Layout, Mode, Shape};

/// The name of the role.
const ROLE: &str = "tipbucketGateway";
/// The name of the index for a sensor's time range.
pub(super) const BY_SENSOR: &str = "sensor_start";
/// The name of the index by which the database deletes old buckets.
pub(super) const BY_EXPIRY: &str = "expire_at";

/// One thing to be done, as a command; and what is run if the thing is there already.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// In words.
    pub(crate) what: String,
    pub(crate) command: Document,
    pub(crate) otherwise: Option<Document>,
}

/// The steps in their order, and what is left out, in words.
pub(super) fn plan(config: &Config, max_samples: u32, clustered: bool) -> (Vec<Step>, Vec<String>) {
    let shape = Shape::of(config);
    let (mut steps, mut notes) = (Vec::new(), Vec::new());
    let is_one = |name: &str| !PLACEHOLDERS.iter().any(|placeholder| name.contains(placeholder));
    if config.mode == Mode::Timeseries {
        let name = config.collection.as_str();
        let what = format!("time series collection `{name}`");
        steps.push(Step { what, command: series_options(config, &shape), otherwise: None });
        let once = vec![
            doc! { "$group": { "_id": "$_id", "reading": { "$first": "$$ROOT" } } },
            doc! { "$replaceWith": "$reading" },
        ];
        let change = doc! { "collMod": "readings", "viewOn": name, "pipeline": &once };
        let command = doc! { "create": "readings", "viewOn": name, "pipeline": once };
        let what = "view `readings`, each measurement once".to_owned();
        steps.push(Step { what, command, otherwise: Some(change) });
        steps.push(role(config));
        return (steps, notes);
    }
    let mains = std::iter::once(&config.collection).chain(&config.overflow_collection);
    for name in mains {
        if is_one(name) {
            steps.extend(of_collection(config, &shape, name, max_samples, clustered));
        } else {
            notes.push(format!(
                "collections `{name}` come into being with their first bucket; run this again then: `doctor` tells which lack an index"
            ));
        }
    }
    if is_one(&config.collection) {
        let (views, left_out) = views(&shape);
        for (name, pipeline) in views {
            let change = doc! { "collMod": name, "viewOn": config.collection.as_str(), "pipeline": &pipeline };
            let command = doc! { "create": name, "viewOn": config.collection.as_str(), "pipeline": pipeline };
            steps.push(Step { what: format!("view `{name}`"), command, otherwise: Some(change) });
        }
        notes.extend(left_out);
    }
    steps.push(role(config));
    (steps, notes)
}

/// A collection, its validator and its indexes.
fn of_collection(config: &Config, shape: &Shape, name: &str, max_samples: u32, clustered: bool) -> Vec<Step> {
    let mut create = doc! { "create": name };
    if clustered {
        create.insert("clusteredIndex", doc! { "key": { "_id": 1 }, "unique": true });
    }
    let mut steps = Vec::new();
    if config.mode == Mode::Append {
        // Others write here too: what their documents look like is not ours to say.
        steps.push(Step { what: format!("collection `{name}`"), command: create, otherwise: None });
    } else {
        let validator = validator(shape, max_samples, config.mode);
        let rules = doc! { "validator": validator, "validationLevel": "strict", "validationAction": "error" };
        create.extend(rules.clone());
        let mut change = doc! { "collMod": name };
        change.extend(rules);
        let what = format!("collection `{name}` with a validator");
        steps.push(Step { what, command: create, otherwise: Some(change) });
    }
    let indexes = indexes(config, shape);
    if !indexes.is_empty() {
        let names: Vec<&str> = indexes.iter().filter_map(|index| index.get_str("name").ok()).collect();
        let what = format!("indexes {} of `{name}`", names.join(", "));
        let command = doc! { "createIndexes": name, "indexes": indexes };
        steps.push(Step { what, command, otherwise: None });
    }
    steps
}

/// The indexes that a collection should have beside `_id`.
pub(super) fn indexes(config: &Config, shape: &Shape) -> Vec<Document> {
    let names = &shape.names;
    let mut indexes = Vec::new();
    if !names.sensor.is_empty() && !names.start.is_empty() {
        let mut key = Document::new();
        key.insert(names.sensor.as_str(), 1);
        key.insert(names.start.as_str(), 1);
        indexes.push(doc! { "key": key, "name": BY_SENSOR });
    }
    if config.retention.is_some() && !names.expire_at.is_empty() {
        let mut key = Document::new();
        key.insert(names.expire_at.as_str(), 1);
        indexes.push(doc! { "key": key, "name": BY_EXPIRY, "expireAfterSeconds": 0 });
    }
    indexes
}

/// What every document of this shape fulfils; further fields are welcome.
fn validator(shape: &Shape, max_samples: u32, mode: Mode) -> Document {
    let names = &shape.names;
    let whole = || doc! { "bsonType": ["int", "long"], "minimum": 0 };
    let samples = match shape.layout {
        Layout::Rows => {
            doc! { "bsonType": "array", "maxItems": i64::from(max_samples), "items": { "bsonType": "object" } }
        }
        Layout::Columns => {
            doc! { "bsonType": "object", "additionalProperties": { "bsonType": "array", "maxItems": i64::from(max_samples) } }
        }
    };
    let mut counted = whole();
    counted.insert("maximum", i64::from(max_samples));
    let text = || doc! { "bsonType": "string" };
    let date = || doc! { "bsonType": "date" };
    let properties = [
        ("_id", text()),
        (&names.site, text()),
        (&names.sensor, text()),
        (&names.part, whole()),
        (&names.start, date()),
        (&names.end, date()),
        (&names.count, counted),
        (&names.samples, samples),
        (&names.hash, text()),
    ];
    let properties: Document = properties
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, rule)| (name.to_owned(), Bson::from(rule)))
        .collect();
    // The document of an open bucket has no hash yet.
    let is_required = |name: &&String| mode != Mode::Live || **name != names.hash;
    let required: Vec<&String> = properties.keys().filter(is_required).collect();
    doc! { "$jsonSchema": { "bsonType": "object", "required": required, "properties": &properties } }
}

/// What delivery does in a collection.
pub(super) fn actions(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Buckets | Mode::Timeseries => &["insert", "find"],
        Mode::Live | Mode::Append => &["insert", "find", "update"],
    }
}

/// What a gateway's user may do, and nothing else.
fn role(config: &Config) -> Step {
    let database = config.database.as_str();
    let privilege = |collection: &str, actions: &[&str]| {
        doc! { "resource": { "db": database, "collection": collection }, "actions": actions.to_vec() }
    };
    // A role cannot name collections by a pattern: with one for each sensor it names them all.
    let of = |name: &str| if name.contains('{') { "" } else { name }.to_owned();
    let actions = actions(config.mode);
    let mut privileges = vec![privilege(&of(&config.collection), actions)];
    if config.mode == Mode::Timeseries {
        // To look whether the collection is one of time series.
        privileges.push(privilege("", &["listCollections"]));
    }
    privileges.extend(config.overflow_collection.as_ref().map(|name| privilege(&of(name), actions)));
    if !config.reports.is_zero() {
        privileges.push(privilege(GATEWAYS, &["insert", "update", "find"]));
        privileges.push(privilege(GAPS, &["insert", "find"]));
        privileges.push(privilege(CONTROL, &["find"]));
    }
    let rights = doc! { "privileges": privileges, "roles": [] };
    let (mut command, mut change) = (doc! { "createRole": ROLE }, doc! { "updateRole": ROLE });
    command.extend(rights.clone());
    change.extend(rights);
    Step { what: format!("role `{ROLE}` for the gateways' user"), command, otherwise: Some(change) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::upstream::Preset;

    fn check(config: &Config, expected: &[&str]) {
        let (steps, notes) = plan(config, 1000, false);
        let found: Vec<&str> = steps.iter().map(|step| step.what.as_str()).collect();
        assert_eq!(found, expected, "{notes:?}");
    }

    #[test]
    fn a_site_has_a_plan() {
        check(
            &Config::default(),
            &[
                "collection `buckets` with a validator",
                "indexes sensor_start of `buckets`",
                "view `readings`",
                "view `latest`",
                "view `hourly`",
                "role `tipbucketGateway` for the gateways' user",
            ],
        );
        let rich = Config {
            preset: Some(Preset::Measurements),
            retention: Some(Duration::from_secs(86_400)),
            collection: "r_{sensor}".into(),
            overflow_collection: Some("overflow".into()),
            ..Config::default()
        };
        check(
            &rich,
            &[
                "collection `overflow` with a validator",
                "indexes sensor_start, expire_at of `overflow`",
                "role `tipbucketGateway` for the gateways' user",
            ],
        );
    }

    #[test]
    fn the_role_allows_no_more_than_is_needed() {
        let (steps, _) = plan(&Config::default(), 1000, false);
        let role = &steps.last().unwrap().command;
        let first = role.get_array("privileges").unwrap()[0].as_document().unwrap();
        assert_eq!(
            first,
            &doc! { "resource": { "db": "telemetry", "collection": "buckets" }, "actions": ["insert", "find"] }
        );
    }

    #[test]
    fn modes_that_update_may_update_and_their_documents_are_let_in() {
        let of = |mode| plan(&Config { mode, ..Config::default() }, 1000, false).0;
        for mode in [Mode::Live, Mode::Append] {
            let steps = of(mode);
            let role = &steps.last().unwrap().command;
            let first = role.get_array("privileges").unwrap()[0].as_document().unwrap();
            let actions: Vec<_> = first.get_array("actions").unwrap().iter().filter_map(Bson::as_str).collect();
            assert_eq!(actions, ["insert", "find", "update"], "{mode:?}");
        }
        let required = |mode| {
            let steps = of(mode);
            let schema = steps[0].command.get_document("validator").ok()?.get_document("$jsonSchema").ok()?;
            Some(schema.get_array("required").ok()?.iter().any(|name| name.as_str() == Some("hash")))
        };
        assert_eq!([Mode::Buckets, Mode::Live, Mode::Append].map(required), [Some(true), Some(false), None]);
        assert_eq!(of(Mode::Append)[0].otherwise, None, "others' rules stay");
    }
}
