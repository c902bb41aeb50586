//! The program under fire: killed, its broker restarted, its database taken away, while numbered messages stream in.
//! In the end every number is upstream exactly once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Bson, Document};
use rumqttc::QoS;

use crate::support::daemon::Daemon;
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::Publisher;
use crate::support::proxy::{Mode, Proxy};
use crate::support::{mongo, patience};

/// Messages of each kind, and how many of each kind a second.
const MESSAGES: usize = 10_000;
const PER_SECOND: usize = 500;
/// Sensors of each kind.
const SENSORS: usize = 10;
/// Messages published in one go.
const BURST: usize = 25;

/// What happens before this many messages of each kind are out.
enum Event {
    Kill,
    DatabaseAway,
    DatabaseBack,
    BrokerRestarts,
}

const EVENTS: [(usize, Event); 8] = [
    (1_000, Event::Kill),
    (2_500, Event::Kill),
    (3_300, Event::DatabaseAway),
    (4_500, Event::Kill),
    (5_500, Event::BrokerRestarts),
    (6_000, Event::Kill),
    (6_700, Event::DatabaseBack),
    (8_500, Event::Kill),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_numbered_message_is_upstream_exactly_once_whatever_dies() {
    every_numbered_message_once(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_numbered_message_is_upstream_exactly_once_with_mqtt_5_too() {
    every_numbered_message_once(5).await;
}

async fn every_numbered_message_once(version: u8) {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    let mut broker = Mosquitto::with("allow_anonymous true\nmax_inflight_messages 200\n");
    let mut daemon = Daemon::new(&site(&broker.url(), version, &proxy.mongodb_uri(), &database));
    daemon.start();
    daemon.until("the broker", Duration::from_secs(20), |status| status.sources[0].condition.state == "up");

    let mut publisher = Publisher::new(broker.port);
    let mut events = EVENTS.iter().peekable();
    let mut pace = tokio::time::interval(Duration::from_millis((1000 * BURST / PER_SECOND) as u64));
    let mut unacknowledged = 0;
    for burst in (0..messages()).collect::<Vec<_>>().chunks(BURST) {
        while let Some((_, event)) = events.next_if(|(at, _)| *at * messages() / MESSAGES <= burst[0]) {
            match event {
                Event::Kill => {
                    daemon.kill();
                    daemon.start();
                }
                Event::DatabaseAway => proxy.mode(Mode::Refuse),
                Event::DatabaseBack => proxy.mode(Mode::Pass),
                Event::BrokerRestarts => {
                    // A publisher that repeats itself would be a duplicate of its own.
                    publisher.acknowledged(std::mem::take(&mut unacknowledged)).await;
                    broker.stop();
                    broker.start_again();
                    publisher = Publisher::new(broker.port);
                }
            }
        }
        pace.tick().await;
        for &n in burst {
            let (own, arrival) = (format!("own/{}", n % SENSORS), format!("arrival/{}", n % SENSORS));
            publisher.send(&own, QoS::AtLeastOnce, false, format!(r#"{{"n":{n},"ts":{}}}"#, now_ms())).await;
            publisher.send(&arrival, QoS::AtLeastOnce, false, format!(r#"{{"n":{n}}}"#)).await;
            unacknowledged += 2;
        }
    }
    publisher.acknowledged(unacknowledged).await;

    let expected: Vec<i64> = (0..messages() as i64).collect();
    let deadline = Instant::now() + patience(Duration::from_secs(60));
    loop {
        let found = numbers(&server.documents(&database, "buckets").await);
        let complete =
            ["own", "arrival"].iter().all(|kind| found.get(*kind).is_some_and(|n| n.len() >= expected.len()));
        if complete || Instant::now() > deadline {
            for kind in ["own", "arrival"] {
                let mut found = found.get(kind).cloned().unwrap_or_default();
                found.sort_unstable();
                let twice: Vec<_> = found.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
                let missing: Vec<_> = expected.iter().filter(|n| found.binary_search(n).is_err()).collect();
                assert!(
                    twice.is_empty() && missing.is_empty(),
                    "{kind}: twice {twice:?}, missing {missing:?}; log:\n{}",
                    daemon.log()
                );
            }
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (ended, took) = daemon.terminate();
    assert!(ended.success() && took < Duration::from_secs(10), "{ended} after {took:?}; log:\n{}", daemon.log());
}

/// Fewer under emulation, where five hundred a second are too many.
fn messages() -> usize {
    let emulated = std::env::var_os("TIPBUCKET_TEST_RUNNER").is_some_and(|runner| !runner.is_empty());
    if emulated { MESSAGES / 10 } else { MESSAGES }
}

fn site(broker: &str, version: u8, upstream: &str, database: &str) -> String {
    format!(
        "[site]\nname = 'drill'\n[store]\nmax_bytes = '64MiB'\n[bucket]\nwindow = '5s'\ngrace = '1s'\nmax_samples = 200\n\
         [upstream]\nuri = '{upstream}&serverSelectionTimeoutMS=2000'\ndatabase = '{database}'\n\
         [sources.broker]\ntype = 'mqtt'\nurl = '{broker}'\nclient_id = 'drill'\nprotocol = {version}\n\
         [[sources.broker.topics]]\nfilter = 'own/+'\nsensor = 'own-{{1}}'\nfields = {{ n = '/n' }}\ntime = '/ts'\n\
         [[sources.broker.topics]]\nfilter = 'arrival/+'\nsensor = 'arrival-{{1}}'\nfields = {{ n = '/n' }}\n"
    )
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

/// All numbers by kind, in the order found. Checks each document's bookkeeping on the way.
fn numbers(documents: &[Document]) -> BTreeMap<String, Vec<i64>> {
    let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for document in documents {
        let samples = document.get_array("samples").unwrap();
        assert_eq!(document.get_i32("count").unwrap() as usize, samples.len());
        let (kind, _) = document.get_str("sensor").unwrap().split_once('-').unwrap();
        found.entry(kind.to_owned()).or_default().extend(samples.iter().map(number));
    }
    found
}

fn number(sample: &Bson) -> i64 {
    sample.as_document().unwrap().get_i64("n").unwrap()
}
