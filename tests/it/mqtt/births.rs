//! The only thing the source ever publishes: requests for a Sparkplug birth.

use std::time::Duration;

use super::table;
use crate::support::mqtt_intake::start;
use crate::support::mqtt_peer::{Message, Peer, Said};

/// Data under alias 1, whose birth was never seen: Float 22.25, sequence 1.
const UNBORN: &[u8] = b"\x12\x07\x10\x01\x65\0\0\xb2\x41\x18\x01";

/// Data without a birth through a source with this table; what the source says after it, the acknowledgement left out.
async fn check(more: &str, expected: Option<&str>) {
    for peer in Peer::of_each_version().await {
        check_at(&peer, more, expected).await;
    }
}

async fn check_at(peer: &Peer, more: &str, expected: Option<&str>) {
    let topics = format!("{more}[[topics]]\nfilter = 'spBv1.0/#'\ndecode = 'sparkplug-b'\n");
    let mut source = start(&table(peer, &topics));
    let mut session = peer.subscribed(true).await;
    for packet_id in [1, 2] {
        let message = Message { topic: "spBv1.0/g/NDATA/e", payload: UNBORN, ..Message::fresh(packet_id, "") };
        session.publish(&message).await;
        let delivery = source.delivery().await;
        let reason = &delivery.dead_letters[0].reason;
        assert!(reason.starts_with("alias 1 is not known"), "{reason}");
        super::commit(delivery);
    }
    let mut asked = Vec::new();
    let mut acknowledged = 0;
    while acknowledged < 2 {
        match session.said().await {
            Said::Publish { topic, payload } => {
                assert!(payload.windows(20).any(|part| part == b"Node Control/Rebirth"), "{payload:?}");
                asked.push(topic);
            }
            Said::PubAck(_) => acknowledged += 1,
            Said::Ping => {}
            other => panic!("{other:?}"),
        }
    }
    if let Some(Said::Publish { topic, .. }) = session.said_soon(Duration::from_millis(50)).await {
        asked.push(topic);
    }
    assert_eq!(asked, expected.into_iter().collect::<Vec<_>>(), "{more:?}");
}

#[tokio::test]
async fn an_edge_node_is_asked_once_for_the_birth_that_was_not_seen() {
    check("", Some("spBv1.0/g/NCMD/e")).await;
}

#[tokio::test]
async fn nothing_is_published_where_that_is_forbidden() {
    check("ask_for_births = false\n", None).await;
}
