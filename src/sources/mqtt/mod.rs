//! Messages from an MQTT broker (3.1.1 or 5, by rumqttc), also over WebSocket.
//!
//! A persistent session keeps at the broker what arrives while we are away. Every message of QoS 1 or 2 is acknowledged only
//! after the store's receipt for it; what cannot be decoded becomes a dead letter and is acknowledged too. Nothing is
//! deduplicated here: each delivery tells the store how to recognise its message.
//!
//! `config`, `topic` say what is wanted · `topics`, `route` find what a topic means · `recipe` how its payloads are read ·
//! `settle` what of it is believed · `take` is these together, `replay` the same for tools · `message` makes a delivery ·
//! `line` is one connection, made of what is alike (`packets`) in `four`, rumqttc's client for 3.1.1 with its traps guarded,
//! and `five`, version 5 over its codec (`wire`) and a stream of our own (`transport`) · `acks`, `window` know what may be
//! acknowledged, and when to hurry · `connection` puts these together · `failure` and `reason` explain ·
//! `watch` notices silence.

mod acks;
mod address;
mod config;
mod connection;
mod failure;
mod five;
mod four;
mod line;
mod message;
mod packets;
mod reason;
mod recipe;
mod replay;
mod route;
mod settle;
mod sniffed;
mod take;
mod tls;
mod topic;
mod topics;
mod transport;
mod watch;
mod window;
mod wire;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Notify;

use self::address::Address;
pub use self::config::{Config, Tls};
use self::connection::Connection;
use self::message::Reader;
pub use self::replay::{Replay, Replayed};
use self::route::Route;
use self::sniffed::Sniffed;
pub use self::topic::{BadTime, Decode, Topic};
use self::topics::{Filter, Template};
use self::watch::Watch;
use super::{Claims, Intake, Kind, Recording, Source, SourceConfig};

/// The kind's row.
pub(super) const KIND: Kind = Kind { name: "mqtt", read: super::read::<Config> };

impl SourceConfig for Config {
    fn claims(&self) -> Claims {
        let client = Address::new(&self.url).ok().zip(self.client_id.clone());
        let fixed = |topic: &Topic| {
            let wildcards = Filter::new(&topic.filter).map_or(0, |filter| filter.wildcards());
            let name = topic.sensor.clone().filter(|name| !name.starts_with('/'))?;
            Template::new(&name, wildcards).is_ok_and(|t| t.is_fixed()).then_some(name)
        };
        let units = self.topics.iter().filter_map(|topic| Some((fixed(topic)?, &topic.fields)));
        let units = units.flat_map(|(sensor, fields)| {
            let with_unit = fields.iter().filter_map(|(name, field)| Some((name.clone(), field.0.unit.clone()?)));
            with_unit.map(move |(name, unit)| (sensor.clone(), name, unit)).collect::<Vec<_>>()
        });
        Claims {
            client: client.map(|(address, id)| (format!("{}:{}", address.host, address.port), id)),
            resends: self.topics.iter().all(|topic| topic.qos > 0),
            sensors: self.topics.iter().filter_map(fixed).collect(),
            units: units.collect(),
            ..Claims::default()
        }
    }

    fn tells_time(&self) -> bool {
        self.topics.iter().any(|topic| topic.time.is_some())
    }

    fn contradictions(&self) -> Vec<(String, String)> {
        self.find_contradictions()
    }

    fn build(self: Box<Self>) -> Box<dyn Source> {
        Box::new(Mqtt { config: *self })
    }

    fn replay(self: Box<Self>, recording: Recording, over: Arc<Notify>) -> Option<Box<dyn Source>> {
        Some(Box::new(Sniffed::new(*self, recording, over)))
    }

    fn listen_only(&mut self) {
        let name = self.client_id.as_deref().unwrap_or("tipbucket");
        self.client_id = Some(format!("{name}-sniff-{:08x}", fastrand::u32(..)));
        self.is_listening = true;
    }
}

struct Mqtt {
    config: Config,
}

impl Source for Mqtt {
    fn run<'a>(&'a mut self, intake: &'a Intake) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            let routes: Result<Vec<Route>, _> = self.config.topics.iter().map(Route::new).collect();
            let routes = routes.map_err(|faults| anyhow::anyhow!("topics are contradictory: {faults:?}"))?;
            let routes = routes.into_iter().map(|route| route.in_zone(intake.timezone.as_ref())).collect();
            let watch = Watch::new(&self.config, tokio::time::Instant::now());
            let mut reader = Reader::new(routes, &self.config, &watch);
            let connection = Connection::new(&self.config, &mut reader, intake)?;
            let broker = Address::new(&self.config.url).map(|address| address.broker()).unwrap_or_default();
            tokio::select! {
                closed = connection.run() => Err(closed.into()),
                never = watch.stand(intake, &broker) => match never {},
            }
        })
    }
}

#[cfg(test)]
mod tests;
