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
use rumqttc::QoS;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::address::Address;
use super::config::Config;
use super::line::{FILTERS_PER_PACKET, Line, Login, Plan};
use super::message::Reader;
use super::packets::{Event, Failure, Message, Opened, Subscribed};
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
    plan: Plan,
    reader: &'a mut Reader<'a>,
    line: Line,
    filters: Vec<(String, QoS)>,
    unwanted: Vec<String>,
    /// Answers to our SUBSCRIBEs that are still to come, and what they have said so far.
    unanswered: usize,
    complaints: Vec<String>,
    /// Some message may be, or was, under way with QoS 2.
    exactly_once: bool,
    downgrade_told: bool,
}

impl<'a> Connection<'a> {
    /// A connection that is not open yet.
    pub(super) fn new(config: &'a Config, reader: &'a mut Reader<'a>, intake: &'a Intake) -> anyhow::Result<Self> {
        let plan = plan_of(config)?;
        let line = Line::new(&plan);
        let filters = reader.subscriptions();
        let unwanted = config.unsubscribe.iter().cloned().chain(reader.covered()).collect();
        let exactly_once = filters.iter().any(|(_, qos)| *qos == QoS::ExactlyOnce);
        Ok(Self {
            intake,
            config,
            plan,
            reader,
            line,
            filters,
            unwanted,
            unanswered: 0,
            complaints: Vec::new(),
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
                    Ok(failure) => failure.words,
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

    /// Reads password and certificates anew, so that changed ones count without a restart.
    fn prepare(&mut self) -> anyhow::Result<()> {
        let mut login = Login::default();
        if self.plan.address.tls {
            login.tls = Some(Arc::new(tls::client_config(&self.config.tls)?));
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
            login.user = Some((user.clone(), password));
        }
        self.line.log_in_with(&self.plan, login);
        Ok(())
    }

    /// Connects and takes messages until the connection fails.
    async fn serve(&mut self) -> Result<Failure, Closed> {
        loop {
            let event = match self.line.poll().await {
                Ok(event) => event,
                Err(failure) => {
                    // What a session of an earlier configuration still holds may need it.
                    self.exactly_once |= failure.is_unknown_release;
                    return Ok(failure);
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
            Event::Message(message) => self.take(&message).await?,
            Event::Opened(opened) => self.opened(opened).await?,
            Event::Subscribed(answer) => self.subscribed(answer),
            Event::Other => {}
        }
        Ok(())
    }

    async fn opened(&mut self, opened: Opened) -> Result<(), Closed> {
        self.reader.watch.begin(Instant::now());
        for note in opened.notes {
            tracing::warn!("source {}: {} {note}", self.intake.name, self.plan.address.broker());
        }
        if !opened.session_present {
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

    fn subscribed(&mut self, answer: Subscribed) {
        self.unanswered = self.unanswered.saturating_sub(1);
        let first = usize::from(answer.packet_id).saturating_sub(1) * FILTERS_PER_PACKET;
        for ((filter, wanted), answer) in self.filters.iter().skip(first).zip(answer.answers) {
            match answer {
                Err(why) => self.complaints.push(format!("filter `{filter}` {why}")),
                Ok(granted) if granted < *wanted => {
                    let (granted, wanted) = (granted as u8, *wanted as u8);
                    self.complaints.push(format!("filter `{filter}` was granted QoS {granted} instead of {wanted}"));
                }
                Ok(_) => {}
            }
        }
        if self.unanswered > 0 {
            return;
        }
        let (now, broker) = (self.intake.clock.now(), self.plan.address.broker());
        match self.complaints.len() {
            0 => self.intake.stats.condition.up(now, format_args!("connected to {broker}")),
            n => {
                let some = self.complaints[..n.min(5)].join("; ");
                let more = if n > 5 { format!("; and {} more", n - 5) } else { String::new() };
                self.intake.stats.condition.down(now, format_args!("connected to {broker}, but {some}{more}"));
            }
        }
    }

    async fn take(&mut self, message: &Message) -> Result<(), Closed> {
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
    fn tell_downgrade(&mut self, message: &Message) {
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

/// What all connections of a source have in common.
fn plan_of(config: &Config) -> anyhow::Result<Plan> {
    let max_payload = usize::try_from(config.max_payload.as_u64()).unwrap_or(usize::MAX / 2);
    Ok(Plan {
        address: Address::new(&config.url).map_err(anyhow::Error::msg)?,
        client_id: config.client_id.clone().context("client_id is missing")?,
        version: config.protocol,
        keep_alive: config.keep_alive,
        max_payload,
        // Above max_payload a message is refused, kept in part and acknowledged; that needs room to read it.
        max_packet: (max_payload * 2).max(max_payload + (1 << 20)),
        receive_maximum: config.receive_maximum(),
        session_expiry_s: u32::try_from(config.session_expiry().as_secs()).unwrap_or(u32::MAX),
        is_listening: config.is_listening,
    })
}
