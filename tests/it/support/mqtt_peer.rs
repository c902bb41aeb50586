//! A broker made of a script: a raw TCP peer that says exactly what a test wants, when it wants it (MQTT 3.1.1).

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::mqtt_intake::PATIENCE;

/// Where the source connects to.
#[derive(Debug)]
pub struct Peer {
    listener: TcpListener,
    /// Its port.
    pub port: u16,
}

/// One accepted connection.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
}

/// What the source sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Connect { clean: bool },
    Subscribe { packet_id: u16, filters: Vec<(String, u8)> },
    Unsubscribe { filters: Vec<String> },
    Publish { topic: String, payload: Vec<u8> },
    PubAck(u16),
    PubRec(u16),
    PubComp(u16),
    Ping,
    Other(u8),
}

/// A PUBLISH.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub packet_id: u16,
    pub qos: u8,
    pub dup: bool,
    pub retain: bool,
    pub topic: &'a str,
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// QoS 1, sent for the first time.
    pub fn fresh(packet_id: u16, payload: &'a str) -> Self {
        Self { packet_id, qos: 1, dup: false, retain: false, topic: "s/k", payload: payload.as_bytes() }
    }

    /// The same, sent again.
    pub fn again(self) -> Self {
        Self { dup: true, ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut body = (self.topic.len() as u16).to_be_bytes().to_vec();
        body.extend(self.topic.as_bytes());
        if self.qos > 0 {
            body.extend(self.packet_id.to_be_bytes());
        }
        body.extend(self.payload);
        packet(0x30 | u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain), &body)
    }
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut left = body.len();
    loop {
        let digit = (left % 128) as u8;
        left /= 128;
        bytes.push(if left > 0 { digit | 0x80 } else { digit });
        if left == 0 {
            break;
        }
    }
    bytes.extend(body);
    bytes
}

impl Peer {
    /// Listens on a free loopback port.
    pub async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port }
    }

    /// Its address for the site file.
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// The next connection, up to and including its CONNECT, which is answered.
    pub async fn accept(&self, session_present: bool) -> Session {
        let (stream, _) = tokio::time::timeout(PATIENCE, self.listener.accept()).await.expect("connects").unwrap();
        let mut session = Session { stream };
        assert_eq!(session.said().await, Said::Connect { clean: false });
        session.raw(&packet(0x20, &[u8::from(session_present), 0])).await;
        session
    }

    /// The next connection, subscribed.
    pub async fn subscribed(&self, session_present: bool) -> Session {
        let mut session = self.accept(session_present).await;
        let Said::Subscribe { packet_id, filters } = session.said().await else { panic!("SUBSCRIBE is expected") };
        let codes: Vec<u8> = filters.iter().map(|(_, qos)| *qos).collect();
        session.grant(packet_id, &codes).await;
        session
    }
}

impl Session {
    /// Sends a message.
    pub async fn publish(&mut self, message: &Message<'_>) {
        self.raw(&message.bytes()).await;
    }

    /// Sends several messages in one piece.
    pub async fn publish_all(&mut self, messages: &[Message<'_>]) {
        self.raw(&messages.iter().flat_map(Message::bytes).collect::<Vec<u8>>()).await;
    }

    /// Releases a QoS 2 message.
    pub async fn release(&mut self, packet_id: u16) {
        self.raw(&packet(0x62, &packet_id.to_be_bytes())).await;
    }

    /// Answers a SUBSCRIBE.
    pub async fn grant(&mut self, packet_id: u16, codes: &[u8]) {
        let mut body = packet_id.to_be_bytes().to_vec();
        body.extend(codes);
        self.raw(&packet(0x90, &body)).await;
    }

    /// Sends any bytes.
    pub async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// What the source says next.
    pub async fn said(&mut self) -> Said {
        tokio::time::timeout(PATIENCE, self.read())
            .await
            .expect("the source says something")
            .expect("connection is open")
    }

    /// What the source says within a moment, if anything.
    pub async fn said_soon(&mut self, within: Duration) -> Option<Said> {
        tokio::time::timeout(within, self.read()).await.ok().flatten()
    }

    async fn read(&mut self) -> Option<Said> {
        let first = self.stream.read_u8().await.ok()?;
        let (mut length, mut shift) = (0usize, 0);
        loop {
            let digit = self.stream.read_u8().await.ok()?;
            length |= usize::from(digit & 0x7f) << shift;
            shift += 7;
            if digit & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.ok()?;
        let number = || u16::from_be_bytes([body[0], body[1]]);
        Some(match first >> 4 {
            1 => Said::Connect { clean: body[7] & 2 != 0 },
            3 => {
                // QoS 0 has no number.
                let end = 2 + usize::from(number());
                let topic = String::from_utf8(body[2..end].to_vec()).unwrap();
                Said::Publish { topic, payload: body[end..].to_vec() }
            }
            4 => Said::PubAck(number()),
            5 => Said::PubRec(number()),
            7 => Said::PubComp(number()),
            8 => Said::Subscribe { packet_id: number(), filters: filters(&body[2..]) },
            10 => Said::Unsubscribe { filters: texts(&body[2..]) },
            12 => {
                self.raw(&packet(0xd0, &[])).await;
                Said::Ping
            }
            other => Said::Other(other),
        })
    }
}

fn filters(mut body: &[u8]) -> Vec<(String, u8)> {
    let mut found = Vec::new();
    while let [high, low, rest @ ..] = body {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        found.push((String::from_utf8(rest[..length].to_vec()).unwrap(), rest[length]));
        body = &rest[length + 1..];
    }
    found
}

fn texts(mut body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let [high, low, rest @ ..] = body {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        found.push(String::from_utf8(rest[..length].to_vec()).unwrap());
        body = &rest[length..];
    }
    found
}
