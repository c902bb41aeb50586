//! Delivery to a peer that answers exactly as told: error shapes that a healthy server cannot be made to show, and
//! nonsense. Whatever comes, nothing panics, and only proof counts as delivered.

use mongodb::bson::{Bson, Document, doc};
use tipbucket::upstream::{Fate, Report, TroubleKind};

use super::{STORE, config, documents, fates, impatient, trouble, with};
use crate::support::wire_peer::{Answer, WirePeer};

/// Sends three buckets to a peer with these answers.
async fn send(answers: impl IntoIterator<Item = Answer>) -> (Report, Vec<Document>) {
    let peer = WirePeer::start(answers).await;
    let mut upstream = with(config(&peer.uri(), "telemetry"), impatient());
    let mut sent = documents(&upstream, &["a", "b", "c"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    (report, peer.commands())
}

fn write_error(index: i32, code: i32, message: &str) -> Bson {
    Bson::Document(doc! { "index": index, "code": code, "errmsg": message })
}

fn failed(code: i32, labels: &[&str]) -> Answer {
    let labels: Vec<&str> = labels.to_vec();
    Answer::Document(doc! { "ok": 0, "code": code, "errmsg": "as told", "codeName": "Told", "errorLabels": labels })
}

#[tokio::test]
async fn one_unordered_majority_journaled_command_is_sent() {
    let (report, commands) = send([]).await;
    assert_eq!(fates(&report), "ddd");
    assert_eq!(commands.len(), 1);
    let command = &commands[0];
    assert_eq!(command.get_str("insert").unwrap(), "buckets");
    assert_eq!(command.get_str("$db").unwrap(), "telemetry");
    assert!(!command.get_bool("ordered").unwrap());
    let concern = command.get_document("writeConcern").unwrap();
    assert_eq!(concern.get_str("w").unwrap(), "majority");
    assert!(concern.get_bool("j").unwrap());
    assert!(concern.contains_key("wtimeout"));
    let sent = command.get_array("documents").unwrap();
    assert_eq!(sent[0].as_document().unwrap().keys().next().unwrap(), "_id");
}

#[tokio::test]
async fn every_kind_of_failed_command_is_told_apart() {
    use TroubleKind::{Overload, Stopped, Transient};
    let rows: &[(i32, &[&str], TroubleKind)] = &[
        (91, &[], Transient),
        (10107, &["RetryableWriteError"], Transient),
        (4711, &["RetryableWriteError"], Transient),
        (50, &[], Transient),
        (64, &[], Transient),
        (462, &["SystemOverloadedError", "RetryableError"], Overload),
        (4711, &["SystemOverloadedError"], Overload),
        (473, &[], Overload),
        (18, &[], Stopped),
        (13, &[], Stopped),
        (8000, &[], Stopped),
        (14031, &[], Stopped),
        (371, &[], Stopped),
        (20, &[], Stopped),
        (61, &[], Stopped),
        (73, &[], Stopped),
        (4711, &[], Transient),
    ];
    for (code, labels, kind) in rows {
        // The driver may try a second time by itself.
        let (report, _) = send([failed(*code, labels), failed(*code, labels)]).await;
        assert_eq!((fates(&report).as_str(), trouble(&report).0), ("---", *kind), "{code} {labels:?}");
    }
}

#[tokio::test]
async fn a_server_may_ask_for_a_pause() {
    let busy = doc! {
        "ok": 0, "code": 462, "errmsg": "slow down", "codeName": "IngressRequestRateLimitExceeded",
        "errorLabels": ["SystemOverloadedError", "RetryableError"], "baseBackoffMS": 2500,
    };
    let (report, _) = send([Answer::Document(busy)]).await;
    let trouble = report.trouble.unwrap();
    assert_eq!((trouble.kind, trouble.wait), (TroubleKind::Overload, Some(std::time::Duration::from_millis(2500))));
}

#[tokio::test]
async fn write_errors_concern_only_their_documents() {
    let refused = doc! { "ok": 1, "n": 2, "writeErrors": [write_error(1, 121, "no")] };
    let (report, _) = send([Answer::Document(refused)]).await;
    assert_eq!((fates(&report).as_str(), &report.trouble), ("dxd", &None));

    let retry = doc! { "ok": 1, "n": 2, "writeErrors": [write_error(2, 112, "conflict")] };
    let (report, _) = send([Answer::Document(retry)]).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("dd-", TroubleKind::Transient));

    let stop = doc! { "ok": 1, "n": 2, "writeErrors": [write_error(0, 14031, "disk full")] };
    let (report, _) = send([Answer::Document(stop)]).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("-dd", TroubleKind::Stopped));
}

#[tokio::test]
async fn a_write_concern_error_beside_write_errors_confirms_nothing() {
    let concern = doc! { "code": 64, "errmsg": "timed out", "errInfo": { "wtimeout": true } };
    let answer = doc! { "ok": 1, "n": 2, "writeErrors": [write_error(1, 121, "no")], "writeConcernError": concern };
    let (report, _) = send([Answer::Document(answer)]).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("---", TroubleKind::Transient));
    let concern = doc! { "code": 100, "errmsg": "not enough members" };
    let (report, _) = send([Answer::Document(doc! { "ok": 1, "n": 3, "writeConcernError": concern })]).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("---", TroubleKind::Stopped));
}

#[tokio::test]
async fn a_taken_id_is_looked_up_by_a_majority_read() {
    let taken = doc! { "ok": 1, "n": 2, "writeErrors": [write_error(1, 11000, "E11000 index: _id_ dup key")] };
    let (report, commands) = send([Answer::Document(taken)]).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("d-d", TroubleKind::Transient), "not there any more");
    let find = &commands[1];
    assert_eq!(find.get_str("find").unwrap(), "buckets");
    assert_eq!(find.get_document("readConcern").unwrap(), &doc! { "level": "majority" });
    assert_eq!(find.get_document("projection").unwrap(), &doc! { "_id": 1, "hash": 1, "lastSeq": 1, "store": 1 });
}

#[tokio::test]
async fn a_taken_id_without_our_hash_is_a_conflict() {
    for stored in [Bson::Null, Bson::Int32(7), Bson::String("other".into())] {
        let id = "greenhouse-7/b|20261130T130000.000Z|600|0";
        let taken = doc! { "ok": 1, "n": 2, "writeErrors": [write_error(1, 11000, "E11000 index: _id_ dup key")] };
        let found = doc! { "id": 0_i64, "ns": "telemetry.buckets", "firstBatch": [{ "_id": id, "hash": stored }] };
        let found = doc! { "ok": 1, "cursor": found };
        let (report, commands) = send([Answer::Document(taken), Answer::Document(found)]).await;
        assert_eq!((fates(&report).as_str(), report.conflicts), ("ddd", 1));
        let again = commands[2].get_array("documents").unwrap();
        assert_eq!(again[0].as_document().unwrap().get_str("_id").unwrap(), format!("{id}~{STORE}"));
    }
}

#[tokio::test]
async fn nonsense_is_never_taken_for_success() {
    let garbage = vec![0xff; 64];
    let index = doc! { "ok": 1, "n": 3, "writeErrors": [write_error(9, 121, "no")] };
    let answers = [
        Answer::Close,
        Answer::Half(doc! { "ok": 1, "n": 3 }),
        Answer::Bytes(garbage.clone()),
        Answer::Bytes(vec![0; 16]),
        Answer::Body(garbage),
        Answer::Body(vec![5, 0, 0, 0]),
        Answer::Body(vec![]),
        Answer::Document(doc! {}),
        Answer::Document(doc! { "ok": 1 }),
        Answer::Document(doc! { "ok": 1, "n": "three" }),
        Answer::Document(doc! { "ok": "yes", "n": 3 }),
        Answer::Document(doc! { "ok": 1, "n": 3, "writeErrors": "none" }),
        Answer::Document(doc! { "ok": 1, "n": 3, "writeErrors": [{ "index": -1, "code": 11000, "errmsg": "" }] }),
        Answer::Document(doc! { "ok": 1, "n": 3, "writeErrors": [7] }),
        Answer::Document(doc! { "ok": 1, "n": 3, "writeConcernError": 7 }),
        Answer::Document(index),
        Answer::Silence,
    ];
    for answer in answers {
        let (report, _) = send([answer.clone(), answer.clone()]).await;
        assert_eq!(fates(&report), "---", "{answer:?}");
        assert_eq!(trouble(&report).0, TroubleKind::Transient, "{answer:?}");
    }
}

#[tokio::test]
async fn a_peer_that_takes_nothing_and_says_ok_does_not_keep_us_for_ever() {
    let nothing = std::iter::repeat_n(Answer::Document(doc! { "ok": 1, "n": 0 }), 100_000);
    let (report, _) = send(nothing).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("---", TroubleKind::Transient));
}

#[tokio::test]
async fn half_a_look_up_confirms_nothing() {
    let taken = doc! { "ok": 1, "n": 0, "writeErrors": (0..3).map(|i| write_error(i, 11000, "index: _id_")).collect::<Vec<_>>() };
    let nonsense = [
        Answer::Document(doc! { "ok": 1 }),
        Answer::Document(doc! { "ok": 1, "cursor": { "id": 0_i64, "ns": "a.b", "firstBatch": [{ "_id": 5 }] } }),
        Answer::Half(doc! { "ok": 1 }),
        failed(13, &[]),
    ];
    for answer in nonsense {
        let (report, _) = send([Answer::Document(taken.clone()), answer.clone(), answer.clone()]).await;
        assert_eq!(fates(&report), "---", "{answer:?}");
        trouble(&report);
    }
}

#[tokio::test]
async fn a_document_too_large_for_the_server_is_isolated() {
    let peer = WirePeer::start([]).await;
    let mut upstream = with(config(&peer.uri(), "telemetry"), impatient());
    let mut sent = documents(&upstream, &["a", "b", "a-sensor-with-a-name-that-is-much-longer-than-the-others", "d"]);
    peer.max_document(sent[0].bytes() as i32 + 20);
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!(fates(&report), "ddxd");
}

#[tokio::test]
async fn a_document_on_which_the_server_only_hangs_up_is_found_and_the_rest_is_sent() {
    let peer = WirePeer::start([]).await;
    peer.closes_on(Some("poison"));
    let mut upstream = with(config(&peer.uri(), "telemetry"), impatient());
    let mut sent = documents(&upstream, &["a", "b", "poison", "d"]);
    let mut reports = Vec::new();
    loop {
        let report = upstream.deliver(&mut sent, STORE).await;
        let told = fates(&report);
        reports.push(report);
        if told.contains('x') || reports.len() > 30 {
            break;
        }
        // The poisonous one stays, and another has come.
        if told.contains('d') {
            let next = documents(&upstream, &[&format!("n{}", reports.len())]);
            sent.retain(|document| document.id.contains("poison"));
            sent.extend(next);
        }
    }
    let told: Vec<String> = reports.iter().map(fates).collect();
    assert_eq!(told, ["----", "----", "dd-d", "-d", "-d", "-d", "xd"]);
    let words = |report: &Report| trouble(report).1.to_owned();
    assert!(words(&reports[0]).contains("the connection to the database broke"), "{}", words(&reports[0]));
    assert!(
        words(&reports[3]).contains("poison") && words(&reports[3]).contains("takes others"),
        "{}",
        words(&reports[3])
    );
    let Fate::Refused(reason) = &reports.last().unwrap().fates[0] else { panic!() };
    for part in ["closes the connection whenever it is sent this bucket alone (5 times)", "takes others", "broke"] {
        assert!(reason.contains(part), "{part} in {reason}");
    }
}

#[tokio::test]
async fn nothing_is_put_aside_while_the_server_hangs_up_on_everything() {
    let peer = WirePeer::start([]).await;
    // It answers greetings and pings, as one that falls over when it writes.
    peer.closes_on(Some("greenhouse-7"));
    let mut upstream = with(config(&peer.uri(), "telemetry"), impatient());
    let mut sent = documents(&upstream, &["a", "b", "c"]);
    for _ in 0..5 {
        let report = upstream.deliver(&mut sent, STORE).await;
        assert_eq!((fates(&report).as_str(), trouble(&report).0), ("---", TroubleKind::Transient));
    }
    peer.closes_on(None);
    assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "ddd");
}
