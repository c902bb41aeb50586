//! The program itself reads a Modbus meter on a terminal, through everything that goes wrong on a real line, and what
//! arrives in the database is exactly what the meter said.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, Document};

use super::modbus::{ms, with_crc};
use crate::support::daemon::Daemon;
use crate::support::pty::{ById, Player, Pty};
use crate::support::{mongo, patience};

/// Far longer than anything here takes.
const WITHIN: Duration = Duration::from_secs(40);
/// The meter misbehaves in a cycle of so many requests; odd, so that both of its requests meet every fault.
const CYCLE: usize = 9;

/// A meter that counts its rounds, as `n` and as 1.5 times that.
struct Meter {
    round: u32,
    owed: Option<Vec<u8>>,
    silent: Arc<AtomicBool>,
}

impl Meter {
    fn plug(pty: Pty, round: u32, silent: &Arc<AtomicBool>) -> Player {
        let mut meter = Self { round, owed: None, silent: Arc::clone(silent) };
        Player::modbus(pty, move |number, request| meter.hears(number, request))
    }

    /// What it sends to a request, after which pauses.
    fn hears(&mut self, number: usize, request: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        if self.silent.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let right = self.answer(request);
        let late = self.owed.take().map(|bytes| (ms(0), bytes));
        let sends = match number % CYCLE {
            1 => vec![(ms(0), vec![0xff, 0x00, 0x01, 0x04, 0x02]), (ms(3), right), (ms(0), vec![0x00])],
            3 => right.chunks(2).map(|piece| (ms(4), piece.to_vec())).collect(),
            5 => {
                let mut wrong = right;
                wrong[4] ^= 0x10;
                vec![(ms(0), wrong)]
            }
            7 => {
                // It comes when the next question is already asked.
                self.owed = Some(right);
                Vec::new()
            }
            _ => vec![(ms(5), right)],
        };
        late.into_iter().chain(sends).collect()
    }

    fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        let data = match request[3] {
            0 => {
                self.round += 1;
                self.round.to_be_bytes()
            }
            100 => (self.round as f32 * 1.5).to_be_bytes(),
            other => panic!("nobody asked for register {other}: {request:?}"),
        };
        with_crc(&[&[request[0], request[1], 4], &data[..]].concat())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_meter_says_through_a_bad_line_is_what_the_database_holds() {
    let (server, database) = (mongo::server(), mongo::database());
    let (by_id, silent) = (ById::new(), Arc::new(AtomicBool::new(false)));
    let mut daemon = Daemon::new(&site(&by_id.path().to_string_lossy(), &server.uri(), &database));
    let pty = Pty::new();
    by_id.plug(&pty);
    let meter = Meter::plug(pty, 0, &silent);
    daemon.start();
    daemon.until("readings", WITHIN, |status| status.sources[0].readings >= 40);
    // Every ninth request meets a wrong checksum, which is kept as it came.
    assert!(daemon.status().unwrap().store.dead_letters >= 3, "{}", daemon.log());

    by_id.unplug();
    drop(meter);
    let away = daemon.until("the unplug", WITHIN, |status| status.sources[0].condition.state == "down");
    assert!(away.sources[0].condition.detail.contains("usb-adapter"), "{away:#?}");
    assert_eq!(daemon.get("/healthz"), Some((200, "ok\n".to_owned())), "a missing meter is no ill health");
    let before = away.sources[0].readings;

    let pty = Pty::new();
    by_id.plug(&pty);
    let _meter = Meter::plug(pty, 1_000_000, &silent);
    daemon.until("readings again", WITHIN, |status| status.sources[0].readings >= before + 20);
    assert_eq!(daemon.status().unwrap().sources[0].restarts, 0, "an unplug is no failure of the source");
    silent.store(true, Ordering::Relaxed);
    daemon.until("the silence", WITHIN, |status| status.sources[0].condition.detail.contains("no answer"));

    // What was read last waits for its commit.
    let all = daemon.until("the last commit", WITHIN, |status| status.store.readings == status.sources[0].readings);
    let stored = all.store.readings;
    let deadline = Instant::now() + patience(WITHIN);
    let documents = loop {
        let documents = server.documents(&database, "buckets").await;
        if documents.iter().map(|document| samples(document).len() as u64).sum::<u64>() >= stored {
            break documents;
        }
        assert!(Instant::now() < deadline, "not {stored} samples in {documents:#?}\nits log:\n{}", daemon.log());
        tokio::time::sleep(ms(100)).await;
    };
    check(&documents, stored);
    let (ended, took) = daemon.terminate();
    assert!(ended.success() && took < Duration::from_secs(10), "{ended} after {took:?}; its log:\n{}", daemon.log());
}

/// No value is wrong, stale, doubled or out of order, whatever was on the line.
fn check(documents: &[Document], stored: u64) {
    let samples: Vec<&Document> = documents.iter().flat_map(samples).map(|s| s.as_document().unwrap()).collect();
    assert_eq!(samples.len() as u64, stored);
    let mut last = 0;
    let (mut whole, mut partial, mut replugged) = (0, 0, false);
    for sample in samples {
        let n = sample.get("n").map(|n| n.as_i64().unwrap());
        let level = sample.get("level").map(|level| level.as_f64().unwrap());
        match (n, level) {
            (Some(n), Some(level)) => {
                assert!((level - n as f64 * 1.5).abs() < f64::EPSILON, "two rounds in one sample: {sample}");
                whole += 1;
            }
            _ => partial += 1,
        }
        if let Some(n) = n {
            assert!(n > last, "{n} after {last}: a late answer was taken for a new one");
            replugged |= last < 1_000_000 && n > 1_000_000 && last > 0;
            last = n;
        }
    }
    assert!(whole >= 20 && partial >= 5 && replugged, "{whole} whole and {partial} partial samples");
    for document in documents {
        assert_eq!(document.get_str("sensor").unwrap(), "boiler/meter");
        assert!(document.get_str("_id").unwrap().starts_with("cellar/boiler%2Fmeter|"), "{document}");
        let units = document.get_document("meta").unwrap().get_document("units").unwrap();
        assert_eq!(units.get_str("level").unwrap(), "V");
    }
}

fn samples(document: &Document) -> &[Bson] {
    document.get_array("samples").unwrap()
}

fn site(port: &str, upstream: &str, database: &str) -> String {
    format!(
        "[site]\nname = 'cellar'\n[store]\ncommit_every = '200ms'\n[bucket]\nwindow = '2s'\ngrace = '500ms'\n\
         [upstream]\nuri = '{upstream}'\ndatabase = '{database}'\n\
         [sources.boiler]\ntype = 'modbus-rtu'\nport = '{port}'\nbaud = 115200\nformat = '8E1'\n\
         timeout = '100ms'\ngap = '5ms'\nretries = 0\n\
         [[sources.boiler.devices]]\nsensor = 'boiler/meter'\nunit_id = 17\npoll = '50ms'\n\
         registers = [\n  {{ field = 'n', table = 'input', address = 0, type = 'u32' }},\n  \
         {{ field = 'level', table = 'input', address = 100, type = 'f32', unit = 'V' }},\n]\n"
    )
}
