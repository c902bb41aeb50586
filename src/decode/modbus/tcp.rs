//! Modbus TCP frames: a header with the number of the request and a length, then unit, function and data.
//!
//! A reply under another number answers an earlier request: it is passed over.

use super::{Exception, Found, Request};

/// Number, protocol, length and unit.
const HEADER_BYTES: usize = 7;
/// Longest frame (Modbus Messaging on TCP/IP V1.0b, section 4.1).
const MAX_FRAME_BYTES: usize = 260;

/// The frame to send.
pub fn encode(request: &Request, number: u16) -> [u8; 12] {
    let [nh, nl] = number.to_be_bytes();
    let [ah, al] = request.address.to_be_bytes();
    let [ch, cl] = request.count.to_be_bytes();
    [nh, nl, 0, 0, 0, 6, request.unit, request.table.function(), ah, al, ch, cl]
}

/// The first whole frame of `bytes`; `None` if more bytes are needed.
fn first(bytes: &[u8]) -> Result<Option<&[u8]>, ()> {
    let &[_, _, proto_high, proto_low, high, low, ..] = bytes else { return Ok(None) };
    let length = HEADER_BYTES - 1 + usize::from(u16::from_be_bytes([high, low]));
    if (proto_high, proto_low) != (0, 0) || !(HEADER_BYTES + 2..=MAX_FRAME_BYTES).contains(&length) {
        return Err(());
    }
    Ok(bytes.get(..length))
}

/// Looks for the reply to `request`, which was sent under `number`.
pub fn find<'a>(request: &Request, number: u16, bytes: &'a [u8]) -> Found<'a> {
    let mut at = 0;
    loop {
        let frame = match first(&bytes[at..]) {
            Ok(None) => return Found::Nothing { keep: at },
            // No stream of frames any more: the rest means nothing.
            Err(()) => return Found::Nothing { keep: bytes.len() },
            Ok(Some(frame)) => frame,
        };
        at += frame.len();
        let function = request.table.function();
        if frame[..2] != number.to_be_bytes() || frame[6] != request.unit {
            continue;
        }
        match frame[7..] {
            [f, n, ref data @ ..]
                if f == function && usize::from(n) == data.len() && data.len() == request.data_bytes() =>
            {
                return Found::Data { data, frame, end: at };
            }
            [f, code] if f == function | 0x80 => return Found::Exception { code: Exception(code), frame, end: at },
            _ => {}
        }
    }
}

/// What bytes that hold no reply look like, in words for an operator; `None` if there are none.
pub fn explain(request: &Request, bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return None;
    }
    Some(match first(bytes) {
        Err(()) => "something that is no Modbus TCP (a serial device server? then framing = \"rtu\")".to_owned(),
        Ok(None) => format!("{} bytes of a reply, and no more", bytes.len()),
        Ok(Some(frame)) if frame[6] != request.unit => {
            format!("an answer of unit {} instead of unit {}", frame[6], request.unit)
        }
        Ok(Some(_)) => "an answer to another request (it came late, or has another length)".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::modbus::Table;

    const REQUEST: Request = Request { unit: 1, table: Table::Holding, address: 0x1234, count: 2 };

    fn reply(number: u8) -> Vec<u8> {
        vec![0, number, 0, 0, 0, 7, 1, 3, 4, 0, 1, 0, 2]
    }

    fn check(bytes: &[u8], expected: Option<&[u8]>) {
        let found = match find(&REQUEST, 9, bytes) {
            Found::Data { data, .. } => Some(data),
            _ => None,
        };
        assert_eq!(found, expected, "{bytes:?}");
    }

    #[test]
    fn a_request_has_the_standard_form() {
        assert_eq!(encode(&REQUEST, 0x0102), [1, 2, 0, 0, 0, 6, 1, 3, 0x12, 0x34, 0, 2]);
    }

    #[test]
    fn only_the_reply_under_the_same_number_counts() {
        let data: &[u8] = &[0, 1, 0, 2];
        check(&reply(9), Some(data));
        check(&reply(8), None);
        check(&[reply(8), reply(9)].concat(), Some(data));
        check(&reply(9)[..12], None);
        let other_unit = [&reply(9)[..6], &[2], &reply(9)[7..]].concat();
        check(&other_unit, None);
        assert!(explain(&REQUEST, &other_unit).unwrap().contains("unit 2"));
        assert!(explain(&REQUEST, &[1, 3, 4, 0, 1, 0, 2, 9, 9]).unwrap().contains("framing = \"rtu\""));
    }

    #[test]
    fn a_refusal_is_recognised() {
        let bytes = [0, 9, 0, 0, 0, 3, 1, 0x83, 2];
        assert!(matches!(find(&REQUEST, 9, &bytes), Found::Exception { code: Exception(2), end: 9, .. }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = find(&REQUEST, 9, &bytes);
            let _ = explain(&REQUEST, &bytes);
        }
    }
}
