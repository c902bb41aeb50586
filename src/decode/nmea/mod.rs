//! NMEA 0183: sentences out of a stream, readings out of sentences.
//!
//! A sentence begins with `$`, wherever that stands: what was cut off before it is told and passed over. Its checksum must
//! fit. Sentences nobody here knows, proprietary ones and AIS are ordinary traffic and say nothing.
//!
//! A position's time: RMC and ZDA name date and time; GGA, GLL and GNS only the time of day, to which the last date heard
//! is added. A time that is further from the arrival than half a roll-over of the GPS week (such receivers report 19.6
//! years back), or that is not believed for another reason, gives way to the arrival.

mod fields;
mod sentence;
mod time;

use self::fields::Cells;
use self::time::Dates;
use super::telegram::{Context, Decoder, Telegram};

/// Longest sentence: the standard allows 82 characters, some receivers send up to twice as many.
pub const MAX_SENTENCE_BYTES: usize = 256;

/// Whose time a reading has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    /// The receiver's, where a sentence names it.
    #[default]
    Gps,
    /// The gateway's.
    Arrival,
}

/// A decoder of sentences.
#[derive(Debug)]
pub struct Nmea {
    held: Vec<u8>,
    state: State,
    is_first: bool,
    time: Time,
    checksum_required: bool,
    dates: Dates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but the rest of something.
    Outside,
    Inside,
    /// It was too long; passed over up to its end.
    TooLong,
    /// In the block of tags that may stand before a sentence.
    Tags,
}

impl Nmea {
    /// A decoder; without `checksum_required` a sentence may lack its checksum.
    pub fn new(time: Time, checksum_required: bool) -> Self {
        let (held, dates) = (Vec::new(), Dates::default());
        Self { held, state: State::Outside, is_first: true, time, checksum_required, dates }
    }

    fn begin(&mut self, byte: u8, out: &mut Vec<Telegram>) {
        self.cut(out, "is cut off: another begins before its end");
        self.held.clear();
        self.held.push(byte);
        self.state = State::Inside;
        self.is_first = false;
    }

    /// What is held will not be completed.
    fn cut(&mut self, out: &mut Vec<Telegram>, why: &str) {
        let held = std::mem::take(&mut self.held);
        if held.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let is_first = std::mem::take(&mut self.is_first);
        out.push(match self.state {
            State::Inside => Telegram::refused(&held, "sentence", why),
            State::Outside if is_first => {
                Telegram::fragment(&held, "the rest of a sentence that began before we listened")
            }
            State::Outside => {
                Telegram::refused(&held, "sentence", "does not begin with $ (noise, or a wrong baud rate or format)")
            }
            State::TooLong | State::Tags => return,
        });
    }

    fn whole(&mut self, context: &Context<'_>, out: &mut Vec<Telegram>) {
        let held = std::mem::take(&mut self.held);
        let mut telegram = Telegram::of(&held);
        match self.body(&held) {
            Ok(body) if held[0] == b'$' => self.read(body, context, &mut telegram),
            // AIS and other encapsulated sentences.
            Ok(_) => {}
            Err(why) => telegram.refuse("sentence", why),
        }
        out.push(telegram);
    }

    /// What stands between `$` and `*`, if the checksum fits.
    fn body<'a>(&self, sentence: &'a [u8]) -> Result<&'a str, String> {
        let text = std::str::from_utf8(&sentence[1..]).ok().filter(|text| text.is_ascii());
        let text = text.ok_or("is no text (damaged, or a wrong baud rate or format)")?;
        let Some((body, told)) = text.rsplit_once('*') else {
            if self.checksum_required {
                return Err("has no checksum (set checksum = \"optional\" if the device never sends one)".to_owned());
            }
            return Ok(text.trim_end());
        };
        let told = told.trim_end();
        let told_sum = (told.len() == 2).then(|| u8::from_str_radix(told, 16).ok()).flatten();
        let told_sum = told_sum.ok_or_else(|| format!("{} after * is no checksum", super::quoted(told)))?;
        let sum = body.bytes().fold(0, |sum, b| sum ^ b);
        if sum == told_sum { Ok(body) } else { Err(format!("checksum is {sum:02X} and not {told_sum:02X}")) }
    }

    fn read(&mut self, body: &str, context: &Context<'_>, telegram: &mut Telegram) {
        let mut cells = Cells::new(body);
        let address = cells.text().to_owned();
        // `P` and a manufacturer: proprietary.
        if address.starts_with('P') || address.len() != 5 || !address.is_ascii() {
            return;
        }
        let kind = &address[2..];
        self.dates.hear(kind, &cells, context);
        sentence::read(kind, &mut cells, telegram);
        if self.time == Time::Gps {
            let at = self.dates.time(kind, &cells, context);
            telegram.measures.iter_mut().for_each(|measure| measure.at = at);
        }
    }
}

impl Decoder for Nmea {
    fn push(&mut self, bytes: &[u8], context: &Context<'_>, out: &mut Vec<Telegram>) {
        for &byte in bytes {
            match byte {
                // A tag block (NMEA 4.10) before the sentence: `\s:st1,c:1772366399*00\`.
                b'\\' if self.state == State::Outside && self.held.is_empty() => self.state = State::Tags,
                b'\\' if self.state == State::Tags => self.state = State::Outside,
                _ if self.state == State::Tags && !matches!(byte, b'\r' | b'\n') => {}
                b'$' => self.begin(byte, out),
                b'!' if self.held.is_empty() => self.begin(byte, out),
                b'\r' | b'\n' => {
                    match self.state {
                        State::Inside => self.whole(context, out),
                        State::Outside | State::TooLong | State::Tags => self.cut(out, ""),
                    }
                    self.state = State::Outside;
                }
                _ if self.held.len() < MAX_SENTENCE_BYTES => self.held.push(byte),
                _ if self.state == State::TooLong => {}
                _ => {
                    let why = format!("has no end within {MAX_SENTENCE_BYTES} bytes");
                    let held = std::mem::take(&mut self.held);
                    out.push(Telegram::refused(&held, "sentence", why));
                    self.state = State::TooLong;
                    // Full, so that nothing more is kept.
                    self.held = held;
                }
            }
        }
    }

    fn restart(&mut self) {
        self.held.clear();
        self.state = State::Outside;
        self.is_first = true;
    }

    fn finish(&mut self, context: &Context<'_>, out: &mut Vec<Telegram>) {
        // A recording may end without a line end; a checksum that fits says that nothing is missing.
        if self.state == State::Inside && self.held.contains(&b'*') && self.body(&self.held).is_ok() {
            self.whole(context, out);
        }
        self.cut(out, "is cut off: the stream ends before it does");
        self.restart();
    }
}

#[cfg(test)]
mod tests;
