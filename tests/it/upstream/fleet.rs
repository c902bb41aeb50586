//! Reports, gaps, orders and time series on a MongoDB-compatible server.

use std::collections::HashSet;
use std::time::Duration;

use mongodb::bson::{DateTime, Document as Bsondoc, doc};
use tipbucket::model::Timestamp;
use tipbucket::upstream::{Config, Document, Gap, Mode, Orders, TroubleKind, Tuning, Vitals};

use super::{STORE, bucket, config, fates, patient, trouble, upstream, with};
use crate::support::{mongo, patience};

#[tokio::test]
async fn a_gateway_has_one_document_and_reads_its_orders() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut upstream = upstream(config(&server.uri(), &database));
    let vitals = Vitals { backlog: 7, store: STORE.into(), ..Vitals::default() };
    assert_eq!(upstream.report(&vitals).await, Some(Orders::default()));
    let control = server.client().await.database(&database).collection::<Bsondoc>("_control");
    let until = DateTime::from_millis(DateTime::now().timestamp_millis() + 600_000);
    control.insert_one(doc! { "_id": "*", "maxRate": 5000, "pauseUntil": until, "splay": 60 }).await.unwrap();
    let vitals = Vitals { backlog: 3, last_error: Some((Timestamp::EPOCH, "no".into())), ..vitals };
    let orders = upstream.report(&vitals).await.unwrap();
    assert_eq!((orders.max_rate, orders.splay), (Some(5000), Some(Duration::from_secs(60))));
    assert_eq!(orders.pause_until.unwrap().as_millis(), until.timestamp_millis());
    let gateways = server.documents(&database, "_gateways").await;
    assert_eq!(gateways.len(), 1);
    let ours = &gateways[0];
    assert_eq!((ours.get_str("_id").unwrap(), ours.get_i64("backlog").unwrap()), ("greenhouse-7", 3));
    assert_eq!((ours.get_str("lastError").unwrap(), ours.get_str("store").unwrap()), ("no", STORE));
    let seen = ours.get_datetime("seen").unwrap().timestamp_millis();
    assert!((DateTime::now().timestamp_millis() - seen).abs() < 60_000, "the server's own time");
    upstream.close().await;
}

#[tokio::test]
async fn gaps_are_stored_once_however_often_they_are_sent() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut upstream = upstream(config(&server.uri(), &database));
    let gap = |id| Gap {
        id,
        at: Timestamp::EPOCH,
        sensor: Some("a".into()),
        first: Timestamp::EPOCH,
        last: Timestamp::EPOCH,
        samples: 5,
        reason: "evicted".into(),
    };
    assert!(upstream.gaps(&[gap(1), gap(2)], STORE).await);
    assert!(upstream.gaps(&[gap(2), gap(3)], STORE).await);
    assert_eq!(upstream.gaps_after(), 3);
    let gaps = server.documents(&database, "_gaps").await;
    assert_eq!((gaps.len(), gaps[0].get_str("reason").unwrap()), (3, "evicted"));
    upstream.close().await;
}

#[tokio::test]
async fn measurements_go_into_a_time_series_collection_once() {
    let (server, database) = (mongo::server(), mongo::database());
    let config =
        Config { mode: Mode::Timeseries, collection: "readings_ts".into(), ..config(&server.uri(), &database) };
    let ids = async || -> Vec<String> {
        let stored = server.documents(&database, "readings_ts").await;
        stored.iter().map(|row| row.get_object_id("_id").unwrap().to_hex()).collect()
    };
    // It counts from the start of the upstream, and what follows must reach the first delivery before it is over.
    let quarantine = patience(Duration::from_secs(2));
    for round in 0..3 {
        let tuning = Tuning { quarantine, ..patient() };
        let mut upstream = with(config.clone(), tuning);
        assert_eq!(upstream.greet().await.trouble, None);
        let context = upstream.context(STORE);
        let mut sent =
            [bucket("a", 0, &[1.0, 2.0]), bucket("b", 0, &[3.0])].map(|bucket| Document::of(&bucket, &context));
        let report = upstream.deliver(&mut sent, STORE).await;
        assert_eq!((fates(&report).as_str(), trouble(&report).0), ("--", TroubleKind::Transient), "{round}");
        tokio::time::sleep(quarantine).await;
        assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "dd", "{round}");
        let ids = ids().await;
        assert_eq!((ids.len(), ids.iter().collect::<HashSet<_>>().len()), (3, 3), "{round}");
        upstream.close().await;
    }
    let stored = server.documents(&database, "readings_ts").await;
    let subject = stored[0].get_document("meta").unwrap();
    assert_eq!(subject, &doc! { "site": "greenhouse-7", "sensor": subject.get_str("sensor").unwrap() });
    assert!(stored.iter().all(|row| row.get_datetime("t").is_ok() && row.get_f64("temp").is_ok()));
}
