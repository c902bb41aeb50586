//! Binary frames as their makers describe them: start bytes, a length, a checksum, and fields at fixed places.
//!
//! A frame counts only if its checksum fits. After any damage the next start bytes are looked for inside what was already
//! received, so that a cut frame never eats the one after it. Bytes that are no part of any frame are passed over.

mod checksum;
mod field;

pub use checksum::{Checksum, Kind};
pub use field::{Column, Type};

use super::telegram::{Context, Decoder, Telegram};

/// Longest frame.
pub const MAX_FRAME_BYTES: usize = 4096;

/// How long a frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Always so many bytes, all counted.
    Fixed(usize),
    /// As the frame says.
    Told {
        /// Where the number stands.
        at: usize,
        /// How many bytes it has: 1 or 2.
        bytes: usize,
        /// Whether its low byte comes first.
        little: bool,
        /// What is added to it, to get the length of the whole frame.
        add: usize,
        /// The shortest and the longest frame.
        bounds: (usize, usize),
    },
}

/// A frame's form. Checked where the settings are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// What a frame begins with; not empty.
    pub start: Vec<u8>,
    /// How long it is.
    pub length: Length,
    /// How it is protected.
    pub checksum: Option<Checksum>,
    /// What is in it.
    pub columns: Vec<Column>,
}

impl Length {
    /// How many bytes must be there before the length is known.
    fn known_after(&self) -> usize {
        match self {
            Self::Fixed(_) => 0,
            Self::Told { at, bytes, .. } => at + bytes,
        }
    }

    /// The whole frame's length, from its beginning; `None` if it cannot be a frame.
    fn of(&self, frame: &[u8]) -> Option<usize> {
        match *self {
            Self::Fixed(length) => Some(length),
            Self::Told { at, bytes, little, add, bounds } => {
                let told = frame.get(at..at + bytes)?;
                let join = |sum: usize, b: &u8| sum << 8 | usize::from(*b);
                let told = if little { told.iter().rev().fold(0, join) } else { told.iter().fold(0, join) };
                Some(told + add).filter(|length| (bounds.0..=bounds.1).contains(length))
            }
        }
    }
}

/// A decoder of frames of one form.
#[derive(Debug)]
pub struct Frames {
    form: Form,
    held: Vec<u8>,
    /// Damage in front of `held` that is not yet told.
    damaged: Vec<u8>,
    why: String,
}

impl Frames {
    /// A decoder.
    pub fn new(form: Form) -> Self {
        Self { form, held: Vec::new(), damaged: Vec::new(), why: String::new() }
    }

    fn advance(&mut self, out: &mut Vec<Telegram>) {
        loop {
            self.find_start();
            if self.held.len() < self.form.start.len().max(self.form.length.known_after()) {
                return;
            }
            let Some(length) = self.form.length.of(&self.held) else {
                self.skip(0, "a length that no frame has");
                continue;
            };
            if self.held.len() < length {
                return;
            }
            match self.form.checksum.as_ref().map_or(Ok(()), |checksum| checksum.check(&self.held[..length])) {
                Ok(()) => {
                    self.tell_damage(out);
                    let rest = self.held.split_off(length);
                    let frame = std::mem::replace(&mut self.held, rest);
                    out.push(self.read(&frame));
                }
                Err(why) => self.skip(length, &why),
            }
        }
    }

    /// Throws away what cannot be the beginning of a frame; behind a damaged one it is part of the damage.
    fn find_start(&mut self) {
        let start = &self.form.start;
        let fits = |at: usize| {
            let rest = &self.held[at..];
            rest.starts_with(start) || start.starts_with(rest)
        };
        let keep = (0..self.held.len()).find(|at| fits(*at)).unwrap_or(self.held.len());
        let passed = self.held.drain(..keep);
        if !self.why.is_empty() {
            let room = MAX_FRAME_BYTES.saturating_sub(self.damaged.len());
            self.damaged.extend(passed.take(room));
        }
    }

    /// What begins here is no frame: look on behind its first byte.
    fn skip(&mut self, length: usize, why: &str) {
        if self.why.is_empty() {
            let start = &self.form.start;
            let inner = self.held[1..length.max(1)].windows(start.len()).position(|window| window == start);
            self.why = match inner {
                Some(at) => format!("{} of {length} bytes, then a new start", at + 1),
                None => why.to_owned(),
            };
        }
        let first = self.held.remove(0);
        if self.damaged.len() < MAX_FRAME_BYTES {
            self.damaged.push(first);
        }
    }

    fn tell_damage(&mut self, out: &mut Vec<Telegram>) {
        if !self.why.is_empty() {
            out.push(Telegram::refused(&self.damaged, "frame", std::mem::take(&mut self.why)));
            self.damaged.clear();
        }
    }

    fn read(&self, frame: &[u8]) -> Telegram {
        let mut telegram = Telegram::of(frame);
        for column in &self.form.columns {
            column.take(frame, &mut telegram);
        }
        telegram
    }
}

impl Decoder for Frames {
    fn push(&mut self, bytes: &[u8], _: &Context<'_>, out: &mut Vec<Telegram>) {
        self.held.extend_from_slice(bytes);
        self.advance(out);
    }

    fn restart(&mut self) {
        self.held.clear();
        self.damaged.clear();
        self.why.clear();
    }

    fn finish(&mut self, _: &Context<'_>, out: &mut Vec<Telegram>) {
        if self.held.len() >= self.form.start.len() && self.why.is_empty() {
            let wanted = self.form.length.of(&self.held);
            let of = wanted.map_or_else(String::new, |length| format!(" of {length}"));
            self.why = format!("{}{of} bytes, then nothing", self.held.len());
            self.damaged = std::mem::take(&mut self.held);
        }
        self.tell_damage(out);
        self.restart();
    }
}

#[cfg(test)]
mod tests;
