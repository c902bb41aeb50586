//! Readings one by one into documents that others write too.

use mongodb::bson::{Bson, Document as Bsondoc, doc};
use tipbucket::upstream::{Config, Document, Fate, Mode as Way, TroubleKind};

use super::gateway::{Gateway, Readings, held};
use super::{START, STORE, bucket, config, fates, impatient, trouble, upstream, with};
use crate::support::mongo;
use crate::support::proxy::{Mode, Proxy};
use crate::support::wire_peer::{Answer, WirePeer};

fn append(uri: &str, database: &str) -> Config {
    Config { mode: Way::Append, append_up_to: 7, reports: std::time::Duration::ZERO, ..config(uri, database) }
}

#[tokio::test]
async fn what_another_writer_began_is_filled_up_and_no_document_is_overfull() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut upstream = upstream(append(&server.uri(), &database));
    let client = server.client().await;
    let shared = client.database(&database).collection::<Bsondoc>("buckets");
    let start = mongodb::bson::DateTime::from_millis(START);
    let theirs = doc! { "site": "greenhouse-7", "sensor": "a", "start": start, "count": 5, "samples": [1, 2, 3, 4, 5], "owner": "them" };
    shared.insert_one(theirs).await.unwrap();
    let values: Vec<f64> = (0..10).map(f64::from).collect();
    let mut sent = [Document::of(&bucket("a", 0, &values), &upstream.context(STORE))];
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!((fates(&report).as_str(), &report.trouble), ("d", &None));
    let stored = server.documents(&database, "buckets").await;
    let mut counts: Vec<i32> = stored.iter().map(|document| document.get_i32("count").unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 7, 7]);
    let theirs = stored.iter().find(|document| document.contains_key("owner")).unwrap();
    assert_eq!(theirs.get_array("samples").unwrap().len(), 7);
    assert_eq!(theirs.get_document("stats").unwrap().get_document("temp").unwrap().get_f64("sum").unwrap(), 1.0);
    upstream.close().await;
}

#[tokio::test]
async fn without_lost_answers_the_database_holds_what_was_accepted() {
    let (server, database, folder) = (mongo::server(), mongo::database(), tempfile::tempdir().unwrap());
    if !server.has_fail_points() {
        return;
    }
    let uri = format!("{}&appName={database}", server.uri());
    let gateway = Gateway::start(folder.path(), append(&uri, &database), 15).await;
    let mut readings = Readings::default();
    for step in 0..60 {
        gateway.accept(readings.take(&["a", "b", "c"])).await;
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        if step == 20 {
            // Answers that say that nothing was done.
            let busy = doc! { "failCommands": ["update"], "appName": database.as_str(), "errorCode": 112 };
            let fail_point = server.fail(1000, busy).await;
            gateway.until("answers say so", |stats| stats.upstream().failures.get() >= 2).await;
            fail_point.off().await;
        }
    }
    gateway.delivered(readings.accepted.len()).await;
    let stats = gateway.stop().await;
    let stored = server.documents(&database, "buckets").await;
    assert_eq!(held(&stored), readings.sorted());
    assert!(stored.iter().all(|document| document.get_i32("count").unwrap() <= 7));
    assert_eq!(stats.upstream().refused.get(), 0);
    for document in &stored {
        let times: Vec<_> = document.get_array("samples").unwrap().iter().map(time).collect();
        assert!(times.is_sorted(), "in order: {document}");
    }
}

fn time(sample: &Bson) -> mongodb::bson::DateTime {
    *sample.as_document().unwrap().get_datetime("t").unwrap()
}

#[tokio::test]
async fn a_lost_answer_stores_readings_twice_as_is_said() {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    let mut upstream = with(append(&proxy.mongodb_uri(), &database), impatient());
    let one = |values: &[f64]| [Document::of(&bucket("a", 0, values), &upstream.context(STORE))];
    let (mut first, mut second) = (one(&[1.0]), one(&[2.0, 3.0]));
    assert_eq!(fates(&upstream.deliver(&mut first, STORE).await), "d");
    proxy.mode(Mode::Swallow);
    let report = upstream.deliver(&mut second, STORE).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("-", TroubleKind::Transient));
    proxy.mode(Mode::Pass);
    let report = super::deliver_in_the_end(&mut upstream, &mut second).await;
    assert_eq!(fates(&report), "d");
    let stored = server.documents(&database, "buckets").await;
    assert_eq!(held(&stored).len(), 5, "not exact, and nothing lost");
}

#[tokio::test]
async fn updates_go_in_order_and_only_what_failed_goes_again() {
    let failed = doc! { "ok": 1, "n": 3, "writeErrors": [{ "index": 3, "code": 91, "errmsg": "shutting down" }] };
    let peer = WirePeer::start([Answer::Document(failed)]).await;
    let mut upstream = with(append(&peer.uri(), "telemetry"), impatient());
    let context = upstream.context(STORE);
    let mut sent = ["a", "b"].map(|sensor| Document::of(&bucket(sensor, 0, &[1.0, 2.0]), &context));
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("d-", TroubleKind::Transient));
    assert_eq!(upstream.deliver(&mut sent[1..], STORE).await.fates, [Fate::Delivered]);
    let commands = peer.commands();
    let count = |command: &Bsondoc| command.get_array("updates").unwrap().len();
    assert_eq!(commands.iter().map(count).collect::<Vec<_>>(), [4, 1]);
    assert!(commands.iter().all(|command| command.get_bool("ordered").unwrap()));
    // An answer that tells of more than the first failure, or of too much, proves nothing.
    let two = doc! { "ok": 1, "n": 2, "writeErrors": [{ "index": 1, "code": 91 }, { "index": 2, "code": 91 }] };
    for answer in [two, doc! { "ok": 1, "n": 3 }, doc! { "ok": 1 }] {
        let peer = WirePeer::start([Answer::Document(answer)]).await;
        let mut upstream = with(append(&peer.uri(), "telemetry"), impatient());
        let mut sent = ["a", "b"].map(|sensor| Document::of(&bucket(sensor, 0, &[1.0, 2.0]), &context));
        assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "--");
    }
}
