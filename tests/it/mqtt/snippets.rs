//! The site files in docs/INPUTS.md, at work: each takes the samples of its family that it should.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use tipbucket::decode::times;
use tipbucket::model::Admission;
use tipbucket::sources::mqtt::{Config, Decode, Replay};

use super::corpus::{expectations, feed, outcome};

/// The part of a block that matters here.
#[derive(Deserialize)]
struct Block {
    sources: BTreeMap<String, toml::Table>,
}

/// Every MQTT source of the page.
fn sources() -> Vec<(String, Config)> {
    let page = std::fs::read_to_string("docs/INPUTS.md").unwrap();
    let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let tables = blocks.filter(|block| block.contains("type = \"mqtt\"")).flat_map(|block| {
        let block: Block = toml::from_str(block).unwrap();
        block.sources
    });
    tables
        .map(|(name, mut table)| {
            table.remove("type");
            (name, table.try_into().unwrap())
        })
        .collect()
}

/// The families whose samples a source is to take.
fn families(decode: Decode) -> Vec<&'static str> {
    tipbucket::decode::preset::PRESETS
        .iter()
        .filter(|(_, preset)| decode.preset() == Some(*preset))
        .map(|(name, _)| *name)
        .collect()
}

#[test]
fn every_piece_of_a_site_file_takes_the_samples_of_its_family() {
    let mut shown = std::collections::BTreeSet::new();
    for (name, config) in sources() {
        let zone = times::zone("Europe/Amsterdam").unwrap();
        let admission = Admission { max_future: Duration::from_secs(600), max_age: None };
        for family in config.topics.iter().flat_map(|topic| families(topic.decode)) {
            let mut taken = 0;
            for expect in expectations().iter().filter(|expect| expect["family"] == family) {
                let mut replay = Replay::new(&config, Some(&zone), admission).unwrap();
                for needed in expect["needs"].as_array().into_iter().flatten() {
                    let needed = expectations().into_iter().find(|other| other["id"] == *needed).unwrap();
                    feed(&mut replay, &needed);
                }
                let seen = feed(&mut replay, expect);
                if seen.refused.iter().any(|reason| reason.contains("no filter matches")) {
                    continue;
                }
                assert_eq!(outcome(&seen), expect["outcome"], "{name}: {}: {seen:?}", expect["id"]);
                taken += seen.readings.len();
            }
            assert!(taken > 0, "{name}: nothing of {family} was taken");
            shown.insert(family);
        }
    }
    let all: std::collections::BTreeSet<_> = tipbucket::decode::preset::PRESETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(shown, all, "docs/INPUTS.md shows every preset");
}

/// One message through the source of that name; readings as `sensor name=value …`, then `! reasons`.
fn check(source: &str, topic: &str, payload: &[u8], expected: &str) {
    let (_, config) = sources().into_iter().find(|(name, _)| name == source).unwrap();
    let mut replay =
        Replay::new(&config, None, Admission { max_future: Duration::from_secs(600), max_age: None }).unwrap();
    let arrival = tipbucket::model::Timestamp::from_millis(1_772_366_400_000).unwrap();
    let seen = replay.message(topic, payload, arrival);
    let readings = seen.readings.iter().map(|reading| {
        let fields: Vec<_> = reading.fields.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        format!("{} {}", reading.sensor, fields.join(" "))
    });
    let told: Vec<_> = readings.chain(seen.refused.iter().map(|reason| format!("! {reason}"))).collect();
    assert_eq!(told.join("; "), expected, "{source} {topic}");
}

#[test]
fn the_pieces_for_payloads_of_ones_own_do_what_their_comments_say() {
    check(
        "devices",
        "sensors/x/state",
        br#"{"id":"k7","ts":1772366400,"temperature":21.5,"vbat":3012}"#,
        "k7 battery=F64(3.01) temp=F64(21.5)",
    );
    check(
        "devices",
        "gateways/g/batch",
        br#"{"dev1":[{"ts":1772366400000,"values":{"t":21.5}}],"dev2":[{"ts":1772366400000,"values":{"t":1}}]}"#,
        "g-dev1 t=F64(21.5); g-dev2 t=I64(1)",
    );
    check("devices", "nodes/n/cbor", &[0xa1, 0x61, b't', 0x15], "nodes/n/cbor t=I64(21)");
    check("plain", "site/k/temp/value", b"21.5", "k temp=F64(21.5)");
    check("plain", "site/k/pump/switch", b"ON", "k pump=Bool(true)");
    check("plain", "site/k/temp/value", b"ON", "! `ON` is a state, not a number (decode = \"state\" takes it)");
    check("plain", "old-logger/l", "21,5 °C".as_bytes(), "l value=F64(21.5)");
    check("plain", "doors/d", b"closed", "d open=Bool(false)");
    check("plain", "doors/d", b"moving", "");
    check("plain", "doors/d", b"ajar", "! field `open`: `ajar` is neither a number nor one of the words declared");
    check(
        "plain",
        "node/7",
        &[0xf3, 0xfd, 0x80, 0x11, 0xc4, 0x0b],
        "node-7 batt=F64(3.012) hum=F64(44.8) temp=F64(-5.25)",
    );
    check("anything", "x/y", b"cpu,host=a v=1", "cpu,host=a v=F64(1.0)");
}
