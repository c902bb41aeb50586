//! Which messages may be acknowledged: those whose receipt fired, on the connection they came by.
//!
//! An acknowledgement belongs to one connection (an epoch). After a reconnection the broker sends again what it has no
//! acknowledgement for, perhaps under other numbers, so what is left of an older epoch is dropped.

use std::collections::VecDeque;

use rumqttc::QoS;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::packets::Message;
use super::window::Window;
use crate::store::Receipt;

/// Most messages that wait for their receipt. Brokers that do not keep to their window would fill memory otherwise;
/// at 100,000 messages a second it is 40 ms of them.
pub(super) const MAX_OUTSTANDING: usize = 4096;

/// The message that a receipt stands for, packed into its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    epoch: u32,
    pub(super) packet_id: u16,
    pub(super) exactly_once: bool,
}

impl Ticket {
    fn token(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.exactly_once) << 16 | u64::from(self.packet_id)
    }

    fn of(token: u64) -> Self {
        Self { epoch: (token >> 32) as u32, packet_id: token as u16, exactly_once: token >> 16 & 1 == 1 }
    }
}

/// Receipts on their way and acknowledgements that are due.
#[derive(Debug)]
pub(super) struct Acks {
    to: mpsc::Sender<u64>,
    from: mpsc::Receiver<u64>,
    /// Receipts not fired yet, of every epoch: the channel has room for all of them.
    outstanding: usize,
    epoch: u32,
    due: VecDeque<Ticket>,
    /// Most messages that the broker says it sends ahead of our acknowledgements.
    promised: usize,
    pub(super) window: Window,
}

impl Acks {
    /// No message yet. The broker promises to have at most so many on their way; it may break that.
    pub(super) fn new(promised: usize) -> Self {
        let (to, from) = mpsc::channel(MAX_OUTSTANDING);
        let promised = promised.clamp(1, MAX_OUTSTANDING);
        let window = Window::new(promised, Instant::now());
        Self { to, from, outstanding: 0, epoch: 0, due: VecDeque::new(), promised, window }
    }

    /// Whether no further message may be taken before a receipt fires.
    pub(super) fn is_full(&self) -> bool {
        self.outstanding >= MAX_OUTSTANDING
    }

    /// A receipt for a message of this connection. Must not be asked for when full.
    pub(super) fn receipt(&mut self, message: &Message) -> Receipt {
        debug_assert!(!self.is_full(), "the receipt channel has room for MAX_OUTSTANDING");
        self.outstanding += 1;
        let exactly_once = message.qos == QoS::ExactlyOnce;
        let ticket = Ticket { epoch: self.epoch, packet_id: message.packet_id, exactly_once };
        Receipt::new(self.to.clone(), ticket.token())
    }

    /// The next receipt that fires. Safe to drop.
    pub(super) async fn recv(&mut self) -> u64 {
        match self.from.recv().await {
            Some(token) => token,
            // Cannot be: we hold a sender.
            None => std::future::pending().await,
        }
    }

    /// A receipt fired: its acknowledgement is due, unless it is of an older connection.
    pub(super) fn fired(&mut self, token: u64) {
        self.outstanding = self.outstanding.saturating_sub(1);
        let ticket = Ticket::of(token);
        if ticket.epoch == self.epoch {
            self.due.push_back(ticket);
        }
    }

    /// Takes in every receipt that has fired.
    pub(super) fn collect(&mut self) {
        while let Ok(token) = self.from.try_recv() {
            self.fired(token);
        }
    }

    /// The next acknowledgement that is due; it stays so until [`Self::sent`].
    pub(super) fn due(&self) -> Option<Ticket> {
        self.due.front().copied()
    }

    /// The next due acknowledgement is on its way.
    pub(super) fn sent(&mut self) {
        self.due.pop_front();
    }

    /// The connection ended: what was due on it is void.
    pub(super) fn next_epoch(&mut self, now: Instant) {
        self.epoch = self.epoch.wrapping_add(1);
        self.due.clear();
        self.window = Window::new(self.promised, now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::packets::Properties;
    use super::*;

    fn message(packet_id: u16, qos: QoS) -> Message {
        Message {
            topic: "t".to_owned(),
            payload: "x".into(),
            length: 1,
            qos,
            is_retained: false,
            is_repeated: false,
            packet_id,
            properties: Properties::default(),
        }
    }

    #[test]
    fn tokens_carry_their_ticket() {
        for (epoch, packet_id, exactly_once) in [(0, 1, false), (u32::MAX, u16::MAX, true), (7, 300, true)] {
            let ticket = Ticket { epoch, packet_id, exactly_once };
            assert_eq!(Ticket::of(ticket.token()), ticket);
        }
    }

    #[tokio::test]
    async fn stale_receipts_are_never_acknowledged() {
        let mut acks = Acks::new(MAX_OUTSTANDING);
        let old = acks.receipt(&message(1, QoS::AtLeastOnce));
        let fired = acks.receipt(&message(2, QoS::AtLeastOnce));
        fired.fire();
        acks.collect();
        assert!(acks.due().is_some());
        acks.next_epoch(Instant::now());
        assert_eq!(acks.due(), None);
        old.fire();
        acks.receipt(&message(1, QoS::ExactlyOnce)).fire();
        acks.collect();
        assert_eq!(acks.due().map(|ticket| (ticket.packet_id, ticket.exactly_once)), Some((1, true)));
        acks.sent();
        assert_eq!(acks.due(), None);
        assert_eq!(acks.outstanding, 0);
    }

    #[tokio::test]
    async fn ack_queue_has_room_for_every_outstanding_message() {
        let mut acks = Acks::new(MAX_OUTSTANDING);
        let mut receipts = Vec::new();
        while !acks.is_full() {
            receipts.push(acks.receipt(&message(receipts.len() as u16 + 1, QoS::AtLeastOnce)));
        }
        receipts.into_iter().for_each(Receipt::fire);
        acks.collect();
        assert_eq!((acks.due.len(), acks.outstanding), (MAX_OUTSTANDING, 0));
    }
}
