//! What the settings refuse, and in which words.
#![allow(clippy::needless_pass_by_value)]

use super::*;
use crate::sources::{ReadError, SourceConfig};

fn read(settings: serde_json::Value) -> Result<Config, ReadError> {
    crate::sources::table::read(serde_json::from_value::<::config::Value>(settings).unwrap())
}

/// The one contradiction of a table with this register.
fn check(register: serde_json::Value, path: &str, words: &str) {
    let device = json!({ "sensor": "s", "unit_id": 1, "registers": [register] });
    check_all(json!({ "port": "p", "devices": [device] }), &format!("devices[0].registers[0].{path}"), words);
}

fn check_all(settings: serde_json::Value, path: &str, words: &str) {
    let found = read(settings).unwrap().contradictions();
    assert!(found.iter().any(|(p, w)| p == path && w.contains(words)), "{path}: {words} is not among {found:?}");
}

#[test]
fn a_plain_table_is_taken() {
    let config = read(settings(&[1, 2], 3, 1)).unwrap();
    assert_eq!(config.contradictions(), []);
    let claims = config.claims();
    assert_eq!(claims.port.as_deref(), Some("p"));
    assert_eq!(claims.sensors, ["unit-1", "unit-2"]);
    let _ = Box::new(config).build();
}

#[test]
fn the_site_file_of_the_manual_is_taken() {
    let text = r#"
        port = "/dev/serial/by-id/usb-FTDI-0001"
        baud = 9600
        format = "8E1"
        [[devices]]
        sensor = "boiler-meter"
        unit_id = 1
        poll = "5s"
        registers = [
            { field = "voltage", table = "input", address = 0, type = "f32", order = "ABCD", unit = "V" },
            { field = "Power_L1", table = "holding", address = 0x10, type = "i32", order = "CDAB", invalid = 0x80000000 },
            { field = "state", table = "coil", address = 3 },
        ]
    "#;
    let file = ::config::File::from_str(text, ::config::FileFormat::Toml);
    let table =
        ::config::Config::builder().add_source(file).build().unwrap().try_deserialize::<::config::Value>().unwrap();
    let config: Config = crate::sources::table::read(table).unwrap();
    assert_eq!(config.contradictions(), []);
    let unit = ("boiler-meter".to_owned(), "voltage".to_owned(), "V".to_owned());
    assert_eq!(config.claims().units, [unit]);
}

#[test]
fn contradictions_of_a_register_are_named() {
    let base = |more: serde_json::Value| {
        let mut register = json!({ "field": "a", "table": "input", "address": 0 });
        register.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        register
    };
    check(base(json!({ "address": 65535, "type": "f32" })), "address", "beyond 65535");
    check(base(json!({ "order": "CDAB" })), "order", "only one");
    check(base(json!({ "type": "f32", "bit": 3 })), "bit", "needs type = \"u16\"");
    check(base(json!({ "bit": 16 })), "bit", "between 0");
    check(base(json!({ "bits": [4, 2] })), "bits", "the lower one first");
    check(base(json!({ "bit": 1, "bits": [1, 2] })), "bits", "exclude each other");
    check(base(json!({ "bit": 1, "scale": 2.0 })), "scale", "cannot be scaled");
    check(base(json!({ "scale": 0.0 })), "scale", "every value would be 0");
    check(base(json!({ "table": "coil", "type": "u16" })), "type", "must be \"bool\"");
    check(base(json!({ "invalid": "0x12345" })), "invalid", "does not fit into 16 bits");
    check(base(json!({ "invalid": "x" })), "invalid", "no whole number");
    check(base(json!({ "min": 5.0, "max": 1.0 })), "min", "above max");
    check(base(json!({ "field": "" })), "field", "empty");
    check(base(json!({ "scale_register": 900 })), "scale_register", "one request");
}

#[test]
fn contradictions_of_the_table_are_all_named() {
    let device = |sensor: &str, unit: u8| {
        json!({ "sensor": sensor, "unit_id": unit, "registers": [
            { "field": "a.b", "table": "input", "address": 0 }, { "field": "a_b", "table": "input", "address": 1 },
        ]})
    };
    let settings =
        json!({ "port": "", "baud": 1, "timeout": "0s", "retries": 99, "devices": [device("s", 0), device("s", 255)] });
    for (path, words) in [
        ("port", "empty"),
        ("baud", "not between"),
        ("timeout", "1ms"),
        ("retries", "more than"),
        ("devices[1].sensor", "already another"),
        ("devices[0].unit_id", "0 is not between 1 and 254"),
        ("devices[1].unit_id", "255 is not between 1 and 254"),
        ("devices[0].registers[1].field", "already another"),
    ] {
        check_all(settings.clone(), path, words);
    }
    check_all(json!({ "port": "p", "devices": [] }), "devices", "no device");
}

#[test]
fn what_cannot_be_read_is_told_with_its_path() {
    let check = |settings: serde_json::Value, path: &str, words: &str| {
        let error = read(settings).unwrap_err();
        assert!(error.path == path && error.message.contains(words), "{error:?}");
    };
    check(json!({ "port": "p", "format": "9N1", "devices": [] }), "format", "as \"8N1\"");
    check(json!({ "port": "p", "device": [] }), "device", "unknown field");
    let bad = json!({ "field": "a", "table": "input", "address": 0, "order": "ACBD" });
    let bad = json!({ "port": "p", "devices": [{ "sensor": "s", "unit_id": 1, "registers": [bad] }] });
    check(bad, "devices[0].registers[0].order", "ACBD");
}

#[test]
fn a_request_names_its_table() {
    let request = Request { unit: 1, table: Table::Input, address: 0, count: 1 };
    assert_eq!(answer(&request.encode()), with_crc(&[1, 4, 2, 0, 0]));
}

#[test]
fn strings_and_bits_need_room() {
    let register = |kind: &str| json!({ "field": "x", "table": "holding", "address": 0, "type": kind });
    let with = |kind: &str, key: &str, value: serde_json::Value| {
        let mut register = register(kind);
        register[key] = value;
        register
    };
    check(register("string"), "length", "is missing");
    check(with("string", "length", json!(0)), "length", "not between 1 and 125");
    check(with("u16", "length", json!(2)), "length", "\"string\" only");
    check(with("i32", "bits", json!([0, 3])), "bits", "needs type");
    check(with("u32", "bits", json!([0, 32])), "bits", "between 0 (lowest) and 31");
}
