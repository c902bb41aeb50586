//! What is believed of what was found, through a whole source without a broker.

use std::time::Duration;

use crate::decode::times;
use crate::model::{Admission, Timestamp};
use crate::sources::mqtt::{Config, Replay};

/// 2026-03-01T12:00:00Z.
const ARRIVAL_MS: i64 = 1_772_366_400_000;

fn replay(topic: &str) -> Replay {
    let table = format!("url = 'mqtt://b'\nclient_id = 'g'\n[[topics]]\nfilter = '#'\n{topic}");
    let config: Config = toml::from_str(&table).unwrap();
    assert_eq!(config.find_contradictions(), [], "{topic}");
    let zone = times::zone("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
    Replay::new(&config, Some(&zone), Admission { max_future: Duration::from_secs(600), max_age: None }).unwrap()
}

/// Readings as `sensor@seconds name=value …` (seconds after the arrival, if it is not that), then `~note` and `!reason`.
fn told(replay: &mut Replay, topic: &str, payload: &str, seconds: u64) -> Vec<String> {
    let now = Timestamp::from_millis(ARRIVAL_MS).unwrap().plus(Duration::from_secs(seconds));
    let seen = replay.message(topic, payload.as_bytes(), now);
    let mut told: Vec<String> = seen
        .readings
        .iter()
        .map(|reading| {
            let fields: Vec<_> = reading.fields.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            let offset = (reading.at.as_millis() - now.as_millis()) / 1000;
            let at = if offset == 0 { String::new() } else { format!("@{offset}") };
            format!("{}{at} {}", reading.sensor, fields.join(" "))
        })
        .collect();
    told.extend(seen.notes.iter().map(|note| format!("~{note}")));
    told.extend(seen.refused.iter().map(|reason| format!("!{reason}")));
    told
}

#[track_caller]
fn check(topic: &str, payload: &str, expected: &[&str]) {
    assert_eq!(told(&mut replay(topic), "a/b", payload, 0), expected, "{topic} {payload}");
}

#[test]
fn readings_of_one_instant_are_one_reading() {
    let topic = "time = '/ts'";
    check(
        topic,
        r#"[{"ts":1772366390,"t":1},{"ts":1772366390,"t":1},{"ts":1772366390,"h":2},{"ts":1772366390,"t":9},{"t":1},{"t":1}]"#,
        &[
            "a/b@-10 t=I64(1) h=I64(2)",
            "a/b t=I64(1)",
            "a/b t=I64(1)",
            "![3]: field `t` has another value at 2026-03-01T11:59:50.000Z already: the first is kept",
        ],
    );
}

#[test]
fn names_come_from_the_payload_if_nothing_else_is_said() {
    check("decode = 'influx'", "cpu,h=a v=1", &["cpu,h=a v=F64(1.0)"]);
    check("decode = 'influx'\nsensor = 'x'", "cpu,h=a v=1", &["x v=F64(1.0)"]);
    check("decode = 'influx'\nsensor = '{1}:{name}'", "cpu,h=a v=1", &["a/b:cpu,h=a v=F64(1.0)"]);
    check("sensor = '{name}'", r#"{"t":1}"#, &["!the payload names no sensor"]);
    check("each = '/*'\nsensor = 'g-{name}'", r#"{"k":{"t":1}}"#, &["g-k t=I64(1)"]);
    check(
        "decode = 'senml'",
        r#"[{"n":"d","u":"lon","v":1},{"n":"d","u":"lat","v":2},{"n":"e","v":3}]"#,
        &["a/b:lon d=I64(1)", "a/b:lat d=I64(2)", "a/b e=I64(3)"],
    );
}

#[test]
fn times_that_are_not_believed_are_refused_with_a_hint_or_give_way() {
    check(
        "time = '/ts'",
        r#"{"ts":86400,"t":1}"#,
        &[
            "!time 1970-01-02T00:00:00.000Z is before 2000: the device's clock was never set (or it counts from its own start; \
           without a time the arrival counts)",
        ],
    );
    let counter = &told(&mut replay("time = '/ts'"), "a", r#"{"ts":2983740355,"t":1}"#, 0)[0];
    assert!(counter.ends_with("(is it a counter rather than a time?)"), "{counter}");
    let lenient = "time = '/ts'\nbad_time = 'arrival'\nkeep_time = 'device_time'";
    check(
        lenient,
        r#"{"ts":86400,"t":1}"#,
        &[
            "a/b t=I64(1) device_time=Text(\"1970-01-02T00:00:00.000Z\")",
            "~time of arrival taken: time 1970-01-02T00:00:00.000Z is before 2000: the device's clock was never set (or it \
             counts from its own start; without a time the arrival counts)",
        ],
    );
    check(
        lenient,
        r#"{"ts":"x","t":1}"#,
        &["a/b t=I64(1)", "~time of arrival taken: at `/ts`: `x` is not a time (RFC 3339, or a number since 1970)"],
    );
    check(lenient, r#"{"ts":1772366390,"t":1}"#, &["a/b@-10 t=I64(1) device_time=Text(\"2026-03-01T11:59:50.000Z\")"]);
    check(
        "decode = 'tasmota'\nbad_time = 'arrival'",
        r#"{"Time":"2026-03-29T02:30:00","T":1}"#,
        &[
            "a T=I64(1)",
            "~time of arrival taken: time `2026-03-29T02:30:00` does not exist: the clock was put forward then",
        ],
    );
}

#[test]
fn options_of_fields_hold_for_every_decoder() {
    check(
        "fields = { t = { pointer = '/t', scale = 0.1, max = 60 }, h = '/h' }",
        r#"{"t":217,"h":44}"#,
        &["a/b h=I64(44) t=F64(21.7)"],
    );
    check(
        "fields = { t = { max = 60 } }",
        r#"{"t":327.67,"h":44}"#,
        &["a/b h=I64(44)", "!field `t`: 327.67 is above its max 60"],
    );
    check(
        "decode = 'zigbee2mqtt'\nfields = { temperature = { offset = -0.5 } }",
        r#"{"temperature":21.5}"#,
        &["b temperature=F64(21.0)"],
    );
    check("decode = 'number'\nfields = { value = { words = { open = 1 } } }", "open", &["a/b value=I64(1)"]);
    check(
        "decode = 'number'\nfields = { value = { words = { open = 1 } } }",
        "shut",
        &["!field `value`: `shut` is neither a number nor one of the words declared"],
    );
    check("decode = 'number'\nfields = { value = { decimal = 'comma' } }", "21,5", &["a/b value=F64(21.5)"]);
    check("decode = 'number'\nfields = { value = { invalid = ['err', -127] } }", "err", &[]);
    check("decode = 'number'\nfields = { value = { invalid = ['err', -127] } }", "-127.00", &[]);
    check(
        "decode = 'packed'\nfields = { t = { at = 0, type = 'i16', order = 'DCBA', scale = 0.01 }, n = { at = 2, type = 'u8' } }",
        "\u{10}\u{e}\u{7}",
        &["a/b n=I64(7) t=F64(36.0)"],
    );
}

#[test]
fn what_is_left_out_as_declared_is_no_refusal() {
    let mut replay =
        replay("fields = { t = { pointer = '/t', deadband = 0.5 }, n = { pointer = '/n', counter = true } }");
    assert_eq!(told(&mut replay, "s", r#"{"t":20,"n":65535}"#, 0), ["s n=I64(65535) t=I64(20)"]);
    assert_eq!(told(&mut replay, "s", r#"{"t":20.2}"#, 1), Vec::<String>::new());
    assert_eq!(
        told(&mut replay, "s", r#"{"t":20.4,"n":3}"#, 2),
        ["s n=I64(3)", "~counter `n` of s fell: it was reset, or ran over"]
    );
    assert_eq!(told(&mut replay, "other", r#"{"t":20.4}"#, 3), ["other t=F64(20.4)"]);
}

#[test]
fn a_decoder_is_picked_once_for_a_topic() {
    let mut replay = replay("decode = 'auto'");
    assert_eq!(told(&mut replay, "tele/d/STATE", r#"{"POWER":"ON"}"#, 0), ["d POWER=Bool(true)", "~read as tasmota"]);
    assert_eq!(told(&mut replay, "tele/d/STATE", r#"{"POWER":"OFF"}"#, 1), ["d POWER=Bool(false)"]);
    assert_eq!(told(&mut replay, "x", "21.5", 2), ["x value=F64(21.5)", "~read as a plain number or state"]);
    assert_eq!(told(&mut replay, "x", r#"{"t":1}"#, 3), ["x t=I64(1)"]);
    assert_eq!(told(&mut replay, "x", "?", 4), ["!`?` is not a plain number"]);
}

#[test]
fn one_source_understands_an_edge_node_across_its_topics() {
    let table = "url = 'mqtt://b'\nclient_id = 'g'\n[[topics]]\nfilter = 'spBv1.0/g/NBIRTH/#'\ndecode = 'sparkplug-b'\n\
                 [[topics]]\nfilter = '#'\ndecode = 'auto'\n";
    let config: Config = toml::from_str(table).unwrap();
    let mut replay =
        Replay::new(&config, None, Admission { max_future: Duration::from_secs(600), max_age: None }).unwrap();
    let now = Timestamp::from_millis(ARRIVAL_MS).unwrap();
    // Temp, alias 1, Float 21.5; then alias 1, 22.25.
    let birth = b"\x12\x0f\x0a\x04Temp\x10\x01\x20\x09\x65\0\0\xac\x41\x18\0";
    let data = b"\x12\x07\x10\x01\x65\0\0\xb2\x41\x18\x01";
    let unborn = replay.message("spBv1.0/g/NDATA/e", data, now);
    assert_eq!(unborn.notes, ["would ask for a birth on `spBv1.0/g/NCMD/e`"]);
    assert_eq!(replay.message("spBv1.0/g/NBIRTH/e", birth, now).readings.len(), 1);
    let seen = replay.message("spBv1.0/g/NDATA/e", data, now);
    assert_eq!(format!("{:?}", seen.readings[0].fields), "[(\"Temp\", F64(22.25))]");
}

#[test]
fn the_largest_payloads_are_taken_or_refused_within_bounds() {
    let first = |topic: &str, payload: &str| told(&mut replay(topic), "a", payload, 0).remove(0);
    let zeros = "0,".repeat(99_999);
    assert_eq!(first("fields = { t = '/t' }", &format!(r#"{{"t":1,"a":[{zeros}0]}}"#)), "a t=I64(1)");
    let many = r#"{"ts":1772366400,"t":1},"#.repeat(40_000);
    assert_eq!(
        first("time = '/ts'", &format!("[{}{{}}]", &many[..960_000])),
        "!payload holds 40001 readings, at most 10000 are taken"
    );
    assert_eq!(first("", &"[".repeat(1 << 20)), "!JSON is nested deeper than 32 levels");
    assert_eq!(first("", &r#"{"a":"#.repeat(200_000)), "!JSON is nested deeper than 32 levels");
    assert_eq!(first("", &format!("[{}0]", "0,".repeat(500_000))), "!JSON holds more than 131072 values");
    let lines = told(&mut replay("decode = 'influx'\nsensor = 'x'"), "a", &"m v=1\n".repeat(150_000), 0);
    assert_eq!(lines.len(), 10_001);
    assert!(lines[10_000].contains("more than 10000 readings"), "{}", lines[10_000]);
    let spread = told(&mut replay("fields = { '*' = '/a/*' }"), "a", &format!(r#"{{"a":[{zeros}0]}}"#), 0);
    assert!(spread.len() < 12 && spread[0].matches("=I64").count() == 256, "{}", spread.len());
}
