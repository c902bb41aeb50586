//! One message into one delivery: its readings, what of it was refused, and how to recognise it if it comes again.

use std::time::Duration;

use rumqttc::{Publish, QoS};
use xxhash_rust::xxh3::xxh3_64;

use super::config::Decode;
use super::route::{Known, Route, Routes};
use crate::decode::{json, number, text};
use crate::model::{Fields, Reading, SensorName, Timestamp, TurnedAway, Value};
use crate::sources::Intake;
use crate::store::{Delivery, Origin, OriginKind};

/// A stray message is told at most this often.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Turns messages into deliveries.
#[derive(Debug)]
pub(super) struct Reader {
    routes: Routes,
    max_payload: usize,
    /// Topic and payload of the message in hand, for its hash.
    scratch: Vec<u8>,
    stray_told: Option<Timestamp>,
}

/// What was taken from one message.
#[derive(Debug, Default)]
struct Taken {
    readings: Vec<Reading>,
    refused: json::Refused,
    turned_away: Vec<TurnedAway>,
}

impl Reader {
    /// A reader for messages on these routes.
    pub(super) fn new(routes: Routes, max_payload: usize) -> Self {
        Self { routes, max_payload, scratch: Vec::new(), stray_told: None }
    }

    /// What to subscribe to.
    pub(super) fn subscriptions(&self) -> Vec<(String, QoS)> {
        self.routes.subscriptions()
    }

    /// What an earlier session may be subscribed to and must not be any more.
    pub(super) fn covered(&self) -> Vec<String> {
        self.routes.covered()
    }

    /// The delivery of a message that arrived `now`. Without a receipt yet.
    pub(super) fn delivery(&mut self, message: &Publish, intake: &Intake, now: Timestamp) -> Delivery {
        let content = self.content(message);
        let (known, route) = self.routes.of(&message.topic);
        let origin = Origin { source: intake.name.clone(), content, topic: known.hash, kind: origin_kind(message) };
        let mut delivery = Delivery { origin: Some(origin), ..Delivery::default() };
        let Some(route) = route else {
            self.stray(message, intake, now);
            return delivery;
        };
        // An empty payload only clears what the broker retains.
        if message.payload.is_empty() || (message.retain && !route.retained) {
            return delivery;
        }
        let taken = if message.payload.len() > self.max_payload {
            Err(format!("payload of {} bytes is over max_payload ({})", message.payload.len(), self.max_payload))
        } else {
            take(route, known, &message.payload, intake, now)
        };
        let refused = match taken {
            Ok(taken) => {
                delivery.readings = taken.readings;
                delivery.refused = taken.turned_away;
                delivery.stamped = !route.json.reads_time();
                (!taken.refused.is_empty()).then(|| taken.refused.to_string())
            }
            Err(reason) => Some(reason),
        };
        if let Some(reason) = refused {
            delivery.dead_letters.push(intake.letter(now, &message.topic, reason, &message.payload));
        }
        delivery
    }

    /// Hash of topic, NUL and payload.
    fn content(&mut self, message: &Publish) -> u64 {
        self.scratch.clear();
        // One huge message must not keep its memory.
        self.scratch.shrink_to(64 << 10);
        self.scratch.extend_from_slice(message.topic.as_bytes());
        self.scratch.push(0);
        self.scratch.extend_from_slice(&message.payload);
        xxh3_64(&self.scratch)
    }

    fn stray(&mut self, message: &Publish, intake: &Intake, now: Timestamp) {
        if self.stray_told.is_none_or(|told| told.plus(TELL_EVERY) <= now || now < told) {
            self.stray_told = Some(now);
            tracing::warn!(
                "source {}: a message on `{}` matches no filter and is dropped: our session at the broker still holds a \
                 subscription that the site file no longer has (name its filter under `unsubscribe`)",
                intake.name,
                message.topic.escape_debug()
            );
        }
    }
}

fn origin_kind(message: &Publish) -> OriginKind {
    let packet_id = message.pkid;
    match (message.retain, message.qos, message.dup) {
        (true, ..) => OriginKind::Retained,
        (_, QoS::AtMostOnce, _) => OriginKind::Unnumbered,
        (_, _, false) => OriginKind::Fresh { packet_id },
        (_, _, true) => OriginKind::Repeated { packet_id },
    }
}

fn take(route: &mut Route, known: Known, payload: &[u8], intake: &Intake, now: Timestamp) -> Result<Taken, String> {
    match route.decode {
        Decode::Json => structured(route, known, payload, intake, now),
        Decode::Number => plain(known, number::decode(payload)?, now),
        Decode::Text => plain(known, text::decode(payload)?, now),
        Decode::Auto => {
            let first = payload.iter().find(|b| !b.is_ascii_whitespace() && !b"\xef\xbb\xbf".contains(b));
            if matches!(first, Some(b'{' | b'[')) {
                structured(route, known, payload, intake, now)
            } else {
                plain(known, number::decode(payload)?, now)
            }
        }
    }
}

fn plain(known: Known, value: Value, now: Timestamp) -> Result<Taken, String> {
    let sensor = known.sensor.unwrap_or_else(|| Err("the payload names no sensor".to_owned()))?;
    let fields = Fields::from_iter([(known.field?, value)]);
    let reading = Reading::new(sensor, now, fields).map_err(|e| e.to_string())?;
    Ok(Taken { readings: vec![reading], ..Taken::default() })
}

fn structured(
    route: &mut Route,
    known: Known,
    payload: &[u8],
    intake: &Intake,
    now: Timestamp,
) -> Result<Taken, String> {
    let topic_name = known.sensor.transpose()?;
    let decoded = route.json.decode(payload, now)?;
    let mut taken = Taken {
        readings: Vec::with_capacity(decoded.readings.len()),
        refused: decoded.refused,
        turned_away: Vec::new(),
    };
    for measured in decoded.readings {
        match reading(&measured.sensor, topic_name.as_ref(), measured.at, measured.fields, now) {
            Ok(reading) => match measured.at.map_or(Ok(()), |at| intake.admission.check(at, now)) {
                Ok(()) => taken.readings.push(reading),
                Err(why) => {
                    taken.refused.add(measured.index, why.to_string());
                    let (sensor, at) = (reading.sensor, reading.at);
                    taken.turned_away.push(TurnedAway { sensor, at, reason: why.reason() });
                }
            },
            Err(reason) => taken.refused.add(measured.index, reason),
        }
    }
    Ok(taken)
}

fn reading(
    named: &Option<String>,
    topic_name: Option<&SensorName>,
    at: Option<Timestamp>,
    fields: Fields,
    now: Timestamp,
) -> Result<Reading, String> {
    let sensor = match (named, topic_name) {
        (Some(name), _) => SensorName::new(name).map_err(|e| e.to_string())?,
        (None, Some(name)) => name.clone(),
        (None, None) => return Err("the payload names no sensor".to_owned()),
    };
    Reading::new(sensor, at.unwrap_or(now), fields).map_err(|e| e.to_string())
}
