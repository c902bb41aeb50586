//! One broker connection as rumqttc keeps it, and what we must do for it ourselves.
//!
//! - `poll()` is never dropped half-way: receipts are looked at while the same future goes on. The first one wakes it by way
//!   of the request channel; all others are written straight to the connection afterwards, with a single flush. So the
//!   request channel never holds more than one acknowledgement, and nothing here can wait for it.
//! - While we cannot read (the store is behind) the connection is not polled: the broker feels that as TCP back-pressure.
//!   Acknowledgements still go out, and so do pings, which rumqttc would send only from inside `poll()`.
//! - Subscriptions are written straight to the connection too.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rumqttc::{
    AsyncClient, ConnectionError, Event, EventLoop, MqttOptions, Packet, Publish, QoS, StateError, Subscribe,
    SubscribeFilter, Unsubscribe,
};
use tokio::time::{Instant, sleep_until, timeout};

use super::acks::Acks;

/// Requests that rumqttc holds for its next poll; we put in at most one.
const REQUESTS: usize = 10;
/// Longest that the broker may take nothing from us.
const FLUSH_WITHIN: Duration = Duration::from_secs(10);
/// Longest that connecting may take, name resolution and TLS included; in seconds.
const CONNECT_WITHIN_S: u64 = 10;
/// Most filters in one SUBSCRIBE: some brokers (AWS IoT) take no more.
pub(super) const FILTERS_PER_PACKET: usize = 8;

/// The connection.
pub(super) struct Line {
    events: EventLoop,
    client: AsyncClient,
    pub(super) acks: Acks,
    keep_alive: Duration,
    /// When the broker last heard from us for certain, or poll() took care of it.
    spoke: Instant,
    /// We pinged by ourselves, so an answer may be waiting unread.
    pinged: bool,
    /// Writing failed: the next poll reports it.
    broken: Option<ConnectionError>,
}

/// What happened while we waited.
enum Woke<T> {
    Done(T),
    Receipt(u64),
    Silence,
}

impl Line {
    /// A line that is not connected yet; connecting happens in [`Self::poll`].
    pub(super) fn new(mut options: MqttOptions) -> Self {
        options.set_manual_acks(true).set_clean_session(false);
        let keep_alive = options.keep_alive();
        let (client, mut events) = AsyncClient::new(options, REQUESTS);
        events.network_options.set_tcp_nodelay(true);
        events.network_options.set_connection_timeout(CONNECT_WITHIN_S);
        let spoke = Instant::now();
        Self { events, client, acks: Acks::new(), keep_alive, spoke, pinged: false, broken: None }
    }

    /// What the next connection is made with.
    pub(super) fn options(&mut self) -> &mut MqttOptions {
        &mut self.events.mqtt_options
    }

    /// A packet that was read together with an earlier one.
    pub(super) fn buffered(&mut self) -> Option<Event> {
        self.events.state.events.pop_front()
    }

    /// Connects, or reads on. Not to be dropped half-way, except together with the line.
    pub(super) async fn poll(&mut self) -> Result<Event, ConnectionError> {
        self.settle().await;
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        if std::mem::take(&mut self.pinged) {
            // Its answer may still be unread; rumqttc must not take that for silence.
            self.events.state.await_pingresp = false;
        }
        let mut poll = pin!(self.events.poll());
        let mut woken = false;
        let event = loop {
            tokio::select! {
                biased;
                event = &mut poll => break event,
                token = self.acks.recv(), if !woken => {
                    self.acks.fired(token);
                    if let Some(ticket) = self.acks.due() {
                        woken = true;
                        if self.client.try_ack(&ticket.message()).is_ok() {
                            self.acks.sent();
                            self.acks.window.acknowledged(1, Instant::now());
                        }
                    }
                }
            }
        };
        self.spoke = Instant::now();
        event
    }

    /// Waits for `work` while the line is kept alive and acknowledgements go out. Nothing is read meanwhile.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        // Nearly always there is nothing to wait for, and then a timer would be the most costly part.
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return done;
        }
        loop {
            let woke = tokio::select! {
                biased;
                done = &mut work => Woke::Done(done),
                token = self.acks.recv() => Woke::Receipt(token),
                () = sleep_until(self.spoke + self.keep_alive / 4) => Woke::Silence,
            };
            match woke {
                Woke::Done(done) => {
                    self.acks.window.read_on(Instant::now());
                    return done;
                }
                Woke::Receipt(token) => {
                    self.acks.fired(token);
                    self.settle().await;
                }
                Woke::Silence => self.ping().await,
            }
        }
    }

    /// Waits until one more message may be unacknowledged.
    pub(super) async fn room(&mut self) {
        while self.acks.is_full() {
            let woke = tokio::select! {
                token = self.acks.recv() => Woke::<()>::Receipt(token),
                () = sleep_until(self.spoke + self.keep_alive / 4) => Woke::Silence,
            };
            match woke {
                Woke::Receipt(token) => {
                    self.acks.fired(token);
                    self.settle().await;
                }
                _ => self.ping().await,
            }
        }
    }

    /// Subscribes; the numbers of the packets count from 1, each with [`FILTERS_PER_PACKET`] filters in order.
    pub(super) async fn subscribe(&mut self, filters: &[(String, QoS)]) {
        let packets = filters.chunks(FILTERS_PER_PACKET).zip(1..).map(|(chunk, pkid)| {
            let filters = chunk.iter().map(|(path, qos)| SubscribeFilter::new(path.clone(), *qos)).collect();
            Packet::Subscribe(Subscribe { pkid, filters })
        });
        let packets: Vec<Packet> = packets.collect();
        self.write(packets).await;
    }

    /// Publishes with QoS 0: what is lost will be asked for again.
    pub(super) async fn publish(&mut self, messages: impl Iterator<Item = (String, Vec<u8>)>) {
        let packets = messages.map(|(topic, payload)| Packet::Publish(Publish::new(topic, QoS::AtMostOnce, payload)));
        let packets: Vec<Packet> = packets.collect();
        self.write(packets).await;
    }

    /// Ends subscriptions; the answers tell nothing of interest.
    pub(super) async fn unsubscribe(&mut self, filters: &[String]) {
        // Above every number that `subscribe` uses.
        const FIRST: u16 = 10_000;
        let packets = filters
            .chunks(FILTERS_PER_PACKET)
            .zip(FIRST..)
            .map(|(chunk, pkid)| Packet::Unsubscribe(Unsubscribe { pkid, topics: chunk.to_vec() }));
        let packets: Vec<Packet> = packets.collect();
        self.write(packets).await;
    }

    /// Lets the release of any QoS 2 message pass: rumqttc forgets at a disconnection which ones it has taken, and would
    /// then treat the broker's PUBREL as a fatal error, for ever.
    pub(super) fn expect_releases(&mut self) {
        for pkid in 1..=u16::MAX {
            let message = Publish { pkid, ..Publish::new(String::new(), QoS::ExactlyOnce, Vec::new()) };
            // Cannot fail for a PUBLISH, and answers nothing with manual acknowledgements.
            let _ = self.events.state.handle_incoming_packet(Packet::Publish(message));
            self.events.state.events.pop_back();
        }
    }

    /// The connection ended. What was read from it and not looked at yet, to be stored but never acknowledged.
    pub(super) fn closed(&mut self) -> Vec<Publish> {
        let stale = self.events.state.events.drain(..).filter_map(|event| match event {
            Event::Incoming(Packet::Publish(message)) => Some(message),
            _ => None,
        });
        let stale = stale.collect();
        self.events.clean();
        self.events.pending.clear();
        self.broken = None;
        self.pinged = false;
        self.acks.next_epoch(Instant::now());
        stale
    }

    /// Sends every acknowledgement that is due.
    async fn settle(&mut self) {
        self.acks.collect();
        if self.acks.due().is_none() || self.broken.is_some() {
            return;
        }
        let mut packets = Vec::new();
        while let Some(ticket) = self.acks.due() {
            packets.push(ticket.packet());
            self.acks.sent();
        }
        let n = packets.len();
        self.write(packets).await;
        self.acks.window.acknowledged(n, Instant::now());
    }

    async fn ping(&mut self) {
        self.pinged = true;
        self.spoke = Instant::now();
        self.write(vec![Packet::PingReq]).await;
    }

    /// Writes and flushes; a failure shows at the next poll.
    async fn write(&mut self, packets: Vec<Packet>) {
        let Some(network) = self.events.network.as_mut().filter(|_| self.broken.is_none()) else { return };
        let work = async {
            for packet in packets {
                network.write(packet).await?;
            }
            network.flush().await
        };
        self.broken = match timeout(FLUSH_WITHIN, work).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(ConnectionError::MqttState(error)),
            Err(_) => Some(ConnectionError::FlushTimeout),
        };
        self.spoke = Instant::now();
    }
}

/// Whether this is rumqttc's complaint about a PUBREL for a message it does not remember.
pub(super) fn is_unknown_release(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::MqttState(StateError::Unsolicited(_)))
}
