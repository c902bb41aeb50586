//! Recorded requests and replies beside the ones of today: which are the same, and which hold what is now asked for.

use super::{CRC, Found, Request, Table, find};

impl Request {
    /// Reads a request frame as [`Request::encode`] makes it.
    pub fn decode(frame: &[u8]) -> Option<Self> {
        let (body, crc) = frame.split_last_chunk::<2>()?;
        (CRC.checksum(body).to_le_bytes() == *crc).then(|| Self::decode_body(body)).flatten()
    }

    /// Reads a recorded request, with a CRC or behind the header of Modbus TCP.
    pub fn recorded(frame: &[u8]) -> Option<Self> {
        Self::decode(frame).or_else(|| Self::decode_body(without_number(frame)?.get(4..)?))
    }

    /// Reads unit, function, address and count.
    pub(super) fn decode_body(body: &[u8]) -> Option<Self> {
        let &[unit, function, ah, al, ch, cl] = body else { return None };
        let table = [Table::Coil, Table::Discrete, Table::Holding, Table::Input];
        let table = *table.get(usize::from(function).checked_sub(1)?)?;
        let (address, count) = (u16::from_be_bytes([ah, al]), u16::from_be_bytes([ch, cl]));
        (1..=table.most()).contains(&count).then_some(Self { unit, table, address, count })
    }
}

/// A frame of Modbus TCP without its transaction number.
fn without_number(frame: &[u8]) -> Option<&[u8]> {
    let &[_, _, 0, 0, high, low, ref rest @ ..] = frame else { return None };
    (rest.len() == usize::from(u16::from_be_bytes([high, low]))).then_some(&frame[2..])
}

/// Whether two requests ask the same; the transaction numbers of Modbus TCP do not matter.
pub fn is_same(recorded: &[u8], request: &[u8]) -> bool {
    recorded == request || without_number(recorded).is_some_and(|body| without_number(request) == Some(body))
}

/// Recorded replies under the number of the request that they answer now. One that answered another request keeps its
/// distance. What is no frame of Modbus TCP stays as it is.
pub fn renumbered(replies: &[u8], recorded: &[u8], request: &[u8]) -> Vec<u8> {
    let mut replies = replies.to_vec();
    let number = |frame: &[u8]| u16::from_be_bytes([frame[0], frame[1]]);
    if without_number(recorded).is_none() || without_number(request).is_none() {
        return replies;
    }
    let mut at = 0;
    while let Some(&[high, low, 0, 0, length_high, length_low]) = replies.get(at..at + 6) {
        let moved = number(&[high, low]).wrapping_sub(number(recorded)).wrapping_add(number(request));
        replies[at..at + 2].copy_from_slice(&moved.to_be_bytes());
        at += 6 + usize::from(u16::from_be_bytes([length_high, length_low]));
    }
    replies
}

/// Whether the reply to the recorded request holds what `request` asks for.
pub fn covers(recorded: &[u8], request: &[u8]) -> bool {
    let (Some(recorded), Some(request)) = (Request::decode(recorded), Request::decode(request)) else { return false };
    let end = |r: &Request| u32::from(r.address) + u32::from(r.count);
    recorded.unit == request.unit
        && recorded.table == request.table
        && recorded.address <= request.address
        && end(&request) <= end(&recorded)
}

/// What a device answers that does not have what is asked for: exception 2. `None` if it is no request.
pub fn refusal(request: &[u8]) -> Option<Vec<u8>> {
    let request = Request::decode(request)?;
    let mut frame = vec![request.unit, request.table.function() | 0x80, 2];
    let crc = CRC.checksum(&frame).to_le_bytes();
    frame.extend(crc);
    Some(frame)
}

/// The reply to `request`, cut out of a good recorded one that covers it.
pub fn part(recorded: &[u8], reply: &[u8], request: &[u8]) -> Option<Vec<u8>> {
    let (recorded, request) = (Request::decode(recorded)?, Request::decode(request)?);
    let Found::Data { data, .. } = find(&recorded, reply) else { return None };
    let skip = usize::from(request.address.checked_sub(recorded.address)?);
    let mut frame = vec![request.unit, request.table.function(), request.data_bytes() as u8];
    if request.table.is_bits() {
        let mut bits = vec![0u8; request.data_bytes()];
        for i in 0..usize::from(request.count) {
            let from = skip + i;
            bits[i / 8] |= (data.get(from / 8)? >> (from % 8) & 1) << (i % 8);
        }
        frame.extend(bits);
    } else {
        frame.extend(data.get(skip * 2..skip * 2 + request.data_bytes())?);
    }
    let crc = CRC.checksum(&frame).to_le_bytes();
    frame.extend(crc);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(address: u16, count: u16) -> [u8; 8] {
        Request { unit: 1, table: Table::Input, address, count }.encode()
    }

    #[test]
    fn a_wider_reply_answers_a_narrower_request() {
        let recorded = input(10, 4);
        let mut reply = vec![1, 4, 8, 0, 1, 0, 2, 0, 3, 0, 4];
        reply.extend(CRC.checksum(&reply).to_le_bytes());
        let request = input(12, 1);
        assert!(covers(&recorded, &request) && !covers(&request, &recorded));
        let part = part(&recorded, &reply, &request).unwrap();
        assert_eq!(part[..5], [1, 4, 2, 0, 3]);
        let asked = Request::decode(&request).unwrap();
        assert!(matches!(find(&asked, &part), Found::Data { data: &[0, 3], .. }));
    }

    #[test]
    fn transaction_numbers_do_not_matter() {
        let frame = |number: u8| [0, number, 0, 0, 0, 6, 1, 3, 0, 0, 0, 1];
        assert!(is_same(&frame(1), &frame(9)) && !is_same(&frame(1), &input(0, 1)));
        let reply = |number: u8| vec![0, number, 0, 0, 0, 5, 1, 3, 2, 0, 7];
        assert_eq!(renumbered(&reply(1), &frame(1), &frame(9)), reply(9));
        assert_eq!(renumbered(&reply(2), &frame(1), &frame(9)), reply(10));
    }

    #[test]
    fn a_request_is_read_back_as_it_was_made() {
        let request = Request { unit: 247, table: Table::Coil, address: 65_000, count: 2000 };
        assert_eq!(Request::decode(&request.encode()), Some(request));
        assert_eq!(Request::decode(&[1, 4, 0, 0, 0, 2, 0, 0]), None);
        assert_eq!(Request::decode(&[]), None);
    }
}
