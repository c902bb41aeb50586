//! One message into one delivery: its readings, what of it was refused, and how to recognise it if it comes again.

use std::time::Duration;

use rumqttc::QoS;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::config::Config;
use super::packets::Message;
use super::route::Route;
use super::settle::Taken;
use super::take::{Arrived, Became, Taker};
use super::watch::Watch;
use crate::decode::auto::Pick;
use crate::decode::sparkplug;
use crate::model::Timestamp;
use crate::sources::Intake;
use crate::store::{Delivery, Origin, OriginKind};

/// A stray message, and what is worth a note, is told at most this often.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// Most topics whose decoder is told in the log; the status counts all.
const MAX_PICKS_TOLD: usize = 100;

/// Turns messages into deliveries.
#[derive(Debug)]
pub(super) struct Reader<'w> {
    taker: Taker,
    pub(super) watch: &'w Watch,
    /// Topic and payload of the message in hand, for its hash.
    scratch: Vec<u8>,
    stray_told: Option<Timestamp>,
    note_told: Option<Timestamp>,
    notes_untold: u64,
    picks_told: usize,
}

impl<'w> Reader<'w> {
    /// A reader for messages on these routes.
    pub(super) fn new(routes: Vec<Route>, config: &Config, watch: &'w Watch) -> Self {
        Self {
            taker: Taker::new(routes, config),
            watch,
            scratch: Vec::new(),
            stray_told: None,
            note_told: None,
            notes_untold: 0,
            picks_told: 0,
        }
    }

    /// What to subscribe to.
    pub(super) fn subscriptions(&self) -> Vec<(String, QoS)> {
        self.taker.routes.subscriptions()
    }

    /// What an earlier session may be subscribed to and must not be any more.
    pub(super) fn covered(&self) -> Vec<String> {
        self.taker.routes.covered()
    }

    /// What is to be published since the last call.
    pub(super) fn requests(&mut self) -> Vec<sparkplug::Request> {
        self.taker.requests()
    }

    /// The delivery of a message that arrived `now`. Without a receipt yet.
    pub(super) fn delivery(&mut self, message: &Message, intake: &Intake, now: Timestamp) -> Delivery {
        let content = self.content(message);
        let moment = Instant::now();
        if self.watch.message(moment) {
            intake.stats.condition.up(now, "messages come again");
        }
        let known = self.taker.routes.of(&message.topic);
        let origin = Origin { source: intake.name.clone(), content, topic: known.hash, kind: origin_kind(message) };
        let mut delivery = Delivery { origin: Some(origin), ..Delivery::default() };
        let arrived = Arrived {
            topic: &message.topic,
            payload: &message.payload,
            length: message.length,
            is_retained: message.is_retained,
            now,
            admission: intake.admission,
            properties: &message.properties,
        };
        let (became, picked) = self.taker.take(&known, arrived);
        if let Some(pick) = picked {
            self.pick(&message.topic, pick, intake);
        }
        let refused = match became {
            Became::Stray => {
                self.stray(message, intake, now);
                None
            }
            Became::Nothing => None,
            Became::Refused(reason) => Some(reason),
            Became::Taken(taken) => {
                self.tell(&taken, &message.topic, intake, now);
                if let Some(route) = known.route {
                    self.watch.heard(route, taken.readings.iter().map(|reading| &reading.sensor), moment);
                }
                delivery.readings = taken.readings;
                delivery.refused = taken.turned_away;
                delivery.stamped = taken.stamped;
                (!taken.refused.is_empty()).then(|| taken.refused.to_string())
            }
        };
        if let Some(reason) = refused {
            let letter = intake.letter_of(now, &message.topic, reason, (&message.payload, message.length));
            delivery.dead_letters.push(letter);
        }
        delivery
    }

    /// What was found out about a topic is said once, and counted.
    fn pick(&mut self, topic: &str, pick: Pick, intake: &Intake) {
        self.taker.routes.picked(topic, pick);
        intake.stats.picked(pick.name());
        if self.picks_told < MAX_PICKS_TOLD {
            self.picks_told += 1;
            let (source, topic) = (&intake.name, topic.escape_debug());
            tracing::info!("source {source}: messages on `{topic}` are read as {}", pick.name());
        }
    }

    /// Counts what was left out, and tells what is worth a note, though not each time.
    fn tell(&mut self, taken: &Taken, topic: &str, intake: &Intake, now: Timestamp) {
        intake.stats.left_out.inc_by(taken.left_out);
        intake.stats.rollovers.inc_by(taken.rollovers);
        let Some(note) = taken.notes.first() else { return };
        self.notes_untold += taken.notes.len() as u64 - 1;
        if self.note_told.is_some_and(|told| now < told.plus(TELL_EVERY) && told <= now) {
            self.notes_untold += 1;
            return;
        }
        self.note_told = Some(now);
        let more = match std::mem::take(&mut self.notes_untold) {
            0 => String::new(),
            n => format!(" (and {n} other notes)"),
        };
        tracing::warn!("source {}: `{}`: {note}{more}", intake.name, topic.escape_debug());
    }

    /// Hash of topic, NUL and payload.
    fn content(&mut self, message: &Message) -> u64 {
        self.scratch.clear();
        // One huge message must not keep its memory.
        self.scratch.shrink_to(64 << 10);
        self.scratch.extend_from_slice(message.topic.as_bytes());
        self.scratch.push(0);
        self.scratch.extend_from_slice(&message.payload);
        xxh3_64(&self.scratch)
    }

    fn stray(&mut self, message: &Message, intake: &Intake, now: Timestamp) {
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

fn origin_kind(message: &Message) -> OriginKind {
    let packet_id = message.packet_id;
    match (message.is_retained, message.qos, message.is_repeated) {
        (true, ..) => OriginKind::Retained,
        (_, QoS::AtMostOnce, _) => OriginKind::Unnumbered,
        (_, _, false) => OriginKind::Fresh { packet_id },
        (_, _, true) => OriginKind::Repeated { packet_id },
    }
}
