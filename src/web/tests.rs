//! What the pages tell is what `docs/OPERATIONS.md` says they tell.

use std::sync::Arc;

use super::{Status, Subject, metrics};
use crate::clock::Clock;
use crate::model::{SiteName, SourceName, Timestamp};
use crate::stats::Stats;

const PAGE: &str = include_str!("../../docs/OPERATIONS.md");

fn subject() -> Subject {
    let stats = Stats::default();
    stats.source(&SourceName::new("boiler").unwrap(), "modbus-rtu");
    Subject { site: SiteName::new("x").unwrap(), started: Timestamp::EPOCH, stats, clock: Clock::system() }
}

/// The part of the page about status and metrics.
fn section() -> &'static str {
    let (_, rest) = PAGE.split_once("\n## Status\n").unwrap();
    rest.split("\n## ").next().unwrap()
}

/// Names of fields, at every depth.
fn keys_of(value: &serde_json::Value, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| {
            into.push(key.clone());
            keys_of(value, into);
        }),
        serde_json::Value::Array(list) => list.iter().for_each(|value| keys_of(value, into)),
        _ => {}
    }
}

/// `a_{b,c}_d` is `a_b_d` and `a_c_d`; labels are left out.
fn expanded(name: &str) -> Vec<String> {
    let name = ["{source,", "{reason"].iter().fold(name, |name, label| name.split(label).next().unwrap_or(name));
    match name.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?))) {
        Some((head, (middle, tail))) => middle.split(',').map(|word| format!("{head}{word}{tail}")).collect(),
        None => vec![name.to_owned()],
    }
}

#[test]
fn every_field_of_the_status_is_documented() {
    let mut keys = Vec::new();
    keys_of(&serde_json::to_value(Status::of(&subject())).unwrap(), &mut keys);
    assert!(keys.len() > 40, "{keys:?}");
    let words: Vec<_> = section().split(|c: char| !c.is_alphanumeric() && !"_-".contains(c)).collect();
    for key in keys {
        assert!(words.contains(&key.as_str()), "docs/OPERATIONS.md does not mention `{key}` of /status.json");
    }
}

#[test]
fn the_metrics_are_those_that_are_documented() {
    let text = metrics::render(&Arc::new(subject())).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut there: Vec<_> = lines.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect();
    let names = section().split('`').filter(|code| code.starts_with("tipbucket_") && !code.contains(' '));
    let mut documented: Vec<_> = names.flat_map(expanded).collect();
    for list in [&mut there, &mut documented] {
        list.sort();
        list.dedup();
    }
    assert_eq!(documented, there);
}
