//! Each trap of the MQTT client library, and of brokers, by name, in both versions of the protocol. The broker is a script,
//! so that it misbehaves on cue.

use std::time::{Duration, Instant};

use super::{commit, plain, table, told};
use crate::support::mqtt_intake::{eventually, start};
use crate::support::mqtt_peer::{Message, Peer, Said, Session};

/// How long a peer listens for what must not come.
const A_MOMENT: Duration = Duration::from_millis(150);

async fn acks(session: &mut Session, n: usize) -> Vec<u16> {
    let mut ids = Vec::new();
    while ids.len() < n {
        match session.said().await {
            Said::PubAck(id) => ids.push(id),
            Said::Ping => {}
            other => panic!("{other:?}"),
        }
    }
    ids
}

#[tokio::test]
async fn stale_events_after_a_reconnect_are_stored_but_never_acknowledged() {
    for peer in Peer::of_each_version().await {
        let mut source = plain(&peer);
        let mut session = peer.subscribed(false).await;
        source.connected().await;
        let messages = [Message::fresh(1, "1"), Message::fresh(2, "2"), Message::fresh(3, "3")];
        // Written and closed before the source can look: rumqttc reads the messages and the end in one go.
        session.publish_all(&messages).await;
        drop(session);
        assert_eq!(told(&source.delivery().await), "session lost");
        for i in 1..=3 {
            let delivery = source.delivery().await;
            assert_eq!(told(&delivery), format!("fresh k value=I64({i})"));
            // Read before the end was noticed, or after it.
            delivery.receipt.into_iter().for_each(tipbucket::store::Receipt::fire);
        }
        let mut session = peer.subscribed(true).await;
        assert_eq!(session.said_soon(A_MOMENT).await, None, "nothing of the old connection is acknowledged");
        session.publish_all(&messages.map(Message::again)).await;
        for i in 1..=3 {
            let delivery = source.delivery().await;
            assert_eq!(told(&delivery), format!("repeated k value=I64({i})"));
            commit(delivery);
        }
        assert_eq!(acks(&mut session, 3).await, [1, 2, 3]);
    }
}

#[tokio::test]
async fn a_repeated_message_has_the_origin_of_the_first() {
    for peer in Peer::of_each_version().await {
        let mut source = plain(&peer);
        let mut session = peer.subscribed(false).await;
        session.publish(&Message::fresh(1, "1")).await;
        session.publish(&Message::fresh(1, "1").again()).await;
        session.publish(&Message::fresh(2, "2")).await;
        let [first, again, other] =
            [source.message().await, source.message().await, source.message().await].map(|d| d.origin.unwrap());
        assert_eq!((first.content, first.topic), (again.content, again.topic));
        assert_ne!(first.content, other.content);
        assert_eq!(first.topic, other.topic);
    }
}

#[tokio::test]
async fn a_lost_session_is_told_after_the_stale_messages_and_before_the_new_ones() {
    for peer in Peer::of_each_version().await {
        let mut source = plain(&peer);
        let mut session = peer.subscribed(false).await;
        assert_eq!(told(&source.delivery().await), "session lost");
        session.publish(&Message::fresh(1, "1")).await;
        let old = source.delivery().await;
        drop(session);
        let mut session = peer.subscribed(false).await;
        // The number begins anew: an acknowledgement for the old message would be taken for the new one's.
        session.publish(&Message::fresh(1, "2")).await;
        assert_eq!(told(&source.delivery().await), "session lost");
        let new = source.delivery().await;
        assert_eq!(told(&new), "fresh k value=I64(2)");
        commit(old);
        assert_eq!(session.said_soon(A_MOMENT).await, None);
        commit(new);
        assert_eq!(acks(&mut session, 1).await, [1]);
    }
}

#[tokio::test]
async fn a_resumed_session_is_not_told_as_lost() {
    for peer in Peer::of_each_version().await {
        let mut source = plain(&peer);
        let mut session = peer.subscribed(true).await;
        session.publish(&Message::fresh(1, "1")).await;
        assert_eq!(told(&source.delivery().await), "fresh k value=I64(1)");
    }
}

#[tokio::test]
async fn ack_queue_overflow_cannot_happen() {
    const MANY: u16 = 4096;
    for peer in Peer::of_each_version().await {
        let mut source = plain(&peer);
        let mut session = peer.subscribed(true).await;
        let messages: Vec<Message<'_>> = (1..=MANY).map(|id| Message::fresh(id, "1")).collect();
        session.publish_all(&messages).await;
        let mut deliveries = Vec::new();
        for _ in 0..MANY {
            deliveries.push(source.delivery().await);
        }
        // All at once, as one big commit does.
        deliveries.into_iter().for_each(commit);
        assert_eq!(acks(&mut session, usize::from(MANY)).await, (1..=MANY).collect::<Vec<u16>>());
    }
}

#[tokio::test]
async fn unacknowledged_messages_are_bounded_and_acks_still_flow() {
    for peer in Peer::of_each_version().await {
        let mut source = plain(&peer);
        let mut session = peer.subscribed(true).await;
        let messages: Vec<Message<'_>> = (1..=6_000).map(|id| Message::fresh(id, "1")).collect();
        session.publish_all(&messages).await;
        let mut held = std::collections::VecDeque::new();
        for _ in 0..4096 {
            held.push_back(source.delivery().await);
        }
        for id in 1..=1_904 {
            assert!(source.is_idle(), "no more than 4096 at a time");
            commit(held.pop_front().unwrap());
            assert_eq!(acks(&mut session, 1).await, [id]);
            held.push_back(source.delivery().await);
        }
        held.into_iter().for_each(commit);
        assert_eq!(acks(&mut session, 4096).await.last(), Some(&6_000));
    }
}

#[tokio::test]
async fn pings_go_out_while_the_store_is_behind() {
    for peer in Peer::of_each_version().await {
        let topics = "keep_alive = '5s'\n[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'number'\n";
        let mut source = start(&table(&peer, topics));
        let mut session = peer.subscribed(true).await;
        let messages: Vec<Message<'_>> = (1..=5_000).map(|id| Message::fresh(id, "1")).collect();
        session.publish_all(&messages).await;
        // 4096 are taken and none is committed, so the connection is not read any more.
        let mut held = Vec::new();
        for _ in 0..4096 {
            held.push(source.delivery().await);
        }
        assert_eq!(session.said().await, Said::Ping);
        assert_eq!(session.said().await, Said::Ping);
        held.into_iter().for_each(commit);
        assert_eq!(acks(&mut session, 4096).await.len(), 4096);
        for _ in 4096..5_000 {
            commit(source.delivery().await);
        }
        assert_eq!(acks(&mut session, 904).await.last(), Some(&5_000), "and the connection was not lost over it");
        assert_eq!(source.stats.condition.get().failures, 0);
    }
}

#[tokio::test]
async fn publishing_and_subscribing_from_the_poll_task_cannot_block() {
    for peer in Peer::of_each_version().await {
        let topics: String = (0..100).map(|i| format!("[[topics]]\nfilter = 't/{i}'\nsensor = 's{i}'\n")).collect();
        let source = start(&table(&peer, &topics));
        let mut session = peer.accept(false).await;
        let mut wanted = Vec::new();
        for chunk in 1..=13 {
            let Said::Subscribe { packet_id, filters } = session.said().await else { panic!("SUBSCRIBE is expected") };
            assert_eq!(packet_id, chunk);
            session.grant(packet_id, &vec![1; filters.len()]).await;
            wanted.extend(filters);
        }
        assert_eq!(wanted.len(), 100);
        assert!(wanted.iter().all(|(_, qos)| *qos == 1));
        source.connected().await;
    }
}

#[tokio::test]
async fn no_re_subscription_by_the_library_is_made_good_at_every_connect() {
    for peer in Peer::of_each_version().await {
        let _source = plain(&peer);
        for session_present in [false, true, false] {
            let mut session = peer.accept(session_present).await;
            let Said::Subscribe { filters, .. } = session.said().await else { panic!("SUBSCRIBE is expected") };
            assert_eq!(filters, [("s/+".to_owned(), 1)]);
        }
    }
}

#[tokio::test]
async fn what_is_no_longer_wanted_is_unsubscribed() {
    for peer in Peer::of_each_version().await {
        let topics = "unsubscribe = ['old/#']\n[[topics]]\nfilter = 's/+/x'\n[[topics]]\nfilter = 's/#'\n";
        let source = start(&table(&peer, topics));
        let mut session = peer.accept(true).await;
        let filters = ["old/#", "s/+/x"].map(str::to_owned).to_vec();
        assert_eq!(
            session.said().await,
            Said::Unsubscribe { filters },
            "one covered by `s/#` would bring messages twice"
        );
        let Said::Subscribe { packet_id, filters } = session.said().await else { panic!("SUBSCRIBE is expected") };
        assert_eq!(filters, [("s/#".to_owned(), 1)]);
        session.grant(packet_id, &[1]).await;
        source.connected().await;
    }
}

#[tokio::test]
async fn a_refused_filter_is_told_and_the_others_go_on() {
    for peer in Peer::of_each_version().await {
        let topics = "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'number'\n[[topics]]\nfilter = 'secret/+'\n";
        let mut source = start(&table(&peer, topics));
        let mut session = peer.accept(true).await;
        let Said::Subscribe { packet_id, .. } = session.said().await else { panic!("SUBSCRIBE is expected") };
        session.grant(packet_id, &[1, 0x80]).await;
        source.says("filter `secret/+` was refused (the broker's access list?)").await;
        session.publish(&Message::fresh(1, "1")).await;
        assert_eq!(told(&source.delivery().await), "fresh k value=I64(1)");
    }
}

#[tokio::test]
async fn oversize_above_the_hard_limit_is_told_and_does_not_spin() {
    let peer = Peer::listen().await;
    let source = plain(&peer);
    let mut last: Option<Instant> = None;
    for _ in 0..3 {
        let mut session = peer.subscribed(true).await;
        if let Some(last) = last {
            assert!(last.elapsed() >= Duration::from_millis(90), "there is a pause before the next try");
        }
        // A PUBLISH that announces 3 MiB, with max_payload at 1 MiB.
        session.raw(&[0x32, 0x80, 0x80, 0xc0, 0x01]).await;
        source.says("a message of 3145728 bytes, above the hard limit of 2097152").await;
        last = Some(Instant::now());
        while session.said_soon(Duration::from_secs(1)).await.is_some() {}
    }
}

#[tokio::test]
async fn qos_2_is_released_even_on_the_next_connection() {
    for peer in Peer::of_each_version().await {
        let mut source =
            start(&table(&peer, "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'number'\nqos = 2\n"));
        let mut session = peer.subscribed(true).await;
        session.publish(&Message { qos: 2, ..Message::fresh(7, "1") }).await;
        let delivery = source.delivery().await;
        assert_eq!(session.said_soon(A_MOMENT).await, None, "not received before it is on disk");
        commit(delivery);
        assert_eq!(session.said().await, Said::PubRec(7));
        drop(session);
        let mut session = peer.subscribed(true).await;
        session.release(7).await;
        assert_eq!(session.said().await, Said::PubComp(7));
    }
}

#[tokio::test]
async fn a_release_left_from_an_older_configuration_costs_one_reconnect() {
    let peer = Peer::listen().await;
    let source = plain(&peer);
    let mut session = peer.subscribed(true).await;
    session.release(9).await;
    assert_eq!(session.said_soon(Duration::from_secs(5)).await, None);
    let mut session = peer.subscribed(true).await;
    session.release(9).await;
    assert_eq!(session.said().await, Said::PubComp(9));
    source.connected().await;
}

#[tokio::test]
async fn a_full_window_asks_for_an_early_commit() {
    for version in [4, 5] {
        let mut seen = Vec::new();
        // It is asked for in quick succession only, which a busy machine may spoil.
        while seen.last().is_none_or(|urgent| *urgent != [10, 20]) {
            assert!(seen.len() < 20, "never after half a window and all of it: {seen:?}");
            seen.push(urgent_of_twenty(version).await);
        }
    }
}

/// Which of twenty messages, sent at once, ask for an early commit.
async fn urgent_of_twenty(version: u8) -> Vec<u16> {
    let peer = Peer::speaking(version).await;
    let mut source = plain(&peer);
    let mut session = peer.subscribed(true).await;
    let messages: Vec<Message<'_>> = (1..=20).map(|id| Message::fresh(id, "1")).collect();
    session.publish_all(&messages).await;
    let mut urgent = Vec::new();
    for id in 1..=20 {
        if source.delivery().await.urgent {
            urgent.push(id);
        }
    }
    urgent
}

#[tokio::test]
async fn dropping_the_source_ends_everything() {
    for peer in Peer::of_each_version().await {
        let source = plain(&peer);
        let mut session = peer.subscribed(true).await;
        source.connected().await;
        source.kill().await;
        assert_eq!(session.said_soon(Duration::from_secs(10)).await, None);
        eventually(|| tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0).await.unwrap();
    }
}

#[tokio::test]
async fn garbage_from_the_broker_is_survived() {
    for peer in Peer::of_each_version().await {
        let mut source = plain(&peer);
        for garbage in [
        &[0xff; 64][..],
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: 23\r\n\r\n<html>bad request</html>",
        &[0x32, 0x03, 0x00, 0x09, b's'],
    ] {
        let mut session = peer.subscribed(true).await;
        session.raw(garbage).await;
        let mut last = session.said_soon(Duration::from_secs(20)).await;
            if last == Some(Said::Disconnect(0x81)) {
                last = session.said_soon(Duration::from_secs(20)).await;
            }
            assert_eq!(last, None, "the connection is given up");
        assert_eq!(source.stats.condition.get().up, Some(false));
    }
        let mut session = peer.subscribed(true).await;
        session.publish(&Message::fresh(1, "1")).await;
        assert_eq!(told(&source.delivery().await), "fresh k value=I64(1)");
        assert_eq!(source.stats.restarts.get(), 0, "without a panic");
    }
}

#[tokio::test]
async fn silence_is_told_and_so_is_its_end() {
    for peer in Peer::of_each_version().await {
        let topics =
            "silent_after = '1s'\n[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'number'\nsilent_after = '1s'\n";
        let mut source = start(&table(&peer, topics));
        let mut session = peer.subscribed(true).await;
        for id in [1, 2] {
            session.publish(&Message::fresh(id, "1")).await;
            commit(source.delivery().await);
            source.says("but no message came for 1s").await;
            let silences = &source.stats.silences;
            eventually(|| silences.get().detail.starts_with("nothing came from k for ")).await.unwrap();
            assert_eq!(source.stats.silent.get(), 1);
        }
        session.publish(&Message::fresh(3, "1")).await;
        source.connected().await;
        eventually(|| source.stats.silent.get() == 0).await.unwrap();
    }
}
