//! The program itself in mode `live`, killed while open buckets are shown.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Bson, Document};
use rumqttc::QoS;

use crate::support::daemon::Daemon;
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::Publisher;
use crate::support::{mongo, patience};

const SENSORS: usize = 3;
const KILLS: usize = 3;
/// Readings of each sensor while the program runs, and while it does not.
const ROUND: (usize, usize) = (20, 5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_while_buckets_are_shown_changes_nothing_in_the_end() {
    let (server, database) = (mongo::server(), mongo::database());
    let broker = Mosquitto::start();
    let mut daemon = Daemon::new(&site(&broker.url(), &server.uri(), &database));
    let mut publisher = Publisher::new(broker.port);
    let mut sent = 0;
    for round in 0..=KILLS {
        daemon.start();
        daemon.until("the broker", Duration::from_secs(20), |status| status.sources[0].condition.state == "up");
        if round == KILLS {
            break;
        }
        // Sent until an open bucket is seen, so that the kill always meets one.
        let deadline = Instant::now() + patience(Duration::from_secs(60));
        let before = sent;
        let is_open = |documents: &[Document]| documents.iter().any(|document| document.contains_key("lastSeq"));
        while sent < before + ROUND.0 || !is_open(&server.documents(&database, "buckets").await) {
            assert!(Instant::now() < deadline, "no bucket is shown\nits log:\n{}", daemon.log());
            send(&mut publisher, sent).await;
            sent += 1;
        }
        daemon.kill();
        for _ in 0..ROUND.1 {
            send(&mut publisher, sent).await;
            sent += 1;
        }
    }
    let deadline = Instant::now() + patience(Duration::from_secs(60));
    let documents = loop {
        let documents = server.documents(&database, "buckets").await;
        let is_final = documents.iter().all(|document| document.contains_key("hash"));
        if is_final && documents.iter().map(|document| samples(document).len()).sum::<usize>() >= sent * SENSORS {
            break documents;
        }
        assert!(Instant::now() < deadline, "{documents:#?}\nits log:\n{}", daemon.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for sensor in 0..SENSORS {
        assert_eq!(numbers(&documents, &format!("s{sensor}")), (0..sent as i64).collect::<Vec<_>>());
    }
    assert!(documents.iter().all(|document| !document.contains_key("lastSeq")));
    let status = daemon.until("live", Duration::from_secs(30), |status| {
        status.upstream.live.as_ref().is_some_and(|live| live.state == "up")
    });
    assert_eq!((status.upstream.conflicts, status.upstream.refused), (0, 0));
    let told = String::from_utf8(daemon.tipbucket(&["status"]).stdout).unwrap();
    assert!(told.contains("live      up since") && told.contains("open buckets are sent every 1s"), "{told}");
    let (ended, _) = daemon.terminate();
    assert!(ended.success(), "{ended}; its log:\n{}", daemon.log());
}

fn site(broker: &str, upstream: &str, database: &str) -> String {
    format!(
        "[site]\nname = 'greenhouse-7'\n[store]\ncommit_every = '100ms'\n[bucket]\nwindow = '5s'\ngrace = '1s'\n\
         [upstream]\nmode = 'live'\nlive_every = '1s'\nuri = '{upstream}'\ndatabase = '{database}'\n\
         [sources.broker]\ntype = 'mqtt'\nurl = '{broker}'\nclient_id = 'greenhouse-7'\n\
         [[sources.broker.topics]]\nfilter = 'sensors/+/state'\nsensor = '{{1}}'\ndecode = 'json'\n\
         fields = {{ n = '/n' }}\ntime = '/ts'\n"
    )
}

/// One reading of each sensor, stamped now; returns when the broker has them.
async fn send(publisher: &mut Publisher, n: usize) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    for sensor in 0..SENSORS {
        let payload = format!(r#"{{"n":{n},"ts":{now}}}"#);
        publisher.send(&format!("sensors/s{sensor}/state"), QoS::AtLeastOnce, false, payload).await;
    }
    publisher.acknowledged(SENSORS).await;
    tokio::time::sleep(Duration::from_millis(80)).await;
}

fn samples(document: &Document) -> &[Bson] {
    document.get_array("samples").unwrap()
}

/// The numbers of a sensor's samples, over all its documents, in order of number.
fn numbers(documents: &[Document], sensor: &str) -> Vec<i64> {
    let of_sensor = documents.iter().filter(|document| document.get_str("sensor").unwrap() == sensor);
    let mut numbers: Vec<i64> =
        of_sensor.flat_map(samples).map(|sample| sample.as_document().unwrap().get_i64("n").unwrap()).collect();
    numbers.sort_unstable();
    numbers
}
