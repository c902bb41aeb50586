//! SML (Smart Message Language), as German meters push it: files out of a stream, values out of files.
//!
//! On the wire a file stands between `1B1B1B1B 01010101` and `1B1B1B1B 1A`, the number of padding bytes and a CRC over all
//! of it; the escape sequence inside it is doubled. Each message has a CRC of its own. Both must fit, as CRC-16/X-25 or as
//! the CRC-16/KERMIT that some makers compute instead. Counts of seconds since power-up are no times: the arrival counts.

mod list;
mod tree;

use super::telegram::{Context, Decoder, Telegram};

/// Longest file: ordinary ones have some hundred bytes.
pub const MAX_FILE_BYTES: usize = 16 << 10;

const ESCAPE: [u8; 4] = [0x1b; 4];
const BEGIN: [u8; 8] = [0x1b, 0x1b, 0x1b, 0x1b, 1, 1, 1, 1];
const END: u8 = 0x1a;

/// A decoder of SML files.
#[derive(Debug, Default)]
pub struct Sml {
    held: Vec<u8>,
    /// Whether `held` begins with [`BEGIN`].
    inside: bool,
    /// How much of `held` is already looked at.
    at: usize,
    /// The content without escapes.
    content: Vec<u8>,
}

/// What stands at a place in a file.
enum Step {
    /// More bytes are needed.
    Wait,
    /// So many bytes of content.
    Content(usize),
    /// A doubled escape sequence.
    Doubled,
    /// The end of the file, with its padding.
    End(usize),
    /// Another file begins.
    Begin,
    /// An escape sequence that means nothing.
    Bad,
}

impl Sml {
    fn step(&self) -> Step {
        let rest = &self.held[self.at..];
        let Some(escapes) = rest.first_chunk::<4>() else {
            return if rest.first().is_some_and(|b| *b != ESCAPE[0]) { Step::Content(1) } else { Step::Wait };
        };
        if *escapes != ESCAPE {
            let run = rest.iter().position(|b| *b == ESCAPE[0]).unwrap_or(rest.len());
            return Step::Content(run.max(1));
        }
        let Some(command) = rest.get(4..8) else { return Step::Wait };
        match *command {
            _ if *command == ESCAPE => Step::Doubled,
            _ if *command == BEGIN[4..] => Step::Begin,
            [END, padding, ..] if self.at.is_multiple_of(4) => Step::End(usize::from(padding)),
            // The content ends with such a byte, and the escape sequence begins after it.
            [0x1b, ..] => Step::Content(1),
            _ => Step::Bad,
        }
    }

    fn advance(&mut self, out: &mut Vec<Telegram>) {
        loop {
            if !self.inside && !self.find_begin() {
                return;
            }
            match self.step() {
                Step::Wait => return,
                Step::Content(count) => {
                    self.content.extend_from_slice(&self.held[self.at..self.at + count]);
                    self.at += count;
                }
                Step::Doubled => {
                    self.content.extend_from_slice(&ESCAPE);
                    self.at += 8;
                }
                Step::End(padding) => {
                    self.at += 8;
                    let rest = self.held.split_off(self.at);
                    let file = std::mem::replace(&mut self.held, rest);
                    out.push(read(&file, &self.content, padding));
                    self.leave();
                }
                Step::Begin => {
                    self.give_up(out, "is cut off: another begins before its end (are bytes lost on the way?)");
                }
                Step::Bad => {
                    self.at += 4;
                    self.give_up(out, "holds an escape sequence that means nothing (are bytes lost on the way?)");
                }
            }
            if self.inside && self.at > MAX_FILE_BYTES {
                self.give_up(out, "has no end (are bytes lost on the way?)");
            }
        }
    }

    /// Throws away what stands before the next file.
    fn find_begin(&mut self) -> bool {
        let found = self.held.windows(BEGIN.len()).position(|window| *window == BEGIN);
        // The beginning of a beginning may be there.
        let keep = found.unwrap_or_else(|| self.held.len().saturating_sub(BEGIN.len() - 1));
        self.held.drain(..keep);
        self.inside = found.is_some();
        self.at = if self.inside { BEGIN.len() } else { 0 };
        self.content.clear();
        self.inside
    }

    /// The file in hand is damaged up to `at`.
    fn give_up(&mut self, out: &mut Vec<Telegram>, why: &str) {
        let rest = self.held.split_off(self.at);
        let damaged = std::mem::replace(&mut self.held, rest);
        out.push(Telegram::refused(&damaged, "file", why));
        self.leave();
    }

    fn leave(&mut self) {
        self.inside = false;
        self.at = 0;
        self.content.clear();
    }
}

impl Decoder for Sml {
    fn push(&mut self, bytes: &[u8], _: &Context<'_>, out: &mut Vec<Telegram>) {
        self.held.extend_from_slice(bytes);
        self.advance(out);
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn finish(&mut self, _: &Context<'_>, out: &mut Vec<Telegram>) {
        if self.inside {
            self.at = self.held.len();
            self.give_up(out, "is cut off: the stream ends before it does");
        }
        self.restart();
    }
}

/// Reads a whole file: `wire` as it came, `content` without its escapes.
fn read(wire: &[u8], content: &[u8], padding: usize) -> Telegram {
    let mut telegram = Telegram::of(wire);
    let Some((body, told)) = wire.split_last_chunk::<2>() else { return telegram };
    if !tree::crc_fits(body, *told) {
        telegram.refuse("file", "its CRC does not fit (damaged, or bytes are lost on the way: is the port raw?)");
        return telegram;
    }
    let end = content.len().checked_sub(padding).filter(|_| padding < 4);
    let Some(content) = end.and_then(|end| content.get(..end)) else {
        telegram.refuse("file", "says that it is padded with more bytes than it has");
        return telegram;
    };
    if let Err(why) = list::read(content, &mut telegram) {
        telegram.measures.clear();
        telegram.refuse("file", why);
    }
    telegram
}

#[cfg(test)]
mod tests;
