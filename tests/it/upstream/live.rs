//! Open buckets in a database, and the complete ones that take their place.

use std::time::Duration;

use mongodb::bson::{Bson, Document as Bsondoc, RawDocumentBuf, doc};
use tipbucket::model::Timestamp;
use tipbucket::upstream::{
    Config, Document, Known, LiveUpdate, Mode as Way, Shown, TroubleKind, Upstream, live_update,
};

use super::gateway::{Gateway, Readings, held};
use super::{START, STORE, bucket, config, fates, impatient, trouble, upstream, with};
use crate::support::proxy::{Mode, Proxy};
use crate::support::wire_peer::{Answer, WirePeer};
use crate::support::{mongo, patience};

const SENSORS: [&str; 3] = ["a", "b", "c"];

fn live(uri: &str, database: &str) -> Config {
    // Without reports to the fleet: they are updates too, and would meet what is meant for ours.
    let (live_every, reports) = (Duration::from_millis(200), Duration::ZERO);
    Config { mode: Way::Live, live_every, reports, ..config(uri, database) }
}

fn update(upstream: &Upstream, values: &[f64], known: Option<Known>) -> LiveUpdate {
    live_update(&bucket("a", 0, values), known, &upstream.context(STORE), Timestamp::from_millis(START).unwrap())
}

fn sealed(upstream: &Upstream, values: &[f64]) -> [Document; 1] {
    [Document::of(&bucket("a", 0, values), &upstream.context(STORE))]
}

async fn raw(database: &str) -> Vec<RawDocumentBuf> {
    let client = mongo::server().client().await;
    let collection = client.database(database).collection::<RawDocumentBuf>("buckets");
    let mut cursor = collection.find(doc! {}).await.unwrap();
    let mut found = Vec::new();
    while cursor.advance().await.unwrap() {
        found.push(cursor.deserialize_current().unwrap());
    }
    found
}

#[tokio::test]
async fn every_guard_holds_on_a_server() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut upstream = upstream(live(&server.uri(), &database));
    let first = update(&upstream, &[1.0, 2.0], None);
    let second = update(&upstream, &[1.0, 2.0, 3.0], Some(first.then));
    let third = update(&upstream, &[1.0, 2.0, 3.0, 4.5], Some(second.then));
    assert!(first.whole && !second.whole && !third.whole);
    let steps = [
        (&first, Shown::Made),
        (&second, Shown::Done),
        (&second, Shown::Taken),
        (&first, Shown::Taken),
        (&third, Shown::Done),
        (&third, Shown::Taken),
    ];
    for (update, expected) in steps {
        assert_eq!(upstream.live(std::slice::from_ref(update)).await.fates, [expected], "{update:?}");
    }
    let stored = server.documents(&database, "buckets").await;
    assert_eq!((stored.len(), stored[0].get_i64("lastSeq").unwrap(), stored[0].get_i32("count").unwrap()), (1, 4, 4));
    let temp = stored[0].get_document("stats").unwrap().get_document("temp").unwrap();
    assert_eq!(temp, &doc! { "count": 4, "sum": 10.5, "min": 1.0, "max": 4.5, "first": 1.0, "last": 4.5 });
    assert!(!stored[0].contains_key("hash"));

    let mut last = sealed(&upstream, &[1.0, 2.0, 3.0, 4.5, 5.0]);
    let report = upstream.deliver(&mut last, STORE).await;
    assert_eq!((fates(&report).as_str(), report.conflicts, &report.trouble), ("d", 0, &None));
    assert_eq!(raw(&database).await, [last[0].bson().clone()], "byte for byte");
    // Whatever is still under way, or comes again, changes nothing.
    for late in [&first, &second, &third] {
        assert_eq!(upstream.live(std::slice::from_ref(late)).await.fates, [Shown::Taken]);
    }
    assert_eq!(fates(&upstream.deliver(&mut sealed(&upstream, &[1.0, 2.0, 3.0, 4.5, 5.0]), STORE).await), "d");
    assert_eq!(raw(&database).await, [last[0].bson().clone()]);
    upstream.close().await;
}

#[tokio::test]
async fn other_content_is_neither_shown_over_nor_replaced() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut upstream = upstream(live(&server.uri(), &database));
    let (ours, other) = (upstream.context(STORE), upstream.context("feedbeef"));
    let now = Timestamp::from_millis(START).unwrap();
    let theirs = live_update(&bucket("a", 0, &[9.0]), None, &other, now);
    assert_eq!(upstream.live(&[theirs]).await.fates, [Shown::Made]);
    let before = raw(&database).await;
    let mine = live_update(&bucket("a", 0, &[1.0, 2.0]), None, &ours, now);
    assert_eq!(upstream.live(&[mine]).await.fates, [Shown::Taken]);
    let mut last = sealed(&upstream, &[1.0, 2.0]);
    let report = upstream.deliver(&mut last, STORE).await;
    assert_eq!((fates(&report).as_str(), report.conflicts), ("d", 1));
    assert!(last[0].id.ends_with("~0badcafe"));
    let stored = raw(&database).await;
    assert!(stored.contains(&before[0]) && stored.contains(last[0].bson()), "both are there");
}

#[tokio::test]
async fn a_lost_answer_is_settled_by_the_next_update() {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    let mut upstream = with(live(&proxy.mongodb_uri(), &database), impatient());
    let first = update(&upstream, &[1.0], None);
    assert_eq!(upstream.live(std::slice::from_ref(&first)).await.fates, [Shown::Made]);
    proxy.mode(Mode::Swallow);
    let lost = update(&upstream, &[1.0, 2.0], Some(first.then));
    let report = upstream.live(std::slice::from_ref(&lost)).await;
    assert_eq!((report.fates, report.trouble.unwrap().kind), (vec![Shown::Unknown], TroubleKind::Transient));
    proxy.mode(Mode::Pass);
    let stored = server.documents(&database, "buckets").await;
    assert_eq!(stored[0].get_i64("lastSeq").unwrap(), 2, "it was applied all the same");
    for (values, expected) in [(&[1.0, 2.0][..], Shown::Taken), (&[1.0, 2.0, 3.0], Shown::Done)] {
        let next = update(&upstream, values, None);
        assert_eq!(upstream.live(&[next]).await.fates, [expected]);
    }
    let stored = server.documents(&database, "buckets").await;
    assert_eq!(stored[0].get_array("samples").unwrap().len(), 3);
}

/// Sends one update to a peer that answers like this.
async fn told(answers: impl IntoIterator<Item = Answer>) -> (tipbucket::upstream::LiveReport, Vec<Bsondoc>) {
    let peer = WirePeer::start(answers).await;
    let mut upstream = with(live(&peer.uri(), "telemetry"), impatient());
    let both = [update(&upstream, &[1.0], None), update(&upstream, &[1.0, 2.0], None)];
    let report = upstream.live(&both).await;
    (report, peer.commands())
}

fn error(index: i32, code: i32) -> Bson {
    Bson::Document(doc! { "index": index, "code": code, "errmsg": "E11000 duplicate key error index: _id_ dup key" })
}

#[tokio::test]
async fn one_unordered_majority_command_is_sent_and_its_answer_read_by_index() {
    let (report, commands) = told([]).await;
    assert_eq!((report.fates, commands.len()), (vec![Shown::Done, Shown::Done], 1));
    let command = &commands[0];
    assert_eq!((command.get_str("update").unwrap(), command.get_bool("ordered").unwrap()), ("buckets", false));
    let concern = command.get_document("writeConcern").unwrap();
    assert_eq!((concern.get_str("w").unwrap(), concern.get_bool("j").unwrap()), ("majority", true));
    let made = doc! { "ok": 1, "n": 1, "upserted": [{ "index": 0, "_id": "x" }], "writeErrors": [error(1, 11000)] };
    assert_eq!(told([Answer::Document(made)]).await.0.fates, [Shown::Made, Shown::Taken]);
}

#[tokio::test]
async fn answers_that_do_not_account_for_everything_prove_nothing() {
    let concern = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
    let nonsense = [
        doc! { "ok": 1 },
        doc! { "ok": 1, "n": 1 },
        doc! { "ok": 1, "n": 3 },
        doc! { "ok": 1, "n": "two" },
        doc! { "ok": 1, "n": 1, "writeErrors": [error(2, 11000)] },
        doc! { "ok": 1, "n": 0, "writeErrors": [error(1, 11000), error(1, 11000)] },
        doc! { "ok": 1, "n": 1, "writeErrors": ["no"] },
        doc! { "ok": 1, "n": 2, "upserted": [{ "index": 7 }] },
        doc! { "ok": 1, "n": 2, "writeConcernError": concern },
    ];
    for answer in nonsense {
        let (report, _) = told([Answer::Document(answer.clone())]).await;
        let kind = report.trouble.map(|trouble| trouble.kind);
        assert_eq!((report.fates, kind), (vec![Shown::Unknown; 2], Some(TroubleKind::Transient)), "{answer}");
    }
    for answer in [Answer::Half(doc! { "ok": 1, "n": 2 }), Answer::Body(vec![0xff; 40]), Answer::Close] {
        let (report, _) = told([answer.clone(), answer.clone(), answer]).await;
        assert_eq!(report.fates, [Shown::Unknown, Shown::Unknown]);
        assert!(report.trouble.is_some());
    }
}

#[tokio::test]
async fn a_complete_bucket_is_delivered_only_on_proof() {
    let rows = [
        (doc! { "ok": 1, "n": 1 }, "d", None),
        (doc! { "ok": 1, "n": 0 }, "-", Some(TroubleKind::Transient)),
        (doc! { "ok": 1, "n": 0, "writeErrors": [error(0, 121)] }, "x", None),
        (doc! { "ok": 1, "n": 0, "writeErrors": [error(0, 112)] }, "-", Some(TroubleKind::Transient)),
        // Taken, and a look finds nothing there: sent again later.
        (doc! { "ok": 1, "n": 0, "writeErrors": [error(0, 11000)] }, "-", Some(TroubleKind::Transient)),
        (
            doc! { "ok": 1, "n": 1, "writeConcernError": { "code": 100, "errmsg": "no" } },
            "-",
            Some(TroubleKind::Stopped),
        ),
    ];
    for (answer, expected, kind) in rows {
        let peer = WirePeer::start([Answer::Document(answer.clone())]).await;
        let mut upstream = with(live(&peer.uri(), "telemetry"), impatient());
        let mut last = sealed(&upstream, &[1.0]);
        let report = upstream.deliver(&mut last, STORE).await;
        assert_eq!(fates(&report), expected, "{answer}");
        assert_eq!(report.trouble.as_ref().map(|trouble| trouble.kind), kind, "{answer}");
        let commands = peer.commands();
        let statement = commands[0].get_array("updates").unwrap()[0].as_document().unwrap();
        let q = statement.get_document("q").unwrap();
        assert_eq!(q.get_str("store").unwrap(), STORE);
        assert_eq!(q.get_document("lastSeq").unwrap(), &doc! { "$gte": 0 }, "never over what is final");
        assert!(statement.get_bool("upsert").unwrap());
    }
    let peer = WirePeer::start([Answer::Document(doc! { "ok": 0, "code": 13, "errmsg": "not authorized" })]).await;
    let mut upstream = with(live(&peer.uri(), "telemetry"), impatient());
    let report = upstream.deliver(&mut sealed(&upstream, &[1.0]), STORE).await;
    assert!(trouble(&report).1.contains("update too"), "{}", trouble(&report).1);
}

#[tokio::test]
async fn whatever_happens_on_the_way_the_database_holds_what_was_accepted_in_the_end() {
    let (server, database, folder) = (mongo::server(), mongo::database(), tempfile::tempdir().unwrap());
    let proxy = Proxy::start(server.address()).await;
    let config = live(&proxy.mongodb_uri(), &database);
    let mut gateway = Gateway::start(folder.path(), config.clone(), 15).await;
    let (mut readings, mut random) = (Readings::default(), fastrand::Rng::with_seed(11));
    let modes = [Mode::CutReply, Mode::CutRequest, Mode::Refuse, Mode::Delay(Duration::from_millis(30)), Mode::Pass];
    let (mut updates, mut conflicts) = (0, 0);
    for step in 0..120 {
        if step % 10 == 5 {
            proxy.mode(random.choice(modes).unwrap());
        } else if step % 10 == 0 {
            proxy.mode(Mode::Pass);
        }
        gateway.accept(readings.take(&SENSORS)).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        if step % 50 == 30 {
            let up = gateway.stats.upstream();
            (updates, conflicts) = (updates + up.live_updates.get(), conflicts + up.conflicts.get());
            gateway.kill().await;
            gateway = Gateway::start(folder.path(), config.clone(), 15).await;
        }
    }
    proxy.mode(Mode::Pass);
    gateway.delivered(readings.accepted.len()).await;
    let stats = gateway.stop().await;
    let up = stats.upstream();
    (updates, conflicts) = (updates + up.live_updates.get(), conflicts + up.conflicts.get());
    let stored = server.documents(&database, "buckets").await;
    assert!(updates > 10, "open buckets were shown meanwhile: {updates}");
    assert_eq!(conflicts, 0);
    assert!(stored.iter().all(|document| document.contains_key("hash") && !document.contains_key("lastSeq")));
    assert_eq!(held(&stored), readings.sorted());
}

#[tokio::test]
async fn overload_switches_it_off_and_calm_on_again() {
    let (server, database, folder) = (mongo::server(), mongo::database(), tempfile::tempdir().unwrap());
    if !server.has_fail_points() {
        return;
    }
    let uri = format!("{}&appName={database}", server.uri());
    let gateway = Gateway::start(folder.path(), live(&uri, &database), 1000).await;
    let mut readings = Readings::default();
    gateway.accept(readings.take(&SENSORS)).await;
    gateway.until("open buckets are shown", |stats| stats.upstream().live_readings.get() >= 3).await;
    let open = server.documents(&database, "buckets").await;
    assert!(!open.is_empty(), "before they are sealed, or replaced by now");
    let busy = doc! { "failCommands": ["update"], "appName": database.as_str(), "errorCode": 462 };
    let fail_point = server.fail(1000, busy).await;
    let deadline = std::time::Instant::now() + patience(Duration::from_secs(60));
    while gateway.stats.upstream().live.get().up != Some(false) {
        assert!(std::time::Instant::now() < deadline, "{:?}", gateway.stats.upstream().live.get());
        gateway.accept(readings.take(&SENSORS)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let told = gateway.stats.upstream().live.get().detail;
    assert!(told.contains("462") && told.contains("not sent now"), "{told}");
    fail_point.off().await;
    let shown = gateway.stats.upstream().live_readings.get();
    while gateway.stats.upstream().live_readings.get() <= shown {
        assert!(std::time::Instant::now() < deadline, "{:?}", gateway.stats.upstream().live.get());
        gateway.accept(readings.take(&SENSORS)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(gateway.stats.upstream().live.get().up, Some(true));
    gateway.delivered(readings.accepted.len()).await;
    gateway.stop().await;
    assert_eq!(held(&server.documents(&database, "buckets").await), readings.sorted());
}

#[tokio::test]
async fn a_user_that_may_not_update_is_told_what_to_grant() {
    let (server, database, folder) = (mongo::server(), mongo::database(), tempfile::tempdir().unwrap());
    if !server.has_fail_points() {
        return;
    }
    let uri = format!("{}&appName={database}", server.uri());
    let forbidden = doc! { "failCommands": ["update"], "appName": database.as_str(), "errorCode": 13 };
    let fail_point = server.fail(1000, forbidden).await;
    let gateway = Gateway::start(folder.path(), live(&uri, &database), 1000).await;
    let mut readings = Readings::default();
    gateway.accept(readings.take(&SENSORS)).await;
    gateway.until("it is off", |stats| stats.upstream().live.get().up == Some(false)).await;
    assert!(gateway.stats.upstream().live.get().detail.contains("update too"));
    fail_point.off().await;
    gateway.delivered(3).await;
    gateway.stop().await;
}
