//! The Modbus master on a terminal, against a device with all the faults that are seen on real lines.

use std::time::Duration;

use serde_json::json;
use tipbucket::model::Value;

use super::{Running, value};
use crate::support::pty::{ById, Player, Pty};

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn with_crc(body: &[u8]) -> Vec<u8> {
    let crc = crc::Crc::<u16>::new(&crc::CRC_16_MODBUS).checksum(body).to_le_bytes();
    [body, &crc].concat()
}

/// Registers that hold their own address plus 100 times the unit.
fn answer(request: &[u8]) -> Vec<u8> {
    let (unit, first) = (request[0], u16::from_be_bytes([request[2], request[3]]));
    let count = u16::from_be_bytes([request[4], request[5]]);
    let data: Vec<u8> = (first..first + count).flat_map(|a| (u16::from(unit) * 100 + a).to_be_bytes()).collect();
    with_crc(&[&[unit, request[1], data.len() as u8], &data[..]].concat())
}

fn settings(port: &std::path::Path, units: &[u8], retries: u32) -> serde_json::Value {
    let device = |unit: &u8| {
        json!({ "sensor": format!("meter-{unit}"), "unit_id": unit, "poll": "50ms", "registers": [
            { "field": "a", "table": "input", "address": 0, "unit": "V" },
            { "field": "b", "table": "input", "address": 10, "scale": 0.1 },
        ]})
    };
    let devices: Vec<_> = units.iter().map(device).collect();
    json!({ "port": port, "baud": 115200, "format": "8E1", "timeout": "250ms", "gap": "5ms", "retries": retries, "devices": devices })
}

/// Whatever else a reading shows, it shows nothing wrong.
fn assert_right(running: &Running) {
    for reading in &running.readings {
        let unit: i64 = reading.sensor.as_str().strip_prefix("meter-").unwrap().parse().unwrap();
        assert!(value(reading, "a").is_none_or(|v| v == Value::I64(unit * 100)), "{reading:?}");
        assert!(value(reading, "b").is_none_or(|v| v == Value::F64((unit * 100 + 10) as f64 / 10.0)), "{reading:?}");
    }
}

#[tokio::test]
async fn a_device_is_read_through_noise_pieces_and_echoes() {
    let pty = Pty::new();
    let mut running = Running::start("modbus-rtu", settings(pty.path(), &[1], 0));
    let _slave = Player::modbus(pty, |number, request| match number % 4 {
        0 => vec![(ms(0), vec![0xff, 0, 1, 4]), (ms(2), answer(request)), (ms(0), vec![0])],
        1 => answer(request).into_iter().map(|byte| (ms(1), vec![byte])).collect(),
        2 => vec![(ms(0), [request, &answer(request)].concat())],
        _ => vec![(ms(0), answer(request).repeat(2))],
    });
    running.until_readings(10).await;
    assert_right(&running);
    assert!(running.readings.iter().all(|reading| reading.fields.len() == 2), "{:?}", running.readings);
    assert!(running.letters.is_empty(), "{:?}", running.letters);
    assert_eq!(running.state().up, Some(true));
}

#[tokio::test]
async fn wrong_frames_and_refusals_are_kept_and_cost_only_their_fields() {
    let pty = Pty::new();
    let mut running = Running::start("modbus-rtu", settings(pty.path(), &[1], 0));
    let _slave = Player::modbus(pty, |number, request| match (number, request[3]) {
        (0, _) => {
            let mut bytes = answer(request);
            bytes[4] ^= 0x10;
            vec![(ms(0), bytes)]
        }
        (_, 10) if number < 8 => vec![(ms(0), with_crc(&[1, request[1] | 0x80, 2]))],
        _ => vec![(ms(0), answer(request))],
    });
    running.until("both letters", |r| r.letters.len() == 2).await;
    running.until("both fields again", |r| r.readings.last().is_some_and(|reading| reading.fields.len() == 2)).await;
    assert_right(&running);
    assert!(running.letters[0].reason.contains("wrong CRC"), "{:?}", running.letters);
    assert_eq!(running.letters[0].payload.len(), 7);
    assert!(running.letters[1].reason.contains("exception 2: illegal data address"), "{:?}", running.letters);
    running.until("recovery", |r| r.state().up == Some(true)).await;
}

#[tokio::test]
async fn a_late_answer_is_not_stored_as_the_next_value() {
    let pty = Pty::new();
    let mut running = Running::start("modbus-rtu", settings(pty.path(), &[1], 0));
    let mut owed: Option<Vec<u8>> = None;
    let _slave = Player::modbus(pty, move |number, request| {
        // Every seventh answer is held back until the next request.
        let mut sends = owed.take().map(|late| (ms(0), late)).into_iter().collect::<Vec<_>>();
        match number % 7 {
            3 => owed = Some(answer(request)),
            _ => sends.push((ms(10), answer(request))),
        }
        sends
    });
    running.until_readings(15).await;
    assert_right(&running);
    let partial = running.readings.iter().filter(|reading| reading.fields.len() == 1).count();
    assert!(partial >= 2, "{partial} readings lack what came too late");
}

#[tokio::test]
async fn a_silent_device_leaves_the_others_their_rhythm() {
    let pty = Pty::new();
    let mut running = Running::start("modbus-rtu", settings(pty.path(), &[1, 2, 3], 0));
    let _slave = Player::modbus(pty, |_, request| match request[0] {
        2 => vec![],
        _ => vec![(ms(0), answer(request))],
    });
    running.until("the silence is told", |r| r.is_down("2 of 3 devices answer; meter-2: no answer")).await;
    running.until_readings(80).await;
    assert_right(&running);
    let of = |name: &str| running.readings.iter().filter(|r| r.sensor.as_str() == name).count();
    assert!(of("meter-1") >= 35 && of("meter-3") >= 35 && of("meter-2") == 0);
    assert!(running.letters.is_empty(), "{:?}", running.letters);
}

#[tokio::test]
async fn an_unplugged_adapter_is_let_go_and_found_again() {
    let by_id = ById::new();
    let mut running = Running::start("modbus-rtu", settings(&by_id.path(), &[1], 0));
    running.until("the port is missed", |r| r.is_down("is the adapter plugged in? see /dev/serial/by-id")).await;
    for plugged in 1..=2 {
        let pty = Pty::new();
        by_id.plug(&pty);
        let slave = Player::modbus(pty, |_, request| vec![(ms(0), answer(request))]);
        running.until_readings(3 * plugged).await;
        assert_eq!(running.state().up, Some(true));
        by_id.unplug();
        drop(slave);
        running.until("the port is lost", |r| r.state().up == Some(false)).await;
    }
    assert_right(&running);
    assert_eq!(running.stats.restarts.get(), 0, "the source itself goes on");
}

#[tokio::test]
async fn a_port_has_one_owner() {
    let pty = Pty::new();
    let path = pty.path().to_owned();
    let mut first = Running::start("modbus-rtu", settings(&path, &[1], 0));
    let _slave = Player::modbus(pty, |_, request| vec![(ms(0), answer(request))]);
    first.until_readings(1).await;
    let mut second = Running::start("modbus-rtu", settings(&path, &[1], 0));
    second.until("the second one is refused", |r| r.is_down("another program holds it")).await;
    first.until_readings(3).await;
}
