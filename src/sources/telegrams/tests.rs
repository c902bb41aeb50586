//! Telegrams into readings, through recordings.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::clock::Clock;
use crate::model::{Admission, DeadLetter, Reading, SourceName, Timestamp};
use crate::sources::serial::recording::Step;
use crate::sources::{KINDS, Recording, SourceConfig};
use crate::stats::Stats;

fn config(kind: &str, settings: &serde_json::Value) -> Box<dyn SourceConfig> {
    let kind = KINDS.iter().find(|known| known.name == kind).unwrap();
    let mut table = json!({ "port": "p", "sensor": "s" });
    table.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    (kind.read)(serde_json::from_value(table).unwrap()).unwrap()
}

/// What comes of a recording.
async fn replay(kind: &str, settings: serde_json::Value, steps: Vec<Step>) -> (Vec<Reading>, Vec<DeadLetter>, Intake) {
    let config = config(kind, &settings);
    assert_eq!(config.contradictions(), []);
    let name = SourceName::new("meter").unwrap();
    let (inlet, mut deliveries) = crate::store::inlet();
    let clock = Clock::virtual_from(Timestamp::from_millis(1_772_366_400_000).unwrap());
    let stats = Stats::default().source(&name, "x");
    let admission = Admission { max_future: Duration::from_secs(600), max_age: None };
    let intake = Intake { clock, stats, admission, timezone: None, name, inlet };
    let over = Arc::new(Notify::new());
    let mut source = config.replay(Recording { steps, ..Recording::default() }, Arc::clone(&over)).unwrap();
    tokio::select! {
        end = source.run(&intake) => panic!("{end:?}"),
        () = over.notified() => {}
    }
    let mut all = (Vec::new(), Vec::new());
    while let Some((delivery, _)) = deliveries.try_next() {
        all.0.extend(delivery.readings);
        all.1.extend(delivery.dead_letters);
    }
    drop(source);
    (all.0, all.1, intake)
}

fn from(text: &str) -> Step {
    Step::FromDevice(text.as_bytes().to_vec())
}

/// `sensor field=value …`
fn told(readings: &[Reading]) -> Vec<String> {
    let fields = |r: &Reading| r.fields.iter().map(|(n, v)| format!(" {n}={v:?}")).collect::<String>();
    readings.iter().map(|r| format!("{}{}", r.sensor, fields(r))).collect()
}

const P1: &str =
    "/A\r\n0-0:1.0.0(260301125959W)\r\n1-0:1.8.0(001000*Wh)\r\n0-1:24.2.1(260301120000W)(00001.5*m3)\r\n!\r\n";

#[tokio::test(start_paused = true)]
async fn a_meter_behind_the_meter_is_a_sensor_of_its_own_and_taken_once() {
    let settings = json!({ "meters": { "1": "gas" } });
    let later = P1.replace("125959W", "130000W");
    let (readings, letters, _) = replay("dsmr", settings, vec![from(P1), from(P1), from(&later)]).await;
    assert_eq!(told(&readings), ["s 1-0:1_8_0=I64(1000)", "gas 0-1:24_2_1=F64(1.5)", "s 1-0:1_8_0=I64(1000)"]);
    assert_eq!(readings[1].at.to_string(), "2026-03-01T11:00:00.000Z");
    assert!(letters.is_empty(), "{letters:?}");
    let (readings, ..) = replay("dsmr", json!({}), vec![from(P1)]).await;
    assert_eq!(readings[1].sensor.as_str(), "s-mbus1");
}

#[tokio::test(start_paused = true)]
async fn fields_are_taken_under_their_names_and_in_their_units() {
    let settings = json!({ "fields": { "import": { "from": "1-0:1.8.0", "unit": "kWh" } } });
    let (readings, ..) = replay("dsmr", settings, vec![from(P1)]).await;
    assert_eq!(told(&readings), ["s import=F64(1.0)"]);
    let settings = json!({ "fields": { "import": { "from": "1-0:1.8.0", "unit": "kW" } } });
    let (readings, letters, _) = replay("dsmr", settings, vec![from(P1)]).await;
    assert!(readings.is_empty() && letters[0].reason.contains("its unit is Wh and not kW"), "{letters:?}");
    let settings = json!({ "fields": { "import": { "from": "1-0:1.8.0", "max": 10 } } });
    let (_, letters, _) = replay("dsmr", settings, vec![from(P1)]).await;
    assert!(letters[0].reason.contains("1-0:1.8.0: 1000 is above its max 10"), "{letters:?}");
}

#[tokio::test(start_paused = true)]
async fn readings_that_come_too_often_are_thinned_by_rule() {
    let sentence = "$YXMTW,17.75,C*26\r\n";
    let pause = Step::Pause(Duration::from_secs(4));
    let steps =
        vec![from(sentence), pause.clone(), from(sentence), pause.clone(), from(sentence), pause, from(sentence)];
    let (readings, letters, _) = replay("nmea", json!({ "min_interval": "5s" }), steps).await;
    assert_eq!((readings.len(), letters.len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn telegrams_that_all_fail_are_told_with_what_they_look_like() {
    let parity = |text: &str| text.bytes().map(|b| b | ((b.count_ones() % 2) as u8) << 7).collect::<Vec<u8>>();
    let noise = parity("1234567890 temp=17;\n");
    let (_, letters, intake) = replay("nmea", json!({}), vec![Step::FromDevice(noise.repeat(8))]).await;
    assert_eq!(letters.len(), 7, "the first is the rest of something");
    let told = intake.stats.condition.get().detail;
    assert!(told.contains("hung up") || told.contains("7E1"), "{told}");
}

fn mh_z19() -> serde_json::Value {
    json!({ "start": "FF 86", "length": 9, "checksum": { "kind": "sum8-negated", "from": 1 }, "request": "FF 01 86 00 00 00 00 00 79",
        "poll": "5s", "fields": [{ "field": "co2", "at": 2, "start_value": 410 }] })
}

fn answer(co2: u16) -> Step {
    let [high, low] = co2.to_be_bytes();
    let mut frame = vec![0xff, 0x86, high, low, 0x47, 0, 0, 0];
    frame.push(frame[1..].iter().fold(0u8, |sum, b| sum.wrapping_add(*b)).wrapping_neg());
    Step::FromDevice(frame)
}

fn asked() -> Step {
    Step::ToDevice(vec![0xff, 1, 0x86, 0, 0, 0, 0, 0, 0x79])
}

#[tokio::test(start_paused = true)]
async fn a_device_is_asked_and_its_start_value_is_no_reading() {
    let steps = vec![asked(), answer(410), asked(), answer(608), asked(), answer(410)];
    let (readings, letters, _) = replay("binary", mh_z19(), steps).await;
    assert_eq!(told(&readings), ["s co2=I64(608)", "s co2=I64(410)"]);
    assert!(letters.is_empty(), "{letters:?}");
    assert_eq!(readings[1].at.since(readings[0].at), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_silent_or_cut_off_is_asked_again() {
    let cut = Step::FromDevice(vec![0xff, 0x86, 2]);
    let steps = vec![asked(), cut, asked(), asked(), answer(500)];
    let (readings, letters, _) = replay("binary", mh_z19(), steps).await;
    assert_eq!(told(&readings), ["s co2=I64(500)"]);
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("3 of 9 bytes, then nothing"), "{letters:?}");
}

#[tokio::test(start_paused = true)]
async fn an_optical_meter_is_asked_in_its_own_way() {
    let steps = vec![
        Step::ToDevice(b"/?!\r\n".to_vec()),
        from("/?!\r\n"),
        Step::Pause(Duration::from_millis(300)),
        from("/ITR5EM214\r\n"),
        Step::ToDevice(b"\x06050\r\n".to_vec()),
        Step::Pause(Duration::from_millis(300)),
        from("\u{2}1.8.1(022108.7*kWh)\r\n!\r\n\u{3}u"),
    ];
    let (readings, letters, _) = replay("iec62056-21", json!({}), steps.clone()).await;
    assert_eq!(told(&readings), ["s 1_8_1=F64(22108.7)"], "{letters:?}");
    // A meter that knows no faster speed is left at 300 baud.
    let slow: Vec<Step> = steps
        .into_iter()
        .map(|step| {
            if step == Step::ToDevice(b"\x06050\r\n".to_vec()) { Step::ToDevice(b"\x06000\r\n".to_vec()) } else { step }
        })
        .collect();
    let (readings, ..) = replay("iec62056-21", json!({ "max_baud": 300 }), slow).await;
    assert_eq!(readings.len(), 1);
}

#[test]
fn contradictions_are_named() {
    let check = |kind: &str, settings: serde_json::Value, path: &str, words: &str| {
        let found = config(kind, &settings).contradictions();
        assert!(found.iter().any(|(p, w)| p == path && w.contains(words)), "{path}: {words} is not among {found:?}");
    };
    let frame = |key: &str, value: serde_json::Value| {
        let mut frame = mh_z19();
        frame[key] = value;
        frame
    };
    check("nmea", json!({ "sensor": "" }), "sensor", "empty");
    check("nmea", json!({ "port": "tcp://meter" }), "port", "names no host and port");
    check("nmea", json!({ "silent_after": "1ms" }), "silent_after", "at least 1s");
    check("dsmr", json!({ "meters": { "0": "gas" } }), "meters.0", "is no channel");
    check("dsmr", json!({ "fields": { "a.b": "x", "a_b": "y" } }), "fields.a_b", "two fields bear the name");
    check("sml", json!({ "fields": { "a": { "from": "x", "min": 2, "max": 1 } } }), "fields.a.min", "above max");
    check("iec62056-21", json!({ "baud": 9600 }), "baud", "mode = \"push\"");
    check("iec62056-21", json!({ "max_baud": 100 }), "max_baud", "not between");
    check("iec62056-21", json!({ "wake_up": 1000 }), "wake_up", "more than");
    check("binary", frame("start", json!("F")), "start", "hexadecimal");
    check("binary", frame("start", json!("")), "start", "1 to 16 bytes");
    check("binary", frame("length", json!(1)), "length", "more bytes than its start");
    check("binary", frame("length", json!({ "at": 2, "min": 2, "max": 9 })), "length", "inside the shortest frame");
    check("binary", frame("checksum", json!({ "kind": "sum16", "from": 8 })), "checksum", "does not fit");
    check("binary", frame("fields", json!([])), "fields", "must name 1 to");
    check("binary", frame("fields", json!([{ "field": "a", "at": 8 }])), "fields[0].at", "reach beyond");
    check(
        "binary",
        frame("fields", json!([{ "field": "a", "at": 1, "type": "ascii" }])),
        "fields[0].width",
        "is missing",
    );
    check("binary", frame("fields", json!([{ "field": "a", "at": 1, "bits": [3, 16] }])), "fields[0].bits", "inside");
    check("binary", frame("request", json!("x")), "request", "hexadecimal");
    check("binary", frame("poll", json!("1ms")), "poll", "at least 10ms");
}
