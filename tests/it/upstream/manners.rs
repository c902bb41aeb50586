//! Manners towards a shared cluster, against a peer that counts.

use std::collections::HashMap;
use std::time::Duration;

use bytesize::ByteSize;
use mongodb::bson::doc;
use tipbucket::clock::Clock;
use tipbucket::model::SiteName;
use tipbucket::upstream::{Config, Connection, TroubleKind, Upstream};

use super::{STORE, config, deliver_in_the_end, documents, fates, impatient, patient, trouble, with};
use crate::support::wire_peer::{Answer, WirePeer};

#[tokio::test]
async fn the_database_is_greeted_before_there_is_anything_to_send() {
    let peer = WirePeer::start([]).await;
    let mut upstream = with(config(&peer.uri(), "telemetry"), impatient());
    let report = upstream.greet().await;
    assert!(report.reached && report.trouble.is_none(), "{report:?}");
    assert!(upstream.due().is_some(), "it wants to be closed when it is idle");
    upstream.close().await;
    drop(peer);
    let mut nobody = with(config("mongodb://127.0.0.1:1/?directConnection=true", "telemetry"), impatient());
    let report = nobody.greet().await;
    assert_eq!((report.reached, trouble(&report).0), (false, TroubleKind::Transient));
    assert!(report.trouble.unwrap().reconnects && nobody.due().is_none(), "nothing is kept that only waits");
}

/// An upstream with a notebook that says where the name leads.
fn with_notes(uri: &str, file: &std::path::Path) -> Upstream {
    let site = SiteName::new("greenhouse-7").unwrap();
    Upstream::new(config(uri, "telemetry"), site, HashMap::new(), Clock::system(), impatient())
        .remembering(&file.with_extension(""))
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_leads_where_it_led_last_time() {
    let peer = WirePeer::start([]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.db.upstream");
    let uri = "mongodb+srv://cluster0.tipbucket.invalid/?tls=false";
    let mut lost = with_notes(uri, &file);
    let mut sent = documents(&lost, &["a"]);
    let report = lost.deliver(&mut sent, STORE).await;
    assert_eq!(trouble(&report).0, TroubleKind::Transient, "a resolver may say so while a network comes up");
    assert!(trouble(&report).1.contains("DNS"), "{}", trouble(&report).1);
    let host = peer.uri();
    let host = host.trim_start_matches("mongodb://").split('/').next().unwrap();
    let notes = format!(
        r#"{{"srv":{{"name":"cluster0.tipbucket.invalid","hosts":["{host}"],"replica_set":null,"auth_source":null,"load_balanced":null}}}}"#
    );
    std::fs::write(&file, &notes).unwrap();
    let mut known = with_notes(uri, &file);
    assert_eq!(fates(&known.deliver(&mut sent, STORE).await), "d");
    known.close().await;
    let mut other = with_notes("mongodb+srv://cluster1.tipbucket.invalid/?tls=false", &file);
    assert_eq!(fates(&other.deliver(&mut sent, STORE).await), "-");
}

#[tokio::test]
async fn where_connections_are_not_kept_they_are_closed_soon() {
    let peer = WirePeer::start([]).await;
    let due = async |connection| {
        let config = Config { connection, ..config(&peer.uri(), "telemetry") };
        let mut upstream = with(config, patient());
        let mut sent = documents(&upstream, &["a"]);
        deliver_in_the_end(&mut upstream, &mut sent).await;
        let due = upstream.due().map(|due| due - tokio::time::Instant::now());
        upstream.close().await;
        due
    };
    let minute = Duration::from_secs(60);
    assert!(due(Connection::DutyCycle).await.is_some_and(|due| due < minute));
    assert!(due(Connection::Auto).await.is_some_and(|due| due > minute));
    assert_eq!(due(Connection::Held).await, None);
}

#[tokio::test]
async fn a_days_budget_stops_delivery_without_a_command_and_outlives_a_restart() {
    let peer = WirePeer::start([]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.db.upstream");
    let start = || {
        let config = Config { max_bytes_per_day: Some(ByteSize::mib(1)), ..config(&peer.uri(), "telemetry") };
        let site = SiteName::new("greenhouse-7").unwrap();
        Upstream::new(config, site, HashMap::new(), Clock::system(), patient()).remembering(&file.with_extension(""))
    };
    let mut upstream = start();
    let names: Vec<String> = (0..100).map(|i| format!("s{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut commands = 0;
    let last = loop {
        let mut sent = documents(&upstream, &names);
        let report = upstream.deliver(&mut sent, STORE).await;
        if report.trouble.is_some() {
            break report;
        }
        commands += 1;
        assert!(commands < 100, "the peer takes no compressed messages: 100 documents are some 40 KB");
    };
    assert!(commands > 10, "only {commands} commands fit into a MiB");
    assert_eq!(trouble(&last).0, TroubleKind::Overload);
    assert!(trouble(&last).1.contains("max_bytes_per_day"), "{}", trouble(&last).1);
    assert_eq!((last.fates.len(), peer.commands().len()), (100, commands));
    upstream.close().await;
    let mut again = start();
    assert!(again.greet().await.trouble.is_some(), "a restart gives no new budget");
    assert_eq!(peer.commands().len(), commands);
}

#[tokio::test]
async fn a_refusal_names_the_servers_version() {
    let refused = doc! { "ok": 1, "n": 0, "writeErrors": [{ "index": 0, "code": 121, "errmsg": "no" }] };
    let peer = WirePeer::start([Answer::Document(refused)]).await;
    let mut upstream = with(config(&peer.uri(), "telemetry"), impatient());
    upstream.greet().await;
    let mut sent = documents(&upstream, &["a"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    let tipbucket::upstream::Fate::Refused(words) = &report.fates[0] else { panic!("{report:?}") };
    assert!(words.contains("server version 8.0.4-peer"), "{words}");
}
