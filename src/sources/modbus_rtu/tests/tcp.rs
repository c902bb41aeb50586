//! Modbus TCP: replies are told apart by their numbers.

use super::*;
use crate::sources::modbus_rtu::tcp;

fn master() -> Master {
    let table = json!({ "address": "meter", "timeout": "300ms", "retries": 0, "devices": [
        { "sensor": "s", "unit_id": 1, "poll": "1s", "registers": [
            { "field": "a", "table": "input", "address": 10 }, { "field": "b", "table": "input", "address": 20 }] }] });
    let table: ::config::Value = serde_json::from_value(table).unwrap();
    let config: tcp::Config = crate::sources::table::read(table).unwrap();
    config.checked().unwrap().master
}

/// A reply whose register holds its own address.
fn reply(request: &[u8]) -> Vec<u8> {
    vec![request[0], request[1], 0, 0, 0, 5, request[6], request[7], 2, request[8], request[9]]
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_is_never_taken_for_a_new_one() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let (intake, mut deliveries) = intake();
    let mut master = master();
    let slave = async move {
        let mut request = [0; 12];
        for number in 0.. {
            if theirs.read_exact(&mut request).await.is_err() {
                break;
            }
            let answer = reply(&request);
            // The very first one comes after the next question, whose reply has the same shape.
            let wait = if number == 0 { 305 } else { 20 };
            tokio::time::sleep(Duration::from_millis(wait)).await;
            theirs.write_all(&answer).await.unwrap();
        }
    };
    tokio::select! {
        end = master.serve(ours, "pipe", &intake) => panic!("{end:?}"),
        () = slave => panic!("the device went away"),
        () = tokio::time::sleep(Duration::from_millis(1500)) => {}
    }
    let (readings, letters) = drain(&mut deliveries);
    let told: Vec<_> = readings.iter().map(values).collect();
    assert_eq!(told, [vec![shows("b", 20)], vec![shows("a", 10), shows("b", 20)]], "{letters:?}");
}

#[test]
fn contradictions_are_named() {
    let check = |settings: serde_json::Value, path: &str, words: &str| {
        let table: ::config::Value = serde_json::from_value(settings).unwrap();
        let config: tcp::Config = crate::sources::table::read(table).unwrap();
        let found = crate::sources::SourceConfig::contradictions(&config);
        assert!(found.iter().any(|(p, w)| p == path && w.contains(words)), "{path}: {words} is not among {found:?}");
    };
    check(json!({ "address": "", "devices": [] }), "address", "is no host");
    check(json!({ "address": "meter", "devices": [] }), "devices", "names no device");
    check(json!({ "address": "meter", "timeout": "2m", "devices": [] }), "timeout", "60s");
}
