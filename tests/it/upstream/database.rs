//! Delivery to a MongoDB-compatible server (SecantusDB).

use mongodb::bson::{DateTime, Document as Bsondoc, RawDocumentBuf, doc};
use tipbucket::model::{FieldName, Value};
use tipbucket::upstream::{Document, Fate, TroubleKind};

use super::{START, STORE, bucket, config, documents, fates, trouble, upstream};
use crate::support::mongo;

#[tokio::test]
async fn a_bucket_arrives_as_the_document_that_is_promised() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut upstream = upstream(config(&server.uri(), &database));
    let mut sent = documents(&upstream, &["boiler/1"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!((fates(&report).as_str(), &report.trouble), ("d", &None));
    let at = |ms: i64| DateTime::from_millis(START + ms);
    let expected = doc! {
        "_id": "greenhouse-7/boiler%2F1|20261130T130000.000Z|600|0",
        "site": "greenhouse-7", "sensor": "boiler/1", "part": 0,
        "start": at(0), "end": at(600_000), "first": at(0), "last": at(1000), "count": 2,
        "stats": { "temp": { "count": 2, "sum": 43.5, "min": 21.5, "max": 22.0, "first": 21.5, "last": 22.0 } },
        "samples": [{ "t": at(0), "temp": 21.5 }, { "t": at(1000), "temp": 22.0 }],
        "sealed": "window", "clock": "synced", "hash": sent[0].hash.as_str(), "store": STORE, "schema": 1,
    };
    assert_eq!(server.documents(&database, "buckets").await, [expected]);
    upstream.close().await;
}

#[tokio::test]
async fn every_type_of_value_is_stored_bit_for_bit() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut upstream = upstream(config(&server.uri(), &database));
    let mut odd = bucket("odd", 0, &[-0.0, 1e300, 5e-324, 0.1 + 0.2]);
    let field = |name: &str, value| (FieldName::new(name).unwrap(), value);
    odd.samples[1].fields.extend([
        field("min", Value::I64(i64::MIN)),
        field("huge", Value::U64(u64::MAX)),
        field("on", Value::Bool(false)),
        field("text", Value::text("a\0b é🌡").unwrap()),
        field("t", Value::I64(1)),
        field("_id", Value::I64(2)),
    ]);
    let mut sent = [Document::of(&odd, &upstream.context(STORE))];
    assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "d");
    let collection = server.client().await.database(&database).collection::<RawDocumentBuf>("buckets");
    assert_eq!(collection.find_one(doc! {}).await.unwrap().unwrap(), *sent[0].bson());
}

#[tokio::test]
async fn sending_again_after_a_restart_stores_one_copy() {
    let (server, database) = (mongo::server(), mongo::database());
    for sensors in [&["a", "b"][..], &["a", "b", "c"]] {
        let mut upstream = upstream(config(&server.uri(), &database));
        let mut sent = documents(&upstream, sensors);
        let report = upstream.deliver(&mut sent, STORE).await;
        assert_eq!((fates(&report), report.conflicts), ("d".repeat(sensors.len()), 0));
        upstream.close().await;
    }
    assert_eq!(server.documents(&database, "buckets").await.len(), 3);
}

#[tokio::test]
async fn a_re_imaged_card_overwrites_nothing_and_loses_nothing() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut upstream = upstream(config(&server.uri(), &database));
    let contexts = ["0badcafe", "feedbeef"].map(|store| upstream.context(store));
    let of = |store: &str, value: f64| {
        let context = contexts.iter().find(|context| context.store == store).unwrap();
        Document::of(&bucket("a", 0, &[value]), context)
    };
    let stores = [("0badcafe", 1.0), ("feedbeef", 2.0), ("feedbeef", 3.0)];
    let mut sent: Vec<_> = stores.iter().map(|(store, value)| vec![of(store, *value)]).collect();
    for (documents, (store, _)) in sent.iter_mut().zip(stores) {
        let report = upstream.deliver(documents, store).await;
        assert_eq!(fates(&report), "d");
        assert_eq!(report.conflicts, u64::from(store != "0badcafe"));
    }
    let stored = server.documents(&database, "buckets").await;
    let sums: Vec<f64> = stored
        .iter()
        .map(|d| d.get_document("stats").unwrap().get_document("temp").unwrap().get_f64("sum").unwrap())
        .collect();
    assert_eq!(sums, [1.0, 2.0, 3.0]);
    let endings: Vec<&str> = stored.iter().map(|d| d.get_str("_id").unwrap().split("|600|0").nth(1).unwrap()).collect();
    assert_eq!(endings[..2], ["", "~feedbeef"]);
    assert_eq!(endings[2], format!("~feedbeef-{}", &sent[2][0].hash[..8]));
    // And once more, as after a lost reply: everything is there already.
    let mut again = vec![of("feedbeef", 2.0)];
    assert_eq!(fates(&upstream.deliver(&mut again, "feedbeef").await), "d");
    assert_eq!(server.documents(&database, "buckets").await.len(), 3);
}

#[tokio::test]
async fn a_document_that_the_validator_refuses_comes_with_its_reason() {
    let (server, database) = (mongo::server(), mongo::database());
    let client = server.client().await;
    let validator = doc! { "$jsonSchema": { "properties": { "sensor": { "enum": ["a", "c", "d"] } } } };
    client.database(&database).create_collection("buckets").validator(validator).await.unwrap();
    let mut upstream = upstream(config(&server.uri(), &database));
    let mut sent = documents(&upstream, &["a", "b", "c", "d"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!(fates(&report), "dxdd");
    let Fate::Refused(reason) = &report.fates[1] else { panic!() };
    for part in ["121", "errInfo", "failingDocumentId", "1 try"] {
        assert!(reason.contains(part), "{part} in {reason}");
    }
    assert_eq!(server.documents(&database, "buckets").await.len(), 3);
}

#[tokio::test]
async fn a_changed_validator_stops_the_line() {
    let (server, database) = (mongo::server(), mongo::database());
    let client = server.client().await;
    let validator = doc! { "$jsonSchema": { "required": ["colour"] } };
    client.database(&database).create_collection("buckets").validator(validator).await.unwrap();
    let mut upstream = upstream(config(&server.uri(), &database));
    let mut sent = documents(&upstream, &["a", "b", "c", "d"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!(fates(&report), "----");
    assert_eq!(trouble(&report).0, TroubleKind::Stopped);
    assert!(trouble(&report).1.contains("validator"));
    let looser: Bsondoc = doc! { "collMod": "buckets", "validator": {} };
    client.database(&database).run_command(looser).await.unwrap();
    assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "dddd");
}

#[tokio::test]
async fn another_unique_index_is_not_taken_for_our_own_copy() {
    let (server, database) = (mongo::server(), mongo::database());
    let collection = server.client().await.database(&database).collection::<Bsondoc>("buckets");
    let unique = mongodb::options::IndexOptions::builder().unique(true).build();
    let index = mongodb::IndexModel::builder().keys(doc! { "site": 1 }).options(unique).build();
    collection.create_index(index).await.unwrap();
    let mut upstream = upstream(config(&server.uri(), &database));
    let mut sent = documents(&upstream, &["a", "b"]);
    assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "dx");
}

#[tokio::test]
async fn renamed_fields_are_read_back_under_their_names() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut renamed = config(&server.uri(), &database);
    renamed.names.hash = "h".into();
    renamed.names.sensor = "sensorId".into();
    let mut upstream = upstream(renamed);
    let mut sent = documents(&upstream, &["a"]);
    for _ in 0..2 {
        let report = upstream.deliver(&mut sent, STORE).await;
        assert_eq!((fates(&report).as_str(), report.conflicts), ("d", 0));
    }
    let stored = server.documents(&database, "buckets").await;
    assert_eq!((stored.len(), stored[0].get_str("sensorId").unwrap()), (1, "a"));
}

/// Sends two buckets while the server fails `insert` like this, then again; gives the first report.
async fn with_fail_point(times: i32, mut data: Bsondoc) -> Option<(tipbucket::upstream::Report, usize)> {
    let (server, database) = (mongo::server(), mongo::database());
    if !server.has_fail_points() {
        return None;
    }
    data.insert("failCommands", vec!["insert"]);
    data.insert("appName", database.as_str());
    let mut upstream = upstream(config(&format!("{}&appName={database}", server.uri()), &database));
    let mut sent = documents(&upstream, &["a", "b"]);
    let fail_point = server.fail(times, data).await;
    let first = upstream.deliver(&mut sent, STORE).await;
    fail_point.off().await;
    let stored = server.documents(&database, "buckets").await.len();
    let mut again = documents(&upstream, &["a", "b"]);
    assert_eq!(fates(&upstream.deliver(&mut again, STORE).await), "dd");
    assert_eq!(server.documents(&database, "buckets").await.len(), 2);
    Some((first, stored))
}

#[tokio::test]
async fn a_write_that_no_majority_confirmed_is_sent_again() {
    let concern = doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
    let Some((report, stored)) = with_fail_point(1, concern).await else { return };
    assert_eq!(fates(&report), "--");
    assert_eq!(trouble(&report).0, TroubleKind::Transient);
    assert_eq!(stored, 2, "it was applied all the same");
}

#[tokio::test]
async fn failed_commands_are_told_apart() {
    let rows = [
        (13, TroubleKind::Stopped, "grant the user insert and find"),
        (8000, TroubleKind::Stopped, "free space"),
        (14031, TroubleKind::Stopped, "free space"),
        (462, TroubleKind::Overload, "462"),
        (112, TroubleKind::Transient, "112"),
    ];
    for (code, kind, words) in rows {
        let Some((report, stored)) = with_fail_point(5, doc! { "errorCode": code }).await else { return };
        assert_eq!((fates(&report).as_str(), trouble(&report).0, stored), ("--", kind, 0), "{code}");
        assert!(trouble(&report).1.contains(words), "{}", trouble(&report).1);
    }
}

#[tokio::test]
async fn one_closed_connection_is_retried_and_two_are_told() {
    let Some((report, _)) = with_fail_point(1, doc! { "closeConnection": true }).await else { return };
    assert_eq!(fates(&report), "dd");
    let Some((report, _)) = with_fail_point(2, doc! { "closeConnection": true }).await else { return };
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("--", TroubleKind::Transient));
}
