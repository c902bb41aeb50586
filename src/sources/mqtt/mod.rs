//! Messages from an MQTT broker (3.1.1, by rumqttc).
//!
//! A persistent session keeps at the broker what arrives while we are away. Every message of QoS 1 or 2 is acknowledged only
//! after the store's receipt for it; what cannot be decoded becomes a dead letter and is acknowledged too. Nothing is
//! deduplicated here: each delivery tells the store how to recognise its message.
//!
//! `config` says what is wanted · `topics`, `route` find what a topic means · `message` makes a delivery ·
//! `line` is rumqttc with its traps guarded · `acks`, `window` know what may be acknowledged, and when to hurry ·
//! `connection` puts these together · `failure` explains.

mod acks;
mod config;
mod connection;
mod failure;
mod line;
mod message;
mod route;
mod tls;
mod topics;
mod window;

use std::future::Future;
use std::pin::Pin;

use self::config::Address;
pub use self::config::{Config, Decode, Tls, Topic};
use self::connection::Connection;
use self::message::Reader;
use self::route::{Route, Routes};
use self::topics::{Filter, Template};
use super::{Claims, Intake, Kind, Source, SourceConfig};

/// The kind's row.
pub(super) const KIND: Kind = Kind { name: "mqtt", read: super::read::<Config> };

impl SourceConfig for Config {
    fn claims(&self) -> Claims {
        let client = Address::new(&self.url).ok().zip(self.client_id.clone());
        let fixed = self.topics.iter().filter(|topic| {
            let wildcards = Filter::new(&topic.filter).map_or(0, |filter| filter.wildcards());
            !topic.sensor.starts_with('/') && Template::new(&topic.sensor, wildcards).is_ok_and(|t| t.is_fixed())
        });
        Claims {
            client: client.map(|(address, id)| (format!("{}:{}", address.host, address.port), id)),
            sensors: fixed.map(|topic| topic.sensor.clone()).collect(),
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
            let max_payload = usize::try_from(self.config.max_payload.as_u64()).unwrap_or(usize::MAX);
            let mut reader = Reader::new(Routes::new(routes), max_payload);
            let connection = Connection::new(&self.config, &mut reader, intake)?;
            Err(connection.run().await.into())
        })
    }
}

#[cfg(test)]
mod tests;
