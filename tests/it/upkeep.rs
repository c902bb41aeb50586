//! The program in the hands of whoever looks after it: dead letters, and whether the store is sound.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Output;
use std::time::Duration;

use rumqttc::QoS;
use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::Publisher;

const WITHIN: Duration = Duration::from_secs(20);

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn ids(daemon: &Daemon) -> Vec<i64> {
    let output = daemon.tipbucket(&["dead-letters", "list", "--format", "json"]);
    assert!(output.status.success(), "{}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_shown_and_dropped_beside_the_daemon_and_without_it() {
    let broker = Mosquitto::start();
    let site = format!(
        "[site]\nname = 'upkeep'\n[store]\ncommit_every = '100ms'\n[upstream]\ntype = 'archive'\nfolder = '@DIR@'\n\
         [sources.broker]\ntype = 'mqtt'\nurl = '{}'\nclient_id = 'upkeep'\n\
         [[sources.broker.topics]]\nfilter = 's/+'\nsensor = '{{1}}'\ndecode = 'json'\nfields = {{ n = '/n' }}\n",
        broker.url()
    );
    let mut daemon = Daemon::new(&site);
    daemon.start();
    daemon.until("the broker", WITHIN, |status| status.sources[0].condition.state == "up");
    let mut publisher = Publisher::new(broker.port);
    for payload in ["{not json", "\u{1b}[31mred", r#"{"n":1}"#] {
        publisher.send("s/a", QoS::AtLeastOnce, false, payload.to_owned()).await;
    }
    publisher.acknowledged(3).await;
    daemon.until("the letters", WITHIN, |status| status.store.dead_letters == 2);

    let found = ids(&daemon);
    assert_eq!(found.len(), 2);
    let (latest, first) = (found[0].to_string(), found[1].to_string());
    let shown = daemon.tipbucket(&["dead-letters", "show", &first, "--raw"]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "{not json");
    let shown = text(&daemon.tipbucket(&["dead-letters", "show", &latest]));
    assert!(shown.contains("s/a") && !shown.contains('\u{1b}'), "{shown:?}");
    let retried = daemon.tipbucket(&["dead-letters", "retry", &first]);
    assert!(!retried.status.success() && text(&retried).contains("--raw"), "{}", text(&retried));
    let unknown = daemon.tipbucket(&["dead-letters", "drop", "4711"]);
    assert!(!unknown.status.success() && text(&unknown).contains("no dead letter 4711"), "{}", text(&unknown));

    let dropped = daemon.tipbucket(&["dead-letters", "drop", &first]);
    assert!(dropped.status.success(), "{}\n{}", text(&dropped), daemon.log());
    assert_eq!(ids(&daemon), [found[0]]);
    daemon.kill();
    let dropped = daemon.tipbucket(&["dead-letters", "drop", "--all"]);
    assert!(dropped.status.success(), "{}", text(&dropped));
    assert!(ids(&daemon).is_empty());
    assert_eq!(daemon.tipbucket(&["dead-letters", "drop"]).status.code(), Some(2));
}

#[test]
fn a_store_is_verified_beside_the_daemon_and_a_damaged_one_is_salvaged() {
    let mut daemon = Daemon::new(
        "[site]\nname = 'upkeep'\n[store]\ncommit_every = '100ms'\n[bucket]\nwindow = '1s'\ngrace = '100ms'\n\
         [upstream]\nuri = 'mongodb://127.0.0.1:9'\n[sources.sim]\ntype = 'simulated'\nevery = '20ms'\nsensors = 20\n",
    );
    daemon.start();
    daemon.until("a backlog", WITHIN, |status| status.store.backlog_buckets > 40);
    let sound = daemon.tipbucket(&["verify"]);
    assert!(sound.status.success() && text(&sound).contains("sound"), "{}", text(&sound));
    let status = daemon.status().unwrap().store;
    assert_eq!(status.accepted, status.delivered + status.stored + status.ledger.values().sum::<i64>());
    assert!(status.accepted > 0);
    assert!(daemon.terminate().0.success());

    let path = daemon.folder().join("tipbucket.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let pages: u64 = db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    drop(db);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for page in pages / 2..pages / 2 + 3 {
        file.write_all_at(&[0xA5; 1024], page * 1024).unwrap();
    }
    let damaged = daemon.tipbucket(&["verify", "--format", "json"]);
    assert_eq!(damaged.status.code(), Some(1), "{}", text(&damaged));
    let told: Value = serde_json::from_slice(&damaged.stdout).unwrap();
    assert!(told["ok"] == false && !told["faults"][0]["remedy"].as_str().unwrap().is_empty(), "{told}");
    let warned = daemon.tipbucket(&["check"]);
    assert!(warned.status.success(), "{}", text(&warned));
    let into = daemon.folder().join("salvaged.db");
    let salvaged = daemon.tipbucket(&["verify", "--salvage", path.to_str().unwrap(), "--into", into.to_str().unwrap()]);
    let told = text(&salvaged);
    assert!(told.contains("rows were brought back"), "{told}");
    // Where the damage fell into the bytes of a segment rather than into SQLite's own, it comes along, and is named.
    let faults: Vec<&str> = told.lines().filter(|line| line.starts_with("FAULT")).collect();
    assert!(faults.iter().all(|fault| fault.starts_with("FAULT segment")), "{told}");
    assert_eq!((salvaged.status.success(), told.contains("sound")), (faults.is_empty(), faults.is_empty()), "{told}");
}
