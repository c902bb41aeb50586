//! Every message once: the source dies again and again, at any moment between commit and acknowledgement, and the broker
//! restarts, while the store's rule for recognising a repeated message is played by the test.

use std::collections::HashMap;

use tipbucket::model::Value;
use tipbucket::store::{Delivery, OriginKind};

use super::plain;
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::{Publisher, Running};

/// What the store remembers and keeps, in its simplest form.
#[derive(Default)]
struct Store {
    committed: HashMap<u16, u64>,
    stored: HashMap<i64, u32>,
    repeats: usize,
}

impl Store {
    /// Commits a delivery, without telling anybody.
    fn commit(&mut self, delivery: &Delivery) {
        let origin = delivery.origin.as_ref().unwrap();
        match origin.kind {
            OriginKind::SessionLost => return self.committed.clear(),
            OriginKind::Repeated { packet_id } if self.committed.get(&packet_id) == Some(&origin.content) => {
                self.repeats += 1;
                return;
            }
            OriginKind::Fresh { packet_id } | OriginKind::Repeated { packet_id } => {
                self.committed.insert(packet_id, origin.content);
            }
            other => panic!("{other:?}"),
        }
        let Value::I64(n) = delivery.readings[0].fields[0].1 else { panic!("{delivery:?}") };
        *self.stored.entry(n).or_default() += 1;
    }
}

/// Takes deliveries, commits them in batches and tells of the commits, `n` times.
async fn take(source: &mut Running, store: &mut Store, random: &mut fastrand::Rng, n: usize) {
    let mut batch = Vec::new();
    for i in 0..n {
        let delivery = source.delivery().await;
        store.commit(&delivery);
        let urgent = delivery.urgent || delivery.origin.as_ref().unwrap().kind == OriginKind::SessionLost;
        batch.extend(delivery.receipt);
        // The last batch of a life stays untold: committed, and its acknowledgements lost.
        if (urgent || batch.len() >= 5) && i + random.usize(1..30) < n {
            batch.drain(..).for_each(tipbucket::store::Receipt::fire);
        }
    }
}

#[tokio::test]
async fn each_message_is_stored_once_through_deaths_and_a_broker_restart() {
    each_message_once(4).await;
}

#[tokio::test]
async fn each_message_is_stored_once_with_mqtt_5_too() {
    each_message_once(5).await;
}

async fn each_message_once(version: u8) {
    const ROUNDS: i64 = 8;
    const EACH: i64 = 200;
    let mut broker = Mosquitto::start();
    let mut random = fastrand::Rng::with_seed(11);
    let mut store = Store::default();
    let mut source = plain((&broker, version));
    source.connected().await;
    for round in 0..ROUNDS {
        let mut publisher = Publisher::new(broker.port);
        let feed = async {
            for n in round * EACH..(round + 1) * EACH {
                publisher.publish("s/k", n.to_string()).await;
            }
        };
        let life = random.usize(15..60);
        tokio::join!(feed, take(&mut source, &mut store, &mut random, life));
        source.kill().await;
        if round == ROUNDS / 2 {
            broker.stop();
            broker.start_again();
        }
        source = plain((&broker, version));
    }
    while store.stored.len() < usize::try_from(ROUNDS * EACH).unwrap() {
        let delivery = source.delivery().await;
        store.commit(&delivery);
        delivery.receipt.into_iter().for_each(tipbucket::store::Receipt::fire);
    }
    let more_than_once: Vec<_> = store.stored.iter().filter(|(_, times)| **times != 1).collect();
    assert!(more_than_once.is_empty(), "{more_than_once:?}");
    assert!(store.repeats > 20, "the rule was put to use: {}", store.repeats);
}
