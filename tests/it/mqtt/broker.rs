//! The source against a real mosquitto: sessions, redelivery, retained values, restarts, floods.

use rumqttc::QoS;
use tipbucket::store::OriginKind;

use super::{commit, plain, table, told};
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::{PATIENCE, Publisher, eventually, start};

#[tokio::test]
async fn messages_arrive_and_are_acknowledged_after_their_receipt() {
    for version in [4, 5] {
        let broker = Mosquitto::start();
        let mut source = plain((&broker, version));
        source.connected().await;
        let mut publisher = Publisher::new(broker.port);
        publisher.publish("s/kitchen", r#"{"temp":21.5,"hum":44}"#).await;
        let delivery = source.message().await;
        assert_eq!(told(&delivery), "fresh kitchen temp=F64(21.5) hum=I64(44)");
        commit(delivery);
        publisher.publish("s/roof", "on").await;
        let delivery = source.message().await;
        assert_eq!(told(&delivery), "fresh roof value=Bool(true)");
        assert_eq!((source.stats.messages.get(), source.stats.readings.get()), (2, 3 - 1));
    }
}

#[tokio::test]
async fn what_was_not_committed_comes_again_after_our_death() {
    for version in [4, 5] {
        let broker = Mosquitto::start();
        let mut source = plain((&broker, version));
        source.connected().await;
        let mut publisher = Publisher::new(broker.port);
        for i in 0..10 {
            publisher.publish("s/k", i.to_string()).await;
        }
        let mut origins = Vec::new();
        for i in 0..10 {
            let delivery = source.message().await;
            if i < 4 {
                commit(delivery);
            } else {
                origins.push(delivery.origin.unwrap());
            }
        }
        // Four acknowledgements are out when a later message has gone through the same connection.
        publisher.publish("s/k", "last").await;
        assert!(told(&source.message().await).contains("! s/k"));
        source.kill().await;
        let mut source = plain((&broker, version));
        for origin in origins {
            let again = source.message().await.origin.unwrap();
            assert_eq!((again.content, again.topic), (origin.content, origin.topic));
            let OriginKind::Fresh { packet_id } = origin.kind else { panic!("{origin:?}") };
            assert_eq!(again.kind, OriginKind::Repeated { packet_id });
        }
    }
}

#[tokio::test]
async fn the_broker_keeps_what_comes_while_we_are_away_even_when_it_restarts() {
    for version in [4, 5] {
        let mut broker = Mosquitto::start();
        let mut source = plain((&broker, version));
        source.connected().await;
        assert_eq!(told(&source.delivery().await), "session lost");
        source.kill().await;
        let mut publisher = Publisher::new(broker.port);
        for i in 0..300 {
            publisher.publish("s/k", i.to_string()).await;
        }
        broker.stop();
        broker.start_again();
        let mut source = plain((&broker, version));
        for i in 0..300 {
            let delivery = source.delivery().await;
            // The first may be marked as repeated: sent to our dead connection before the broker noticed.
            assert!(told(&delivery).ends_with(&format!(" k value=I64({i})")), "{}", told(&delivery));
            commit(delivery);
        }
    }
}

#[tokio::test]
async fn a_broker_that_dies_is_told_and_found_again() {
    for version in [4, 5] {
        let mut broker = Mosquitto::start();
        let mut source = plain((&broker, version));
        source.connected().await;
        broker.kill();
        source.says("broker 127.0.0.1").await;
        source.says("nothing listens there").await;
        broker.start_again();
        source.connected().await;
        let mut publisher = Publisher::new(broker.port);
        publisher.publish("s/k", "1").await;
        assert_eq!(told(&source.message().await), "fresh k value=I64(1)");
    }
}

#[tokio::test]
async fn retained_values_are_marked_and_can_be_left_out() {
    for version in [4, 5] {
        let broker = Mosquitto::start();
        let mut publisher = Publisher::new(broker.port);
        publisher.retain("s/k", "7").await;
        publisher.retain("no/k", "8").await;
        let topics = "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'number'\n\
                  [[topics]]\nfilter = 'no/+'\nsensor = '{1}'\ndecode = 'number'\nretained = false\n";
        let mut source = start(&table((&broker, version), topics));
        let mut seen = vec![told(&source.message().await), told(&source.message().await)];
        seen.sort();
        assert_eq!(seen, ["retained", "retained k value=I64(7)"]);
        publisher.retain("no/k", "9").await;
        assert_eq!(told(&source.message().await), "fresh k value=I64(9)", "live messages are taken all the same");
        publisher.retain("s/k", "").await;
        let cleared = source.message().await;
        assert_eq!(told(&cleared), "fresh", "an empty payload only clears: no reading, no dead letter");
        commit(cleared);
    }
}

#[tokio::test]
async fn qos_0_has_no_receipt() {
    let broker = Mosquitto::start();
    let mut source = plain(&broker.url());
    source.connected().await;
    let mut publisher = Publisher::new(broker.port);
    publisher.send("s/k", QoS::AtMostOnce, false, "1").await;
    let delivery = source.message().await;
    assert_eq!(told(&delivery), "unnumbered k value=I64(1)");
    assert!(delivery.receipt.is_none());
}

#[tokio::test]
async fn qos_2_goes_through() {
    for version in [4, 5] {
        let broker = Mosquitto::start();
        let mut source = start(&table((&broker, version), "[[topics]]\nfilter = 's/+'\ndecode = 'number'\nqos = 2\n"));
        source.connected().await;
        let mut publisher = Publisher::new(broker.port);
        for i in 0..60 {
            // mosquitto 2.0 takes no more than 20 at a time from a publisher and loses the others.
            publisher.send("s/k", QoS::ExactlyOnce, false, i.to_string()).await;
            let delivery = source.message().await;
            assert_eq!(told(&delivery), format!("fresh s/k value=I64({i})"));
            commit(delivery);
        }
    }
}

#[tokio::test]
async fn oversize_up_to_the_hard_limit_is_a_dead_letter() {
    let broker = Mosquitto::start();
    let topics = "max_payload = '10KiB'\n[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'auto'\n";
    let mut source = start(&table(&broker.url(), topics));
    source.connected().await;
    let mut publisher = Publisher::new(broker.port);
    let pad = "x".repeat(10 * 1024 - 17);
    publisher.publish("s/fits", format!(r#"{{"t":1,"pad":"{pad}"}}"#)).await;
    let delivery = source.message().await;
    assert_eq!(told(&delivery), "fresh fits t=I64(1)", "rumqttc's own bound of 10 KiB is out of the way");
    commit(delivery);
    publisher.publish("s/big", vec![b'x'; 300_000]).await;
    let delivery = source.message().await;
    assert_eq!(
        told(&delivery),
        "fresh ! s/big: payload of 300000 bytes is over max_payload (10240) (first 65536 of 300000 bytes kept)"
    );
    assert_eq!(delivery.dead_letters[0].payload.len(), 65_536);
    commit(delivery);
    publisher.publish("s/k", "1").await;
    assert_eq!(told(&source.message().await), "fresh k value=I64(1)");
}

#[tokio::test]
async fn a_flood_of_garbage_stops_nothing() {
    let broker = Mosquitto::start();
    let mut source = plain(&broker.url());
    source.connected().await;
    let mut publisher = Publisher::new(broker.port);
    let mut random = fastrand::Rng::with_seed(7);
    let feed = async {
        for _ in 0..1_000 {
            let garbage: Vec<u8> = (0..random.usize(1..200)).map(|_| random.u8(128..)).collect();
            publisher.send(&format!("s/{}", random.u32(..)), QoS::AtLeastOnce, false, garbage).await;
        }
        publisher.send("s/k", QoS::AtLeastOnce, false, "1").await;
    };
    let take = async {
        for _ in 0..1_000 {
            let delivery = source.message().await;
            assert_eq!((delivery.readings.len(), delivery.dead_letters.len()), (0, 1));
            commit(delivery);
        }
        source.message().await
    };
    let ((), last) = tokio::join!(feed, take);
    assert_eq!(told(&last), "fresh k value=I64(1)");
    assert_eq!(source.stats.refused.get(), 1_000);
}

#[tokio::test]
async fn ten_thousand_queued_messages_come_in_order() {
    for version in [4, 5] {
        let broker = Mosquitto::start();
        let source = plain((&broker, version));
        source.connected().await;
        source.kill().await;
        let mut publisher = Publisher::new(broker.port);
        for i in 0..10_000 {
            publisher.send("s/k", QoS::AtLeastOnce, false, i.to_string()).await;
        }
        publisher.acknowledged(10_000).await;
        let mut source = plain((&broker, version));
        // The test commits as a store does: all that waits, when it is urgent or a second has passed.
        let mut waiting = Vec::new();
        let started = tokio::time::Instant::now();
        for i in 0..10_000 {
            let next = tokio::time::timeout(std::time::Duration::from_secs(1), source.message()).await;
            let delivery = match next {
                Ok(delivery) => delivery,
                Err(_) => {
                    waiting.drain(..).for_each(commit);
                    source.message().await
                }
            };
            assert!(told(&delivery).ends_with(&format!(" k value=I64({i})")), "{}", told(&delivery));
            let urgent = delivery.urgent;
            waiting.push(delivery);
            if urgent {
                waiting.drain(..).for_each(commit);
            }
        }
        assert!(started.elapsed() < PATIENCE, "20 a second would be the broker's window without early commits");
    }
}

#[tokio::test]
async fn a_leftover_subscription_is_acknowledged_and_stores_nothing() {
    for version in [4, 5] {
        let broker = Mosquitto::start();
        let source = plain((&broker, version));
        source.connected().await;
        source.kill().await;
        let mut source = start(&table((&broker, version), "[[topics]]\nfilter = 'new/+'\ndecode = 'number'\n"));
        source.connected().await;
        let mut publisher = Publisher::new(broker.port);
        publisher.publish("s/k", "1").await;
        let delivery = source.message().await;
        assert_eq!(told(&delivery), "fresh");
        commit(delivery);
        eventually(|| source.stats.messages.get() == 1).await.unwrap();
    }
}
