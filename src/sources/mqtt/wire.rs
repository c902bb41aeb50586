//! Packets of MQTT 5 out of a stream and into it: rumqttc's codec with what it lacks.
//!
//! - A message far over `max_payload` must not end the connection, for it would come again at the next, for ever. Its head is
//!   kept, the rest is passed over as it comes.
//! - An answer of a broker that knows only 3.1.1 is two bytes long; rumqttc would wait for more.
//! - A DISCONNECT may be empty or a reason alone; rumqttc takes that for an error.
//! - A packet that ends too early is an error; rumqttc passes it over as if there had been none.
//! - Properties cost twenty times their bytes in memory, so that of a message with too many none are read.

use bytes::{Buf as _, BufMut as _, BytesMut};
use rumqttc::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Disconnect, DisconnectReasonCode, Filter, Packet, PingReq, PubAck, PubRec, Publish, Subscribe, Unsubscribe,
};
use rumqttc::v5::mqttbytes::{Error as Malformed, QoS as FiveQos};
use tokio_util::codec::{Decoder, Encoder};

use super::packets::Out;
use super::reason::Fault;

/// What is read of a message that is too long: its topic and properties, and more than dead letters keep.
const HEAD: usize = 256 << 10;
/// Most bytes of properties that are read.
const MAX_PROPERTIES: usize = 32 << 10;
const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const DISCONNECT: u8 = 14;

/// Something from the broker.
#[derive(Debug)]
pub(super) enum Read {
    /// A message whose payload had so many bytes.
    Message(Publish, usize),
    Other(Packet),
}

/// Bytes into packets and back.
#[derive(Debug)]
pub(super) struct Codec {
    max_packet: usize,
    /// What the broker takes at most, if it says so.
    pub(super) max_outgoing: Option<u32>,
    /// Bytes of a too long message that are still to come.
    skip: usize,
}

impl Codec {
    /// Keeps messages with payloads of up to so many bytes whole.
    pub(super) fn new(max_payload: usize) -> Self {
        Self { max_packet: max_payload.saturating_add(HEAD), max_outgoing: None, skip: 0 }
    }

    /// The head of a message that is too long, once it is there.
    fn cut(&mut self, source: &mut BytesMut, start: usize, length: usize) -> Result<Option<Read>, Fault> {
        let kept = length.min(HEAD);
        if source.len() < start + kept {
            source.reserve(start + kept - source.len());
            return Ok(None);
        }
        let mut packet = BytesMut::with_capacity(kept + 5);
        packet.put_u8(source[0]);
        put_length(&mut packet, kept);
        packet.put_slice(&source[start..start + kept]);
        source.advance(start + kept);
        self.skip = length - kept;
        match read(packet)? {
            Packet::Publish(message) => {
                let whole = length - (kept - message.payload.len());
                Ok(Some(Read::Message(message, whole)))
            }
            _ => Err(Fault::Malformed(Malformed::MalformedPacket)),
        }
    }
}

impl Decoder for Codec {
    type Item = Read;
    type Error = Fault;

    fn decode(&mut self, source: &mut BytesMut) -> Result<Option<Read>, Fault> {
        let passed = self.skip.min(source.len());
        source.advance(passed);
        self.skip -= passed;
        let Some((start, length)) = header(source)? else { return Ok(None) };
        let kind = source[0] >> 4;
        if start + length > self.max_packet {
            return match kind {
                PUBLISH => self.cut(source, start, length),
                _ => Err(Fault::Malformed(Malformed::PayloadTooLong)),
            };
        }
        if source.len() < start + length {
            source.reserve(start + length - source.len());
            return Ok(None);
        }
        let mut packet = source.split_to(start + length);
        match (kind, length) {
            (CONNACK, 2) if packet[start + 1] != 0 => return Err(Fault::OldBroker { code: packet[start + 1] }),
            (DISCONNECT, 0) => {
                let over = Disconnect::new(DisconnectReasonCode::NormalDisconnection);
                return Ok(Some(Read::Other(Packet::Disconnect(over))));
            }
            // Of a reason alone the same holds: that no properties follow is left out.
            (DISCONNECT, 1) => packet = BytesMut::from(&[packet[0], 2, packet[start], 0][..]),
            (PUBLISH, _) => packet = with_few_properties(packet, start),
            _ => {}
        }
        Ok(Some(match read(packet)? {
            Packet::Publish(message) => {
                let length = message.payload.len();
                Read::Message(message, length)
            }
            other => Read::Other(other),
        }))
    }
}

impl Encoder<Packet> for Codec {
    type Error = Fault;

    fn encode(&mut self, packet: Packet, out: &mut BytesMut) -> Result<(), Fault> {
        packet.write(out, self.max_outgoing).map(drop).map_err(Fault::Malformed)
    }
}

/// A quality of service as version 3.1.1 has it.
pub(super) fn plain_qos(qos: FiveQos) -> QoS {
    match qos {
        FiveQos::AtMostOnce => QoS::AtMostOnce,
        FiveQos::AtLeastOnce => QoS::AtLeastOnce,
        FiveQos::ExactlyOnce => QoS::ExactlyOnce,
    }
}

fn qos_of(qos: QoS) -> FiveQos {
    match qos {
        QoS::AtMostOnce => FiveQos::AtMostOnce,
        QoS::AtLeastOnce => FiveQos::AtLeastOnce,
        QoS::ExactlyOnce => FiveQos::ExactlyOnce,
    }
}

/// What is to be sent.
pub(super) fn packet_of(out: Out) -> Packet {
    match out {
        Out::Ack(ticket) if ticket.exactly_once => Packet::PubRec(PubRec::new(ticket.packet_id, None)),
        Out::Ack(ticket) => Packet::PubAck(PubAck::new(ticket.packet_id, None)),
        Out::Ping => Packet::PingReq(PingReq),
        Out::Subscribe { packet_id: pkid, filters } => {
            let filters = filters.into_iter().map(|(path, qos)| Filter::new(path, qos_of(qos))).collect();
            Packet::Subscribe(Subscribe { pkid, filters, properties: None })
        }
        Out::Unsubscribe { packet_id: pkid, filters } => {
            Packet::Unsubscribe(Unsubscribe { pkid, filters, properties: None })
        }
        Out::Publish { topic, payload } => Packet::Publish(Publish::new(topic, FiveQos::AtMostOnce, payload, None)),
    }
}

/// One whole packet.
fn read(mut packet: BytesMut) -> Result<Packet, Fault> {
    Packet::read(&mut packet, None).map_err(|error| {
        Fault::Malformed(match error {
            // For want of bytes inside a whole packet nothing can be waited for.
            Malformed::InsufficientBytes(_) => Malformed::MalformedPacket,
            other => other,
        })
    })
}

/// Where a packet's body begins and how long it is, once that can be told.
fn header(source: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
    let Some(rest) = source.get(1..) else { return Ok(None) };
    match number(rest) {
        Some((length, bytes)) => Ok(Some((1 + bytes, length))),
        None if rest.len() < 4 => Ok(None),
        None => Err(Fault::Malformed(Malformed::MalformedRemainingLength)),
    }
}

/// A variable byte integer (MQTT 5, 1.5.5) and how many bytes it takes.
fn number(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (i, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

fn put_length(out: &mut BytesMut, mut length: usize) {
    while length > 0x7f {
        out.put_u8(length as u8 | 0x80);
        length >>= 7;
    }
    out.put_u8(length as u8);
}

/// A PUBLISH as it is, or without its properties if they are too many.
fn with_few_properties(packet: BytesMut, start: usize) -> BytesMut {
    let has_number = packet[0] & 0b110 != 0;
    let topic = packet.get(start..start + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    let at = start + 2 + topic + if has_number { 2 } else { 0 };
    let Some((length, bytes)) = packet.get(at..).and_then(number) else { return packet };
    let payload = at + bytes + length;
    if length <= MAX_PROPERTIES || payload > packet.len() {
        return packet;
    }
    let mut plain = BytesMut::with_capacity(packet.len());
    plain.put_u8(packet[0]);
    put_length(&mut plain, at - start + 1 + packet.len() - payload);
    plain.put_slice(&packet[start..at]);
    plain.put_u8(0);
    plain.put_slice(&packet[payload..]);
    plain
}

#[cfg(test)]
mod tests {
    use rumqttc::v5::mqttbytes::v5::PublishProperties;

    use super::*;

    fn bytes_of(message: Publish) -> BytesMut {
        let mut bytes = BytesMut::new();
        Packet::Publish(message).write(&mut bytes, None).unwrap();
        bytes
    }

    fn message(payload: usize, properties: usize) -> Publish {
        let user = (0..properties).map(|i| (format!("k{i}"), "v".to_owned())).collect();
        let properties = PublishProperties { user_properties: user, ..PublishProperties::default() };
        let mut message = Publish::new("s/k", FiveQos::AtLeastOnce, vec![b'x'; payload], Some(properties));
        message.pkid = 7;
        message
    }

    /// Everything that is read of a stream that comes in pieces of so many bytes.
    fn all(stream: &[u8], step: usize) -> Vec<Read> {
        let (mut codec, mut buffer, mut found) = (Codec::new(1_000), BytesMut::new(), Vec::new());
        for piece in stream.chunks(step) {
            buffer.extend_from_slice(piece);
            assert!(buffer.len() <= 1_000 + HEAD + step, "{}", buffer.len());
            while let Some(read) = codec.decode(&mut buffer).unwrap() {
                found.push(read);
            }
        }
        found
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_and_the_next_is_whole() {
        let mut stream = bytes_of(message(3_000_000, 1));
        stream.extend_from_slice(&bytes_of(message(5, 1)));
        for step in [1_000, 64 << 10, stream.len()] {
            let found = all(&stream, step);
            let [Read::Message(cut, 3_000_000), Read::Message(next, 5)] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!((cut.pkid, &cut.topic[..], next), (7, &b"s/k"[..], &message(5, 1)));
            assert!(cut.payload.len() >= 65_536 && cut.payload.len() < HEAD);
            assert_eq!(cut.properties, message(0, 1).properties);
        }
    }

    #[test]
    fn of_too_many_properties_none_are_read() {
        let found = all(&bytes_of(message(5, 10_000)), 10_000);
        let [Read::Message(plain, 5)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((plain.pkid, plain.properties.is_none(), &plain.payload[..]), (7, true, &b"xxxxx"[..]));
        let found = all(&bytes_of(message(5, 100)), 10_000);
        assert!(matches!(found.as_slice(), [Read::Message(m, 5)] if *m == message(5, 100)));
    }

    fn fault(bytes: &[u8]) -> Fault {
        Codec::new(1_000).decode(&mut BytesMut::from(bytes)).unwrap_err()
    }

    #[test]
    fn what_the_library_would_wait_for_or_misread_is_known() {
        assert!(matches!(fault(&[0x20, 2, 0, 1]), Fault::OldBroker { code: 1 }));
        assert!(matches!(fault(&[0x32, 0xff, 0xff, 0xff, 0xff]), Fault::Malformed(_)));
        // The length of the properties goes on beyond the packet.
        assert!(matches!(fault(&[0x30, 4, 0, 1, b't', 0x80]), Fault::Malformed(Malformed::MalformedPacket)));
        let empty = Codec::new(1_000).decode(&mut BytesMut::from(&[0xe0, 0][..])).unwrap();
        assert!(matches!(empty, Some(Read::Other(Packet::Disconnect(_)))));
        let short = Codec::new(1_000).decode(&mut BytesMut::from(&[0xe0, 1, 0x95][..])).unwrap();
        let too_large = Disconnect::new(DisconnectReasonCode::PacketTooLarge);
        assert!(matches!(short, Some(Read::Other(Packet::Disconnect(over))) if over == too_large));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_swell(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), step in 1..50_usize) {
            let (mut codec, mut buffer) = (Codec::new(1_000), BytesMut::new());
            for piece in bytes.chunks(step) {
                buffer.extend_from_slice(piece);
                while let Ok(Some(_)) = codec.decode(&mut buffer) {}
                proptest::prop_assert!(buffer.capacity() <= 2 * (1_000 + HEAD + 200));
            }
        }

        #[test]
        fn what_is_written_is_read_again(payload in 0..2_000_usize, properties in 0..20_usize, step in 1..3_000_usize) {
            let found = all(&bytes_of(message(payload, properties)), step);
            proptest::prop_assert!(matches!(found.as_slice(), [Read::Message(m, n)] if m.payload.len() == payload && *n == payload));
        }
    }
}
