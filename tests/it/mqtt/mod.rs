//! The MQTT source against a real mosquitto and against a scripted peer.

mod births;
mod broker;
mod corpus;
mod five;
mod names;
mod security;
mod sniff;
mod snippets;
mod storm;
mod traps;
pub mod variants;
mod web;

use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::{Running, start};
use crate::support::mqtt_peer::Peer;
use tipbucket::store::{Delivery, OriginKind};

/// Where a source connects to, and the version of the protocol it speaks there.
struct Place {
    url: String,
    version: u8,
}

impl From<&String> for Place {
    fn from(url: &String) -> Self {
        Self { url: url.clone(), version: 4 }
    }
}

impl From<&Peer> for Place {
    fn from(peer: &Peer) -> Self {
        Self { url: peer.url(), version: peer.version }
    }
}

impl From<(&Mosquitto, u8)> for Place {
    fn from((broker, version): (&Mosquitto, u8)) -> Self {
        Self { url: broker.url(), version }
    }
}

/// A source that takes every number on `s/+`, named by its second level.
fn plain(at: impl Into<Place>) -> Running {
    start(&table(at, "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'auto'\n"))
}

/// A source's table with these topics.
fn table(at: impl Into<Place>, topics: &str) -> String {
    let Place { url, version } = at.into();
    format!("url = '{url}'\nclient_id = 'tipbucket-test'\nprotocol = {version}\n{topics}")
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
