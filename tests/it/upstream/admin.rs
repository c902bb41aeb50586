//! `tipbucket upstream init`, `doctor` and `audit` on a MongoDB-compatible server.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::{Document as Bsondoc, doc};
use tipbucket::clock::Clock;
use tipbucket::model::{SiteName, Timestamp};
use tipbucket::upstream::{
    Admin, Config, Document, Finding, Level, Local, Mode, Period, Shown, Upstream, live_update, read_receipts,
    receipts_of,
};

use super::{START, STORE, bucket, config, documents, fates, patient};
use crate::support::mongo;

fn site() -> SiteName {
    SiteName::new("greenhouse-7").unwrap()
}

fn admin(config: &Config) -> Admin {
    Admin::new(config.clone(), site(), patient())
}

fn local(oldest: Option<Timestamp>) -> Local {
    Local { now: Clock::system().now(), oldest, max_samples: 1000 }
}

/// What was found that is not in order, most important first.
async fn found(config: &Config, oldest: Option<Timestamp>) -> Vec<Finding> {
    let mut admin = admin(config);
    let mut found = admin.doctor(local(oldest)).await.unwrap();
    admin.close().await;
    found.retain(|finding| finding.level != Level::Ok);
    found.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    found
}

fn says(found: &[Finding], level: Level, part: &str) -> bool {
    found.iter().any(|finding| finding.level == level && finding.what.contains(part))
}

#[tokio::test]
async fn what_init_makes_the_doctor_finds_in_order() {
    let (server, database) = (mongo::server(), mongo::database());
    let config = Config { retention: Some(Duration::from_secs(86_400)), ..config(&server.uri(), &database) };
    let before = found(&config, None).await;
    assert!(says(&before, Level::Advice, "there is no collection buckets yet"), "{before:?}");
    for _ in 0..2 {
        let mut admin = admin(&config);
        let done = admin.init(local(None), false).await.unwrap();
        assert!(done.iter().any(|line| line.starts_with("indexes sensor_start, expire_at")), "{done:?}");
        admin.close().await;
    }
    let after = found(&config, None).await;
    for part in ["index", "validator", "no collection"] {
        assert!(!after.iter().any(|finding| finding.what.contains(part)), "{part}: {after:?}");
    }
    let mut upstream = super::upstream(config.clone());
    let mut sent = documents(&upstream, &["a", "b"]);
    assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "dd", "the validator takes what we write");
    let client = server.client().await;
    let mut refused = Bsondoc::try_from(sent[0].bson().clone()).unwrap();
    refused.insert("_id", "other");
    refused.remove("hash");
    let stranger = client.database(&database).collection::<Bsondoc>("buckets").insert_one(refused).await;
    assert!(stranger.is_err(), "and nothing that lacks what makes a bucket");
    let mut readings = client.database(&database).collection::<Bsondoc>("readings").find(doc! {}).await.unwrap();
    let mut seen = Vec::new();
    while readings.advance().await.unwrap() {
        let reading = readings.deserialize_current().unwrap();
        seen.push((reading.get_str("sensor").unwrap().to_owned(), reading.get_f64("temp").unwrap()));
    }
    assert_eq!(seen, [("a".to_owned(), 21.5), ("a".to_owned(), 22.0), ("b".to_owned(), 21.5), ("b".to_owned(), 22.0)]);
    let mut hourly = client.database(&database).collection::<Bsondoc>("hourly").find(doc! {}).await.unwrap();
    assert!(hourly.advance().await.unwrap());
    let hour = hourly.deserialize_current().unwrap();
    assert_eq!((hour.get_f64("avg").unwrap(), hour.get_str("field").unwrap()), (21.75, "temp"));
    let mut latest = client.database(&database).collection::<Bsondoc>("latest").find(doc! {}).await.unwrap();
    let mut last = Vec::new();
    while latest.advance().await.unwrap() {
        last.push(latest.deserialize_current().unwrap().get_f64("temp").unwrap());
    }
    assert_eq!(last, [22.0, 22.0]);
}

#[tokio::test]
async fn a_dry_run_prints_the_commands_and_runs_none() {
    let (server, database) = (mongo::server(), mongo::database());
    let config = config(&server.uri(), &database);
    let (lines, _) = admin(&config).script(local(None), true);
    let head = format!("db.getSiblingDB(\"{database}\").runCommand({{ ");
    let commands: Vec<&String> = lines.iter().filter(|line| !line.starts_with("//")).collect();
    assert!(commands.len() >= 5 && commands.iter().all(|line| line.starts_with(&head)), "{lines:#?}");
    assert!(commands[0].contains("clusteredIndex") && commands[0].contains("$jsonSchema"), "{}", commands[0]);
    let names = server.client().await.database(&database).list_collection_names().await.unwrap();
    assert!(names.is_empty(), "{names:?}");
}

#[tokio::test]
async fn the_doctor_tells_what_endangers_a_backlog() {
    let (server, database) = (mongo::server(), mongo::database());
    let config = config(&server.uri(), &database);
    let collection = server.client().await.database(&database).collection::<Bsondoc>("buckets");
    let ttl = mongodb::options::IndexOptions::builder().expire_after(Duration::from_secs(7 * 86_400)).build();
    collection.create_index(mongodb::IndexModel::builder().keys(doc! { "end": 1 }).options(ttl).build()).await.unwrap();
    let unique = mongodb::options::IndexOptions::builder().unique(true).build();
    let index = mongodb::IndexModel::builder().keys(doc! { "site": 1 }).options(unique).build();
    collection.create_index(index).await.unwrap();
    let weeks = Clock::system().now().minus(Duration::from_secs(21 * 86_400));
    let told = found(&config, Some(weeks)).await;
    assert!(says(&told, Level::Wrong, "deletes documents 604800 s after end"), "{told:?}");
    assert!(says(&told, Level::Wrong, "unique index"), "{told:?}");
    assert!(says(&told, Level::Advice, "lacks the index { sensor: 1, start: 1 }"), "{told:?}");
    assert!(says(&told, Level::Advice, "no validator"), "{told:?}");
    let remedy = told.iter().find(|finding| finding.what.contains("lacks")).unwrap().remedy.clone().unwrap();
    assert!(remedy.contains("createIndexes") && remedy.contains("sensor_start"), "{remedy}");
    let young = found(&config, None).await;
    assert!(says(&young, Level::Advice, "deletes documents") && !says(&young, Level::Wrong, "deletes documents"));
}

#[tokio::test]
async fn an_audit_finds_what_is_missing_and_what_was_changed() {
    let (server, database) = (mongo::server(), mongo::database());
    let config = config(&server.uri(), &database);
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("t.db");
    let mut upstream =
        Upstream::new(config.clone(), site(), HashMap::new(), Clock::system(), patient()).remembering(&store);
    let context = upstream.context(STORE);
    let buckets =
        [bucket("a/1", 0, &[1.0]), bucket("a/1", 1, &[2.0, 3.0]), bucket("b", 0, &[4.0]), bucket("c", 0, &[5.0])];
    let mut sent = buckets.each_ref().map(|bucket| Document::of(bucket, &context));
    assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "dddd");
    upstream.close().await;

    let at = |ms: i64| Timestamp::from_millis(START + ms).unwrap();
    let period = Period { from: at(0), to: at(600_000) };
    let audit = async || {
        let (receipts, whole) = read_receipts(&receipts_of(&store), |id| period.holds(id)).unwrap();
        assert!(whole);
        let mut admin = admin(&config);
        let audited = admin.audit(&receipts, period).await.unwrap();
        admin.close().await;
        audited
    };
    let first = audit().await;
    let a = &first.sensors[0];
    assert!(first.is_sound() && first.sensors.len() == 3);
    assert_eq!((a.sensor.as_str(), a.receipts, a.stored, a.unknown), ("a/1", (2, 3), (2, 3), 0));

    let collection = server.client().await.database(&database).collection::<Bsondoc>("buckets");
    collection.delete_one(doc! { "_id": sent[1].id.as_str() }).await.unwrap();
    collection.update_one(doc! { "_id": sent[2].id.as_str() }, doc! { "$set": { "hash": "other" } }).await.unwrap();
    let mut foreign = collection.find_one(doc! { "_id": sent[3].id.as_str() }).await.unwrap().unwrap();
    foreign.insert("_id", format!("{}~feedbeef", sent[3].id));
    collection.insert_one(foreign).await.unwrap();
    let second = audit().await;
    assert!(!second.is_sound());
    let [a, b, c] = &second.sensors[..] else { panic!("{second:?}") };
    assert_eq!((a.missing, a.different, a.named[0].as_str()), (1, 0, sent[1].id.as_str()));
    assert_eq!((b.missing, b.different, b.named.len()), (0, 1, 1));
    assert_eq!((c.missing, c.different, c.unknown), (0, 0, 1));
}

#[tokio::test]
async fn open_buckets_need_a_validator_that_lets_them_in() {
    let (server, database) = (mongo::server(), mongo::database());
    let buckets = config(&server.uri(), &database);
    let live = Config { mode: Mode::Live, ..buckets.clone() };
    let init = async |config: &Config| {
        let mut admin = admin(config);
        admin.init(local(None), false).await.unwrap();
        admin.close().await;
    };
    init(&buckets).await;
    let before = found(&live, None).await;
    assert!(says(&before, Level::Wrong, "wants `hash`"), "{before:?}");
    let mut upstream = super::upstream(live.clone());
    let context = upstream.context(STORE);
    let open = live_update(&bucket("a", 0, &[1.0]), None, &context, Timestamp::from_millis(START).unwrap());
    let refused = upstream.live(std::slice::from_ref(&open)).await;
    assert!(matches!(&refused.fates[0], Shown::Refused(words) if words.contains("121")), "{refused:?}");
    init(&live).await;
    assert!(!says(&found(&live, None).await, Level::Wrong, "wants"));
    assert_eq!(upstream.live(&[open]).await.fates, [Shown::Made]);
    let mut sealed = [Document::of(&bucket("a", 0, &[1.0, 2.0]), &context)];
    assert_eq!(fates(&upstream.deliver(&mut sealed, STORE).await), "d");
    assert!(!says(&found(&buckets, None).await, Level::Wrong, "wants"), "mode `buckets` lacks nothing");
    let append = found(&Config { mode: Mode::Append, ..buckets }, None).await;
    assert!(says(&append, Level::Wrong, "wants `part`"), "{append:?}");
}
