//! The recorded streams in `tests/corpus/serial`, through the pure decoders, whole and cut in odd places.

use std::path::{Path, PathBuf};

use super::{Context, Decoder, Telegram};
use crate::decode::times::{self, Local};
use crate::model::{Admission, Timestamp, Value};

/// How streams are cut: byte by byte, in odd pieces, and not at all.
const CHUNKS: [usize; 4] = [1, 7, 33, usize::MAX];

/// One sample: its bytes from the device, in pieces, and what is expected of it.
pub(crate) struct Sample {
    pub(crate) id: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) expect: serde_json::Value,
}

/// All samples of one family.
pub(crate) fn family(name: &str) -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/serial").join(name);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| !path.to_str().unwrap().ends_with(".expect.json"));
    paths.sort();
    paths.iter().map(|path| sample(path)).collect()
}

fn sample(path: &Path) -> Sample {
    let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let bytes = std::fs::read(path).unwrap();
    let bytes = if path.extension().is_some_and(|e| e == "hex") { from_device(&bytes) } else { bytes };
    let expect = std::fs::read(path.with_file_name(format!("{id}.expect.json"))).unwrap();
    Sample { id, bytes, expect: serde_json::from_slice(&expect).unwrap() }
}

/// What the device sends in a dialogue.
fn from_device(text: &[u8]) -> Vec<u8> {
    let lines = std::str::from_utf8(text).unwrap().lines().filter_map(|line| line.strip_prefix("< "));
    lines.flat_map(|line| line.split_whitespace().map(|hex| u8::from_str_radix(hex, 16).unwrap())).collect()
}

/// Everything a decoder makes of some bytes that come in pieces of this size.
pub(crate) fn decode(mut decoder: impl Decoder, bytes: &[u8], size: usize, arrival: Timestamp) -> Vec<Telegram> {
    let zone = times::zone("Europe/Amsterdam").unwrap();
    let local = Local { zone: Some(&zone), arrival };
    let context =
        Context { local, admission: Admission { max_future: std::time::Duration::from_secs(600), max_age: None } };
    let mut out = Vec::new();
    bytes.chunks(size.min(bytes.len().max(1))).for_each(|chunk| decoder.push(chunk, &context, &mut out));
    decoder.finish(&context, &mut out);
    out
}

/// 2026-03-01T12:00:00Z.
pub(crate) const NOON: Timestamp = Timestamp::clamped(1_772_366_400_000);

fn timestamp(text: &serde_json::Value) -> Timestamp {
    let at: jiff::Timestamp = text.as_str().unwrap().parse().unwrap();
    Timestamp::from_millis(at.as_millisecond()).unwrap()
}

/// Whether a value is the one expected, in type and size.
pub(crate) fn is_same(got: &Value, expected: &serde_json::Value) -> bool {
    match (got, expected["type"].as_str().unwrap()) {
        (Value::F64(v), "f64") => (v - expected["value"].as_f64().unwrap()).abs() <= 1e-9 * v.abs().max(1.0),
        (Value::I64(v), "i64") => Some(*v) == expected["value"].as_i64(),
        (Value::Bool(v), "bool") => Some(*v) == expected["value"].as_bool(),
        _ => false,
    }
}

/// Every sample of a family gives what it should, however its bytes are cut.
pub(crate) fn check_family<D: Decoder>(name: &str, decoder: impl Fn() -> D) {
    let samples = family(name);
    assert!(!samples.is_empty(), "no samples of {name}");
    for sample in &samples {
        let arrival = timestamp(&sample.expect["received_at"]);
        let whole = decode(decoder(), &sample.bytes, usize::MAX, arrival);
        check(sample, &whole);
        for size in CHUNKS {
            let pieces = decode(decoder(), &sample.bytes, size, arrival);
            assert_eq!(pieces, whole, "{} in pieces of {size} bytes", sample.id);
        }
    }
}

fn check(sample: &Sample, telegrams: &[Telegram]) {
    let id = &sample.id;
    let got: Vec<_> = telegrams.iter().flat_map(|telegram| &telegram.measures).collect();
    for expected in sample.expect["readings"].as_array().unwrap() {
        let at = &expected["time"];
        let at = (at != "arrival").then(|| timestamp(at));
        let field = expected["field"].as_str().unwrap();
        let is = |unit: &Option<String>| expected["unit"].as_str().is_none_or(|u| unit.as_deref() == Some(u));
        let found = got.iter().any(|m| m.name == field && is_same(&m.value, expected) && m.at == at && is(&m.unit));
        assert!(found, "{id}: {expected} is not among {got:#?}");
    }
    let refused: usize = telegrams.iter().map(|telegram| telegram.refused.len() + telegram.untimely.len()).sum();
    match sample.expect["outcome"].as_str().unwrap() {
        "accept" => assert_eq!(refused, 0, "{id}: {telegrams:#?}"),
        "partial" => assert!(refused > 0, "{id}"),
        "reject" => assert!(refused > 0 && got.is_empty(), "{id}: {got:?}"),
        "ignore" => assert!(refused == 0 && got.is_empty(), "{id}: {telegrams:#?}"),
        other => panic!("{other}"),
    }
}
