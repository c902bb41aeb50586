//! A broker made of a script: a raw TCP peer that says exactly what a test wants, when it wants it (MQTT 3.1.1 or 5).

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
    /// The version it speaks: 4 or 5.
    pub version: u8,
}

/// One accepted connection.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    version: u8,
    /// The properties that came with the CONNECT.
    pub greeting: Vec<u8>,
}

/// What the source sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Connect { clean: bool, version: u8 },
    Subscribe { packet_id: u16, filters: Vec<(String, u8)> },
    Unsubscribe { filters: Vec<String> },
    Publish { topic: String, payload: Vec<u8> },
    PubAck(u16),
    PubRec(u16),
    PubComp(u16),
    Ping,
    Disconnect(u8),
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
    /// For version 5, without their length.
    pub properties: &'a [u8],
}

impl<'a> Message<'a> {
    /// QoS 1, sent for the first time.
    pub fn fresh(packet_id: u16, payload: &'a str) -> Self {
        Self {
            packet_id,
            qos: 1,
            dup: false,
            retain: false,
            topic: "s/k",
            payload: payload.as_bytes(),
            properties: &[],
        }
    }

    /// The same, sent again.
    pub fn again(self) -> Self {
        Self { dup: true, ..self }
    }

    fn bytes(&self, version: u8) -> Vec<u8> {
        let mut body = (self.topic.len() as u16).to_be_bytes().to_vec();
        body.extend(self.topic.as_bytes());
        if self.qos > 0 {
            body.extend(self.packet_id.to_be_bytes());
        }
        if version == 5 {
            put_length(&mut body, self.properties.len());
            body.extend(self.properties);
        }
        body.extend(self.payload);
        packet(0x30 | u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain), &body)
    }
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    put_length(&mut bytes, body.len());
    bytes.extend(body);
    bytes
}

fn put_length(bytes: &mut Vec<u8>, mut left: usize) {
    loop {
        let digit = (left % 128) as u8;
        left /= 128;
        bytes.push(if left > 0 { digit | 0x80 } else { digit });
        if left == 0 {
            break;
        }
    }
}

impl Peer {
    /// Listens on a free loopback port, for MQTT 3.1.1.
    pub async fn listen() -> Self {
        Self::speaking(4).await
    }

    /// The same for that version.
    pub async fn speaking(version: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port, version }
    }

    /// One for each version.
    pub async fn of_each_version() -> [Self; 2] {
        [Self::speaking(4).await, Self::speaking(5).await]
    }

    /// Its address for the site file.
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// The next connection, up to and including its CONNECT.
    pub async fn knock(&self) -> Session {
        let (stream, _) = tokio::time::timeout(PATIENCE, self.listener.accept()).await.expect("connects").unwrap();
        let mut session = Session { stream, version: self.version, greeting: Vec::new() };
        assert_eq!(session.said().await, Said::Connect { clean: false, version: self.version });
        session
    }

    /// The next connection, up to and including its CONNECT, which is answered.
    pub async fn accept(&self, session_present: bool) -> Session {
        self.accept_with(session_present, &[]).await
    }

    /// The same, with these properties in the answer (version 5).
    pub async fn accept_with(&self, session_present: bool, properties: &[u8]) -> Session {
        let mut session = self.knock().await;
        let mut body = vec![u8::from(session_present), 0];
        if self.version == 5 {
            put_length(&mut body, properties.len());
            body.extend(properties);
        }
        session.raw(&packet(0x20, &body)).await;
        session
    }

    /// The next connection, subscribed.
    pub async fn subscribed(&self, session_present: bool) -> Session {
        self.subscribed_with(session_present, &[]).await
    }

    /// The same, with these properties in the answer to the CONNECT (version 5).
    pub async fn subscribed_with(&self, session_present: bool, properties: &[u8]) -> Session {
        let mut session = self.accept_with(session_present, properties).await;
        let Said::Subscribe { packet_id, filters } = session.said().await else { panic!("SUBSCRIBE is expected") };
        let codes: Vec<u8> = filters.iter().map(|(_, qos)| *qos).collect();
        session.grant(packet_id, &codes).await;
        session
    }
}

impl Session {
    /// Sends a message.
    pub async fn publish(&mut self, message: &Message<'_>) {
        self.raw(&message.bytes(self.version)).await;
    }

    /// Sends several messages in one piece.
    pub async fn publish_all(&mut self, messages: &[Message<'_>]) {
        self.raw(&messages.iter().flat_map(|message| message.bytes(self.version)).collect::<Vec<u8>>()).await;
    }

    /// Releases a QoS 2 message.
    pub async fn release(&mut self, packet_id: u16) {
        self.raw(&packet(0x62, &packet_id.to_be_bytes())).await;
    }

    /// Answers a SUBSCRIBE.
    pub async fn grant(&mut self, packet_id: u16, codes: &[u8]) {
        self.grant_with(packet_id, codes, &[]).await;
    }

    /// The same, with these properties (version 5).
    pub async fn grant_with(&mut self, packet_id: u16, codes: &[u8], properties: &[u8]) {
        let mut body = packet_id.to_be_bytes().to_vec();
        if self.version == 5 {
            put_length(&mut body, properties.len());
            body.extend(properties);
        }
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
        // Requests carry no properties, so that their length is one byte.
        let after = |start: usize| if self.version == 5 { &body[start + 1..] } else { &body[start..] };
        Some(match first >> 4 {
            1 => {
                if body[6] == 5 {
                    let length = usize::from(body[10]);
                    self.greeting = body[11..11 + length].to_vec();
                }
                Said::Connect { clean: body[7] & 2 != 0, version: body[6] }
            }
            3 => {
                // QoS 0 has no number.
                let end = 2 + usize::from(number());
                let topic = String::from_utf8(body[2..end].to_vec()).unwrap();
                Said::Publish { topic, payload: after(end).to_vec() }
            }
            4 => Said::PubAck(number()),
            5 => Said::PubRec(number()),
            7 => Said::PubComp(number()),
            8 => Said::Subscribe { packet_id: number(), filters: filters(after(2)) },
            10 => Said::Unsubscribe { filters: texts(after(2)) },
            12 => {
                self.raw(&packet(0xd0, &[])).await;
                Said::Ping
            }
            14 => Said::Disconnect(body.first().copied().unwrap_or_default()),
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
