//! The life of a broker connection: connect, subscribe, take messages, lose it, wait, again.
//!
//! What must stay true:
//! - a message is acknowledged only after its receipt, and only on the connection it came by;
//! - what was read before the connection broke is stored all the same (if the broker lost our session it exists nowhere
//!   else); the store recognises what the broker then sends again;
//! - when the broker lost our session, the store hears of it before any message of the new one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rumqttc::{ConnectionError, Event, MqttOptions, Packet, Publish, QoS, SubAck, SubscribeReasonCode, Transport};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::config::{Address, Config};
use super::failure;
use super::line::{FILTERS_PER_PACKET, Line, is_unknown_release};
use super::message::Reader;
use super::tls;
use crate::model::backoff::Backoff;
use crate::sources::Intake;
use crate::store::{Closed, Delivery, Origin, OriginKind};

/// First pause after a failed or lost connection.
const RETRY_BASE: Duration = Duration::from_secs(1);
/// Longest pause: data flows again within it once the network is back.
const RETRY_CAP: Duration = Duration::from_secs(30);
/// A connection that held so long was a success; a shorter one does not shorten the next pause.
const HELD: Duration = Duration::from_secs(5);

/// One source's connection to its broker.
pub(super) struct Connection<'a> {
    intake: &'a Intake,
    config: &'a Config,
    address: Address,
    reader: &'a mut Reader,
    line: Line,
    filters: Vec<(String, QoS)>,
    unwanted: Vec<String>,
    /// Answers to our SUBSCRIBEs that are still to come, and what they have said so far.
    unanswered: usize,
    complaints: Vec<String>,
    max_packet: usize,
    /// Some message may be, or was, under way with QoS 2.
    exactly_once: bool,
    downgrade_told: bool,
}

impl<'a> Connection<'a> {
    /// A connection that is not open yet.
    pub(super) fn new(config: &'a Config, reader: &'a mut Reader, intake: &'a Intake) -> anyhow::Result<Self> {
        let address = Address::new(&config.url).map_err(anyhow::Error::msg)?;
        let client_id = config.client_id.clone().context("client_id is missing")?;
        let max_payload = usize::try_from(config.max_payload.as_u64()).unwrap_or(usize::MAX / 2);
        // Above max_payload a message is refused, kept in part and acknowledged; that needs room to read it.
        let max_packet = (max_payload * 2).max(max_payload + (1 << 20));
        let mut options = MqttOptions::new(client_id, address.host.clone(), address.port);
        options.set_keep_alive(config.keep_alive).set_max_packet_size(max_packet, max_packet);
        let mut line = Line::new(options);
        if config.is_listening {
            line.options().set_clean_session(true);
        }
        let filters = reader.subscriptions();
        let unwanted = config.unsubscribe.iter().cloned().chain(reader.covered()).collect();
        let exactly_once = filters.iter().any(|(_, qos)| *qos == QoS::ExactlyOnce);
        Ok(Self {
            intake,
            config,
            address,
            reader,
            line,
            filters,
            unwanted,
            unanswered: 0,
            complaints: Vec::new(),
            max_packet,
            exactly_once,
            downgrade_told: false,
        })
    }

    /// Runs until the store has ended.
    pub(super) async fn run(mut self) -> Closed {
        let mut backoff = Backoff::new(RETRY_BASE, RETRY_CAP);
        loop {
            let opened = Instant::now();
            let failure = match self.prepare() {
                Ok(()) => match self.serve().await {
                    Ok(error) => failure::explain(&error, &self.broker(), self.max_packet),
                    Err(closed) => return closed,
                },
                Err(error) => format!("{error:#}"),
            };
            for message in self.line.closed() {
                let delivery = self.reader.delivery(&message, self.intake, self.intake.clock.now());
                if let Err(closed) = self.intake.deliver(delivery).await {
                    return closed;
                }
            }
            self.intake.stats.condition.down(self.intake.clock.now(), failure);
            if opened.elapsed() >= HELD {
                backoff.reset();
            }
            tokio::time::sleep(backoff.next_pause(fastrand::f64())).await;
        }
    }

    fn broker(&self) -> String {
        format!("broker {}:{}", self.address.host, self.address.port)
    }

    /// Reads password and certificates anew, so that changed ones count without a restart.
    fn prepare(&mut self) -> anyhow::Result<()> {
        if self.address.tls {
            let tls = tls::client_config(&self.config.tls)?;
            let tls = rumqttc::TlsConfiguration::Rustls(Arc::new(tls));
            self.line.options().set_transport(Transport::tls_with_config(tls));
        }
        if let Some(user) = &self.config.user {
            let password = match (&self.config.password, &self.config.password_file) {
                (Some(password), _) => password.expose_secret().to_owned(),
                (None, Some(file)) => {
                    let text = std::fs::read_to_string(file);
                    let text = text.with_context(|| format!("cannot read password_file {}", file.display()))?;
                    text.trim_end_matches(['\r', '\n']).to_owned()
                }
                (None, None) => String::new(),
            };
            self.line.options().set_credentials(user, password);
        }
        Ok(())
    }

    /// Connects and takes messages until the connection fails.
    async fn serve(&mut self) -> Result<ConnectionError, Closed> {
        loop {
            let event = match self.line.poll().await {
                Ok(event) => event,
                Err(error) => {
                    // What a session of an earlier configuration still holds may need it.
                    self.exactly_once |= is_unknown_release(&error);
                    return Ok(error);
                }
            };
            self.handle(event).await?;
            while let Some(event) = self.line.buffered() {
                self.handle(event).await?;
            }
        }
    }

    async fn handle(&mut self, event: Event) -> Result<(), Closed> {
        match event {
            Event::Incoming(Packet::Publish(message)) => self.take(&message).await?,
            Event::Incoming(Packet::ConnAck(answer)) => self.opened(answer.session_present).await?,
            Event::Incoming(Packet::SubAck(answer)) => self.subscribed(&answer),
            Event::Incoming(_) | Event::Outgoing(_) => {}
        }
        Ok(())
    }

    async fn opened(&mut self, session_present: bool) -> Result<(), Closed> {
        if !session_present {
            let origin =
                Origin { source: self.intake.name.clone(), content: 0, topic: 0, kind: OriginKind::SessionLost };
            // Not `deliver`: this is no message and is not counted as one.
            let lost = Delivery { origin: Some(origin), ..Delivery::default() };
            self.line.during(self.intake.inlet.push(lost)).await?;
        }
        if self.exactly_once {
            self.line.expect_releases();
        }
        self.unanswered = self.filters.len().div_ceil(FILTERS_PER_PACKET);
        self.complaints.clear();
        self.line.unsubscribe(&self.unwanted).await;
        self.line.subscribe(&self.filters).await;
        Ok(())
    }

    fn subscribed(&mut self, answer: &SubAck) {
        self.unanswered = self.unanswered.saturating_sub(1);
        let first = usize::from(answer.pkid).saturating_sub(1) * FILTERS_PER_PACKET;
        for ((filter, wanted), code) in self.filters.iter().skip(first).zip(&answer.return_codes) {
            match code {
                SubscribeReasonCode::Failure => {
                    self.complaints.push(format!("filter `{filter}` was refused (the broker's access list?)"));
                }
                SubscribeReasonCode::Success(granted) if *granted < *wanted => {
                    let (granted, wanted) = (*granted as u8, *wanted as u8);
                    self.complaints.push(format!("filter `{filter}` was granted QoS {granted} instead of {wanted}"));
                }
                SubscribeReasonCode::Success(_) => {}
            }
        }
        if self.unanswered > 0 {
            return;
        }
        let (now, broker) = (self.intake.clock.now(), self.broker());
        match self.complaints.len() {
            0 => self.intake.stats.condition.up(now, format_args!("connected to {broker}")),
            n => {
                let some = self.complaints[..n.min(5)].join("; ");
                let more = if n > 5 { format!("; and {} more", n - 5) } else { String::new() };
                self.intake.stats.condition.down(now, format_args!("connected to {broker}, but {some}{more}"));
            }
        }
    }

    async fn take(&mut self, message: &Publish) -> Result<(), Closed> {
        let mut delivery = self.reader.delivery(message, self.intake, self.intake.clock.now());
        if message.qos == QoS::AtMostOnce {
            self.tell_downgrade(message);
        } else {
            self.line.room().await;
            delivery.receipt = Some(self.line.acks.receipt(message));
            delivery.urgent = self.line.acks.window.arrived(Instant::now());
        }
        self.line.during(self.intake.deliver(delivery)).await?;
        let requests = self.reader.requests();
        if self.config.ask_for_births && !requests.is_empty() {
            self.line.publish(requests.into_iter().map(|request| (request.topic, request.payload))).await;
        }
        Ok(())
    }

    /// A publisher that uses QoS 0 can lose messages whatever we do.
    fn tell_downgrade(&mut self, message: &Publish) {
        if !self.downgrade_told && self.filters.iter().all(|(_, qos)| *qos != QoS::AtMostOnce) {
            self.downgrade_told = true;
            tracing::warn!(
                "source {}: `{}` is published with QoS 0: what is sent while we are away is lost (publish with QoS 1)",
                self.intake.name,
                message.topic.escape_debug()
            );
        }
    }
}
