//! Readouts of meters as lines of text (IEC 62056-21, DSMR P1): `/` and the identification, data lines such as
//! `1-0:1.8.1(004.426*kWh)`, and `!`; sometimes between STX and ETX with a block check, sometimes with a CRC after `!`.
//!
//! The characters have seven bits. A port at 8N1 shows a 7E1 meter with its parity in bit 7: that is recognised by the
//! parity of the whole telegram, told, and taken off.

pub mod dsmr;
pub mod iec;
mod object;
mod telegram_bounds;

use super::telegram::{Context, Decoder, Telegram, has_even_parity};
use telegram_bounds::Bounds;

/// Longest telegram: a P1 text message (2 KiB) and all logs are below half of it.
pub const MAX_TELEGRAM_BYTES: usize = 16 << 10;

/// What is told when a 7E1 meter is read through an 8N1 port.
const SEEN_THROUGH_8N1: &str = "the meter sends 7E1 and the port is at 8N1: set format = \"7E1\"";

/// Which protocol reads the telegrams.
pub type Read = fn(&[u8], &Context<'_>, &mut Telegram);

/// Finds telegrams in a stream.
#[derive(Debug)]
pub struct Readout {
    bounds: Bounds,
    read: Read,
}

impl Readout {
    /// A decoder whose telegrams are read by `read`.
    pub fn new(read: Read) -> Self {
        Self { bounds: Bounds::default(), read }
    }

    /// A whole telegram as it came: takes off the parity, and reads it.
    fn whole(&self, raw: &[u8], context: &Context<'_>) -> Telegram {
        let mut telegram = Telegram::of(raw);
        let text = match seven_bits(raw) {
            Ok(text) => text,
            Err(why) => {
                telegram.refuse("telegram", why);
                return telegram;
            }
        };
        telegram.hint = text.as_ref().map(|_| SEEN_THROUGH_8N1);
        (self.read)(text.as_deref().unwrap_or(raw), context, &mut telegram);
        telegram
    }
}

impl Decoder for Readout {
    fn push(&mut self, bytes: &[u8], context: &Context<'_>, out: &mut Vec<Telegram>) {
        for &byte in bytes {
            let Some(piece) = self.bounds.take(byte) else { continue };
            out.extend(match piece {
                telegram_bounds::Piece::Whole(raw) => Some(self.whole(&raw, context)),
                telegram_bounds::Piece::Cut(raw) => {
                    Some(Telegram::refused(&raw, "telegram", "is cut off: another begins before its end"))
                }
                telegram_bounds::Piece::TooLong(raw) => {
                    Some(Telegram::refused(&raw, "telegram", format!("has no end within {MAX_TELEGRAM_BYTES} bytes")))
                }
                telegram_bounds::Piece::Outside(raw) => outside(&raw),
            });
        }
    }

    fn restart(&mut self) {
        self.bounds = Bounds::default();
    }

    fn finish(&mut self, context: &Context<'_>, out: &mut Vec<Telegram>) {
        let (raw, inside) = std::mem::take(&mut self.bounds).into_held();
        let last = raw.rsplit(|b| b & 0x7f == b'\n').next().unwrap_or_default();
        if inside && last.first().is_some_and(|b| b & 0x7f == b'!') {
            // A recording may end without a line end; the checksum tells whether something is missing.
            out.push(self.whole(&raw, context));
        } else if inside {
            out.push(Telegram::refused(&raw, "telegram", "is cut off: the stream ends before it does"));
        } else {
            out.extend(outside(&raw));
        }
    }
}

/// Bytes between two telegrams: adapters add lines of their own. Only what looks like data lines is worth a word.
fn outside(raw: &[u8]) -> Option<Telegram> {
    let looks_like_data = raw.iter().any(|b| b & 0x7f == b'(') && raw.iter().any(|b| b & 0x7f == b')');
    looks_like_data.then(|| Telegram::fragment(raw, "the rest of a telegram that began before we listened"))
}

/// The characters without their parity, if they have one; why not, if it is wrong.
fn seven_bits(raw: &[u8]) -> Result<Option<Vec<u8>>, String> {
    // The block check itself may have any value; so may a byte that is no character.
    let high = raw.iter().filter(|b| **b >= 0x80).count();
    if high == 0 {
        return Ok(None);
    }
    let odd = raw.iter().filter(|b| !has_even_parity(**b)).count();
    if odd == 0 {
        return Ok(Some(raw.iter().map(|b| b & 0x7f).collect()));
    }
    let seven = high * 4 > raw.len() && odd * 10 < raw.len();
    Err(if seven {
        format!("{odd} of its characters have a wrong parity (damaged on the way; and {SEEN_THROUGH_8N1})")
    } else {
        format!("{high} of its bytes are no characters (noise, or a wrong baud rate or format)")
    })
}

/// The lines between the identification and the `!`, without STX; `None` if there is no identification.
fn lines(text: &[u8]) -> impl Iterator<Item = &str> {
    text.split(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .map(|line| line.strip_prefix(&[0x02]).unwrap_or(line))
        .take_while(|line| !line.starts_with(b"!"))
        // Seven bits are always UTF-8.
        .filter_map(|line| std::str::from_utf8(line).ok())
        .filter(|line| !line.is_empty() && !line.starts_with('/'))
}

#[cfg(test)]
mod tests;
