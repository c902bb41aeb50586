//! What only MQTT 5 has: aliases, expiry, properties, reasons; against a script, and against a real mosquitto.

use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::PublishProperties;
use rumqttc::v5::{AsyncClient, MqttOptions};

use super::{commit, plain, table, told};
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::start;
use crate::support::mqtt_peer::{Message, Peer, Said, Session};

/// How long a peer listens for what must not come.
const A_MOMENT: Duration = Duration::from_millis(150);

const EXPIRY: u8 = 0x02;
const CONTENT_TYPE: u8 = 0x03;
const SERVER_KEEP_ALIVE: u8 = 0x13;
const SERVER_REFERENCE: u8 = 0x1c;
const REASON: u8 = 0x1f;
const ALIAS: u8 = 0x23;
const USER: u8 = 0x26;

/// A property that is a text.
fn text(kind: u8, value: &str) -> Vec<u8> {
    [&[kind][..], &(value.len() as u16).to_be_bytes(), value.as_bytes()].concat()
}

/// A user property.
fn user(name: &str, value: &str) -> Vec<u8> {
    [text(USER, name), (value.len() as u16).to_be_bytes().to_vec(), value.as_bytes().to_vec()].concat()
}

/// One message through a source with these topics: the delivery in one line.
async fn check(topics: &str, properties: &[u8], payload: &str, expected: &str) {
    let peer = Peer::speaking(5).await;
    let mut source = start(&table(&peer, topics));
    let mut session = peer.subscribed(true).await;
    session.publish(&Message { properties, ..Message::fresh(1, payload) }).await;
    let delivery = source.delivery().await;
    assert_eq!(told(&delivery), expected, "{topics} {properties:?}");
    commit(delivery);
    assert_eq!(session.said().await, Said::PubAck(1), "good or bad, it does not come again");
}

#[tokio::test]
async fn the_session_is_asked_to_outlive_the_connection() {
    let peer = Peer::speaking(5).await;
    let _source = start(&table(&peer, "session_expiry = '1h'\nreceive_maximum = 100\n[[topics]]\nfilter = 's'\n"));
    let session = peer.subscribed(false).await;
    // Session expiry, receive maximum, topic aliases; no largest packet, for a broker would drop larger ones in silence.
    assert_eq!(session.greeting, [0x11, 0, 0, 0x0e, 0x10, 0x21, 0, 100, 0x22, 0, 64]);
}

#[tokio::test]
async fn aliases_stand_for_their_topic_until_the_connection_ends() {
    let peer = Peer::speaking(5).await;
    let mut source = plain(&peer);
    let mut session = peer.subscribed(true).await;
    let short = Message { topic: "", properties: &[ALIAS, 0, 1], ..Message::fresh(2, "2") };
    session.publish_all(&[Message { topic: "s/k", properties: &[ALIAS, 0, 1], ..Message::fresh(1, "1") }, short]).await;
    session.publish(&Message { topic: "s/other", properties: &[ALIAS, 0, 1], ..Message::fresh(3, "3") }).await;
    session.publish(&Message { packet_id: 4, ..short }).await;
    for expected in ["k value=I64(1)", "k value=I64(2)", "other value=I64(3)", "other value=I64(2)"] {
        assert_eq!(told(&source.message().await), format!("fresh {expected}"));
    }
    drop(session);
    let mut session = peer.subscribed(true).await;
    session.publish(&short).await;
    assert_eq!(session.said().await, Said::Disconnect(0x94));
    source.says("uses a topic alias it never explained").await;
    let mut session = peer.subscribed(true).await;
    session.publish(&Message { topic: "s/k", properties: &[ALIAS, 0, 65], ..Message::fresh(1, "1") }).await;
    assert_eq!(session.said().await, Said::Disconnect(0x94));
    source.says("beyond those we allowed").await;
}

#[tokio::test]
async fn an_expired_message_counts_only_with_a_time_of_its_own() {
    let topic = "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\n";
    check(topic, &[EXPIRY, 0, 0, 0, 1], r#"{"t":1}"#, "fresh k t=I64(1)").await;
    let refused = "fresh ! s/k: the message had expired when it came, and has no time of its own: when it was true is not \
                   known";
    check(topic, &[EXPIRY, 0, 0, 0, 0], r#"{"t":1}"#, refused).await;
    let timed = format!("{topic}time = '/ts'\n");
    check(&timed, &[EXPIRY, 0, 0, 0, 0], r#"{"t":1,"ts":1772366400}"#, "fresh k t=I64(1)").await;
}

#[tokio::test]
async fn user_properties_name_sensors_and_become_fields() {
    let properties = [user("id", "x7"), user("fw", "12"), user("site", "north"), user("id", "second")].concat();
    let topic = "[[topics]]\nfilter = 's/+'\nsensor = '{1}-{property:id}'\n";
    check(topic, &properties, r#"{"t":1}"#, "fresh k-x7 t=I64(1)").await;
    check(topic, &[], r#"{"t":1}"#, "fresh ! s/k: the message has no user property `id`").await;
    let fields = format!("{topic}properties = {{ firmware = 'fw', t = 'fw', place = 'site', none = 'none' }}\n");
    let expected = "fresh k-x7 t=I64(1) firmware=I64(12) place=Text(\"north\")";
    check(&fields, &properties, r#"{"t":1}"#, expected).await;
    let field = "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\nfield = '{property:id}'\ndecode = 'number'\n";
    check(field, &properties, "21.5", "fresh k x7=F64(21.5)").await;
}

#[tokio::test]
async fn a_content_type_is_a_hint() {
    let auto = "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'auto'\n";
    check(auto, &[], "51", "fresh k value=I64(51)").await;
    let pack = r#"[{"bu":"Cel"},{"n":"t","v":1}]"#;
    check(auto, &[], pack, "fresh k [1]_v=I64(1)").await;
    check(auto, &text(CONTENT_TYPE, "application/senml+json"), pack, "fresh k t=I64(1)").await;
    check(auto, &text(CONTENT_TYPE, "application/cbor"), r#"{"t":1}"#, "fresh k t=I64(1)").await;
    check(auto, &text(CONTENT_TYPE, "Application/JSON; charset=utf-8"), "51", "fresh k value=I64(51)").await;
}

/// What a source says after a CONNACK or DISCONNECT of these bytes.
async fn says(greet: bool, bytes: &[u8], words: &str) {
    let peer = Peer::speaking(5).await;
    let source = plain(&peer);
    let mut session = if greet { peer.subscribed(true).await } else { peer.knock().await };
    session.raw(bytes).await;
    source.says(words).await;
}

/// A packet with these properties after two bytes, or one.
fn answer(first: u8, head: &[u8], properties: &[Vec<u8>]) -> Vec<u8> {
    let properties = properties.concat();
    let length = head.len() + 1 + properties.len();
    [&[first, length as u8][..], head, &[properties.len() as u8], &properties].concat()
}

#[tokio::test]
async fn a_broker_s_reasons_are_told_with_advice() {
    let connack = |code, properties: &[Vec<u8>]| answer(0x20, &[0, code], properties);
    says(
        false,
        &connack(0x87, &[text(REASON, "no such user")]),
        "not authorised (check user, password and the broker's access list); it says \"no such user\"",
    )
    .await;
    says(false, &connack(0x97, &[]), "a quota is used up").await;
    says(false, &connack(0x95, &[]), "our greeting is too long for it").await;
    let moved = connack(0x9d, &[text(SERVER_REFERENCE, "mqtt://b2"), text(REASON, "bye")]);
    says(false, &moved, "it has moved for good: set `url` to the new place; it names \"mqtt://b2\"; it says \"bye\"")
        .await;
    says(false, &connack(0x84, &[]), "does not speak MQTT 5: leave out `protocol`").await;
    says(false, &[0x20, 2, 0, 1], "does not speak MQTT 5: leave out `protocol`").await;
    let disconnect = |code, properties: &[Vec<u8>]| answer(0xe0, &[code], properties);
    says(true, &disconnect(0x8e, &[]), "another client connected with the same client_id").await;
    says(
        true,
        &disconnect(0x9c, &[text(SERVER_REFERENCE, "b2")]),
        "another server is to be used for now: set `url` to it if this lasts; it names \"b2\"",
    )
    .await;
    says(true, &disconnect(0x97, &[text(REASON, "too much")]), "a quota is used up; it says \"too much\"").await;
    says(true, &[0xe0, 1, 0x95], "something of ours was too long for it").await;
    says(true, &[0xe0, 0], "ended the connection: without a reason").await;
}

#[tokio::test]
async fn a_refused_filter_is_told_with_its_reason() {
    let peer = Peer::speaking(5).await;
    let source = start(&table(&peer, "[[topics]]\nfilter = '$share/g/s/+'\n[[topics]]\nfilter = 'x'\n"));
    let mut session = peer.accept(true).await;
    let Said::Subscribe { packet_id, .. } = session.said().await else { panic!("SUBSCRIBE is expected") };
    session.grant_with(packet_id, &[0x9e, 0x87], &text(REASON, "ask Bob")).await;
    source
        .says("`$share/g/s/+` was refused: the broker knows no shared subscriptions (leave out `$share/GROUP/`)")
        .await;
    source.says("`x` was refused: not authorised (check the broker's access list); it says \"ask Bob\"").await;
}

#[tokio::test]
async fn a_message_of_any_size_is_put_aside_and_the_next_is_taken() {
    let peer = Peer::speaking(5).await;
    let mut source = plain(&peer);
    let mut session = peer.subscribed(true).await;
    let huge = "x".repeat(20 << 20);
    let write = async {
        session.publish(&Message::fresh(1, &huge)).await;
        session.publish(&Message::fresh(2, "2")).await;
        session
    };
    let (mut session, delivery) = tokio::join!(write, source.message());
    let reason = "payload of 20971520 bytes is over max_payload (1048576) (first 65536 of 20971520 bytes kept)";
    assert_eq!(told(&delivery), format!("fresh ! s/k: {reason}"));
    assert_eq!(delivery.dead_letters[0].payload.len(), 65_536);
    commit(delivery);
    let next = source.message().await;
    assert_eq!(told(&next), "fresh k value=I64(2)");
    commit(next);
    assert_eq!([session.said().await, session.said().await], [Said::PubAck(1), Said::PubAck(2)]);
}

#[tokio::test]
async fn the_broker_s_own_keep_alive_is_kept_and_none_does_not_spin() {
    let peer = Peer::speaking(5).await;
    let source = plain(&peer);
    let mut session = peer.subscribed_with(true, &[SERVER_KEEP_ALIVE, 0, 1]).await;
    assert_eq!(session.said().await, Said::Ping);
    assert_eq!(session.said().await, Said::Ping);
    // Unread pings are unanswered pings.
    source.says("no longer answers").await;
    let mut session = peer.subscribed_with(true, &[SERVER_KEEP_ALIVE, 0, 0]).await;
    assert_eq!(session.said_soon(A_MOMENT).await, None);
    source.connected().await;
}

#[tokio::test]
async fn a_release_of_a_message_nobody_remembers_is_confirmed_at_once() {
    let peer = Peer::speaking(5).await;
    let _source = plain(&peer);
    let mut session = peer.subscribed(true).await;
    session.release(9).await;
    assert_eq!(session.said().await, Said::PubComp(9));
}

/// Acknowledgements up to the last of these numbers.
async fn acknowledged(session: &mut Session, last: u16) {
    loop {
        match session.said().await {
            Said::PubAck(id) if id == last => return,
            Said::PubAck(_) | Said::Ping => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn half_of_the_receive_maximum_asks_for_a_commit() {
    let peer = Peer::speaking(5).await;
    let topics = "receive_maximum = 8\n[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'number'\n";
    let mut source = start(&table(&peer, topics));
    let mut session = peer.subscribed(true).await;
    for round in 0..5 {
        let messages: Vec<Message<'_>> = (1..=8).map(|id| Message::fresh(round * 8 + id, "1")).collect();
        session.publish_all(&messages).await;
        let mut urgent = Vec::new();
        let mut held = Vec::new();
        for id in 1..=8 {
            let delivery = source.delivery().await;
            if delivery.urgent {
                urgent.push(id);
            }
            held.push(delivery);
        }
        assert_eq!(urgent, [4, 8], "round {round}");
        held.into_iter().for_each(commit);
        acknowledged(&mut session, round * 8 + 8).await;
    }
}

/// A publisher of messages with properties; it runs until it is dropped.
fn publisher(port: u16) -> (AsyncClient, tokio::task::JoinSet<()>) {
    let options = MqttOptions::new(format!("publisher-{}", fastrand::u64(..)), "127.0.0.1", port);
    let (client, mut events) = AsyncClient::new(options, 10);
    let mut task = tokio::task::JoinSet::new();
    task.spawn(async move { while events.poll().await.is_ok() {} });
    (client, task)
}

#[tokio::test]
async fn properties_go_through_a_real_broker() {
    let broker = Mosquitto::start();
    let topics = "[[topics]]\nfilter = 's/+'\nsensor = '{property:id}'\ndecode = 'auto'\n";
    let mut source = start(&table((&broker, 5), topics));
    source.connected().await;
    let (client, _task) = publisher(broker.port);
    let properties = PublishProperties {
        user_properties: vec![("id".to_owned(), "x7".to_owned())],
        content_type: Some("application/json".to_owned()),
        message_expiry_interval: Some(60),
        ..PublishProperties::default()
    };
    client.publish_with_properties("s/k", QoS::AtLeastOnce, false, r#"{"t":1}"#, properties).await.unwrap();
    let delivery = source.message().await;
    assert_eq!(told(&delivery), "fresh x7 t=I64(1)");
    commit(delivery);
}

#[tokio::test]
async fn a_shared_subscription_splits_the_messages_and_keeps_their_topics() {
    let broker = Mosquitto::start();
    let topics = "[[topics]]\nfilter = '$share/group/s/+'\nsensor = '{1}'\ndecode = 'number'\n";
    let one = table((&broker, 5), topics);
    let mut sources = [start(&one), start(&one.replace("tipbucket-test", "tipbucket-other"))];
    for source in &sources {
        source.connected().await;
    }
    let (client, _task) = publisher(broker.port);
    for i in 0..40 {
        client.publish(format!("s/k{i}"), QoS::AtLeastOnce, false, i.to_string()).await.unwrap();
    }
    let mut seen = Vec::new();
    let [first, second] = &mut sources;
    while seen.len() < 40 {
        let delivery = tokio::select! {
            delivery = first.message() => delivery,
            delivery = second.message() => delivery,
        };
        seen.push(told(&delivery));
        commit(delivery);
    }
    seen.sort();
    let mut expected: Vec<String> = (0..40).map(|i| format!("fresh k{i} value=I64({i})")).collect();
    expected.sort();
    assert_eq!(seen, expected);
    assert!(sources.iter().all(|source| source.stats.messages.get() > 0), "both had their share");
}
