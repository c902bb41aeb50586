//! Streams into readings, over a pipe in memory.
#![allow(clippy::needless_pass_by_value)]

use std::path::Path;

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::clock::Clock;
use crate::model::{Admission, DeadLetter, SourceName, Value};
use crate::stats::Stats;

fn line(settings: serde_json::Value) -> Line {
    let mut table = json!({ "port": "p" });
    table.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let table: ::config::Value = serde_json::from_value(table).unwrap();
    crate::sources::table::read::<Config>(table).unwrap().checked().unwrap()
}

fn intake() -> (Intake, crate::store::Deliveries) {
    let name = SourceName::new("text").unwrap();
    let (inlet, deliveries) = crate::store::inlet();
    let clock = Clock::virtual_from(Timestamp::from_millis(1_772_366_400_000).unwrap());
    let stats = Stats::default().source(&name, "line");
    let admission = Admission { max_future: Duration::from_secs(600), max_age: None };
    (Intake { clock, stats, admission, timezone: None, name, inlet }, deliveries)
}

/// What comes of a stream that arrives in these pieces and then hangs up.
async fn read(mut line: Line, pieces: &[&[u8]]) -> (Vec<Reading>, Vec<DeadLetter>, Intake) {
    let (intake, mut deliveries) = intake();
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    let feed = async move {
        for piece in pieces {
            theirs.write_all(piece).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (end, ()) = tokio::join!(line.serve(ours, &intake), feed);
    assert!(matches!(end, End::Line(_)));
    let mut all = (Vec::new(), Vec::new());
    while let Some((delivery, _)) = deliveries.try_next() {
        all.0.extend(delivery.readings);
        all.1.extend(delivery.dead_letters);
    }
    (all.0, all.1, intake)
}

fn one_number() -> serde_json::Value {
    json!({ "sensor": "s", "decode": "csv", "columns": ["v"] })
}

async fn check(settings: serde_json::Value, pieces: &[&[u8]], values: &[f64], reasons: &[&str]) {
    let (readings, letters, intake) = read(line(settings), pieces).await;
    let got: Vec<f64> = readings.iter().flat_map(|r| &r.fields).map(|(_, value)| number(value)).collect();
    assert_eq!(got, values);
    assert_eq!(letters.len(), reasons.len(), "{letters:?}");
    for (letter, reason) in letters.iter().zip(reasons) {
        assert!(letter.reason.contains(reason), "{letter:?} lacks {reason}");
    }
    assert_eq!(intake.stats.refused.get(), reasons.len() as u64);
}

fn number(value: &Value) -> f64 {
    match value {
        Value::F64(v) => *v,
        Value::I64(v) => *v as f64,
        Value::Bool(v) => f64::from(u8::from(*v)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_line_gives_a_reading_however_it_arrives() {
    check(one_number(), &[b"1\r\n2\n\n3", b".5\n4"], &[1.0, 2.0, 3.5], &[]).await;
    let (readings, _, intake) = read(line(one_number()), &[b"1\n1\n1\n"]).await;
    assert_eq!(readings.len(), 3);
    assert_eq!(intake.stats.messages.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_kept_and_stops_nothing() {
    let garbage: &[u8] = &[0xff, 0xfe, b'\n', 0, b'\n'];
    check(one_number(), &[b"1\n", garbage, b"2\n"], &[1.0, 2.0], &["not UTF-8 from byte 0", "not a number"]).await;
    let endless = vec![b'x'; 5000];
    check(one_number(), &[b"1\n", &endless, &endless, b"\n2\n"], &[1.0, 2.0], &["longer than max_line"]).await;
}

#[tokio::test(start_paused = true)]
async fn lines_that_all_fail_and_long_silences_are_told() {
    let (_, _, intake) = read(line(one_number()), &[b"1\n", &b"?\n".repeat(10)]).await;
    let state = intake.stats.condition.get();
    assert!(state.up == Some(false) && state.detail.contains("the last 10 lines could not be read"), "{state:?}");
    let (_, _, intake) = read(line(one_number()), &[b"1\n", &b"?\n".repeat(10), b"2\n"]).await;
    assert_eq!(intake.stats.condition.get().up, Some(true));

    let mut settings = one_number();
    settings["silent_after"] = json!("1s");
    let (ours, _theirs) = tokio::io::duplex(64);
    let intake = super::tests::intake().0;
    let mut line = line(settings);
    let _ = tokio::time::timeout(Duration::from_millis(2500), line.serve(ours, &intake)).await;
    let state = intake.stats.condition.get();
    assert!(state.detail.contains("nothing came from p for 1s") && state.failures == 2, "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_garbage_is_counted_but_not_kept_whole() {
    let flood = b"?\n".repeat(5000);
    let (readings, letters, intake) = read(line(one_number()), &[b"1\n", &flood]).await;
    assert_eq!((readings.len(), letters.len()), (1, 100));
    assert_eq!(intake.stats.refused.get(), 5000);
}

#[tokio::test(start_paused = true)]
async fn a_first_line_without_its_beginning_is_dropped() {
    check(one_number(), &[b"x5\n2\n"], &[2.0], &[]).await;
    let pairs = json!({ "sensor": "s", "decode": "key-value" });
    check(pairs, &[b"5 hum=44\nhum=45\n"], &[45.0], &[]).await;
    let mut dropping = one_number();
    dropping["drop_first"] = json!(true);
    check(dropping, &[b"5\n21.5\n"], &[21.5], &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_time_that_cannot_be_is_refused() {
    let settings = json!({ "sensor": "s", "decode": "csv", "columns": ["at", "v"], "time_field": "at" });
    let lines: &[u8] = b"2026-03-01T12:00:00Z,1\n0,2\n2026-03-02T12:00:00Z,3\n";
    check(settings, &[lines], &[1.0], &["before 2000", "ahead of the gateway's clock"]).await;
}

/// The samples in `tests/corpus/serial/lines`, each with the settings that fit it.
#[tokio::test(start_paused = true)]
async fn every_sample_stream_gives_what_it_should() {
    let pattern = "^(?<t>.{8}) *C *(?<h>[^ ]+) % *(?<p>[^ ]+)hPa$";
    let sensor_line = "^(?<id>[0-9A-F]{16}): (?<v>[-0-9.]+)$";
    let cases = [
        ("02", json!({ "decode": "csv", "columns": ["a", "b", "c"], "separator": ";", "decimal": "," }), 1),
        ("03", json!({ "decode": "key-value", "fields": ["temp", "hum"] }), 3),
        ("06", one_number(), 0),
        ("07", json!({ "decode": "regex", "pattern": pattern }), 2),
        (
            "08",
            json!({ "decode": "regex", "pattern": sensor_line, "sensor_field": "id", "invalid": { "v": [-127, 85] } }),
            0,
        ),
        ("10", json!({ "decode": "csv", "columns": ["a", "b", "_"], "strip": ["^[$#]", "\\*[0-9A-F]{2}$"] }), 0),
    ];
    for (id, mut settings, letters) in cases {
        if settings.get("sensor_field").is_none() {
            settings["sensor"] = json!("sample");
        }
        sample(id, settings, letters).await;
    }
}

async fn sample(id: &str, settings: serde_json::Value, letters_expected: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/serial/lines");
    let bytes = std::fs::read(folder.join(format!("SE-LIN-{id}.txt"))).unwrap();
    let expect = std::fs::read_to_string(folder.join(format!("SE-LIN-{id}.expect.json"))).unwrap();
    let expect: serde_json::Value = serde_json::from_str(&expect).unwrap();
    let (readings, letters, _) = read(line(settings), &[&bytes]).await;
    let mut got: Vec<_> = readings.iter().flat_map(|r| r.fields.iter().map(move |f| (&r.sensor, f))).collect();
    for expected in expect["readings"].as_array().unwrap() {
        let position = got.iter().position(|(sensor, (name, value))| {
            let right_type = matches!(
                (value, expected["type"].as_str()),
                (Value::F64(_), Some("f64")) | (Value::I64(_), Some("i64"))
            );
            let right_sensor = expected["series"].as_str().is_none_or(|series| sensor.as_str() == series);
            let right_value = expected["value"].as_f64() == Some(number(value));
            expected["field"] == name.as_str() && right_sensor && right_type && right_value
        });
        got.remove(position.unwrap_or_else(|| panic!("{id}: {expected} is not among {got:?}")));
    }
    let got: Vec<_> = got.iter().map(|(_, (name, value))| (name.as_str(), number(value))).collect();
    // Separators are taken leniently: the sample says that these values are right then.
    let lenient = [("temp", 21.6), ("hum", 45.0), ("temp", 21.7), ("hum", 46.0)];
    assert_eq!(got, if id == "03" { &lenient[..] } else { &[] }, "{id}");
    assert_eq!(letters.len(), letters_expected, "{id}: {letters:?}");
}

/// Six frames of one weight, each by the rule of its maker.
#[tokio::test(start_paused = true)]
async fn frames_of_scales_are_read_by_the_rule_of_their_maker() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/serial/scales");
    let stream = std::fs::read(folder.join("SE-SCL-03.txt")).unwrap();
    let rules = [
        ("\u{3}", r"\x02 *(?<weight>[0-9.]+)$", ".", 1.0),
        ("\r", r"\x02 *(?<weight>[0-9]+\.[0-9]+)$", ".", 1.0),
        ("\r", r"\x02 *(?<weight>[0-9]+)$", ".", 0.001),
        ("\r\n", r"PESO: *(?<weight>[0-9,]+) KG$", ",", 1.0),
        ("\r", r"^ *(?<weight>[0-9.]+) kg$", ".", 1.0),
        ("\n", r"\r(?<weight>[0-9.]+) kg$", ".", 1.0),
    ];
    for (delimiter, pattern, decimal, scale) in rules {
        let settings = json!({ "sensor": "scale", "decode": "regex", "pattern": pattern, "delimiter": delimiter,
            "decimal": decimal, "scale": { "weight": scale } });
        let (readings, ..) = read(line(settings), &[b"\x03\r\n", &stream]).await;
        let weights: Vec<f64> = readings.iter().map(|r| number(&r.fields[0].1)).collect();
        assert_eq!(weights, [1.25], "{delimiter:?} {pattern}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_format_is_told() {
    let parity: Vec<u8> = b"temp=21.5 hum=44".iter().map(|b| b | ((b.count_ones() % 2) as u8) << 7).collect();
    let lines = [&parity[..], b"\n"].concat().repeat(12);
    let (_, _, intake) = read(line(one_number()), &[&lines]).await;
    let state = intake.stats.condition.get();
    assert!(state.detail.contains("it looks like 7E1 seen through 8N1"), "{state:?}");
}

#[test]
fn contradictions_are_named() {
    let check = |settings: serde_json::Value, path: &str, words: &str| {
        let mut table = json!({ "port": "p" });
        table.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let table: ::config::Value = serde_json::from_value(table).unwrap();
        let found =
            crate::sources::SourceConfig::contradictions(&crate::sources::table::read::<Config>(table).unwrap());
        assert!(found.iter().any(|(p, w)| p == path && w.contains(words)), "{path}: {words} is not among {found:?}");
    };
    check(json!({ "decode": "csv", "columns": ["a"] }), "sensor", "sensor_field");
    check(json!({ "decode": "regex", "sensor": "s" }), "pattern", "named groups");
    check(json!({ "decode": "regex", "sensor": "s", "pattern": "(" }), "pattern", "no regular expression");
    check(json!({ "decode": "regex", "sensor": "s", "pattern": "a" }), "pattern", "named groups");
    check(json!({ "decode": "csv", "sensor": "s" }), "columns", "no column");
    check(json!({ "decode": "csv", "sensor": "s", "columns": ["a", "a"] }), "columns", "two fields bear the name `a`");
    check(json!({ "decode": "csv", "sensor": "s", "columns": ["a"], "separator": "ab" }), "separator", "one character");
    check(json!({ "decode": "csv", "sensor": "s", "columns": ["a"], "decimal": "," }), "separator", "both a comma");
    check(json!({ "decode": "csv", "sensor": "s", "columns": ["a"], "pattern": "x" }), "pattern", "no meaning");
    check(json!({ "decode": "csv", "sensor": "s", "columns": ["a"], "units": { "b": "V" } }), "units.b", "not among");
    check(json!({ "decode": "csv", "sensor_field": "x", "columns": ["a"] }), "sensor_field", "not among");
    check(json!({ "decode": "json", "sensor": "s", "fields": { "a": "b" } }), "fields.a", "no JSON pointer");
    check(json!({ "decode": "key-value", "sensor": "s", "separator": "=" }), "separator", "in common");
    check(json!({ "decode": "json", "sensor": "s", "delimiter": "" }), "delimiter", "bytes");
    check(json!({ "decode": "json", "sensor": "s", "delimiter": ["\r\n", "\n"] }), "delimiter", "one byte");
    check(json!({ "decode": "fixed", "sensor": "s" }), "fixed", "places of values");
    check(json!({ "decode": "csv", "sensor": "s", "columns": ["a"], "prefix": "x" }), "prefix", "no meaning");
    check(
        json!({ "decode": "csv", "sensor": "s", "columns": ["a"], "scale": { "a": 0 } }),
        "scale.a",
        "every value would be 0",
    );
    check(json!({ "decode": "csv", "sensor": "s", "columns": ["a"], "scale": { "b": 2 } }), "scale.b", "not among");
    check(json!({ "decode": "json", "sensor": "s", "max_line": 0 }), "max_line", "not between");
    check(json!({ "decode": "json", "sensor": "", "skip": ["("] }), "sensor", "empty");
    check(json!({ "decode": "json", "sensor": "", "skip": ["("] }), "skip", "no regular expression");
}
