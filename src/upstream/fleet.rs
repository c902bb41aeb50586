//! What a gateway tells its fleet, and what the database's owner asks of it: plain values.
//!
//! Three small collections beside the buckets: `_gateways` (one document for each gateway), `_gaps` (what was lost, and
//! why), `_control` (the owner's brake; gateways only read it).

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::model::{SiteName, Timestamp};

/// One document for each gateway.
pub(super) const GATEWAYS: &str = "_gateways";
/// One document for each entry of a loss ledger.
pub(super) const GAPS: &str = "_gaps";
/// Orders: `_id: "*"` for all gateways, `_id: SITE` for one.
pub(super) const CONTROL: &str = "_control";
/// The `_id` of the orders for everybody.
pub(super) const EVERYBODY: &str = "*";
/// Longest error that is told.
const MAX_ERROR: usize = 500;
/// A pause that is ordered is kept for at most so long: a wrong date must not silence a fleet for ever.
const MAX_PAUSE: Duration = Duration::from_secs(7 * 86_400);
/// Least rate that is kept, in bytes a second: below it nothing would ever be delivered.
const MIN_RATE: u64 = 100;
/// Longest splay that is kept.
const MAX_SPLAY: Duration = Duration::from_secs(86_400);

/// How a gateway is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Buckets that wait.
    pub backlog: i64,
    /// Where the window of the oldest of them that is known begins.
    pub oldest_unsent: Option<Timestamp>,
    /// Buckets and readings delivered since the start.
    pub delivered: (u64, u64),
    /// Buckets refused and met by other content since the start.
    pub refused: (u64, u64),
    /// The last thing that went wrong.
    pub last_error: Option<(Timestamp, String)>,
    /// The store's id.
    pub store: String,
}

/// Something that was lost, for a chart that would be empty without a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its number in the ledger: never used twice.
    pub id: i64,
    /// When it was put on record.
    pub at: Timestamp,
    /// Whose readings, if it was one sensor's.
    pub sensor: Option<String>,
    /// From when.
    pub first: Timestamp,
    /// Until when.
    pub last: Timestamp,
    /// How many samples.
    pub samples: u64,
    /// Why, in a fixed word.
    pub reason: String,
}

/// What the database's owner asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Most bytes of documents a second.
    pub max_rate: Option<u64>,
    /// Nothing is sent before this moment.
    pub pause_until: Option<Timestamp>,
    /// Connections are spread over so long.
    pub splay: Option<Duration>,
}

impl Vitals {
    /// The update of this gateway's document. `offset`: how far the server's clock is ahead of ours, in milliseconds.
    pub(super) fn update(&self, site: &SiteName, now: Timestamp, offset: Option<i64>) -> Document {
        let error = self.last_error.as_ref();
        let set = doc! {
            "version": env!("CARGO_PKG_VERSION"),
            "store": self.store.as_str(),
            "backlog": self.backlog,
            "oldestUnsent": self.oldest_unsent.map(date),
            "delivered": { "buckets": self.delivered.0 as i64, "readings": self.delivered.1 as i64 },
            "refused": self.refused.0 as i64,
            "conflicts": self.refused.1 as i64,
            "lastError": error.map(|(_, words)| words.chars().take(MAX_ERROR).collect::<String>()),
            "lastErrorAt": error.map(|(at, _)| date(*at)),
            "clockOffsetMs": offset,
            "gatewayTime": date(now),
        };
        let change = doc! { "$set": set, "$currentDate": { "seen": true } };
        doc! { "q": { "_id": site.as_str() }, "u": change, "upsert": true }
    }
}

impl Gap {
    /// Its document. The same entry gives the same `_id`: sent twice it is stored once.
    pub(super) fn document(&self, site: &SiteName, store: &str) -> Document {
        doc! {
            "_id": format!("{site}|{store}|{:012}", self.id),
            "site": site.as_str(),
            "sensor": self.sensor.as_deref(),
            "from": date(self.first),
            "to": date(self.last),
            "samples": self.samples as i64,
            "reason": self.reason.as_str(),
            "at": date(self.at),
        }
    }
}

impl Orders {
    /// Out of the documents of `_control`: a gateway's own words win over those for everybody. What makes no sense is
    /// passed over.
    pub(super) fn of(documents: &[Document], site: &SiteName, now: Timestamp) -> Self {
        let mut orders = Self::default();
        for who in [EVERYBODY, site.as_str()] {
            for document in documents.iter().filter(|document| document.get_str("_id").is_ok_and(|id| id == who)) {
                let number = |key: &str| match document.get(key) {
                    Some(Bson::Int32(n)) => Some(f64::from(*n)),
                    Some(Bson::Int64(n)) => Some(*n as f64),
                    Some(Bson::Double(n)) => Some(*n),
                    _ => None,
                };
                let positive = |key: &str| number(key).filter(|n| n.is_finite() && *n > 0.0);
                orders.max_rate = positive("maxRate").map(|n| (n as u64).max(MIN_RATE)).or(orders.max_rate);
                let splay = positive("splay").map(|n| Duration::from_secs_f64(n.min(MAX_SPLAY.as_secs_f64())));
                orders.splay = splay.or(orders.splay);
                if let Ok(until) = document.get_datetime("pauseUntil") {
                    let until = Timestamp::clamped(until.timestamp_millis()).min(now.plus(MAX_PAUSE));
                    orders.pause_until = Some(until);
                }
            }
        }
        orders.pause_until = orders.pause_until.filter(|until| *until > now);
        orders
    }
}

fn date(at: Timestamp) -> DateTime {
    DateTime::from_millis(at.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::clamped(1_796_043_600_000 + seconds * 1000)
    }

    fn check(documents: &[Document], expected: Orders) {
        assert_eq!(Orders::of(documents, &SiteName::new("greenhouse-7").unwrap(), at(0)), expected);
    }

    #[test]
    fn a_gateways_own_orders_win_over_those_for_everybody() {
        let all = doc! { "_id": "*", "maxRate": 5000, "splay": 60.5, "pauseUntil": date(at(600)) };
        let own = doc! { "_id": "greenhouse-7", "maxRate": 20_000_i64 };
        let other = doc! { "_id": "greenhouse-8", "maxRate": 1 };
        let pause_until = Some(at(600));
        let splay = Some(Duration::from_millis(60_500));
        check(&[own, all, other], Orders { max_rate: Some(20_000), pause_until, splay });
        check(&[], Orders::default());
    }

    #[test]
    fn orders_that_make_no_sense_are_passed_over_and_none_lasts_for_ever() {
        let nonsense = doc! { "_id": "*", "maxRate": "slow", "splay": f64::NAN, "pauseUntil": 7 };
        check(&[nonsense], Orders::default());
        check(&[doc! { "_id": "*", "maxRate": -5, "pauseUntil": date(at(-1)) }], Orders::default());
        let extreme = doc! { "_id": "*", "maxRate": 1, "splay": 1e300, "pauseUntil": date(Timestamp::LAST) };
        let orders =
            Orders { max_rate: Some(MIN_RATE), pause_until: Some(at(0).plus(MAX_PAUSE)), splay: Some(MAX_SPLAY) };
        check(&[extreme], orders);
    }

    #[test]
    fn a_gap_has_one_identity() {
        let gap =
            Gap { id: 7, at: at(9), sensor: None, first: at(0), last: at(5), samples: 3, reason: "evicted".into() };
        let found = gap.document(&SiteName::new("s").unwrap(), "0badcafe");
        assert_eq!(found.get_str("_id").unwrap(), "s|0badcafe|000000000007");
        assert_eq!((found.get("sensor"), found.get_i64("samples").unwrap()), (Some(&Bson::Null), 3));
    }
}
