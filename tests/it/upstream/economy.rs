//! What the upstream has to do for a reading: a share of one insert, and never an update.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tipbucket::clock::Clock;
use tipbucket::forwarder;
use tipbucket::model::{
    BucketPolicy, FieldName, Policies, Reading, SensorName, SiteName, Timestamp, Value, WindowLength,
};
use tipbucket::stats::Stats;
use tipbucket::store::{self, Delivery};
use tokio_util::sync::CancellationToken;

use super::{START, config, upstream};
use crate::support::wire_peer::WirePeer;

const SENSORS: i64 = 150;
const SAMPLES: i64 = 60;

#[tokio::test]
async fn a_sensors_window_is_one_document_and_no_reading_is_an_update() {
    let (peer, stats, end) = (WirePeer::start([]).await, Stats::default(), CancellationToken::new());
    let folder = tempfile::tempdir().unwrap();
    let settings = store::Config { path: folder.path().join("t.db"), ..store::Config::default() };
    let default = BucketPolicy {
        window: WindowLength::from_seconds(600).unwrap(),
        max_samples: 1000,
        max_bytes: 64 << 10,
        grace: Duration::ZERO,
        decimals: None,
    };
    let policies = Policies { default, by_sensor: HashMap::new() };
    let opened =
        store::open(&settings, SiteName::new("economy").unwrap(), policies, 1000, Clock::system(), stats.clone()).await;
    let (inlet, outlet, writer) = opened.unwrap();
    let writer = tokio::spawn(writer.run());
    let way = upstream(config(&peer.uri(), "telemetry"));
    let forwarder = tokio::spawn(forwarder::run(outlet, way, Clock::system(), stats.clone(), end.clone()));

    let reading = |i: i64| {
        let at = Timestamp::clamped(START + i / SENSORS * 10_000);
        let fields = [(FieldName::new("temp").unwrap(), Value::F64(20.0 + i as f64 / 8.0))].into_iter().collect();
        Reading::new(SensorName::new(&format!("s{}", i % SENSORS)).unwrap(), at, fields).unwrap()
    };
    let readings = (0..SENSORS * SAMPLES).map(reading).collect();
    inlet.push(Delivery { urgent: true, ..Delivery::of(readings) }).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while stats.upstream().readings.get() < (SENSORS * SAMPLES) as u64 {
        assert!(Instant::now() < deadline, "only {} readings are delivered", stats.upstream().readings.get());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    // A report goes to other collections, once in ten minutes.
    let is_report =
        |command: &mongodb::bson::Document| command.values().next().unwrap().as_str().unwrap().starts_with('_');
    let commands: Vec<_> = peer.commands().into_iter().filter(|command| !is_report(command)).collect();
    assert!(commands.iter().all(|command| command.contains_key("insert")), "{commands:?}");
    let documents: usize = commands.iter().map(|command| command.get_array("documents").unwrap().len()).sum();
    assert_eq!(documents, SENSORS as usize);
    assert!(commands.len() <= 4, "{} commands for {SENSORS} documents", commands.len());
    end.cancel();
    forwarder.await.unwrap().unwrap();
    drop(inlet);
    writer.await.unwrap().unwrap();
}
