//! The MQTT source against a real mosquitto and against a scripted peer.

mod births;
mod broker;
mod corpus;
mod names;
mod security;
mod sniff;
mod snippets;
mod storm;
mod traps;
pub mod variants;

use crate::support::mqtt_intake::{Running, start};
use tipbucket::store::{Delivery, OriginKind};

/// A source that takes every number on `s/+`, named by its second level.
fn plain(url: &str) -> Running {
    start(&table(url, "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'auto'\n"))
}

/// A source's table with these topics.
fn table(url: &str, topics: &str) -> String {
    format!("url = '{url}'\nclient_id = 'tipbucket-test'\n{topics}")
}

/// A delivery in one line: `kind sensor field=value … ! reason`.
fn told(delivery: &Delivery) -> String {
    let mut words = vec![match delivery.origin.as_ref().map(|origin| origin.kind) {
        Some(OriginKind::Fresh { .. }) => "fresh".to_owned(),
        Some(OriginKind::Repeated { .. }) => "repeated".to_owned(),
        Some(OriginKind::Retained) => "retained".to_owned(),
        Some(OriginKind::Unnumbered) => "unnumbered".to_owned(),
        Some(OriginKind::SessionLost) => "session lost".to_owned(),
        None => "no origin".to_owned(),
    }];
    for reading in &delivery.readings {
        words.push(reading.sensor.to_string());
        words.extend(reading.fields.iter().map(|(name, value)| format!("{name}={value:?}")));
    }
    words.extend(delivery.dead_letters.iter().map(|letter| format!("! {}: {}", letter.place, letter.reason)));
    words.join(" ")
}

/// Puts a delivery on disk, as far as the source knows.
fn commit(delivery: Delivery) {
    delivery.receipt.expect("has a receipt").fire();
}
