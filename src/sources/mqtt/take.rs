//! A topic, a payload and the time of its arrival into readings and refusals: the whole of the source without a broker.

use super::config::Config;
use super::packets::Properties;
use super::recipe::{Came, Recipe};
use super::route::{Known, Route, Routes};
use super::settle::{Judge, Taken};
use crate::decode::auto::Pick;
use crate::decode::damp::Damper;
use crate::decode::preset::Presets;
use crate::decode::sparkplug;
use crate::model::{Admission, Timestamp};

/// Takes messages apart.
#[derive(Debug)]
pub(super) struct Taker {
    pub(super) routes: Routes,
    presets: Presets,
    damper: Damper,
    max_payload: usize,
}

/// What one message is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'m> {
    pub(super) topic: &'m str,
    /// What was kept of it.
    pub(super) payload: &'m [u8],
    /// How long it was.
    pub(super) length: usize,
    /// Sent because we subscribed.
    pub(super) is_retained: bool,
    pub(super) now: Timestamp,
    pub(super) admission: Admission,
    pub(super) properties: &'m Properties,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Became {
    /// No filter matches.
    Stray,
    /// It is no reading by design.
    Nothing,
    /// Readings, and what of it was refused.
    Taken(Taken),
    /// Nothing of it can be taken, in words.
    Refused(String),
}

impl Taker {
    /// For these routes.
    pub(super) fn new(routes: Vec<Route>, config: &Config) -> Self {
        let max_payload = usize::try_from(config.max_payload.as_u64()).unwrap_or(usize::MAX);
        Self { routes: Routes::new(routes), presets: Presets::default(), damper: Damper::default(), max_payload }
    }

    /// What becomes of a message; and its decoder, if that was found out from it just now.
    pub(super) fn take(&mut self, known: &Known, arrived: Arrived<'_>) -> (Became, Option<Pick>) {
        let Arrived { topic, payload, length, now, properties, .. } = arrived;
        let Some(route) = known.route.and_then(|i| self.routes.get_mut(i)) else { return (Became::Stray, None) };
        // An empty payload only clears what the broker retains.
        if payload.is_empty() || (arrived.is_retained && !route.retained) {
            return (Became::Nothing, None);
        }
        if length > self.max_payload {
            let words = format!("payload of {length} bytes is over max_payload ({})", self.max_payload);
            return (Became::Refused(words), None);
        }
        let mut picked = known.picked;
        let came = Came { topic, payload, now, content_type: properties.content_type.as_deref() };
        let field = known.field.field(properties);
        let found = route.recipe.read(&mut self.presets, &came, &field, &mut picked);
        // Told once for a topic, although each message is looked at until one is of known software.
        let news = picked.filter(|_| found.is_ok() && known.picked.is_none());
        let became = match found {
            Err(reason) => Became::Refused(reason),
            Ok(decoded) => {
                let recipe: &Recipe = &route.recipe;
                let admission = arrived.admission;
                let (damper, named) = (&mut self.damper, &known.sensor);
                let mut judge = Judge { recipe, damper, named, admission, now, properties };
                Became::Taken(judge.settle(decoded))
            }
        };
        (became, news)
    }

    /// What is to be published since the last call.
    pub(super) fn requests(&mut self) -> Vec<sparkplug::Request> {
        self.presets.requests()
    }
}
