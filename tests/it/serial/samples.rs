//! The recorded samples of `tests/corpus/serial`: how each is read, and what must come of it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

/// One sample.
pub struct Sample {
    pub id: String,
    pub family: String,
    pub path: PathBuf,
    pub expect: Json,
}

/// What a source made of it.
#[derive(Debug, Default)]
pub struct Got {
    /// Sensor, time, field and value.
    pub fields: Vec<(String, String, String, Json)>,
    /// What and why.
    pub refused: Vec<String>,
}

/// Every sample but the one that mixes the frames of six makers in one stream.
pub fn all() -> Vec<Sample> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/serial");
    let mut samples = Vec::new();
    for folder in std::fs::read_dir(top).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let family = folder.file_name().unwrap().to_str().unwrap().to_owned();
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if id.ends_with(".expect") || id == "SE-SCL-03" {
                continue;
            }
            let expect = std::fs::read(path.with_file_name(format!("{id}.expect.json"))).unwrap();
            let expect = serde_json::from_slice(&expect).unwrap();
            samples.push(Sample { id, family: family.clone(), path, expect });
        }
    }
    samples.sort_by(|a, b| a.id.cmp(&b.id));
    assert!(samples.len() >= 63, "only {} samples", samples.len());
    samples
}

impl Sample {
    /// The table of its source, with this port.
    pub fn table(&self, port: &Path) -> Json {
        let sites = include_str!("../../corpus/serial/sites.toml").parse::<toml::Table>().unwrap();
        let table = sites.get(&self.id).or_else(|| sites.get(&self.family));
        let table = table.unwrap_or_else(|| panic!("sites.toml has no table for {}", self.id));
        let mut table = serde_json::to_value(table).unwrap();
        let members = table.as_object_mut().unwrap();
        members.insert("port".to_owned(), json!(port));
        if self.family == "modbus" {
            members.insert("devices".to_owned(), json!([self.device()]));
        }
        table
    }

    /// The device that the sample's map describes.
    fn device(&self) -> Json {
        let map = self.expect["map"].as_array().unwrap();
        let registers: Vec<Json> = map.iter().map(register).collect();
        let first = std::fs::read_to_string(&self.path).unwrap();
        let request = first.lines().find_map(|line| line.strip_prefix("> ")).unwrap();
        let unit = u8::from_str_radix(&request[..2], 16).unwrap();
        json!({ "sensor": "sample", "unit_id": unit, "registers": registers })
    }

    /// Whether what came of it is what is expected.
    pub fn check(&self, got: &Got) {
        let id = &self.id;
        let received_at = self.expect["received_at"].as_str().unwrap();
        for expected in self.expect["readings"].as_array().unwrap() {
            let field = expected["field"].as_str().unwrap().replace(['.', '$'], "_");
            let at = expected["time"].as_str().filter(|time| *time != "arrival").unwrap_or(received_at);
            let found = got.fields.iter().any(|(sensor, time, name, value)| {
                let series = expected["series"].as_str().is_none_or(|series| series == sensor);
                *name == field && time == at && series && is_same(value, expected)
            });
            assert!(found, "{id}: {expected} is not among {got:#?}");
        }
        match self.expect["outcome"].as_str().unwrap() {
            "accept" => assert!(got.refused.is_empty(), "{id}: {got:#?}"),
            "partial" => assert!(!got.refused.is_empty(), "{id}: {got:#?}"),
            "reject" => assert!(!got.refused.is_empty() && got.fields.is_empty(), "{id}: {got:#?}"),
            "ignore" => assert!(got.refused.is_empty() && got.fields.is_empty(), "{id}: {got:#?}"),
            other => panic!("{id}: {other}"),
        }
    }
}

fn register(map: &Json) -> Json {
    let known = ["table", "address", "type", "order", "unit", "min", "max", "offset", "invalid"];
    let mut register: Map<String, Json> = map
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| known.contains(&key.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    register.insert("field".to_owned(), map["name"].clone());
    if map["scale"] != 1 {
        register.insert("scale".to_owned(), map["scale"].clone());
    }
    if let Some(exponent) = map.get("sf") {
        register.insert("scale_register".to_owned(), exponent.clone());
    }
    Json::Object(register)
}

fn is_same(got: &Json, expected: &Json) -> bool {
    let expected_value = &expected["value"];
    match expected["type"].as_str().unwrap() {
        "f64" => {
            got.is_f64()
                && got
                    .as_f64()
                    .zip(expected_value.as_f64())
                    .is_some_and(|(a, b)| (a - b).abs() <= 1e-9 * b.abs().max(1.0))
        }
        _ => got == expected_value,
    }
}
