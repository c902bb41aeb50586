//! One broker connection and its acknowledgements, whichever version of the protocol it speaks.
//!
//! - rumqttc's `poll()` (3.1.1) is never dropped half-way: receipts are looked at while the same future goes on. The first
//!   one wakes it by way of the request channel; all others are written straight to the connection afterwards, with a single
//!   flush. So the request channel never holds more than one acknowledgement, and nothing here can wait for it. Our own
//!   reading of version 5 may be dropped, so that there all are written straight.
//! - While we cannot read (the store is behind) the connection is not polled: the broker feels that as TCP back-pressure.
//!   Acknowledgements still go out, and so do pings.
//! - Subscriptions are written straight to the connection too.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rumqttc::tokio_rustls::rustls::ClientConfig;
use rumqttc::{AsyncClient, QoS};
use tokio::time::{Instant, sleep_until};

use super::acks::Acks;
use super::address::Address;
use super::five::Five;
use super::four::{self, Four};
use super::packets::{Event, Failure, Message, Out};

/// Longest that the broker may take nothing from us.
pub(super) const FLUSH_WITHIN: Duration = Duration::from_secs(10);
/// Longest that connecting may take, name resolution and TLS included.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Most filters in one SUBSCRIBE: some brokers (AWS IoT) take no more.
pub(super) const FILTERS_PER_PACKET: usize = 8;

/// What connections are made of, each time alike.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) address: Address,
    pub(super) client_id: String,
    pub(super) version: u8,
    pub(super) keep_alive: Duration,
    pub(super) max_payload: usize,
    /// Longest packet that can be read at all (3.1.1).
    pub(super) max_packet: usize,
    /// Most messages that the broker may send ahead of our acknowledgements (5).
    pub(super) receive_maximum: u16,
    /// How long the broker is to keep our session while we are away, in seconds (5).
    pub(super) session_expiry_s: u32,
    /// Nothing is to be kept for us.
    pub(super) is_listening: bool,
}

/// What is read anew for each connection.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) user: Option<(String, String)>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// The connection.
pub(super) struct Line {
    engine: Engine,
    /// Wakes a `poll()` that must not be dropped.
    waker: Option<AsyncClient>,
    pub(super) acks: Acks,
    keep_alive: Duration,
    /// When the broker last heard from us for certain, or poll() took care of it.
    spoke: Instant,
    /// We pinged by ourselves, so an answer may be waiting unread.
    pinged: bool,
    /// Writing failed: the next poll reports it.
    broken: Option<Failure>,
}

/// What speaks the protocol.
enum Engine {
    Four(Box<Four>),
    Five(Box<Five>),
}

/// What happened while we waited.
enum Woke<T> {
    Done(T),
    Receipt(u64),
    Silence,
}

impl Line {
    /// A line that is not connected yet; connecting happens in [`Self::poll`].
    pub(super) fn new(plan: &Plan) -> Self {
        let (engine, waker, window) = if plan.version == 5 {
            (Engine::Five(Box::new(Five::new(plan))), None, usize::from(plan.receive_maximum))
        } else {
            let (four, waker) = Four::new(plan);
            (Engine::Four(Box::new(four)), Some(waker), usize::MAX)
        };
        let (keep_alive, spoke) = (plan.keep_alive, Instant::now());
        Self { engine, waker, acks: Acks::new(window), keep_alive, spoke, pinged: false, broken: None }
    }

    /// What the next connection is made with.
    pub(super) fn log_in_with(&mut self, plan: &Plan, login: Login) {
        match &mut self.engine {
            Engine::Four(four) => four.log_in_with(plan, &login),
            Engine::Five(five) => five.log_in_with(login),
        }
    }

    /// A packet that was read together with an earlier one.
    pub(super) fn buffered(&mut self) -> Option<Event> {
        match &mut self.engine {
            Engine::Four(four) => four.buffered(),
            Engine::Five(_) => None,
        }
    }

    /// Connects, or reads on. Not to be dropped half-way, except together with the line.
    pub(super) async fn poll(&mut self) -> Result<Event, Failure> {
        let event = loop {
            self.settle().await;
            if let Some(error) = self.broken.take() {
                return Err(error);
            }
            if std::mem::take(&mut self.pinged) {
                match &mut self.engine {
                    Engine::Four(four) => four.forgive_silence(),
                    Engine::Five(five) => five.forgive_silence(),
                }
            }
            if let Some(event) = self.next().await {
                break event?;
            }
        };
        self.spoke = Instant::now();
        if let Event::Opened(opened) = &event {
            self.keep_alive = opened.keep_alive;
        }
        Ok(event)
    }

    /// What comes next, or nothing if an acknowledgement fell due and can only be written when nobody reads.
    async fn next(&mut self) -> Option<Result<Event, Failure>> {
        let engine = &mut self.engine;
        let mut poll = pin!(async {
            match engine {
                Engine::Four(four) => four.poll().await,
                Engine::Five(five) => five.poll().await,
            }
        });
        let mut woken = false;
        loop {
            tokio::select! {
                biased;
                event = &mut poll => return Some(event),
                token = self.acks.recv(), if !woken => {
                    self.acks.fired(token);
                    let Some(ticket) = self.acks.due() else { continue };
                    let Some(waker) = &self.waker else { return None };
                    woken = true;
                    if waker.try_ack(&four::to_acknowledge(ticket)).is_ok() {
                        self.acks.sent();
                        self.acks.window.acknowledged(1, Instant::now());
                    }
                }
            }
        }
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
        let packets = filters.chunks(FILTERS_PER_PACKET).zip(1..);
        let packets = packets.map(|(chunk, packet_id)| Out::Subscribe { packet_id, filters: chunk.to_vec() });
        self.write(packets.collect()).await;
    }

    /// Publishes with QoS 0: what is lost will be asked for again.
    pub(super) async fn publish(&mut self, messages: impl Iterator<Item = (String, Vec<u8>)>) {
        let packets = messages.map(|(topic, payload)| Out::Publish { topic, payload });
        self.write(packets.collect()).await;
    }

    /// Ends subscriptions; the answers tell nothing of interest.
    pub(super) async fn unsubscribe(&mut self, filters: &[String]) {
        // Above every number that `subscribe` uses.
        const FIRST: u16 = 10_000;
        let packets = filters.chunks(FILTERS_PER_PACKET).zip(FIRST..);
        let packets = packets.map(|(chunk, packet_id)| Out::Unsubscribe { packet_id, filters: chunk.to_vec() });
        self.write(packets.collect()).await;
    }

    /// Lets the release of any QoS 2 message pass.
    pub(super) fn expect_releases(&mut self) {
        if let Engine::Four(four) = &mut self.engine {
            four.expect_releases();
        }
    }

    /// The connection ended. What was read from it and not looked at yet, to be stored but never acknowledged.
    pub(super) fn closed(&mut self) -> Vec<Message> {
        let stale = match &mut self.engine {
            Engine::Four(four) => four.close(),
            Engine::Five(five) => five.close(),
        };
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
            packets.push(Out::Ack(ticket));
            self.acks.sent();
        }
        let n = packets.len();
        self.write(packets).await;
        self.acks.window.acknowledged(n, Instant::now());
    }

    async fn ping(&mut self) {
        self.pinged = true;
        self.spoke = Instant::now();
        self.write(vec![Out::Ping]).await;
    }

    /// Writes and flushes; a failure shows at the next poll.
    async fn write(&mut self, packets: Vec<Out>) {
        if self.broken.is_some() {
            return;
        }
        let written = match &mut self.engine {
            Engine::Four(four) => four.write(packets).await,
            Engine::Five(five) => five.write(packets).await,
        };
        self.broken = written.err();
        self.spoke = Instant::now();
    }
}
