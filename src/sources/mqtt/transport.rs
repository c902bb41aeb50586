//! The stream to a broker: TCP, perhaps TLS over it, perhaps WebSocket over that.

use std::io;
use std::sync::Arc;

use async_tungstenite::tungstenite::client::IntoClientRequest as _;
use async_tungstenite::tungstenite::http::HeaderValue;
use async_tungstenite::tungstenite::protocol::WebSocketConfig;
use rumqttc::tokio_rustls::TlsConnector;
use rumqttc::tokio_rustls::rustls::ClientConfig;
use rumqttc::tokio_rustls::rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use ws_stream_tungstenite::WsStream;

use super::address::Address;
use super::reason::Fault;

/// Bytes both ways.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The largest piece that a broker may send over WebSocket; packets may span several.
const MAX_FRAME: usize = 16 << 20;
/// Under this name WebSocket carries MQTT (MQTT 5, 6.0).
const SUBPROTOCOL: (&str, &str) = ("sec-websocket-protocol", "mqtt");

/// Connects. Safe to drop.
pub(super) async fn connect(address: &Address, tls: Option<Arc<ClientConfig>>) -> Result<Box<dyn Stream>, Fault> {
    let host = address.host.trim_start_matches('[').trim_end_matches(']');
    let tcp = TcpStream::connect((host, address.port)).await?;
    tcp.set_nodelay(true)?;
    let stream: Box<dyn Stream> = match tls {
        None => Box::new(tcp),
        Some(config) => {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            Box::new(TlsConnector::from(config).connect(name, tcp).await?)
        }
    };
    match &address.path {
        None => Ok(stream),
        Some(_) => upgrade(address, stream).await,
    }
}

async fn upgrade(address: &Address, stream: Box<dyn Stream>) -> Result<Box<dyn Stream>, Fault> {
    let failed = |error| Fault::WebSocket(Box::new(error));
    let mut request = address.url().into_client_request().map_err(failed)?;
    request.headers_mut().insert(SUBPROTOCOL.0, HeaderValue::from_static(SUBPROTOCOL.1));
    let bounds = WebSocketConfig::default().max_frame_size(Some(MAX_FRAME)).max_message_size(Some(MAX_FRAME));
    let connected = async_tungstenite::tokio::client_async_with_config(request, stream, Some(bounds)).await;
    let (socket, answer) = connected.map_err(failed)?;
    let spoken = answer.headers().get(SUBPROTOCOL.0).and_then(|value| value.to_str().ok());
    if spoken.map(str::trim) != Some(SUBPROTOCOL.1) {
        return Err(Fault::NoMqtt);
    }
    Ok(Box::new(WsStream::new(socket)))
}
