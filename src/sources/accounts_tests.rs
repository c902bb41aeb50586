//! By whatever kind of source readings come: what is accepted is stored, or stands in the loss ledger.

use bytesize::ByteSize;
use serde_json::json;
use tokio::sync::Notify;

use super::serial::recording::Step;
use super::*;
use crate::model::{BucketPolicy, LossReason, Policies, SiteName, WindowLength};
use crate::stats::Stats;
use crate::store;

/// 2026-03-01T12:00:00Z.
const NOON: i64 = 1_772_366_400_000;

/// Kinds whose readings bear the gateway's own time: nothing of them can come from an impossible one.
const STAMPED: [&str; 6] = ["binary", "iec62056-21", "modbus-rtu", "modbus-tcp", "simulated", "sml"];
/// Kinds whose times give way to the arrival when they are not believed.
const GIVES_WAY: [&str; 1] = ["nmea"];

/// Reads what a source sends into a store; how many readings are stored then, and how many stand in the ledger for which
/// reason.
async fn check(kind: &str, table: serde_json::Value, sent: Recording, stored: i64, lost: &[(LossReason, i64)]) {
    let read = KINDS.iter().find(|known| known.name == kind).unwrap().read;
    let config = read(serde_json::from_value(table).unwrap()).unwrap();
    assert_eq!(config.contradictions(), [], "{kind}");
    let folder = tempfile::tempdir().unwrap();
    let settings =
        store::Config { path: folder.path().join("t.db"), max_bytes: ByteSize::mib(5), ..store::Config::default() };
    let (stats, clock) = (Stats::default(), Clock::virtual_from(Timestamp::clamped(NOON)));
    let window = WindowLength::from_seconds(60).unwrap();
    let default =
        BucketPolicy { window, max_samples: 1000, max_bytes: 64 << 10, grace: Duration::from_secs(5), decimals: None };
    let policies = Policies { default, by_sensor: Default::default() };
    let site = SiteName::new("test").unwrap();
    let opened = store::open(&settings, site, policies, 100, clock.clone(), stats.clone());
    let (inlet, outlet, writer) = opened.await.unwrap();
    let writer = tokio::spawn(writer.run());
    let name = SourceName::new("it").unwrap();
    let admission =
        Admission { max_future: Duration::from_secs(600), max_age: Some(Duration::from_secs(30 * 24 * 3600)) };
    let intake = Intake { clock, stats: stats.source(&name, "x"), admission, timezone: None, name, inlet };
    let over = Arc::new(Notify::new());
    let is_endless = sent == Recording::default();
    let mut source = if is_endless { config.build() } else { config.replay(sent, Arc::clone(&over)).unwrap() };
    tokio::select! {
        end = source.run(&intake) => panic!("{kind}: {end:?}"),
        () = over.notified() => {}
        () = tokio::time::sleep(Duration::from_millis(2500)), if is_endless => {}
    }
    drop((source, intake, outlet));
    writer.await.unwrap().unwrap();
    let store = stats.store();
    let found: Vec<_> = LossReason::ALL.iter().map(|reason| (*reason, store.lost[*reason as usize].get())).collect();
    let found: Vec<_> = found.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!((store.stored.get(), &found[..]), (stored, lost), "{kind}");
    let in_ledger: i64 = lost.iter().map(|(_, count)| count).sum();
    assert_eq!(store.accepted.get(), stored + in_ledger, "{kind}");
}

fn from_device(bytes: &[u8]) -> Recording {
    Recording { steps: vec![Step::FromDevice(bytes.to_vec())], ..Recording::default() }
}

#[tokio::test(start_paused = true)]
async fn lines_of_impossible_times_stand_in_the_ledger() {
    let table = json!({ "port": "p", "sensor": "s", "decode": "csv", "columns": ["at", "v"], "time_field": "at" });
    let text = b"2026-03-01T12:00:00Z,1\n2026-03-02T12:00:00Z,2\n2020-03-01T12:00:00Z,3\n1999-03-01T12:00:00Z,4\n\
        2099-03-01T12:00:00Z,5\nno time,6\n";
    let lost = [(LossReason::TooOld, 1), (LossReason::BeforeClock, 1), (LossReason::TooFarAhead, 2)];
    check("line", table, from_device(text), 1, &lost).await;
}

#[tokio::test(start_paused = true)]
async fn messages_of_impossible_times_stand_in_the_ledger() {
    let topic = json!({ "filter": "a", "sensor": "s", "time": "/at", "fields": { "v": "/v" } });
    let table = json!({ "url": "mqtt://b", "client_id": "c", "topics": [topic] });
    let batch = json!([
        { "at": "2026-03-01T12:00:00Z", "v": 1 },
        { "at": "2026-03-02T12:00:00Z", "v": 2 },
        { "at": "2020-03-01T12:00:00Z", "v": 3 },
        { "at": 1, "v": 4 },
    ]);
    let lost = [(LossReason::TooOld, 1), (LossReason::BeforeClock, 1), (LossReason::TooFarAhead, 1)];
    check("mqtt", table, from_device(batch.to_string().as_bytes()), 1, &lost).await;
}

/// A telegram of a meter with one behind it, which names its own time.
fn p1(gas_at: &str, gas: &str) -> String {
    format!(
        "/A\r\n0-0:1.0.0(260301130000W)\r\n1-0:1.8.0(001000*Wh)\r\n0-1:24.2.1({gas_at})({gas}*m3)\r\n\
         0-1:24.2.2({gas_at})({gas}*m3)\r\n!\r\n"
    )
}

#[tokio::test(start_paused = true)]
async fn a_meter_behind_the_meter_with_an_impossible_time_stands_in_the_ledger() {
    // Repeated every few seconds as meters do; two quantities of one instant are one reading.
    let telegrams = [
        p1("260301120000W", "1.5"),
        p1("260302120000W", "1.6"),
        p1("260302120000W", "1.6"),
        p1("200301120000W", "1.7"),
        p1("010101000000W", "1.8"),
        p1("010101000000W", "1.8"),
    ];
    let lost = [(LossReason::TooOld, 1), (LossReason::BeforeClock, 1), (LossReason::TooFarAhead, 1)];
    let table = json!({ "port": "p", "sensor": "s" });
    // The first telegram's two; the electricity meter's reading is the same in all six.
    check("dsmr", table.clone(), from_device(telegrams.concat().as_bytes()), 2, &lost).await;
    let only_electricity = json!({ "port": "p", "sensor": "s", "fields": { "import": "1-0:1.8.0" } });
    check("dsmr", only_electricity, from_device(telegrams.concat().as_bytes()), 1, &[]).await;
    // A meter whose own clock cannot be right has no times at all: everything bears that of its arrival.
    let unset = telegrams.concat().replace("260301130000W", "010101000000W");
    check("dsmr", table, from_device(unset.as_bytes()), 12, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn impossible_times_of_a_receiver_give_way_to_the_arrival() {
    let sentence = |body: &str| format!("${body}*{:02X}\r\n", body.bytes().fold(0, |sum, b| sum ^ b));
    let position = |date: &str| sentence(&format!("GPRMC,115959.00,A,5212.60,N,00440.10,E,0.5,90.0,{date},,"));
    let sent = ["010326", "010399", "010346", "150706"].map(position).concat();
    check("nmea", json!({ "port": "p", "sensor": "s" }), from_device(sent.as_bytes()), 4, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn readings_with_the_gateways_own_time_are_all_stored() {
    check("simulated", json!({ "every": "1s", "sensors": 2 }), Recording::default(), 6, &[]).await;

    let modbus = |address: serde_json::Value| {
        let device = json!({ "sensor": "m", "unit_id": 1, "poll": "2s",
            "registers": [{ "field": "v", "table": "input", "address": 0 }] });
        let mut table = json!({ "devices": [device] });
        table.as_object_mut().unwrap().extend(address.as_object().unwrap().clone());
        table
    };
    let asked = Step::ToDevice(vec![1, 4, 0, 0, 0, 1, 0x31, 0xca]);
    let answered = Step::FromDevice(vec![1, 4, 2, 0, 7, 0xf8, 0xf2]);
    let steps = vec![asked.clone(), answered.clone(), asked, answered];
    check("modbus-rtu", modbus(json!({ "port": "p" })), Recording { steps, ..Recording::default() }, 2, &[]).await;
    let steps = vec![
        Step::ToDevice(vec![0, 1, 0, 0, 0, 6, 1, 4, 0, 0, 0, 1]),
        Step::FromDevice(vec![0, 1, 0, 0, 0, 5, 1, 4, 2, 0, 7]),
    ];
    check("modbus-tcp", modbus(json!({ "address": "m" })), Recording { steps, ..Recording::default() }, 1, &[]).await;

    // Dates in a readout are not used: most meters' clocks run free.
    let readout = b"/ABC5x\r\n0.9.2(99-03-14)\r\n1.8.1(2*kWh)\r\n!\r\n";
    let pushed = json!({ "port": "p", "sensor": "s", "mode": "push", "baud": 9600 });
    check("iec62056-21", pushed, from_device(readout), 1, &[]).await;
    let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/serial/sml/SE-SML-01.hex")).unwrap();
    check("sml", json!({ "port": "p", "sensor": "s" }), Recording::read(file, true).unwrap(), 1, &[]).await;
    let frames =
        json!({ "port": "p", "sensor": "s", "start": "AA", "length": 3, "fields": [{ "field": "v", "at": 1 }] });
    check("binary", frames, from_device(&[0xaa, 1, 2, 0xaa, 3, 4]), 2, &[]).await;
}

#[test]
fn no_kind_is_left_out() {
    let mut known = [&STAMPED[..], &GIVES_WAY, &["dsmr", "line", "mqtt"]].concat();
    known.sort_unstable();
    let mut kinds: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, known, "a new kind says here what becomes of impossible times");
}
