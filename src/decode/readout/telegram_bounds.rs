//! Where a readout begins and ends, byte by byte; it looks at seven bits only, whatever the parity is.

use super::MAX_TELEGRAM_BYTES;

const STX: u8 = 0x02;
/// Most bytes kept of what stands between two telegrams.
const MAX_OUTSIDE_BYTES: usize = 1024;

/// A piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// From `/` (or STX) to the line end after `!`, or to the block check.
    Whole(Vec<u8>),
    /// It was not over when another began.
    Cut(Vec<u8>),
    /// It did not end.
    TooLong(Vec<u8>),
    /// What stood before a telegram.
    Outside(Vec<u8>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Between telegrams.
    #[default]
    Outside,
    Inside,
    /// So many bytes until the end.
    Tail(u8),
}

/// Holds one unfinished telegram.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    state: State,
    held: Vec<u8>,
    /// Where the line in hand begins.
    line: usize,
    is_block: bool,
}

impl Bounds {
    /// Takes a byte; gives what it completes.
    pub(super) fn take(&mut self, byte: u8) -> Option<Piece> {
        let character = byte & 0x7f;
        match self.state {
            State::Outside if character == b'/' || character == STX => self.begin(byte, Piece::Outside),
            State::Outside => {
                if self.held.len() < MAX_OUTSIDE_BYTES {
                    self.held.push(byte);
                }
                None
            }
            State::Inside if character == b'/' && self.held.len() == self.line => self.begin(byte, Piece::Cut),
            State::Inside => {
                self.held.push(byte);
                if character == STX {
                    self.is_block = true;
                    self.line = self.held.len();
                }
                if character == b'\n' {
                    return self.line_over();
                }
                (self.held.len() >= MAX_TELEGRAM_BYTES).then(|| self.end(Piece::TooLong))
            }
            State::Tail(left) => {
                self.held.push(byte);
                self.state = State::Tail(left - 1);
                (left == 1).then(|| self.end(Piece::Whole))
            }
        }
    }

    /// What is held, and whether it is the beginning of a telegram.
    pub(super) fn into_held(self) -> (Vec<u8>, bool) {
        (self.held, self.state != State::Outside)
    }

    /// Where in the line in hand another telegram begins, if the line was cut off: `1-0:1.8.1(00/ISk5\2MT382`.
    fn glued_at(&self) -> Option<usize> {
        let line = &self.held[self.line..];
        let at = line.iter().rposition(|b| b & 0x7f == b'/').filter(|at| *at > 0)?;
        let after = &line[at + 1..];
        let is_identification = after.len() > 4 && after[..3].iter().all(|b| (b & 0x7f).is_ascii_alphabetic());
        (is_identification && !after.iter().any(|b| b & 0x7f == b')')).then_some(self.line + at)
    }

    fn begin(&mut self, byte: u8, before: fn(Vec<u8>) -> Piece) -> Option<Piece> {
        let held = std::mem::replace(&mut self.held, vec![byte]);
        self.state = State::Inside;
        self.is_block = byte & 0x7f == STX;
        self.line = usize::from(self.is_block);
        (!held.is_empty()).then(|| before(held))
    }

    fn line_over(&mut self) -> Option<Piece> {
        if self.line > 0
            && let Some(at) = self.glued_at()
        {
            let next = self.held.split_off(at);
            let cut = std::mem::replace(&mut self.held, next);
            self.line = self.held.len();
            self.is_block = false;
            return Some(Piece::Cut(cut));
        }
        let is_last = self.held.get(self.line).is_some_and(|b| b & 0x7f == b'!');
        self.line = self.held.len();
        match (is_last, self.is_block) {
            (false, _) => (self.held.len() >= MAX_TELEGRAM_BYTES).then(|| self.end(Piece::TooLong)),
            (true, false) => Some(self.end(Piece::Whole)),
            // ETX and the block check.
            (true, true) => {
                self.state = State::Tail(2);
                None
            }
        }
    }

    fn end(&mut self, piece: fn(Vec<u8>) -> Piece) -> Piece {
        self.state = State::Outside;
        self.line = 0;
        self.is_block = false;
        piece(std::mem::take(&mut self.held))
    }
}
