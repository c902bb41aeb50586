//! What an operator reads when the connection string is wrong.

use std::time::Duration;

use mongodb::bson::doc;
use tipbucket::upstream::TroubleKind;

use super::{STORE, config, documents, fates, impatient, trouble, upstream, with};
use crate::support::mongo::Server;

async fn told(uri: &str) -> (TroubleKind, String) {
    let mut upstream = with(config(uri, "telemetry"), impatient());
    let mut sent = documents(&upstream, &["a"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!(fates(&report), "-");
    let (kind, text) = trouble(&report);
    (kind, text.to_owned())
}

#[tokio::test]
async fn a_wrong_password_is_told_without_telling_it() {
    let storage = tempfile::tempdir().unwrap();
    let open = Server::start(&[], Some(storage.path()));
    let client = open.client().await;
    let user =
        doc! { "createUser": "gateway", "pwd": "right-one", "roles": [{ "role": "readWrite", "db": "telemetry" }] };
    client.database("admin").run_command(user).await.unwrap();
    client.shutdown().await;
    drop(open);
    let server = Server::start(&["--auth"], Some(storage.path()));
    let uri = |password: &str| {
        format!("mongodb://gateway:{password}@{}/?directConnection=true&authSource=admin", server.address())
    };
    let (kind, text) = told(&uri("wrong-one")).await;
    assert_eq!(kind, TroubleKind::Stopped);
    assert!(text.contains("refused user or password") && text.contains("authSource"), "{text}");
    assert!(!text.contains("wrong-one"), "{text}");
    let mut right = upstream(config(&uri("right-one"), "telemetry"));
    let mut sent = documents(&right, &["a"]);
    let report = right.deliver(&mut sent, STORE).await;
    assert_eq!(fates(&report), "d", "{:?}", report.trouble);
    let printed = format!("{right:?}");
    assert!(!printed.contains("right-one") && !printed.contains("gateway:"), "{printed}");
    right.close().await;
    let mut elsewhere = upstream(config(&uri("right-one"), "elsewhere"));
    let report = elsewhere.deliver(&mut sent, STORE).await;
    let (kind, text) = trouble(&report);
    assert_eq!(kind, TroubleKind::Stopped, "{text}");
    assert!(text.contains("grant the user insert and find on elsewhere.buckets"), "{text}");
    elsewhere.close().await;
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_told() {
    let (_, text) = told("mongodb://zoe:s3cret@no-such-host.invalid:27017/").await;
    assert!(text.contains("no-such-host.invalid"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_closed_port_is_told_within_the_selection_timeout() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let started = std::time::Instant::now();
    let (kind, text) = told(&format!("mongodb://127.0.0.1:{port}/?directConnection=true")).await;
    assert!(started.elapsed() < crate::support::patience(Duration::from_secs(10)));
    assert_eq!(kind, TroubleKind::Transient);
    assert!(text.contains("is the server running"), "{text}");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_told() {
    let mut missing = config("mongodb://127.0.0.1:27017", "telemetry");
    missing.uri_file = Some("/nonexistent/uri".into());
    let mut upstream = upstream(missing);
    let mut sent = documents(&upstream, &["a"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    let (kind, text) = trouble(&report);
    assert_eq!(kind, TroubleKind::Stopped);
    assert!(text.contains("/nonexistent/uri"), "{text}");
}

#[tokio::test]
async fn an_unknown_authority_is_told_and_can_be_named() {
    let tls = |name: &str| format!("{}/tests/it/upstream/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let (certificate, key) = (tls("server.pem"), tls("server.key"));
    let server = Server::start(&["--tls-cert-file", &certificate, "--tls-key-file", &key], None);
    let uri = |options: &str| format!("mongodb://{}/?directConnection=true&tls=true{options}", server.address());
    let (kind, text) = told(&uri("")).await;
    assert_eq!(kind, TroubleKind::Stopped, "{text}");
    assert!(text.contains("UnknownIssuer") && text.contains("tlsCAFile"), "{text}");
    let mut known = upstream(config(&uri(&format!("&tlsCAFile={}", tls("ca.pem"))), "telemetry"));
    let mut sent = documents(&known, &["a"]);
    let report = known.deliver(&mut sent, STORE).await;
    assert_eq!(fates(&report), "d", "{:?}", report.trouble);
    assert!(known.due().is_some(), "it wants to be closed when it is idle");
    known.attend().await;
    assert_eq!(known.due(), None);
    assert_eq!(fates(&known.deliver(&mut sent, STORE).await), "d", "it opens again by itself");
    known.close().await;
    let (kind, text) = told(&uri("&tlsCAFile=/nonexistent/ca.pem")).await;
    assert_eq!(kind, TroubleKind::Stopped, "{text}");
    assert!(text.contains("TLS") || text.contains("tls") || text.contains("ca.pem"), "{text}");
}
