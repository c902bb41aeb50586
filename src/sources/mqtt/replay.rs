//! Messages without a broker: what a source would make of them. For tools that show it, and for tests.

use jiff::tz::TimeZone;

use super::config::Config;
use super::packets::Properties;
use super::route::Route;
use super::take::{Arrived, Became, Taker};
use crate::model::{Admission, Reading, Timestamp, TurnedAway};

/// A source's routes and decoders, without its connection.
#[derive(Debug)]
pub struct Replay {
    taker: Taker,
    filters: Vec<String>,
    admission: Admission,
}

/// What would become of one message. With neither readings nor refusals it is no reading by design.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// What would be stored.
    pub readings: Vec<Reading>,
    /// What would go on record because of its time.
    pub turned_away: Vec<TurnedAway>,
    /// What would be a dead letter, in words.
    pub refused: Vec<String>,
    /// What an operator should know although nothing was refused.
    pub notes: Vec<String>,
}

impl Replay {
    /// As the source of this table on a site in this zone; the reason why not otherwise.
    pub fn new(config: &Config, zone: Option<&TimeZone>, admission: Admission) -> Result<Self, String> {
        let routes = config.topics.iter().map(|topic| Route::new(topic).map(|route| route.in_zone(zone)));
        let routes: Result<Vec<Route>, _> = routes.collect();
        let routes = routes.map_err(|faults| format!("topics are contradictory: {faults:?}"))?;
        let filters = config.topics.iter().map(|topic| topic.filter.clone()).collect();
        Ok(Self { taker: Taker::new(routes, config), filters, admission })
    }

    /// The topic, if the table leaves no choice: its only filter has no wildcard.
    pub fn only_topic(&self) -> Option<&str> {
        match self.filters.as_slice() {
            [filter] if !filter.contains(['+', '#']) => Some(filter),
            _ => None,
        }
    }

    /// What would become of a message that arrived `now`.
    pub fn message(&mut self, topic: &str, payload: &[u8], now: Timestamp) -> Replayed {
        let known = self.taker.routes.of(topic);
        let (admission, length, properties) = (self.admission, payload.len(), &Properties::default());
        let arrived = Arrived { topic, payload, length, is_retained: false, now, admission, properties };
        let (became, picked) = self.taker.take(&known, arrived);
        if let Some(pick) = picked {
            self.taker.routes.picked(topic, pick);
        }
        let mut replayed = match became {
            Became::Stray => {
                Replayed { refused: vec![format!("no filter matches topic `{topic}`")], ..Replayed::default() }
            }
            Became::Nothing => Replayed::default(),
            Became::Refused(reason) => Replayed { refused: vec![reason], ..Replayed::default() },
            Became::Taken(taken) => {
                let mut refused = taken.refused.reasons().to_vec();
                if taken.refused.len() > refused.len() {
                    refused.push(format!("and {} more", taken.refused.len() - refused.len()));
                }
                Replayed { readings: taken.readings, turned_away: taken.turned_away, refused, notes: taken.notes }
            }
        };
        replayed.notes.extend(picked.map(|pick| format!("read as {}", pick.name())));
        let asked = self.taker.requests().into_iter();
        replayed.notes.extend(asked.map(|request| format!("would ask for a birth on `{}`", request.topic)));
        replayed
    }
}
