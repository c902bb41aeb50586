//! The program itself does its main job: messages in from a real broker, documents out in a real database.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Bson, Document};
use rumqttc::QoS;

use crate::support::daemon::Daemon;
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::Publisher;
use crate::support::{mongo, patience};

const SENSORS: usize = 5;
/// Readings of each sensor, before and while the program is stopped.
const PER_SENSOR: (usize, usize) = (30, 10);
/// Readings of the sensor whose bucket stays open over the restart and is full at the last of them.
const SLOW: (usize, usize) = (12, 8);
/// A service manager is told that a stop takes no longer.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reading_from_the_broker_is_once_in_the_database_also_over_a_restart() {
    let (server, database) = (mongo::server(), mongo::database());
    let broker = Mosquitto::start();
    let mut daemon = Daemon::new(&site(&broker.url(), &server.uri(), &database));
    let mut publisher = Publisher::new(broker.port);
    let begun = now_ms();

    daemon.start();
    daemon.until("the broker", Duration::from_secs(20), |status| status.sources[0].condition.state == "up");
    send(&mut publisher, begun, 0..PER_SENSOR.0, 0..SLOW.0).await;
    let first = (PER_SENSOR.0 * SENSORS + SLOW.0) as u64;
    daemon.until("the readings", Duration::from_secs(20), |status| status.store.readings == first);
    assert_eq!(daemon.get("/healthz"), Some((200, "ok\n".to_owned())));
    let told = daemon.tipbucket(&["status"]);
    let told = format!("{}{}", String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    for part in ["site      greenhouse-7", "162 readings of 6 sensors", "source    broker (mqtt) up"] {
        assert!(told.contains(part), "{told}");
    }

    let (ended, took) = daemon.terminate();
    assert!(ended.success() && took < STOPS_WITHIN, "{ended} after {took:?}; its log:\n{}", daemon.log());
    assert!(!daemon.tipbucket(&["status"]).status.success(), "nobody runs");
    send(&mut publisher, begun, PER_SENSOR.0..PER_SENSOR.0 + PER_SENSOR.1, SLOW.0..SLOW.0 + SLOW.1).await;

    daemon.start();
    let all = SENSORS * (PER_SENSOR.0 + PER_SENSOR.1) + SLOW.0 + SLOW.1;
    let deadline = Instant::now() + patience(Duration::from_secs(30));
    let documents = loop {
        let documents = server.documents(&database, "buckets").await;
        if documents.iter().map(count).sum::<usize>() >= all {
            break documents;
        }
        assert!(Instant::now() < deadline, "{documents:#?}\nits log:\n{}", daemon.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for sensor in 0..SENSORS {
        let expected: Vec<i64> = (0..PER_SENSOR.0 + PER_SENSOR.1).map(|n| n as i64).collect();
        assert_eq!(numbers(&documents, &format!("bench-{sensor}")), expected);
    }
    // The bucket that was open at the stop went on after it.
    let slow: Vec<&Document> = documents.iter().filter(|document| sensor(document) == "slow").collect();
    assert_eq!(slow.len(), 1, "{slow:#?}");
    let (sealed, part) = (slow[0].get_str("sealed").unwrap(), slow[0].get_i32("part").unwrap());
    assert_eq!((sealed, part, count(slow[0])), ("samples", 0, SLOW.0 + SLOW.1));
    let (ended, _) = daemon.terminate();
    assert!(ended.success(), "{ended}; its log:\n{}", daemon.log());
}

fn site(broker: &str, upstream: &str, database: &str) -> String {
    format!(
        "[site]\nname = 'greenhouse-7'\n[store]\ncommit_every = '200ms'\n[bucket]\nwindow = '2s'\ngrace = '1s'\n\
         [sensors.slow]\nwindow = '1d'\ngrace = '1h'\nmax_samples = {}\n\
         [upstream]\nuri = '{upstream}'\ndatabase = '{database}'\n\
         [sources.broker]\ntype = 'mqtt'\nurl = '{broker}'\nclient_id = 'greenhouse-7'\n\
         [[sources.broker.topics]]\nfilter = 'sensors/+/state'\nsensor = '{{1}}'\ndecode = 'json'\n\
         fields = {{ n = '/n', temp = '/temperature' }}\ntime = '/ts'\n",
        SLOW.0 + SLOW.1
    )
}

/// Publishes with QoS 1 until the broker has everything; times are a few milliseconds after `begun`.
async fn send(publisher: &mut Publisher, begun: i64, bench: std::ops::Range<usize>, slow: std::ops::Range<usize>) {
    let sent = bench.len() * SENSORS + slow.len();
    for n in bench {
        for sensor in 0..SENSORS {
            publisher.send(&format!("sensors/bench-{sensor}/state"), QoS::AtLeastOnce, false, payload(begun, n)).await;
        }
    }
    for n in slow {
        publisher.send("sensors/slow/state", QoS::AtLeastOnce, false, payload(begun, n)).await;
    }
    publisher.acknowledged(sent).await;
}

fn payload(begun: i64, n: usize) -> String {
    format!(r#"{{"n":{n},"temperature":{}.5,"ts":{}}}"#, 20 + n % 7, begun + n as i64 * 150)
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn sensor(document: &Document) -> &str {
    document.get_str("sensor").unwrap()
}

fn samples(document: &Document) -> &[Bson] {
    document.get_array("samples").unwrap()
}

fn count(document: &Document) -> usize {
    assert_eq!(document.get_i32("count").unwrap() as usize, samples(document).len());
    samples(document).len()
}

/// The numbers of a sensor's samples, over all its documents, in order of number.
fn numbers(documents: &[Document], sensor: &str) -> Vec<i64> {
    let of_sensor = documents.iter().filter(|document| self::sensor(document) == sensor);
    let mut numbers: Vec<i64> = of_sensor.flat_map(samples).map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn number(sample: &Bson) -> i64 {
    match sample.as_document().unwrap().get("n") {
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        Some(Bson::Double(n)) => *n as i64,
        other => panic!("{other:?}"),
    }
}
