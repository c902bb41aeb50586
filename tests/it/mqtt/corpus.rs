//! Payloads as real devices send them, good and bad (`tests/corpus/mqtt`), and what must be taken from each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;
use tipbucket::decode::json::{Decoder, Pointer, Shape};
use tipbucket::decode::{number, times};
use tipbucket::model::{Admission, Fields, Timestamp, Value};

/// When every sample arrived: 2026-03-01T12:00:00Z.
const ARRIVAL_MS: i64 = 1_772_366_400_000;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "corpus", "mqtt"].iter().collect()
}

fn lines(file: &str) -> Vec<Json> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The payload of a sample, whatever its file is called.
fn payload(id: &str) -> Vec<u8> {
    let found = ["json", "txt", "bin"].iter().find_map(|ext| std::fs::read(folder().join(format!("{id}.{ext}"))).ok());
    found.unwrap_or_else(|| panic!("{id} has no payload"))
}

fn arrival() -> Timestamp {
    Timestamp::from_millis(ARRIVAL_MS).unwrap()
}

fn decoder(time: Option<&str>) -> Decoder {
    // Europe/Amsterdam, written so that no zone database is needed.
    let zone = times::zone("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
    Decoder::new(Shape { time: time.map(|t| Pointer::new(t).unwrap()), zone: Some(zone), ..Shape::default() })
}

/// Readings as (time, field → value), times that are not believed left out, and whether something was refused.
type Seen = (Vec<(Timestamp, BTreeMap<String, Value>)>, bool);

fn seen(decoder: &mut Decoder, payload: &[u8]) -> Seen {
    let Ok(decoded) = decoder.decode(payload, arrival()) else { return (Vec::new(), true) };
    let admission = Admission { max_future: Duration::from_secs(600), max_age: None };
    let mut refused = !decoded.refused.is_empty();
    let mut readings = Vec::new();
    for measured in decoded.readings {
        let at = measured.at.unwrap_or(arrival());
        if admission.check(at, arrival()).is_err() {
            refused = true;
            continue;
        }
        readings.push((at, named(measured.fields)));
    }
    (readings, refused)
}

fn named(fields: Fields) -> BTreeMap<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

/// A sample's expected value in our type.
fn value(expected: &Json) -> Value {
    let v = &expected["value"];
    match expected["type"].as_str().unwrap() {
        "f64" => Value::float(v.as_f64().unwrap()).unwrap(),
        "i64" => Value::I64(v.as_i64().unwrap()),
        "bool" => Value::Bool(v.as_bool().unwrap()),
        other => panic!("type {other}"),
    }
}

fn check(expect: &Json) {
    let id = expect["id"].as_str().unwrap();
    let time = id.starts_with("MQ-BAT").then_some("/ts");
    let (readings, refused) = seen(&mut decoder(time), &payload(id));
    let outcome = expect["outcome"].as_str().unwrap();
    let ours = match (readings.is_empty(), refused) {
        (false, false) => "accept",
        (false, true) => "partial",
        (true, _) => "reject",
    };
    assert_eq!(ours, outcome, "{id}: {readings:?}");
    for expected in expect["readings"].as_array().unwrap() {
        let field = expected["field"].as_str().unwrap().replace('.', "_");
        let (wanted, at) = (value(expected), expected["time"].as_str().unwrap());
        // A key may be empty in JSON but not in a database; and of two values for one name the first is kept.
        if id == "MQ-BAD-18" && (field.is_empty() || wanted == Value::I64(3)) {
            continue;
        }
        let found = readings.iter().any(|(t, fields)| {
            let in_time = if at == "arrival" { *t == arrival() } else { t.to_string() == at };
            in_time && fields.get(&field) == Some(&wanted)
        });
        assert!(found, "{id}: {field} = {wanted:?} at {at} in {readings:?}");
    }
}

#[test]
fn json_samples_are_taken_refused_or_taken_in_part() {
    let mut checked = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".expect.json") {
            let expect: Json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            check(&expect);
            checked += 1;
        }
    }
    assert_eq!(checked, 21);
}

#[test]
fn large_samples_are_bounded() {
    // MQ-BAD-11: exactly 1 MiB, most of it a text that nobody asked for.
    let pad = "x".repeat((1 << 20) - br#"{"t":21.5,"pad":""}"#.len());
    let (readings, refused) = seen(&mut decoder(None), format!(r#"{{"t":21.5,"pad":"{pad}"}}"#).as_bytes());
    assert_eq!((readings.len(), refused), (1, false));
    // MQ-BAD-27: a key of 70,001 bytes.
    let reason = decoder(None).decode(format!(r#"{{"{}":1}}"#, "k".repeat(70_001)).as_bytes(), arrival()).unwrap_err();
    assert!(reason.contains("field name has 70001 bytes") && reason.len() < 300, "{reason}");
}

#[test]
fn plain_tokens_are_numbers_or_refused() {
    for line in lines("MQ-TXT.tokens.jsonl") {
        let id = line["id"].as_str().unwrap();
        let hex = line["payload_hex"].as_str().unwrap();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        let got = number::decode(&bytes);
        match (id, line["outcome"].as_str().unwrap()) {
            // Switch states are booleans to us.
            ("MQ-TXT-26" | "MQ-TXT-27", _) => assert_eq!(got, Ok(Value::Bool(true)), "{id}"),
            (_, "accept") => {
                let same = match (got.clone().unwrap(), &line["value"]) {
                    (Value::F64(v), wanted) => wanted.as_f64() == Some(v),
                    (Value::I64(v), wanted) => wanted.as_i64() == Some(v) || wanted.as_f64() == Some(v as f64),
                    (Value::U64(v), wanted) => wanted.as_u64() == Some(v),
                    _ => false,
                };
                assert!(same, "{id}: {got:?} against {}", line["value"]);
            }
            (_, "reject" | "ignore") => assert!(got.is_err(), "{id}: {got:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn times_are_told_by_their_form_or_refused() {
    for line in lines("MQ-TIM.times.jsonl") {
        let id = line["id"].as_str().unwrap();
        let (readings, _) = seen(&mut decoder(Some("/ts")), line["payload"].as_str().unwrap().as_bytes());
        let at = readings.first().map(|(at, _)| at.to_string());
        let expect = line["expect"].as_str().unwrap();
        match id {
            // The unit is told by the size of the number, not declared.
            "MQ-TIM-29" | "MQ-TIM-30" => assert!(at.is_some(), "{id}"),
            // A local time in October is in the future here, one in the hour that spring leaves out is none; and forms other
            // than RFC 3339 are refused.
            "MQ-TIM-21" | "MQ-TIM-22" | "MQ-TIM-24" | "MQ-TIM-36" => assert_eq!(at, None, "{id}"),
            // Either way, but no panic: a leap second, hour 24, an ordinal date.
            "MQ-TIM-18" | "MQ-TIM-20" | "MQ-TIM-40" => {}
            _ if expect == "reject" => assert_eq!(at, None, "{id}"),
            _ if expect == "arrival" => assert_eq!(at, Some(arrival().to_string()), "{id}"),
            _ => assert_eq!(at, Some(format!("{}Z", &expect[..23])), "{id}"),
        }
    }
}
