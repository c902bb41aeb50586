//! MQTT 5 over rumqttc's packets.
//!
//! rumqttc's own event loop for version 5 is not used: it writes only while it reads, hands on messages before their topic
//! aliases are resolved, keeps aliases over a reconnect, drops the broker's reasons, waits for ever for a broker that takes
//! nothing, and does not rest when a broker asks for no keep-alive (docs/decisions/0032).
//!
//! What must stay true:
//! - a topic alias means what this connection said it means;
//! - [`Five::poll`] may be dropped: a packet is either handed on, or still to be read.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, Connect, ConnectProperties, ConnectReturnCode, Disconnect, DisconnectReasonCode, Login as Secret, Packet,
    PingReq, PubComp, Publish, SubAck, SubscribeReasonCode,
};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::codec::Framed;

use super::acks::MAX_OUTSTANDING;
use super::line::{CONNECT_WITHIN, FLUSH_WITHIN, Login, Plan};
use super::packets::{Event, Failure, Message, Opened, Out, Properties, Subscribed};
use super::reason::{self, Fault};
use super::transport::{self, Stream};
use super::wire::{Codec, Read, packet_of, plain_qos};

/// Topic aliases that a broker may use: with the longest topics they take 4 MiB.
const ALIASES: u16 = 64;
/// How long a broker may take a last word from us.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);

/// The connection.
pub(super) struct Five {
    plan: Plan,
    login: Login,
    network: Option<Framed<Box<dyn Stream>, Codec>>,
    aliases: HashMap<u16, String>,
    /// Releases of QoS 2 messages to be confirmed.
    releases: VecDeque<u16>,
    keep_alive: Duration,
    spoke: Instant,
    heard: Instant,
    /// When we asked for a sign of life.
    asked: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Five {
    /// A connection that is not open yet.
    pub(super) fn new(plan: &Plan) -> Self {
        let now = Instant::now();
        Self {
            plan: plan.clone(),
            login: Login::default(),
            network: None,
            aliases: HashMap::new(),
            releases: VecDeque::new(),
            keep_alive: plan.keep_alive,
            spoke: now,
            heard: now,
            asked: None,
            timer: Box::pin(sleep_until(now)),
        }
    }

    /// What the next connection is made with.
    pub(super) fn log_in_with(&mut self, login: Login) {
        self.login = login;
    }

    /// An answer to a ping of ours may still be unread.
    pub(super) fn forgive_silence(&mut self) {
        self.asked = None;
    }

    /// Connects, or reads on. Safe to drop once it has connected.
    pub(super) async fn poll(&mut self) -> Result<Event, Failure> {
        let done = if self.network.is_none() {
            // Boxed: it is large, and rare.
            Box::pin(self.open()).await
        } else {
            self.read().await
        };
        match done {
            Ok(event) => Ok(event),
            Err(fault) => {
                if let (Some(code), Some(network)) = (fault.goodbye(), &mut self.network) {
                    let packet = Packet::Disconnect(Disconnect::new(code));
                    let _ = timeout(GOODBYE_WITHIN, network.send(packet)).await;
                }
                Err(reason::explain(&fault, &self.plan.address).into())
            }
        }
    }

    async fn open(&mut self) -> Result<Event, Fault> {
        self.aliases.clear();
        self.releases.clear();
        self.asked = None;
        let (greeting, max_payload) = (self.connect_packet(), self.plan.max_payload);
        let address = &self.plan.address;
        let tls = self.login.tls.clone();
        let work = async {
            let stream = transport::connect(address, tls).await?;
            let mut network = Framed::new(stream, Codec::new(max_payload));
            network.send(greeting).await?;
            let answer = network.next().await.unwrap_or(Err(Fault::Closed))?;
            Ok::<_, Fault>((network, answer))
        };
        let (mut network, answer) = timeout(CONNECT_WITHIN, work).await.map_err(|_| Fault::NoAnswer)??;
        let answer = match answer {
            Read::Other(Packet::ConnAck(answer)) => answer,
            Read::Other(Packet::Disconnect(over)) => return Err(Fault::ended(over)),
            _ => return Err(Fault::Protocol("sends something before it has answered", None)),
        };
        if answer.code != ConnectReturnCode::Success {
            return Err(Fault::refused(answer));
        }
        network.codec_mut().max_outgoing = answer.properties.as_ref().and_then(|p| p.max_packet_size);
        let opened = self.opened(&answer);
        self.keep_alive = opened.keep_alive;
        self.network = Some(network);
        self.heard = Instant::now();
        self.spoke = self.heard;
        self.timer.as_mut().reset(self.spoke + self.keep_alive);
        Ok(Event::Opened(opened))
    }

    fn connect_packet(&self) -> Packet {
        let plan = &self.plan;
        let properties = ConnectProperties {
            // Without it the broker would end our session with the connection.
            session_expiry_interval: Some(if plan.is_listening { 0 } else { plan.session_expiry_s }),
            receive_maximum: Some(plan.receive_maximum),
            topic_alias_max: Some(ALIASES),
            // No `max_packet_size`: a broker would drop longer messages, and tell nobody.
            ..ConnectProperties::new()
        };
        let connect = Connect {
            keep_alive: u16::try_from(plan.keep_alive.as_secs()).unwrap_or(u16::MAX),
            client_id: plan.client_id.clone(),
            clean_start: plan.is_listening,
            properties: Some(properties),
        };
        Packet::Connect(connect, None, self.login.user.clone().map(|(user, password)| Secret::new(user, password)))
    }

    fn opened(&self, answer: &ConnAck) -> Opened {
        let mut opened =
            Opened { session_present: answer.session_present, keep_alive: self.plan.keep_alive, notes: Vec::new() };
        let Some(granted) = &answer.properties else { return opened };
        // 0 means that it does not care; we still want to know whether it is there.
        if let Some(seconds @ 1..) = granted.server_keep_alive {
            opened.keep_alive = opened.keep_alive.min(Duration::from_secs(seconds.into()));
        }
        let wanted = self.plan.session_expiry_s;
        if let Some(seconds) = granted.session_expiry_interval.filter(|s| *s < wanted && !self.plan.is_listening) {
            let (kept, wanted) = (Duration::from_secs(seconds.into()), Duration::from_secs(wanted.into()));
            opened.notes.push(format!(
                "keeps our session and its messages for only {} while we are away, not for session_expiry ({})",
                humantime::format_duration(kept),
                humantime::format_duration(wanted)
            ));
        }
        if granted.shared_subscription_available == Some(0) {
            opened.notes.push("knows no shared subscriptions ($share)".to_owned());
        }
        if granted.wildcard_subscription_available == Some(0) {
            opened.notes.push("takes no filters with wildcards".to_owned());
        }
        opened
    }

    async fn read(&mut self) -> Result<Event, Fault> {
        loop {
            self.confirm_releases().await?;
            let Some(network) = &mut self.network else { return Err(Fault::Closed) };
            let read = tokio::select! {
                biased;
                read = network.next() => Some(read.unwrap_or(Err(Fault::Closed))?),
                () = &mut self.timer => None,
            };
            match read {
                Some(read) => {
                    self.heard = Instant::now();
                    return self.event(read);
                }
                None => self.keep_alive().await?,
            }
        }
    }

    /// A packet stays first in the queue until it is written.
    async fn confirm_releases(&mut self) -> Result<(), Fault> {
        let Some(network) = self.network.as_mut().filter(|_| !self.releases.is_empty()) else { return Ok(()) };
        let work = async {
            while let Some(packet_id) = self.releases.front() {
                network.feed(Packet::PubComp(PubComp::new(*packet_id, None))).await?;
                self.releases.pop_front();
            }
            network.flush().await
        };
        timeout(FLUSH_WITHIN, work).await.map_err(|_| Fault::TakesNothing)??;
        self.spoke = Instant::now();
        Ok(())
    }

    /// Asks for a sign of life when we have said nothing for so long, and gives up when none came.
    async fn keep_alive(&mut self) -> Result<(), Fault> {
        let now = Instant::now();
        match self.asked {
            Some(asked) if self.heard < asked && now >= asked + self.keep_alive => return Err(Fault::Silent),
            Some(asked) if self.heard < asked => self.timer.as_mut().reset(asked + self.keep_alive),
            _ if now < self.spoke + self.keep_alive => self.timer.as_mut().reset(self.spoke + self.keep_alive),
            _ => {
                self.timer.as_mut().reset(now + self.keep_alive);
                self.spoke = now;
                if let Some(network) = &mut self.network {
                    let sent = timeout(FLUSH_WITHIN, network.send(Packet::PingReq(PingReq))).await;
                    sent.map_err(|_| Fault::TakesNothing)??;
                }
                self.asked = Some(now);
            }
        }
        Ok(())
    }

    fn event(&mut self, read: Read) -> Result<Event, Fault> {
        let packet = match read {
            Read::Message(message, length) => return self.message(message, length).map(Event::Message),
            Read::Other(packet) => packet,
        };
        Ok(match packet {
            Packet::PubRel(release) => {
                if self.releases.len() >= MAX_OUTSTANDING {
                    return Err(Fault::Protocol("releases messages faster than we can confirm", None));
                }
                self.releases.push_back(release.pkid);
                Event::Other
            }
            Packet::SubAck(answer) => Event::Subscribed(subscribed(answer)),
            Packet::Disconnect(over) => return Err(Fault::ended(over)),
            Packet::ConnAck(_) => return Err(Fault::Protocol("answers twice", None)),
            _ => Event::Other,
        })
    }

    fn message(&mut self, message: Publish, length: usize) -> Result<Message, Fault> {
        let given = message.properties.unwrap_or_default();
        let topic = String::from_utf8(message.topic.to_vec()).map_err(|_| {
            Fault::Protocol("sends a topic that is not UTF-8", Some(DisconnectReasonCode::TopicNameInvalid))
        })?;
        let invalid = Some(DisconnectReasonCode::TopicAliasInvalid);
        let topic = match given.topic_alias {
            Some(alias) if !(1..=ALIASES).contains(&alias) => {
                return Err(Fault::Protocol("uses a topic alias beyond those we allowed", invalid));
            }
            Some(alias) if topic.is_empty() => self
                .aliases
                .get(&alias)
                .cloned()
                .ok_or(Fault::Protocol("uses a topic alias it never explained", invalid))?,
            Some(alias) => {
                self.aliases.insert(alias, topic.clone());
                topic
            }
            None if topic.is_empty() => {
                return Err(Fault::Protocol(
                    "sends a message without a topic",
                    Some(DisconnectReasonCode::ProtocolError),
                ));
            }
            None => topic,
        };
        let properties = Properties {
            content_type: given.content_type,
            is_expired: given.message_expiry_interval == Some(0),
            user: given.user_properties,
        };
        Ok(Message {
            topic,
            payload: message.payload,
            length,
            qos: plain_qos(message.qos),
            is_retained: message.retain,
            is_repeated: message.dup,
            packet_id: message.pkid,
            properties,
        })
    }

    /// The connection ended. What it brought and was not looked at yet.
    pub(super) fn close(&mut self) -> Vec<Message> {
        let mut stale = Vec::new();
        if let Some(mut network) = self.network.take() {
            while let Some(Some(Ok(read))) = network.next().now_or_never() {
                if let Read::Message(message, length) = read
                    && let Ok(message) = self.message(message, length)
                {
                    stale.push(message);
                }
                if stale.len() >= MAX_OUTSTANDING {
                    break;
                }
            }
        }
        stale
    }

    /// Writes and flushes.
    pub(super) async fn write(&mut self, packets: Vec<Out>) -> Result<(), Failure> {
        let Some(network) = &mut self.network else { return Ok(()) };
        let work = async {
            for packet in packets {
                network.feed(packet_of(packet)).await?;
            }
            network.flush().await
        };
        let written = timeout(FLUSH_WITHIN, work).await.unwrap_or(Err(Fault::TakesNothing));
        self.spoke = Instant::now();
        written.map_err(|fault| reason::explain(&fault, &self.plan.address).into())
    }
}

fn subscribed(answer: SubAck) -> Subscribed {
    let why = answer.properties.and_then(|properties| properties.reason_string);
    let answers = answer.return_codes.into_iter().map(|code| match code {
        SubscribeReasonCode::Success(granted) => Ok(plain_qos(granted)),
        refused => Err(reason::of_filter(refused, why.as_deref())),
    });
    Subscribed { packet_id: answer.pkid, answers: answers.collect() }
}

#[cfg(test)]
mod tests {
    use rumqttc::v5::mqttbytes::v5::ConnAckProperties;

    use super::super::address::Address;
    use super::*;

    #[tokio::test]
    async fn what_a_broker_grants_less_is_told() {
        let address = Address::new("mqtt://b").expect("address");
        let keep_alive = Duration::from_secs(30);
        let plan = Plan {
            address,
            client_id: "g".to_owned(),
            version: 5,
            keep_alive,
            max_payload: 1_000,
            max_packet: 2_000,
            receive_maximum: 10,
            session_expiry_s: 3_600,
            is_listening: false,
        };
        let five = Five::new(&plan);
        // The CONNACK as bytes: its properties have no default.
        let granted = [&[0x20, 14, 1, 0, 11][..], &[0x11, 0, 0, 0, 60], &[0x2a, 0], &[0x28, 0], &[0x25, 0]].concat();
        let packet = Packet::read(&mut bytes::BytesMut::from(&granted[..]), None).expect("a CONNACK");
        let Packet::ConnAck(answer) = packet else { panic!("{packet:?}") };
        assert!(matches!(&answer.properties, Some(ConnAckProperties { session_expiry_interval: Some(60), .. })));
        let opened = five.opened(&answer);
        assert_eq!((opened.session_present, opened.keep_alive), (true, keep_alive));
        let told = ["only 1m while we are away, not for session_expiry (1h)", "no shared subscriptions", "wildcards"];
        assert!(opened.notes.iter().zip(told).all(|(note, words)| note.contains(words)), "{:?}", opened.notes);
        assert_eq!(opened.notes.len(), told.len());
    }
}
