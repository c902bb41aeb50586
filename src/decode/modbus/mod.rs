//! Modbus RTU frames (Modbus over Serial Line V1.02): requests out, replies found among whatever the line brings.
//!
//! Only the reading functions 1 to 4 exist here: the gateway cannot write to a device. A frame carries no length and no
//! request number, so a reply is recognised by unit, function, byte count and CRC, wherever among the bytes it begins.

mod register;
pub mod replay;
pub mod tcp;

use std::fmt;

use crc::{CRC_16_MODBUS, Crc};

pub use register::{Absent, Order, Point, Shape, Type};

/// Longest frame on the line (V1.02, section 2.5.1).
pub const MAX_FRAME_BYTES: usize = 256;
/// Most registers one request may ask for (application protocol V1.1b3, section 6.3).
pub const MAX_REGISTERS: u16 = 125;
/// Most coils or discrete inputs one request may ask for (section 6.1).
pub const MAX_BITS: u16 = 2000;
/// Length of a request, and of its echo.
pub const REQUEST_BYTES: usize = 8;
/// Length of an exception reply.
const EXCEPTION_BYTES: usize = 5;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_MODBUS);

/// One of the four tables of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// Single bits that can be switched (function 1).
    Coil,
    /// Single bits, read only (function 2).
    Discrete,
    /// Registers of 16 bits that can be written (function 3).
    Holding,
    /// Registers of 16 bits, read only (function 4).
    Input,
}

impl Table {
    /// The function code that reads it.
    pub const fn function(self) -> u8 {
        match self {
            Self::Coil => 1,
            Self::Discrete => 2,
            Self::Holding => 3,
            Self::Input => 4,
        }
    }

    /// The other table of the same kind of entries.
    pub const fn sibling(self) -> Self {
        match self {
            Self::Coil => Self::Discrete,
            Self::Discrete => Self::Coil,
            Self::Holding => Self::Input,
            Self::Input => Self::Holding,
        }
    }

    /// Whether its entries are single bits.
    pub const fn is_bits(self) -> bool {
        matches!(self, Self::Coil | Self::Discrete)
    }

    /// Most entries one request may ask for.
    pub const fn most(self) -> u16 {
        if self.is_bits() { MAX_BITS } else { MAX_REGISTERS }
    }
}

/// A question to one device: `count` entries of a table from `address` on. `count` is from 1 to [`Table::most`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The device's address on the line, 1 to 247.
    pub unit: u8,
    /// Which table.
    pub table: Table,
    /// The first entry, counted from zero.
    pub address: u16,
    /// How many entries.
    pub count: u16,
}

impl Request {
    /// The frame to send.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let [ah, al] = self.address.to_be_bytes();
        let [ch, cl] = self.count.to_be_bytes();
        let mut frame = [self.unit, self.table.function(), ah, al, ch, cl, 0, 0];
        let crc = CRC.checksum(&frame[..6]).to_le_bytes();
        frame[6..].copy_from_slice(&crc);
        frame
    }

    /// How many bytes of data the reply holds.
    pub const fn data_bytes(&self) -> usize {
        if self.table.is_bits() { (self.count as usize).div_ceil(8) } else { self.count as usize * 2 }
    }

    /// How long the reply's frame is.
    pub const fn reply_bytes(&self) -> usize {
        3 + self.data_bytes() + 2
    }
}

/// What was found among the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The data of the reply to the request; `end` is the first byte after its frame.
    Data {
        /// As many bytes as [`Request::data_bytes`] says.
        data: &'a [u8],
        /// The frame as it came.
        frame: &'a [u8],
        /// Where the rest begins.
        end: usize,
    },
    /// The device refuses.
    Exception {
        /// Why.
        code: Exception,
        /// The frame as it came.
        frame: &'a [u8],
        /// Where the rest begins.
        end: usize,
    },
    /// Nothing yet. Bytes before `keep` cannot be part of a reply any more.
    Nothing {
        /// The first byte that must be kept.
        keep: usize,
    },
}

/// Looks for the reply to `request`. Noise, frames of other devices and the echo of the request (which some RS-485
/// adapters return) are passed over. A reply that equals its own request byte for byte counts as its echo.
pub fn find<'a>(request: &Request, bytes: &'a [u8]) -> Found<'a> {
    let echo = request.encode();
    let function = request.table.function();
    let mut keep = None;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(&echo) {
            at += REQUEST_BYTES;
            continue;
        }
        match looks_like(rest, request.unit, function, request.data_bytes()) {
            Candidate::Whole(length) if crc_is_right(&rest[..length]) => {
                let (frame, end) = (&rest[..length], at + length);
                return if frame[1] == function {
                    Found::Data { data: &frame[3..length - 2], frame, end }
                } else {
                    Found::Exception { code: Exception(frame[2]), frame, end }
                };
            }
            Candidate::Part => keep = keep.or(Some(at)),
            _ if echo.starts_with(rest) => keep = keep.or(Some(at)),
            _ => {}
        }
        at += 1;
    }
    Found::Nothing { keep: keep.unwrap_or(bytes.len()) }
}

enum Candidate {
    Whole(usize),
    Part,
    No,
}

fn looks_like(bytes: &[u8], unit: u8, function: u8, data_bytes: usize) -> Candidate {
    match *bytes {
        [u, ..] if u != unit => Candidate::No,
        [_] => Candidate::Part,
        [_, f, ..] if f == function | 0x80 => length_or_part(bytes, EXCEPTION_BYTES),
        [_, f, ..] if f != function => Candidate::No,
        [_, _, n, ..] if usize::from(n) != data_bytes => Candidate::No,
        _ => length_or_part(bytes, 3 + data_bytes + 2),
    }
}

fn length_or_part(bytes: &[u8], length: usize) -> Candidate {
    if bytes.len() >= length { Candidate::Whole(length) } else { Candidate::Part }
}

fn crc_is_right(frame: &[u8]) -> bool {
    let Some((body, crc)) = frame.split_last_chunk::<2>() else { return false };
    CRC.checksum(body).to_le_bytes() == *crc
}

/// Whether `bytes` hold something as long as the reply to `request` that begins like it: an answer that came damaged.
pub fn is_damaged_reply(request: &Request, bytes: &[u8]) -> bool {
    let (function, data_bytes) = (request.table.function(), request.data_bytes());
    (0..bytes.len())
        .any(|at| matches!(looks_like(&bytes[at..], request.unit, function, data_bytes), Candidate::Whole(_)))
}

/// What bytes that hold no reply look like, in words for an operator; `None` if there are none but echoes.
pub fn explain(request: &Request, bytes: &[u8]) -> Option<String> {
    let echo = request.encode();
    let mut rest = bytes;
    while let Some(after) = rest.strip_prefix(&echo) {
        rest = after;
    }
    let (unit, function) = (request.unit, request.table.function());
    for at in 0..rest.len() {
        let tail = &rest[at..];
        if let Some(other) = whole_foreign_frame(tail) {
            return Some(match other {
                [u, ..] if *u != unit => format!("an answer of unit {u} instead of unit {unit}"),
                [_, f, ..] if f & 0x7f != function => {
                    format!("an answer to function {} instead of {function}", f & 0x7f)
                }
                _ => {
                    format!("an answer of another length ({} data bytes instead of {})", other[2], request.data_bytes())
                }
            });
        }
        if let Candidate::Whole(length) = looks_like(tail, unit, function, request.data_bytes()) {
            let (body, crc) = tail[..length].split_at(length - 2);
            let swapped = CRC.checksum(body).to_be_bytes() == crc;
            let hint = if swapped { " (its bytes are swapped: the device does not follow the standard)" } else { "" };
            return Some(format!("an answer with a wrong CRC{hint}"));
        }
    }
    match rest.len() {
        0 => None,
        n => Some(format!("{n} bytes that are no answer (noise, a wrong baud rate or format, or a cut-off frame)")),
    }
}

/// A frame with a right CRC at the beginning of `bytes` that is shaped like a reply of any device to functions 1 to 4.
fn whole_foreign_frame(bytes: &[u8]) -> Option<&[u8]> {
    let &[_, function, third, ..] = bytes else { return None };
    let length = match function {
        1..=4 => 3 + usize::from(third) + 2,
        0x81..=0x84 => EXCEPTION_BYTES,
        _ => return None,
    };
    bytes.get(..length).filter(|frame| crc_is_right(frame))
}

/// Why a device refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception(pub u8);

impl fmt::Display for Exception {
    /// `exception 2: illegal data address`, in the words of the standard (V1.1b3, section 7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            1 => "illegal function",
            2 => "illegal data address",
            3 => "illegal data value",
            4 => "server device failure",
            5 => "acknowledge (the device needs more time)",
            6 => "server device busy",
            7 => "negative acknowledge",
            8 => "memory parity error",
            10 => "gateway path unavailable",
            11 => "gateway target device failed to respond",
            _ => "not in the standard",
        };
        write!(f, "exception {}: {words}", self.0)
    }
}

#[cfg(test)]
mod tests;
