//! MQTT 3.1.1 as rumqttc's client speaks it, and what we must do for it ourselves.
//!
//! - Events of a dead connection stay buffered: they are drained, to be stored and never acknowledged.
//! - It forgets which messages of QoS 2 it has taken, and then refuses the broker's release of them.
//! - It takes an unread answer to a ping for silence.
//! - It writes only from inside `poll()`; we write straight to its connection.

use rumqttc::{
    AsyncClient, ConnectionError, EventLoop, MqttOptions, Packet, PubAck, PubRec, Publish, QoS, StateError, Subscribe,
    SubscribeFilter, SubscribeReasonCode, Transport, Unsubscribe,
};
use tokio::time::timeout;

use super::acks::Ticket;
use super::failure;
use super::line::{CONNECT_WITHIN, FLUSH_WITHIN, Login, Plan};
use super::packets::{Event, Failure, Message, Opened, Out, Properties, Subscribed};

/// Requests that rumqttc holds for its next poll; we put in at most one.
const REQUESTS: usize = 10;

/// The connection.
pub(super) struct Four {
    events: EventLoop,
    /// Its name, and the hard limit of its packets, for words.
    broker: String,
    max_packet: usize,
}

impl Four {
    /// A connection that is not open yet, and the client that wakes its [`Self::poll`].
    pub(super) fn new(plan: &Plan) -> (Self, AsyncClient) {
        let address = &plan.address;
        // rumqttc wants the whole URL for WebSocket.
        let host = if address.path.is_some() { address.url() } else { address.host.clone() };
        let mut options = MqttOptions::new(plan.client_id.clone(), host, address.port);
        options.set_keep_alive(plan.keep_alive).set_max_packet_size(plan.max_packet, plan.max_packet);
        options.set_manual_acks(true).set_clean_session(plan.is_listening);
        let (client, mut events) = AsyncClient::new(options, REQUESTS);
        events.network_options.set_tcp_nodelay(true);
        events.network_options.set_connection_timeout(CONNECT_WITHIN.as_secs());
        (Self { events, broker: address.broker(), max_packet: plan.max_packet }, client)
    }

    /// What the next connection is made with.
    pub(super) fn log_in_with(&mut self, plan: &Plan, login: &Login) {
        let options = &mut self.events.mqtt_options;
        let tls = login.tls.clone().map(rumqttc::TlsConfiguration::Rustls);
        options.set_transport(match (tls, &plan.address.path) {
            (None, None) => Transport::Tcp,
            (None, Some(_)) => Transport::Ws,
            (Some(tls), None) => Transport::tls_with_config(tls),
            (Some(tls), Some(_)) => Transport::wss_with_config(tls),
        });
        if let Some((user, password)) = &login.user {
            options.set_credentials(user.clone(), password.clone());
        }
    }

    /// A packet that was read together with an earlier one.
    pub(super) fn buffered(&mut self) -> Option<Event> {
        self.events.state.events.pop_front().map(|event| self.event(event))
    }

    /// Connects, or reads on. Not to be dropped half-way, except together with the connection.
    pub(super) async fn poll(&mut self) -> Result<Event, Failure> {
        match self.events.poll().await {
            Ok(event) => Ok(self.event(event)),
            Err(error) => Err(Failure {
                words: failure::explain(&error, &self.broker, self.max_packet),
                is_unknown_release: matches!(error, ConnectionError::MqttState(StateError::Unsolicited(_))),
            }),
        }
    }

    fn event(&self, event: rumqttc::Event) -> Event {
        match event {
            rumqttc::Event::Incoming(Packet::Publish(message)) => Event::Message(message_of(message)),
            rumqttc::Event::Incoming(Packet::ConnAck(answer)) => Event::Opened(Opened {
                session_present: answer.session_present,
                keep_alive: self.events.mqtt_options.keep_alive(),
                notes: Vec::new(),
            }),
            rumqttc::Event::Incoming(Packet::SubAck(answer)) => {
                let answers = answer.return_codes.into_iter().map(|code| match code {
                    SubscribeReasonCode::Success(granted) => Ok(granted),
                    SubscribeReasonCode::Failure => Err("was refused (the broker's access list?)".to_owned()),
                });
                Event::Subscribed(Subscribed { packet_id: answer.pkid, answers: answers.collect() })
            }
            rumqttc::Event::Incoming(_) | rumqttc::Event::Outgoing(_) => Event::Other,
        }
    }

    /// An answer to a ping of ours may still be unread; rumqttc must not take that for silence.
    pub(super) fn forgive_silence(&mut self) {
        self.events.state.await_pingresp = false;
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

    /// The connection ended. What was read from it and not looked at yet.
    pub(super) fn close(&mut self) -> Vec<Message> {
        let stale = self.events.state.events.drain(..).filter_map(|event| match event {
            rumqttc::Event::Incoming(Packet::Publish(message)) => Some(message_of(message)),
            _ => None,
        });
        let stale = stale.collect();
        self.events.clean();
        self.events.pending.clear();
        stale
    }

    /// Writes and flushes.
    pub(super) async fn write(&mut self, packets: Vec<Out>) -> Result<(), Failure> {
        let Some(network) = self.events.network.as_mut() else { return Ok(()) };
        let work = async {
            for packet in packets {
                network.write(packet_of(packet)).await?;
            }
            network.flush().await
        };
        let error = match timeout(FLUSH_WITHIN, work).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => ConnectionError::MqttState(error),
            Err(_) => ConnectionError::FlushTimeout,
        };
        Err(failure::explain(&error, &self.broker, self.max_packet).into())
    }
}

/// A message as rumqttc's own client wants it for an acknowledgement.
pub(super) fn to_acknowledge(ticket: Ticket) -> Publish {
    let qos = if ticket.exactly_once { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
    Publish { pkid: ticket.packet_id, ..Publish::new(String::new(), qos, Vec::new()) }
}

fn message_of(message: Publish) -> Message {
    Message {
        topic: message.topic,
        length: message.payload.len(),
        payload: message.payload,
        qos: message.qos,
        is_retained: message.retain,
        is_repeated: message.dup,
        packet_id: message.pkid,
        properties: Properties::default(),
    }
}

fn packet_of(out: Out) -> Packet {
    match out {
        Out::Ack(ticket) if ticket.exactly_once => Packet::PubRec(PubRec::new(ticket.packet_id)),
        Out::Ack(ticket) => Packet::PubAck(PubAck::new(ticket.packet_id)),
        Out::Ping => Packet::PingReq,
        Out::Subscribe { packet_id: pkid, filters } => {
            let filters = filters.into_iter().map(|(path, qos)| SubscribeFilter::new(path, qos)).collect();
            Packet::Subscribe(Subscribe { pkid, filters })
        }
        Out::Unsubscribe { packet_id: pkid, filters: topics } => Packet::Unsubscribe(Unsubscribe { pkid, topics }),
        Out::Publish { topic, payload } => Packet::Publish(Publish::new(topic, QoS::AtMostOnce, payload)),
    }
}
