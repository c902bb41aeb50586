//! What a failed connection means, in words for an operator: what failed, why, and what to do.

use std::io;

use async_tungstenite::tungstenite;
use rumqttc::mqttbytes::Error as Malformed;
use rumqttc::tokio_rustls::rustls::{CertificateError, Error as TlsError};
use rumqttc::{ConnectReturnCode, ConnectionError, StateError};

/// Explains a failure of the connection to `broker`, whose packets may have up to `max_packet` bytes.
pub(super) fn explain(error: &ConnectionError, broker: &str, max_packet: usize) -> String {
    match error {
        ConnectionError::ConnectionRefused(code) => format!("{broker} refused the connection: {}", refusal(*code)),
        ConnectionError::MqttState(StateError::Deserialization(Malformed::PayloadSizeLimitExceeded(bytes))) => format!(
            "{broker} sends a message of {bytes} bytes, above the hard limit of {max_packet} that goes with max_payload, so it \
             cannot be taken and will come again at each connect: raise max_payload, clear it if it is retained, or bound \
             message_size_limit at the broker"
        ),
        ConnectionError::MqttState(StateError::Deserialization(Malformed::Io(e)) | StateError::Io(e))
        | ConnectionError::Io(e)
        | ConnectionError::Tls(rumqttc::TlsError::Io(e)) => io_failure(e, broker),
        ConnectionError::Tls(rumqttc::TlsError::TLS(e)) => format!("TLS with {broker} failed: {}", tls_failure(e)),
        ConnectionError::NetworkTimeout => format!("{broker} does not answer (is it a broker, and is TLS meant?)"),
        ConnectionError::FlushTimeout => format!("{broker} takes nothing more from us"),
        ConnectionError::MqttState(StateError::AwaitPingResp) => format!("{broker} no longer answers"),
        ConnectionError::MqttState(StateError::ConnectionAborted) => {
            format!("{broker} closed the connection (it stopped, or another client uses the same client_id)")
        }
        ConnectionError::Websocket(e) => websocket_failure(e, broker),
        ConnectionError::ResponseValidation(_) => {
            format!("{broker} has a WebSocket there, and not for MQTT (is the path right?)")
        }
        other => format!("connection to {broker} failed: {other}"),
    }
}

/// Why a WebSocket could not be opened.
pub(super) fn websocket_failure(error: &tungstenite::Error, broker: &str) -> String {
    match error {
        tungstenite::Error::Io(e) => io_failure(e, broker),
        tungstenite::Error::Http(answer) => {
            let advice = match answer.status().as_u16() {
                401 | 403 => "it wants a login before MQTT, which is not known here: is there a proxy in between?",
                404 => "there is nothing on this path (many brokers use /mqtt or /ws)",
                300..=399 => "it sends us elsewhere: set `url` to the place itself",
                _ => "is there a listener for MQTT over WebSocket on this port and path?",
            };
            format!("{broker} answers HTTP {}: {advice}", answer.status())
        }
        tungstenite::Error::Protocol(e) => {
            format!("{broker} speaks no WebSocket on this port: {e} (is it meant for mqtt://, or for wss://?)")
        }
        other => format!("cannot open a WebSocket to {broker}: {other}"),
    }
}

/// Why a broker of version 3.1.1 refused us.
fn refusal(code: ConnectReturnCode) -> &'static str {
    match code {
        ConnectReturnCode::BadUserNamePassword => "wrong user or password",
        ConnectReturnCode::NotAuthorized => "not authorised (check user, password and the broker's access list)",
        ConnectReturnCode::BadClientId => "it does not like our client_id",
        ConnectReturnCode::ServiceUnavailable => "it is not ready",
        ConnectReturnCode::RefusedProtocolVersion => "it does not speak MQTT 3.1.1",
        ConnectReturnCode::Success => "without a reason",
    }
}

/// Why bytes could not go there and back.
pub(super) fn io_failure(error: &io::Error, broker: &str) -> String {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        return format!("TLS with {broker} failed: {}", tls_failure(tls));
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("cannot connect to {broker}: nothing listens there (is the broker running?)")
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            format!("{broker} cut the connection ({error})")
        }
        _ => format!("cannot talk to {broker}: {error}"),
    }
}

fn tls_failure(error: &TlsError) -> String {
    let advice = match error {
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is signed by an authority we do not know: set tls.ca_file to the one that signed it"
        }
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another host name than the url says",
        TlsError::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired (or our clock is wrong)"
        }
        TlsError::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "its certificate is not valid yet (is our clock right?)"
        }
        TlsError::InvalidMessage(_) => "it does not speak TLS on this port",
        TlsError::AlertReceived(_) => {
            "it refused us (does it want a client certificate: tls.cert_file and tls.key_file?)"
        }
        _ => return error.to_string(),
    };
    format!("{advice} ({error})")
}
