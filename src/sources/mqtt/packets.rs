//! What travels over a connection, whichever version of the protocol it speaks.

use std::time::Duration;

use bytes::Bytes;
use rumqttc::QoS;

use super::acks::Ticket;

/// A message from the broker.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub(super) topic: String,
    /// What was kept of the payload: all of it, unless it is far over `max_payload` (version 5 only).
    pub(super) payload: Bytes,
    /// How long the payload was.
    pub(super) length: usize,
    pub(super) qos: QoS,
    /// Sent because we subscribed, not because it was published just now.
    pub(super) is_retained: bool,
    /// Sent before, says the broker.
    pub(super) is_repeated: bool,
    /// 0 for QoS 0.
    pub(super) packet_id: u16,
    pub(super) properties: Properties,
}

/// What version 5 says beside topic and payload. Of version 3.1.1 nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Properties {
    pub(super) content_type: Option<String>,
    /// The time for which its sender wanted it to be of use has passed.
    pub(super) is_expired: bool,
    pub(super) user: Vec<(String, String)>,
}

impl Properties {
    /// The user property of that name; of several the first.
    pub(super) fn user(&self, name: &str) -> Option<&str> {
        self.user.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Something from the broker.
#[derive(Debug)]
pub(super) enum Event {
    /// We are connected.
    Opened(Opened),
    /// A message.
    Message(Message),
    /// The answer to a subscription.
    Subscribed(Subscribed),
    /// Nothing that concerns us.
    Other,
}

/// The broker let us in.
#[derive(Debug)]
pub(super) struct Opened {
    /// It still has our session.
    pub(super) session_present: bool,
    /// How often it wants to hear from us.
    pub(super) keep_alive: Duration,
    /// What it grants less than was asked for, in words.
    pub(super) notes: Vec<String>,
}

/// What became of the filters of one subscription, in their order: the granted quality of service, or why there is none.
#[derive(Debug)]
pub(super) struct Subscribed {
    pub(super) packet_id: u16,
    pub(super) answers: Vec<Result<QoS, String>>,
}

/// Something to the broker.
#[derive(Clone, Debug)]
pub(super) enum Out {
    Ack(Ticket),
    Ping,
    Subscribe {
        packet_id: u16,
        filters: Vec<(String, QoS)>,
    },
    Unsubscribe {
        packet_id: u16,
        filters: Vec<String>,
    },
    /// With QoS 0.
    Publish {
        topic: String,
        payload: Vec<u8>,
    },
}

/// Why there is no connection any more, in words for an operator.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) words: String,
    /// rumqttc complained about the release of a message it does not remember.
    pub(super) is_unknown_release: bool,
}

impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self { words, is_unknown_release: false }
    }
}
