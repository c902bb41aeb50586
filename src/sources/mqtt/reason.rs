//! Why an MQTT 5 connection ended or something was refused, in words for an operator: what, why, and what to do.

use std::io;

use async_tungstenite::tungstenite;
use rumqttc::v5::mqttbytes::Error as Malformed;
use rumqttc::v5::mqttbytes::v5::{ConnAck, ConnectReturnCode, Disconnect, DisconnectReasonCode, SubscribeReasonCode};

use super::address::Address;
use super::failure::{io_failure, websocket_failure};

/// Longest text of a broker's that is repeated.
const MAX_QUOTED: usize = 300;

/// What went wrong.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    /// The way to a WebSocket failed.
    WebSocket(Box<tungstenite::Error>),
    /// There is a WebSocket, and no MQTT behind it.
    NoMqtt,
    /// Nothing came within the time for connecting.
    NoAnswer,
    /// Nothing came after our ping.
    Silent,
    /// Nothing could be written.
    TakesNothing,
    /// The connection ended without a word.
    Closed,
    /// It answered as brokers do that know only 3.1.1.
    OldBroker {
        code: u8,
    },
    /// It refused us.
    Refused(ConnectReturnCode, Said),
    /// It ended the connection.
    Ended(DisconnectReasonCode, Said),
    /// Its packets cannot be read.
    Malformed(Malformed),
    /// It does what the protocol forbids; and what we call that.
    Protocol(&'static str, Option<DisconnectReasonCode>),
}

/// What a broker adds to its reason.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    why: Option<String>,
    elsewhere: Option<String>,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Fault {
    /// It refused us.
    pub(super) fn refused(answer: ConnAck) -> Self {
        let said = answer.properties.map(|p| Said { why: p.reason_string, elsewhere: p.server_reference });
        Self::Refused(answer.code, said.unwrap_or_default())
    }

    /// It ended the connection.
    pub(super) fn ended(over: Disconnect) -> Self {
        let said = over.properties.map(|p| Said { why: p.reason_string, elsewhere: p.server_reference });
        Self::Ended(over.reason_code, said.unwrap_or_default())
    }

    /// What it is to be told before we go.
    pub(super) fn goodbye(&self) -> Option<DisconnectReasonCode> {
        match self {
            Self::Malformed(Malformed::OutgoingPacketTooLarge { .. }) => None,
            Self::Malformed(_) => Some(DisconnectReasonCode::MalformedPacket),
            Self::Protocol(_, code) => *code,
            Self::Silent => Some(DisconnectReasonCode::KeepAliveTimeout),
            _ => None,
        }
    }
}

/// Explains a failure.
pub(super) fn explain(fault: &Fault, address: &Address) -> String {
    let broker = address.broker();
    match fault {
        Fault::Io(error) => io_failure(error, &broker),
        Fault::WebSocket(error) => websocket_failure(error, &broker),
        Fault::NoMqtt => format!("{broker} has a WebSocket there, and not for MQTT (is the path right?)"),
        Fault::NoAnswer => format!("{broker} does not answer (is it a broker, and is TLS meant?)"),
        Fault::Silent => format!("{broker} no longer answers"),
        Fault::TakesNothing => format!("{broker} takes nothing more from us"),
        Fault::Closed => format!(
            "{broker} closed the connection without a reason (it stopped, it does not speak MQTT 5, or another client uses \
             the same client_id)"
        ),
        Fault::OldBroker { code: 1 } => {
            format!("{broker} does not speak MQTT 5: leave out `protocol` (3.1.1 is the default)")
        }
        Fault::OldBroker { code } => {
            format!("{broker} refused the connection with code {code} of MQTT 3.1.1: leave out `protocol`")
        }
        Fault::Refused(code, said) => {
            format!("{broker} refused the connection: {}", with(refusal(*code), said))
        }
        Fault::Ended(code, said) => format!("{broker} ended the connection: {}", with(ending(*code), said)),
        Fault::Malformed(Malformed::OutgoingPacketTooLarge { pkt_size, max }) => format!(
            "{broker} takes packets of at most {max} bytes, and one of ours has {pkt_size}: use shorter or fewer filters"
        ),
        Fault::Malformed(error) => format!("{broker} sends what is no MQTT 5: {error}"),
        Fault::Protocol(what, _) => format!("{broker} {what}, which MQTT 5 forbids"),
    }
}

/// Why a filter was refused.
pub(super) fn of_filter(code: SubscribeReasonCode, why: Option<&str>) -> String {
    let words = match code {
        SubscribeReasonCode::NotAuthorized => "was refused: not authorised (check the broker's access list)",
        SubscribeReasonCode::TopicFilterInvalid => "was refused: the broker takes no such filter",
        SubscribeReasonCode::QuotaExceeded => "was refused: a quota of the broker's is used up",
        SubscribeReasonCode::SharedSubscriptionsNotSupported => {
            "was refused: the broker knows no shared subscriptions (leave out `$share/GROUP/`)"
        }
        SubscribeReasonCode::WildcardSubscriptionsNotSupported => {
            "was refused: the broker takes no wildcards (name each topic)"
        }
        _ => "was refused (the broker's access list?)",
    };
    with(words.to_owned(), &Said { why: why.map(str::to_owned), elsewhere: None })
}

/// A reason with the broker's own words.
fn with(words: impl Into<String>, said: &Said) -> String {
    let mut words = words.into();
    let mut add = |label: &str, text: &Option<String>| {
        if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
            let quoted: String = text.chars().take(MAX_QUOTED).collect();
            words.push_str(&format!("; {label} \"{}\"", quoted.escape_debug()));
        }
    };
    add("it names", &said.elsewhere);
    add("it says", &said.why);
    words
}

fn refusal(code: ConnectReturnCode) -> String {
    match code {
        ConnectReturnCode::BadUserNamePassword => "wrong user or password",
        ConnectReturnCode::NotAuthorized => "not authorised (check user, password and the broker's access list)",
        ConnectReturnCode::BadClientId | ConnectReturnCode::ClientIdentifierNotValid => {
            "it does not like our client_id"
        }
        ConnectReturnCode::ServiceUnavailable | ConnectReturnCode::ServerUnavailable => "it is not ready",
        ConnectReturnCode::ServerBusy => "it is busy",
        ConnectReturnCode::RefusedProtocolVersion | ConnectReturnCode::UnsupportedProtocolVersion => {
            "it does not speak MQTT 5: leave out `protocol` (3.1.1 is the default)"
        }
        ConnectReturnCode::Banned => "it has banned us (ask whoever runs it)",
        ConnectReturnCode::BadAuthenticationMethod => "it wants another way of logging in than user and password",
        ConnectReturnCode::PacketTooLarge => "our greeting is too long for it (a shorter client_id or password?)",
        ConnectReturnCode::QuotaExceeded => "a quota is used up (sessions or connections of this user?)",
        ConnectReturnCode::ConnectionRateExceeded => "we connect too often",
        ConnectReturnCode::UseAnotherServer => "another server is to be used for now: set `url` to it if this lasts",
        ConnectReturnCode::ServerMoved => "it has moved for good: set `url` to the new place",
        other => return format!("{other:?}"),
    }
    .to_owned()
}

fn ending(code: DisconnectReasonCode) -> String {
    match code {
        DisconnectReasonCode::NormalDisconnection => "without a reason",
        DisconnectReasonCode::NotAuthorized => "not authorised any more (check user, password and the access list)",
        DisconnectReasonCode::ServerBusy => "it is busy",
        DisconnectReasonCode::ServerShuttingDown => "it shuts down",
        DisconnectReasonCode::KeepAliveTimeout => "it had heard nothing from us for too long",
        DisconnectReasonCode::SessionTakenOver => {
            "another client connected with the same client_id (each gateway needs its own)"
        }
        DisconnectReasonCode::PacketTooLarge => "something of ours was too long for it",
        DisconnectReasonCode::ReceiveMaximumExceeded => "it counts more messages under way than we allowed",
        DisconnectReasonCode::MessageRateTooHigh => "we send too much",
        DisconnectReasonCode::QuotaExceeded => "a quota is used up",
        DisconnectReasonCode::AdministrativeAction => "its operator wanted so",
        DisconnectReasonCode::UseAnotherServer => "another server is to be used for now: set `url` to it if this lasts",
        DisconnectReasonCode::ServerMoved => "it has moved for good: set `url` to the new place",
        DisconnectReasonCode::ConnectionRateExceeded => "we connect too often",
        other => return format!("{other:?}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_s_own_words_are_repeated_within_bounds() {
        let said = Said { why: Some("x\n".repeat(10_000)), elsewhere: Some("mqtt://b2".to_owned()) };
        let words = explain(
            &Fault::Refused(ConnectReturnCode::ServerMoved, said),
            &Address::new("mqtt://b1").expect("address"),
        );
        assert!(words.starts_with("broker b1:1883 refused the connection: it has moved for good"), "{words}");
        assert!(words.contains("it names \"mqtt://b2\"; it says \"x\\nx") && words.len() < 700, "{words}");
    }
}
