//! What a source hands to the store in one piece: it is committed whole or not at all.

use tokio::sync::mpsc;

use crate::model::{DeadLetter, Reading, SourceName, TurnedAway};

/// The readings of one message, frame or poll, and what of it could not be taken.
#[derive(Debug, Default)]
pub struct Delivery {
    /// What was measured.
    pub readings: Vec<Reading>,
    /// What could not be decoded; stored in the same commit, so that it too is safe before it is acknowledged.
    pub dead_letters: Vec<DeadLetter>,
    /// What was understood and is not taken; it is put on record in the same commit.
    pub refused: Vec<TurnedAway>,
    /// How to recognise the message when a broker delivers it again.
    pub origin: Option<Origin>,
    /// Whether the readings bear the time of their arrival: equal ones in one millisecond are then as many readings, not
    /// one that came twice.
    pub stamped: bool,
    /// Whom to tell that it is on disk.
    pub receipt: Option<Receipt>,
    /// Commit as soon as possible: the source cannot go on before its receipt.
    pub urgent: bool,
}

/// How to recognise a message that a broker delivers again. The memory of it is committed together with the readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The broker connection.
    pub source: SourceName,
    /// Hash of topic and payload.
    pub content: u64,
    /// Hash of the topic.
    pub topic: u64,
    /// What the broker said about this delivery.
    pub kind: OriginKind,
}

/// What a broker said about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginKind {
    /// QoS 1 or 2, sent for the first time.
    Fresh {
        /// The broker's number for it until it is acknowledged.
        packet_id: u16,
    },
    /// QoS 1 or 2 with the DUP flag: possibly committed already.
    Repeated {
        /// The broker's number for it until it is acknowledged.
        packet_id: u16,
    },
    /// A value retained by the broker, sent because we subscribed; `packet_id` is irrelevant to its identity.
    Retained,
    /// QoS 0: never sent again, but its topic may later bring the same value as retained.
    Unnumbered,
    /// No message at all: the broker lost our session, so its packet numbers begin anew.
    SessionLost,
}

/// Whom to tell when a delivery is on disk.
#[derive(Clone, Debug)]
pub struct Receipt {
    to: mpsc::Sender<u64>,
    token: u64,
}

impl Receipt {
    /// A receipt that sends `token`. The channel must have room for every outstanding receipt: firing never waits.
    pub fn new(to: mpsc::Sender<u64>, token: u64) -> Self {
        Self { to, token }
    }

    /// Tells it. A source that is gone, or whose channel is too small, is not waited for: the broker sends again.
    pub fn fire(self) {
        if let Err(mpsc::error::TrySendError::Full(token)) = self.to.try_send(self.token) {
            tracing::error!(token, "receipt channel is full: the message will be delivered again and recognised");
        }
    }
}

impl Delivery {
    /// Readings without an origin, as from a serial line.
    pub fn of(readings: Vec<Reading>) -> Self {
        Self { readings, ..Self::default() }
    }

    /// About how many bytes this holds in memory, for the bound on what waits.
    pub(crate) fn weight(&self) -> usize {
        const FIXED: usize = 64;
        let readings: usize = self.readings.iter().map(|r| 64 + 40 * r.fields.len()).sum();
        let letters: usize =
            self.dead_letters.iter().map(|l| 128 + l.place.len() + l.reason.len() + l.payload.len()).sum();
        FIXED + readings + letters + self.refused.len() * 64
    }
}
