//! Sensors, fields and times from topics and payloads.

use super::table;
use crate::support::mqtt_intake::start;
use crate::support::mqtt_peer::{Message, Peer};

/// One message through a source with these topics: the delivery in one line.
async fn check(topics: &str, topic: &str, payload: &str, expected: &str) {
    let peer = Peer::listen().await;
    let mut source = start(&table(&peer.url(), topics));
    let mut session = peer.subscribed(true).await;
    session.publish(&Message { topic, payload: payload.as_bytes(), ..Message::fresh(1, "") }).await;
    assert_eq!(super::told(&source.delivery().await), expected, "{topics} {topic} {payload}");
}

#[tokio::test]
async fn names_come_from_topic_levels() {
    check("[[topics]]\nfilter = '+/s/#'\nsensor = '{1}-{2}'\n", "a/s/b/c", r#"{"t":1}"#, "fresh a-b/c t=I64(1)").await;
    check("[[topics]]\nfilter = 'a/#'\n", "a/温度", r#"{"t":1}"#, "fresh a/温度 t=I64(1)").await;
    check(
        "[[topics]]\nfilter = 'a/+/+'\nsensor = '{1}'\nfield = '{2}'\ndecode = 'number'\n",
        "a/k/temp",
        "21.5",
        "fresh k temp=F64(21.5)",
    )
    .await;
    check("[[topics]]\nfilter = 'a'\nfield = 'state'\ndecode = 'text'\n", "a", "open", "fresh a state=Text(\"open\")")
        .await;
}

#[tokio::test]
async fn names_come_from_the_payload() {
    let topics = "[[topics]]\nfilter = 'a'\nsensor = '/d/id'\nfields = { temp = '/t' }\n";
    check(topics, "a", r#"{"d":{"id":"x7"},"t":1}"#, "fresh x7 temp=I64(1)").await;
    check(topics, "a", r#"{"t":1}"#, "fresh ! a: no sensor name at `/d/id`").await;
    check(topics, "a", r#"[{"d":{"id":"x"},"t":1},{"d":{"id":8},"t":2}]"#, "fresh x temp=I64(1) 8 temp=I64(2)").await;
}

#[tokio::test]
async fn a_name_that_cannot_be_one_is_a_dead_letter() {
    let topic = format!("a/{}", "x".repeat(130));
    let expected = format!("fresh ! {topic}: sensor name has 130 bytes, at most 128 are allowed");
    check("[[topics]]\nfilter = 'a/+'\nsensor = '{1}'\n", &topic, r#"{"t":1}"#, &expected).await;
}

#[tokio::test]
async fn times_that_cannot_be_are_named() {
    let topics = "[[topics]]\nfilter = 'a'\ntime = '/ts'\n";
    check(
        topics,
        "a",
        r#"{"ts":0,"t":1}"#,
        "fresh ! a: time 1970-01-01T00:00:00.000Z is before 2000: the device's clock was never set",
    )
    .await;
    check(
        topics,
        "a",
        r#"{"ts":"x","t":1}"#,
        "fresh ! a: at `/ts`: `x` is not a time (RFC 3339, or a number since 1970)",
    )
    .await;
    let far = r#"[{"ts":4102444800,"t":1},{"ts":1772366400,"t":2}]"#;
    let peer = Peer::listen().await;
    let mut source = start(&table(&peer.url(), topics));
    let mut session = peer.subscribed(true).await;
    session.publish(&Message { topic: "a", payload: far.as_bytes(), ..Message::fresh(1, "") }).await;
    let delivery = source.delivery().await;
    assert_eq!(delivery.readings.len(), 1, "the good reading of a batch is kept");
    assert_eq!(delivery.readings[0].at.to_string(), "2026-03-01T12:00:00.000Z");
    let reason = &delivery.dead_letters[0].reason;
    assert!(reason.starts_with("[0]: time 2100-01-01T00:00:00.000Z is") && reason.contains("ahead"), "{reason}");
}

#[tokio::test]
async fn one_bad_field_is_a_dead_letter_beside_the_good_ones() {
    let topics = "[[topics]]\nfilter = 'a'\n";
    check(
        topics,
        "a",
        r#"{"a":1e400,"b":2}"#,
        "fresh a b=I64(2) ! a: field `a` (`1e400`) is beyond the range of a double",
    )
    .await;
}
