//! The master against scripted devices, over a pipe in memory and in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::clock::Clock;
use crate::decode::modbus::{Request, Table};
use crate::model::{Admission, DeadLetter, Reading, SourceName, Timestamp, Value};
use crate::stats::Stats;
use crate::store::{Deliveries, inlet};

mod chaos;
mod corpus;
mod settings;
mod tcp;

/// What a device does on a request: bytes after so many milliseconds, one after the other.
type Answers = Vec<(u64, Vec<u8>)>;

fn with_crc(body: &[u8]) -> Vec<u8> {
    let crc = crc::Crc::<u16>::new(&crc::CRC_16_MODBUS).checksum(body).to_le_bytes();
    [body, &crc].concat()
}

/// A right answer with registers that hold their own address.
fn answer(request: &[u8]) -> Vec<u8> {
    let address = u16::from_be_bytes([request[2], request[3]]);
    let count = u16::from_be_bytes([request[4], request[5]]);
    let data: Vec<u8> = (address..address + count).flat_map(u16::to_be_bytes).collect();
    with_crc(&[&[request[0], request[1], data.len() as u8], &data[..]].concat())
}

fn master(settings: serde_json::Value) -> Master {
    let table: ::config::Value = serde_json::from_value(settings).unwrap();
    super::super::table::read::<Config>(table).unwrap().checked().unwrap().master
}

/// Registers 0, 10, 20 … of as many devices as are named: one request each.
fn settings(units: &[u8], fields: u16, retries: u32) -> serde_json::Value {
    let registers: Vec<_> =
        (0..fields).map(|i| json!({ "field": format!("r{}", i * 10), "table": "input", "address": i * 10 })).collect();
    let device =
        |unit: &u8| json!({ "sensor": format!("unit-{unit}"), "unit_id": unit, "poll": "2s", "registers": registers });
    let devices: Vec<_> = units.iter().map(device).collect();
    json!({ "port": "p", "timeout": "300ms", "retries": retries, "devices": devices })
}

fn intake() -> (Intake, Deliveries) {
    let name = SourceName::new("bus").unwrap();
    let (inlet, deliveries) = inlet();
    let intake = Intake {
        clock: Clock::virtual_from(Timestamp::from_millis(1_796_043_600_000).unwrap()),
        stats: Stats::default().source(&name, "modbus-rtu"),
        admission: Admission { max_future: Duration::from_secs(600), max_age: None },
        timezone: None,
        name,
        inlet,
    };
    (intake, deliveries)
}

/// All that was delivered.
fn drain(deliveries: &mut Deliveries) -> (Vec<Reading>, Vec<DeadLetter>) {
    let mut all = (Vec::new(), Vec::new());
    while let Some((delivery, weight)) = deliveries.try_next() {
        deliveries.release(weight as usize);
        all.0.extend(delivery.readings);
        all.1.extend(delivery.dead_letters);
    }
    all
}

/// Runs a master for a while against devices; what was delivered, what the condition says, and every request.
async fn run(
    mut master: Master,
    seconds: u64,
    mut device: impl FnMut(usize, &[u8]) -> Answers + Send + 'static,
) -> (Vec<Reading>, Vec<DeadLetter>, crate::stats::State, Vec<Vec<u8>>) {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let (intake, mut deliveries) = intake();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&asked);
    let slave = async move {
        let mut request = [0; 8];
        while theirs.read_exact(&mut request).await.is_ok() {
            let number = requests.lock().unwrap().len();
            requests.lock().unwrap().push(request.to_vec());
            for (wait, bytes) in device(number, &request) {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                theirs.write_all(&bytes).await.unwrap();
            }
        }
    };
    tokio::select! {
        end = master.serve(ours, "pipe", &intake) => panic!("{end:?}"),
        () = slave => panic!("the devices went away"),
        () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
    }
    let (readings, letters) = drain(&mut deliveries);
    let asked = asked.lock().unwrap().clone();
    (readings, letters, intake.stats.condition.get(), asked)
}

fn values(reading: &Reading) -> Vec<(String, Value)> {
    reading.fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
}

fn shows(name: &str, value: i64) -> (String, Value) {
    (name.to_owned(), Value::I64(value))
}

#[tokio::test(start_paused = true)]
async fn a_poll_gives_one_reading_with_all_fields_and_keeps_its_rhythm() {
    let master = master(settings(&[1], 2, 0));
    let (readings, letters, condition, asked) = run(master, 7, |_, request| vec![(30, answer(request))]).await;
    assert_eq!(readings.len(), 4, "polls at 0, 2, 4 and 6 seconds");
    assert_eq!(values(&readings[0]), [shows("r0", 0), shows("r10", 10)]);
    let spaces: Vec<_> = readings.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_millis()).collect();
    // The first poll waited for the line to be silent.
    assert_eq!(spaces, [1980, 2000, 2000]);
    assert!(letters.is_empty());
    assert_eq!(asked.len(), 8);
    assert_eq!((condition.up, condition.detail.as_str()), (Some(true), "polls 1 device on pipe"));
}

#[tokio::test(start_paused = true)]
async fn noise_echo_and_pieces_do_not_hide_an_answer() {
    let master = master(settings(&[1], 1, 0));
    let (readings, letters, ..) = run(master, 5, |number, request| match number {
        0 => vec![(5, vec![0, 0xff, 1]), (5, answer(request)), (0, vec![0])],
        1 => vec![(0, request.to_vec()), (20, answer(request))],
        _ => answer(request).into_iter().map(|byte| (16, vec![byte])).collect(),
    })
    .await;
    assert_eq!(readings.len(), 3);
    assert!(letters.is_empty(), "{letters:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_crc_is_kept_and_asked_again() {
    let master = master(settings(&[1], 1, 1));
    let (readings, letters, ..) = run(master, 1, |number, request| {
        let mut bytes = answer(request);
        bytes[3] ^= u8::from(number == 0);
        vec![(10, bytes)]
    })
    .await;
    assert_eq!(values(&readings[0]), [shows("r0", 0)]);
    assert!(letters.is_empty(), "the repetition was right: {letters:?}");

    let master = master_of_one();
    let (readings, letters, condition, _) = run(master, 1, |_, request| {
        let mut bytes = answer(request);
        bytes[3] ^= 1;
        vec![(10, bytes)]
    })
    .await;
    assert!(readings.is_empty());
    assert_eq!(letters[0].payload.len(), 7);
    assert_eq!(letters[0].place, "unit-1 (unit 1)");
    assert_eq!(letters[0].reason, "an answer with a wrong CRC, asked for input 0 to 0");
    assert!(condition.detail.starts_with("0 of 1 devices answer; unit-1: an answer with a wrong CRC"), "{condition:?}");
}

fn master_of_one() -> Master {
    master(settings(&[1], 1, 0))
}

#[tokio::test(start_paused = true)]
async fn an_exception_costs_its_registers_only_and_is_kept_once() {
    let master = master(settings(&[1], 2, 1));
    let (readings, letters, condition, asked) = run(master, 5, |_, request| match request[3] {
        0 => vec![(10, with_crc(&[1, 0x84, 2]))],
        _ => vec![(10, answer(request))],
    })
    .await;
    assert_eq!(readings.len(), 3);
    assert!(readings.iter().all(|reading| values(reading) == [shows("r10", 10)]));
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].reason, "device answered exception 2: illegal data address, asked for input 0 to 0");
    assert_eq!(asked.len(), 6, "an exception is not asked again");
    assert!(
        condition.detail.starts_with("1 of 1 devices answer; unit-1: device answered exception 2"),
        "{condition:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_never_taken_for_the_next_one() {
    // The device is slow once: its answer about r0 comes when r10 is asked for.
    let check = |answers: fn(usize, &[u8]) -> Answers| async move {
        let (readings, letters, ..) = run(master(settings(&[1], 3, 0)), 1, answers).await;
        for (name, value) in readings.iter().flat_map(values) {
            assert_eq!(name, format!("r{}", if let Value::I64(v) = value { v } else { -1 }));
        }
        assert!(letters.is_empty(), "{letters:?}");
        readings.iter().map(|r| r.fields.len()).sum::<usize>()
    };
    let late = |number: usize, request: &[u8]| match number {
        0 => vec![],
        1 => vec![(5, answer(&[1, 4, 0, 0, 0, 1])), (60, answer(request))],
        _ => vec![(10, answer(request))],
    };
    assert_eq!(check(late).await, 2, "late, and then the right one");
    let swallowed = |number: usize, request: &[u8]| match number {
        0 => vec![],
        1 => vec![(5, answer(&[1, 4, 0, 0, 0, 1]))],
        _ => vec![(10, answer(request))],
    };
    assert_eq!(check(swallowed).await, 2, "late, and none for the present one");
    let between = |number: usize, request: &[u8]| match number {
        0 => vec![(310, answer(request))],
        _ => vec![(10, answer(request))],
    };
    assert_eq!(check(between).await, 2, "late, in the silence before the next one");
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_repeated_request_may_come_twice() {
    let master = master(settings(&[1], 2, 1));
    let (readings, ..) = run(master, 1, |number, request| match number {
        0 => vec![],
        // Both copies of the answer about r0: one now, one when r10 is asked for.
        1 => vec![(5, answer(request))],
        2 => vec![(5, answer(&[1, 4, 0, 0, 0, 1])), (5, answer(request))],
        _ => vec![(10, answer(request))],
    })
    .await;
    assert_eq!(values(&readings[0]), [shows("r0", 0), shows("r10", 10)]);
}

#[tokio::test(start_paused = true)]
async fn one_lost_frame_costs_its_timeouts_and_no_more() {
    let master = master(settings(&[1], 9, 1));
    let (readings, _, _, asked) = run(master, 9, |number, request| match number {
        0 => vec![],
        _ => vec![(10, answer(request))],
    })
    .await;
    assert_eq!(readings.len(), 5, "polls at 0, 2, 4, 6 and 8 seconds");
    assert!(readings.iter().all(|reading| reading.fields.len() == 9));
    assert_eq!(asked.len(), 5 * 9 + 3, "a repetition, a request of another shape, and one more repetition");
    assert!(asked.contains(&Request { unit: 1, table: Table::Input, address: 10, count: 2 }.encode().to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_device_does_not_slow_the_others() {
    let master = master(settings(&[1, 2, 3], 1, 1));
    let (readings, letters, condition, asked) = run(master, 600, |_, request| match request[0] {
        2 => vec![],
        _ => vec![(10, answer(request))],
    })
    .await;
    let of = |name: &str| readings.iter().filter(|r| r.sensor.as_str() == name).count();
    assert_eq!((of("unit-1"), of("unit-2"), of("unit-3")), (300, 0, 300));
    let to_the_dead = asked.iter().filter(|request| request[0] == 2).count();
    assert!((8..20).contains(&to_the_dead), "{to_the_dead} requests to the dead device");
    assert!(letters.is_empty());
    assert_eq!(condition.detail, "2 of 3 devices answer; unit-2: no answer");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_comes_back_is_polled_at_its_rhythm_again() {
    let master = master(settings(&[1], 1, 0));
    let (readings, _, condition, _) = run(master, 100, |number, request| match number {
        0..5 => vec![],
        _ => vec![(10, answer(request))],
    })
    .await;
    // Dead after 0, 2 and 4 seconds; asked again 3, 6 and 12 seconds after.
    assert_eq!(readings.len(), 38);
    assert_eq!(condition.up, Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_device_silent_about_some_registers_still_gives_the_others() {
    let master = master(settings(&[1], 6, 0));
    let (readings, _, condition, _) = run(master, 60, |_, request| match request[3] {
        0..50 => vec![],
        _ => vec![(10, answer(request))],
    })
    .await;
    assert!(readings.len() > 20, "{}", readings.len());
    assert!(readings.iter().all(|reading| values(reading) == [shows("r50", 50)]));
    assert_eq!(condition.detail, "1 of 1 devices answer; unit-1: no answer, asked for input 0 to 0");
}

#[tokio::test(start_paused = true)]
async fn a_line_that_hangs_up_ends_the_polling() {
    let (ours, theirs) = tokio::io::duplex(64);
    drop(theirs);
    let (intake, _deliveries) = intake();
    let end = master(settings(&[1], 1, 0)).serve(ours, "pipe", &intake).await;
    assert!(matches!(end, End::Line(error) if error.kind() == io::ErrorKind::UnexpectedEof));
}

#[tokio::test(start_paused = true)]
async fn endless_noise_neither_grows_nor_blocks() {
    let (readings, letters, condition, _) = run(master_of_one(), 3, |number, request| match number {
        0 => vec![(1, vec![1; 4000]), (1, vec![0x55; 4000])],
        _ => vec![(10, answer(request))],
    })
    .await;
    assert_eq!(readings.len(), 1);
    assert_eq!((letters.len(), letters[0].payload.len()), (1, 256));
    assert_eq!(condition.up, Some(true));
}
