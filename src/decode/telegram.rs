//! What the decoders of byte streams have in common: bytes go in as they come, whole telegrams come out.
//!
//! A decoder holds at most one unfinished telegram, finds the beginning of the next one after any damage, and judges
//! every telegram by its own checksum. How the bytes were cut into pieces never changes what comes out.

use std::fmt;

use super::times::Local;
use crate::model::{Admission, LossReason, Timestamp, Value};

/// What a telegram is read with.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// When it arrived, and what a time without an offset means.
    pub local: Local<'a>,
    /// Which times of its own are believed.
    pub admission: Admission,
}

impl Context<'_> {
    /// A time of the telegram's own, if it can be believed; the word of the ledger and a reason otherwise.
    pub fn believed(&self, at: Timestamp) -> Result<Timestamp, (LossReason, String)> {
        self.admission.check(at, self.local.arrival).map(|()| at).map_err(|why| (why.reason(), why.to_string()))
    }
}

/// One named quantity of a telegram.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Its name in the words of the protocol: an OBIS code, a column, a register's name.
    pub name: String,
    /// Its value as the device wrote it.
    pub value: Value,
    /// Its unit as the device wrote it.
    pub unit: Option<String>,
    /// Its own time, if it has one that is believed.
    pub at: Option<Timestamp>,
    /// The number of the meter behind the meter that it comes from (M-Bus), 0 for the device itself.
    pub channel: u8,
}

impl Measure {
    /// A quantity of the device itself, measured when it arrived.
    pub fn new(name: impl Into<String>, value: Value) -> Self {
        Self { name: name.into(), value, unit: None, at: None, channel: 0 }
    }

    /// With a unit.
    pub fn in_unit(self, unit: &str) -> Self {
        Self { unit: Some(unit.to_owned()), ..self }
    }
}

/// A quantity that was understood, and is not taken because of its own time.
#[derive(Clone, Debug, PartialEq)]
pub struct Untimely {
    /// The quantity, with that time.
    pub measure: Measure,
    /// The word for it in the loss ledger.
    pub reason: LossReason,
    /// What is wrong with the time.
    pub why: String,
}

/// Something that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which part of the telegram.
    pub what: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// One telegram, or a piece of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telegram {
    /// What it consists of.
    pub bytes: Vec<u8>,
    /// What it says.
    pub measures: Vec<Measure>,
    /// What it says of times that are not believed.
    pub untimely: Vec<Untimely>,
    /// What of it is not taken.
    pub refused: Vec<Refusal>,
    /// What it says about quantities without a value (no fix, a declared sentinel): nothing is wrong.
    pub absent: Vec<Refusal>,
    /// It began before we listened: nobody is to blame.
    pub is_fragment: bool,
    /// What an operator should know about the line, though the telegram is good.
    pub hint: Option<&'static str>,
}

impl Telegram {
    /// An empty one.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }

    /// One that is not taken at all.
    pub fn refused(bytes: &[u8], what: &str, why: impl Into<String>) -> Self {
        let mut telegram = Self::of(bytes);
        telegram.refuse(what, why);
        telegram
    }

    /// A piece whose beginning was never heard.
    pub fn fragment(bytes: &[u8], why: &str) -> Self {
        Self { is_fragment: true, ..Self::refused(bytes, "beginning", why) }
    }

    /// One more part is not taken.
    pub fn refuse(&mut self, what: &str, why: impl Into<String>) {
        self.refused.push(Refusal { what: what.to_owned(), why: why.into() });
    }

    /// One more quantity has no value, and that is no fault.
    pub fn note_absent(&mut self, what: &str, why: impl Into<String>) {
        self.absent.push(Refusal { what: what.to_owned(), why: why.into() });
    }
}

/// A decoder of a stream of bytes.
pub trait Decoder: fmt::Debug + Send {
    /// Takes the next bytes; whatever is complete is added to `out`.
    fn push(&mut self, bytes: &[u8], context: &Context<'_>, out: &mut Vec<Telegram>);
    /// The stream begins anew (or its silence says that a telegram is over): what was held is forgotten.
    fn restart(&mut self);
    /// The stream is over: what was held is told.
    fn finish(&mut self, context: &Context<'_>, out: &mut Vec<Telegram>);
}

/// Whether a byte has even parity over its eight bits: a 7E1 character seen through an 8N1 port.
pub(super) fn has_even_parity(byte: u8) -> bool {
    byte.count_ones().is_multiple_of(2)
}

/// What bytes that cannot be read look like, for whoever set up the port.
pub fn line_advice(bytes: &[u8]) -> Option<&'static str> {
    /// Fewer bytes tell nothing.
    const ENOUGH: usize = 12;
    let share = |is: fn(&u8) -> bool| bytes.iter().filter(|b| is(b)).count() * 100 / bytes.len().max(1);
    let high = share(|b| *b >= 0x80);
    let even = share(|b| has_even_parity(*b));
    match () {
        () if bytes.len() < ENOUGH => None,
        () if share(|b| matches!(b, 0 | 0x80 | 0xc0 | 0xe0 | 0xf0 | 0xf8 | 0xfc | 0xfe | 0xff)) >= 60 => {
            Some("the baud rate is probably wrong (or the line's polarity is)")
        }
        () if high >= 15 && even == 100 => Some("it looks like 7E1 seen through 8N1: set format = \"7E1\""),
        () if high >= 15 && even == 0 => Some("it looks like 7O1 seen through 8N1: set format = \"7O1\""),
        () if high >= 40 => Some("the baud rate or format is probably wrong"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_format_is_recognised_by_its_bytes() {
        let check = |bytes: &[u8], expected: Option<&str>| match (line_advice(bytes), expected) {
            (Some(advice), Some(words)) => assert!(advice.contains(words), "{advice}"),
            (advice, expected) => assert_eq!(advice, expected),
        };
        let text = b"temp=21.5 hum=44\r\n";
        let with_parity =
            |odd: u32| -> Vec<u8> { text.iter().map(|b| b | (((b.count_ones() + odd) % 2) as u8) << 7).collect() };
        check(text, None);
        check(&with_parity(0), Some("7E1"));
        check(&with_parity(1), Some("7O1"));
        check(&[0xff, 0, 0xfe, 0, 0, 0x80, 0xf8, 0, 0xff, 0, 0, 0], Some("baud rate"));
        check(&with_parity(0)[..5], None);
    }
}

#[cfg(test)]
pub(crate) mod sample_tests;
