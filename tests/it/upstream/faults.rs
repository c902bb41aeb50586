//! Delivery through a network that loses, cuts and delays.

use std::time::{Duration, Instant};

use tipbucket::upstream::TroubleKind;

use super::{STORE, config, deliver_in_the_end, documents, fates, impatient, trouble, upstream, with};
use crate::support::mongo;
use crate::support::proxy::{Mode, Proxy};

#[tokio::test]
async fn a_lost_reply_leads_to_one_copy() {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    let mut upstream = with(config(&proxy.mongodb_uri(), &database), impatient());
    let mut first = documents(&upstream, &["a"]);
    assert_eq!(fates(&deliver_in_the_end(&mut upstream, &mut first).await), "d");
    proxy.mode(Mode::Swallow);
    let started = Instant::now();
    let mut sent = documents(&upstream, &["b", "c"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    assert!(
        started.elapsed() < crate::support::patience(Duration::from_secs(10)),
        "our own deadline, {:?}",
        started.elapsed()
    );
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("--", TroubleKind::Transient));
    assert_eq!(server.documents(&database, "buckets").await.len(), 3, "it was stored all the same");
    proxy.mode(Mode::Pass);
    let report = deliver_in_the_end(&mut upstream, &mut sent).await;
    assert_eq!((fates(&report).as_str(), report.conflicts), ("dd", 0));
    assert_eq!(server.documents(&database, "buckets").await.len(), 3);
}

#[tokio::test]
async fn a_connection_cut_in_the_middle_loses_nothing() {
    for mode in [Mode::CutReply, Mode::CutRequest] {
        let (server, database) = (mongo::server(), mongo::database());
        let proxy = Proxy::start(server.address()).await;
        let mut upstream = with(config(&proxy.mongodb_uri(), &database), impatient());
        let mut first = documents(&upstream, &["a"]);
        assert_eq!(fates(&deliver_in_the_end(&mut upstream, &mut first).await), "d");
        proxy.mode(mode);
        let mut sent = documents(&upstream, &["b", "c"]);
        let report = upstream.deliver(&mut sent, STORE).await;
        assert_eq!((fates(&report).as_str(), trouble(&report).0), ("--", TroubleKind::Transient), "{mode:?}");
        proxy.mode(Mode::Pass);
        assert_eq!(fates(&deliver_in_the_end(&mut upstream, &mut sent).await), "dd");
        assert_eq!(server.documents(&database, "buckets").await.len(), 3);
    }
}

#[tokio::test]
async fn a_slow_network_is_only_slow() {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    proxy.mode(Mode::Delay(Duration::from_millis(200)));
    let mut upstream = upstream(config(&proxy.mongodb_uri(), &database));
    let mut sent = documents(&upstream, &["a", "b"]);
    assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "dd");
    assert_eq!(server.documents(&database, "buckets").await.len(), 2);
}

#[tokio::test]
async fn a_server_that_is_away_is_told_in_plain_words_and_found_again() {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    proxy.mode(Mode::Refuse);
    let mut upstream = with(config(&proxy.mongodb_uri(), &database), impatient());
    let mut sent = documents(&upstream, &["a"]);
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!((fates(&report).as_str(), trouble(&report).0), ("-", TroubleKind::Transient));
    assert!(trouble(&report).1.starts_with("cannot reach the database: 127.0.0.1"), "{}", trouble(&report).1);
    assert!(!trouble(&report).1.contains("Topology"), "{}", trouble(&report).1);
    no_one_connects_any_more(&proxy).await;
    proxy.mode(Mode::Pass);
    assert_eq!(fates(&deliver_in_the_end(&mut upstream, &mut sent).await), "d");
}

/// Waits until nobody has connected for a while. A client that was only left alone tries twice a second, for ever; one that
/// is given up may have a last try under way.
async fn no_one_connects_any_more(proxy: &Proxy) {
    let deadline = Instant::now() + crate::support::patience(Duration::from_secs(60));
    loop {
        let tried = proxy.accepted();
        tokio::time::sleep(Duration::from_millis(2500)).await;
        if proxy.accepted() == tried {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "a client hammers a dead server between tries: {} connections",
            proxy.accepted()
        );
    }
}
