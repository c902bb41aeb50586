//! Messages of other devices and firmware than those of the corpus (`tests/variants/mqtt`), through the whole source.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tipbucket::decode::times;
use tipbucket::model::{Admission, Timestamp, Value};
use tipbucket::sources::mqtt::{Config, Replay, Replayed};

/// The lines of every file of a folder of variants, with the name of the file.
pub fn cases(folder: &str) -> Vec<(String, Json)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/variants").join(folder);
    let mut cases = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        cases.extend(text.lines().map(|line| (name.clone(), serde_json::from_str(line).unwrap())));
    }
    cases
}

/// The bytes of a case.
pub fn payload(case: &Json) -> Vec<u8> {
    match case["hex"].as_str() {
        Some(hex) => (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect(),
        None => case["payload"].as_str().unwrap().as_bytes().to_vec(),
    }
}

/// Whether what was told is what is wanted: refusals need only begin so.
pub fn is_wanted(wanted: &Json, told: &[String]) -> bool {
    let wanted: Vec<&str> = wanted.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let mut left: Vec<&String> = told.iter().collect();
    for line in &wanted {
        let found =
            left.iter().position(|told| if line.starts_with('!') { told.starts_with(line) } else { told == line });
        match found {
            Some(at) => drop(left.remove(at)),
            None => return false,
        }
    }
    left.is_empty()
}

fn value(value: &Value) -> Json {
    match value {
        Value::F64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::Text(v) => json!(v.as_ref()),
    }
}

fn told(seen: &Replayed, arrival: Timestamp) -> Vec<String> {
    let readings = seen.readings.iter().map(|reading| {
        let at = if reading.at == arrival { String::new() } else { format!("@{}", reading.at) };
        let mut fields: Vec<String> = reading.fields.iter().map(|(name, v)| format!(" {name}={}", value(v))).collect();
        fields.sort();
        format!("{}{at}{}", reading.sensor, fields.concat())
    });
    readings.chain(seen.refused.iter().map(|why| format!("! {why}"))).collect()
}

fn replayed(case: &Json) -> Vec<String> {
    let table = format!("url = 'mqtt://b'\nclient_id = 'g'\n{}\n", case["topics"].as_str().unwrap());
    let config: Config = toml::from_str(&table).unwrap();
    let zone = case.get("zone").map_or(Some("Europe/Amsterdam"), Json::as_str).map(|zone| times::zone(zone).unwrap());
    let admission = Admission { max_future: Duration::from_secs(600), max_age: None };
    let mut replay = Replay::new(&config, zone.as_ref(), admission).unwrap();
    let arrival = case["at"].as_str().unwrap_or("2026-03-01T12:00:00Z").parse::<jiff::Timestamp>().unwrap();
    let arrival = Timestamp::from_millis(arrival.as_millisecond()).unwrap();
    told(&replay.message(case["topic"].as_str().unwrap(), &payload(case), arrival), arrival)
}

#[test]
fn every_variant_becomes_what_it_should() {
    let cases = cases("mqtt");
    assert!(cases.len() >= 600, "only {} cases", cases.len());
    for (file, case) in cases {
        let told = replayed(&case);
        assert!(is_wanted(&case["want"], &told), "{file}: {case}\ngave {told:#?}");
    }
}
