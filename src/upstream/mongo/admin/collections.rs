//! `doctor`: the collections that are there, their options and indexes.

use mongodb::bson::{Bson, Document, doc};

use super::doctor::Finding;
use super::plan::indexes;
use super::{Admin, Local, script};
use crate::upstream::Mode;
use crate::upstream::mongo::client::is_series;

/// From so many gateways on a sharded cluster should be told how to split.
const MANY_GATEWAYS: u32 = 1000;

impl Admin {
    /// The collections that are there: their options and indexes.
    pub(super) async fn known(&mut self, known: &[Document], hello: &Document, local: Local, found: &mut Vec<Finding>) {
        let is_ours = |name: &str| {
            [Some(&self.config.collection), self.config.overflow_collection.as_ref()]
                .into_iter()
                .flatten()
                .any(|template| matches_template(template, name))
        };
        let ours: Vec<Document> = known.iter().filter(|one| one.get_str("name").is_ok_and(is_ours)).cloned().collect();
        if ours.is_empty() {
            found.push(Finding::advice(
                format!(
                    "there is no collection {} yet: the first bucket makes it, without indexes",
                    self.config.collection
                ),
                "tipbucket upstream init",
            ));
        }
        for collection in &ours {
            let Ok(name) = collection.get_str("name") else { continue };
            let name = name.to_owned();
            let wanted = if self.config.mode == Mode::Timeseries { "timeseries" } else { "collection" };
            let kind = collection.get_str("type").unwrap_or("collection");
            let is_wanted =
                if wanted == "timeseries" { is_series(collection) } else { kind == wanted && !is_series(collection) };
            if is_wanted && self.config.mode == Mode::Timeseries {
                found.push(Finding::ok(format!("{name} is a time series collection")));
                continue;
            }
            if !is_wanted {
                let kind = collection.get_str("type").unwrap_or_default();
                found.push(Finding::wrong(
                    format!("{name} is a {kind}, and upstream.mode wants a {wanted}"),
                    "name another one in upstream.collection",
                ));
                continue;
            }
            self.validator(&name, collection, found);
            self.indexes(&name, local, found).await;
        }
        let is_sharded = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
        let gateways = self.config.fleet_size.unwrap_or(1);
        if is_sharded || gateways >= MANY_GATEWAYS {
            let names = &self.shape.names;
            let key = format!("{{ {}: 1, {}: 1 }}", names.sensor, names.start);
            let namespace = format!("{}.{}", self.config.database, self.config.collection);
            found.push(Finding::advice(
                format!("{gateways} gateways: a sharded collection needs a key that spreads sensors and keeps a sensor's time together"),
                format!("sh.shardCollection(\"{namespace}\", {key}); or {{ _id: 1 }}, which needs no further index; never start first"),
            ));
        }
    }

    fn validator(&self, name: &str, collection: &Document, found: &mut Vec<Finding>) {
        let options = collection.get_document("options").cloned().unwrap_or_default();
        let validator = options.get_document("validator").cloned().unwrap_or_default();
        if let Some(field) = self.misses(&validator) {
            let words = format!(
                "the validator of {name} wants `{field}`, which not every document of mode = \"live\" or \"append\" has"
            );
            let remedy = match self.config.mode {
                Mode::Append => "leave it out of the validator's `required`, or use mode = \"buckets\"",
                _ => "tipbucket upstream init",
            };
            found.push(Finding::wrong(words, remedy));
        } else if validator.is_empty() && self.config.mode == Mode::Append {
            found.push(Finding::ok(format!("{name} has no validator")));
        } else if validator.is_empty() {
            found.push(Finding::advice(format!("{name} has no validator"), "tipbucket upstream init"));
        } else if options.get_str("validationAction").is_ok_and(|action| action == "warn") {
            found.push(Finding::ok(format!("{name} has a validator that only warns")));
        } else {
            found.push(Finding::ok(format!("{name} has a validator; what it refuses becomes a dead letter here")));
        }
        if options.get_bool("capped").unwrap_or(false) {
            found.push(Finding::wrong(
                format!("{name} is capped: old buckets are deleted as new ones come"),
                format!(
                    "db.runCommand({{ convertToCapped: … }}) cannot undo it: copy {name} into an ordinary collection"
                ),
            ));
        }
    }

    /// A field that a validator requires and documents of this mode lack.
    fn misses(&self, validator: &Document) -> Option<String> {
        let names = &self.shape.names;
        let lacking: &[&String] = match self.config.mode {
            Mode::Buckets | Mode::Timeseries => &[],
            Mode::Live => &[&names.hash, &names.sealed],
            Mode::Append => &[&names.hash, &names.sealed, &names.part, &names.store, &names.schema, &names.clock],
        };
        let required = validator.get_document("$jsonSchema").and_then(|schema| schema.get_array("required")).ok()?;
        let required: Vec<&str> = required.iter().filter_map(Bson::as_str).collect();
        lacking.iter().find(|name| required.contains(&name.as_str())).map(|name| (**name).clone())
    }

    async fn indexes(&mut self, name: &str, local: Local, found: &mut Vec<Finding>) {
        let database = self.config.database.clone();
        let Ok(known) = self.listed(&database, doc! { "listIndexes": name }).await else {
            found.push(Finding::advice(
                format!("the indexes of {name} cannot be looked at"),
                "run this as a user that may listIndexes (role read)",
            ));
            return;
        };
        for wanted in indexes(&self.config, &self.shape) {
            let key = wanted.get_document("key").cloned().unwrap_or_default();
            let is_there = known.iter().any(|index| {
                index.get_document("key").is_ok_and(|theirs| same_key(theirs, &key))
                    && index.contains_key("expireAfterSeconds") == wanted.contains_key("expireAfterSeconds")
            });
            let shown = script::document(&key);
            found.push(if is_there {
                Finding::ok(format!("{name} has the index {shown}"))
            } else {
                let command = doc! { "createIndexes": name, "indexes": [wanted] };
                Finding::advice(format!("{name} lacks the index {shown}"), script::line(&database, &command))
            });
        }
        for index in &known {
            self.index(name, index, local, found);
        }
    }

    /// An index that endangers delivery, or what is delivered.
    fn index(&self, name: &str, index: &Document, local: Local, found: &mut Vec<Finding>) {
        let key = index.get_document("key").cloned().unwrap_or_default();
        let label = index.get_str("name").unwrap_or("?");
        let drop = || {
            format!(
                "db.getSiblingDB(\"{}\").runCommand({{ dropIndexes: \"{name}\", index: \"{label}\" }})",
                self.config.database
            )
        };
        if index.get_bool("unique").unwrap_or(false) && !key.contains_key("_id") {
            found.push(Finding::wrong(
                format!(
                    "{name} has the unique index {}: buckets that meet another there become dead letters",
                    script::document(&key)
                ),
                drop(),
            ));
        }
        let seconds = index.get("expireAfterSeconds").and_then(|after| match after {
            Bson::Int32(after) => Some(i64::from(*after)),
            Bson::Int64(after) => Some(*after),
            Bson::Double(after) => Some(*after as i64),
            _ => None,
        });
        let Some(seconds) = seconds.filter(|_| !key.contains_key(&self.shape.names.expire_at)) else { return };
        let field = key.keys().next().cloned().unwrap_or_default();
        let age = local.oldest.map_or(0, |oldest| local.now.since(oldest).as_secs() as i64);
        let words = format!(
            "{name} deletes documents {seconds} s after {field}, however late they arrive; the oldest bucket that waits here is {age} s old"
        );
        let remedy = format!(
            "{}; set upstream.retention, which counts from the arrival too, and run tipbucket upstream init",
            drop()
        );
        found.push(if age >= seconds { Finding::wrong(words, remedy) } else { Finding::advice(words, remedy) });
    }
}

fn same_key(a: &Document, b: &Document) -> bool {
    // A server may give 1 back as another kind of number.
    let plain = |key: &Document| -> Vec<(String, Option<i64>)> {
        key.iter()
            .map(|(name, way)| {
                let way = match way {
                    Bson::Int32(way) => Some(i64::from(*way)),
                    Bson::Int64(way) => Some(*way),
                    Bson::Double(way) => Some(*way as i64),
                    _ => None,
                };
                (name.clone(), way)
            })
            .collect()
    };
    plain(a) == plain(b)
}

/// Whether a name may have been made from a template such as `r_{sensor}`.
fn matches_template(template: &str, name: &str) -> bool {
    let parts: Vec<&str> = template.split("{sensor}").flat_map(|part| part.split("{site}")).collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 {
        return template == name;
    }
    name.len() >= first.len() + last.len() && name.starts_with(first) && name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_are_recognised_by_their_template() {
        for (template, name, ours) in [
            ("buckets", "buckets", true),
            ("buckets", "buckets2", false),
            ("r_{sensor}", "r_boiler", true),
            ("r_{sensor}", "s_boiler", false),
            ("{site}.{sensor}_x", "a.b_x", true),
            ("{sensor}xx", "x", false),
        ] {
            assert_eq!(matches_template(template, name), ours, "{template} {name}");
        }
    }
}
