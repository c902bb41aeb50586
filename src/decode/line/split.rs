//! A stream of bytes into lines, in bounded memory.

/// Cuts lines out of chunks as they arrive. Holds at most one unfinished line.
#[derive(Clone, Debug)]
pub struct Splitter {
    delimiter: Vec<u8>,
    /// Other bytes that end a line, where there are several; `delimiter` is one byte then.
    others: Vec<u8>,
    max: usize,
    held: Vec<u8>,
    /// How many bytes of an over-long line were thrown away so far; `None` while the line is not too long.
    overlong: Option<usize>,
    first: bool,
}

/// What was cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A line without its delimiter, and without the carriage return before it.
    Line {
        /// Its bytes.
        bytes: &'a [u8],
        /// Whether it is the first since the stream began: its beginning may be missing.
        is_first: bool,
    },
    /// The first bytes of a line longer than allowed; the rest is thrown away up to the next delimiter.
    TooLong {
        /// As many bytes as a line may have.
        head: &'a [u8],
        /// Whether it is the first since the stream began.
        is_first: bool,
    },
}

impl Splitter {
    /// Lines end with `delimiter` (not empty) and have at most `max` bytes.
    pub fn new(delimiter: &str, max: usize) -> Self {
        Self {
            delimiter: delimiter.as_bytes().to_vec(),
            others: Vec::new(),
            max,
            held: Vec::new(),
            overlong: None,
            first: true,
        }
    }

    /// Any of these bytes ends a line as well; only for a delimiter of one byte.
    pub fn or_any_of(self, others: &[u8]) -> Self {
        Self { others: others.to_vec(), ..self }
    }

    fn find(&self, bytes: &[u8]) -> Option<usize> {
        match self.delimiter[..] {
            [one] => bytes.iter().position(|b| *b == one || self.others.contains(b)),
            ref many => bytes.windows(many.len()).position(|window| window == many),
        }
    }

    /// What ends a line.
    pub fn delimiter(&self) -> &[u8] {
        &self.delimiter
    }

    /// The stream begins anew: what was held is forgotten.
    pub fn restart(&mut self) {
        self.held.clear();
        self.overlong = None;
        self.first = true;
    }

    /// Takes the next bytes and calls `each` for all that is complete.
    pub fn push(&mut self, chunk: &[u8], mut each: impl FnMut(Piece<'_>)) {
        // The delimiter may have begun in the previous chunk.
        let mut search_from = self.held.len().saturating_sub(self.delimiter.len() - 1);
        self.held.extend_from_slice(chunk);
        let mut start = 0;
        while let Some(found) = self.find(&self.held[search_from..]) {
            let end = search_from + found;
            let line = &self.held[start..end];
            let is_first = std::mem::take(&mut self.first);
            if self.overlong.take().is_none() {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                // Lines end with CR LF although only CR was named.
                let line = if self.delimiter == b"\r" { line.strip_prefix(b"\n").unwrap_or(line) } else { line };
                match line.get(..self.max) {
                    Some(head) if head.len() < line.len() => each(Piece::TooLong { head, is_first }),
                    _ => each(Piece::Line { bytes: line, is_first }),
                }
            }
            start = end + self.delimiter.len();
            search_from = start;
        }
        self.held.drain(..start);
        // One byte more for the carriage return.
        if self.held.len() > self.max + self.delimiter.len() {
            if self.overlong.is_none() {
                let line = if self.delimiter == b"\r" { self.held.strip_prefix(b"\n") } else { None };
                each(Piece::TooLong { head: &line.unwrap_or(&self.held)[..self.max], is_first: self.first });
            }
            let tail = self.held.len() - (self.delimiter.len() - 1);
            *self.overlong.get_or_insert(0) += tail;
            self.held.drain(..tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(delimiter: &str, max: usize, chunks: &[&[u8]]) -> Vec<String> {
        let mut splitter = Splitter::new(delimiter, max);
        let mut out = Vec::new();
        for chunk in chunks {
            splitter.push(chunk, |piece| {
                out.push(match piece {
                    Piece::Line { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
                    Piece::TooLong { head, .. } => format!("{}…", String::from_utf8_lossy(head)),
                });
            });
            assert!(splitter.held.len() <= max + delimiter.len());
        }
        out
    }

    #[test]
    fn lines_are_cut_wherever_the_chunks_end() {
        assert_eq!(split("\n", 9, &[b"a\nb", b"c\r", b"\n\nd"]), ["a", "bc", ""]);
        assert_eq!(split("\r\n", 9, &[b"a\nb\r", b"\nc\r\nd"]), ["a\nb", "c"]);
        assert_eq!(split("\r", 9, &[b"a\rb\r\nc\r"]), ["a", "b", "c"]);
        assert_eq!(split("\u{3}", 9, &[b"\x02 1.25\x03\x02 1.5\x03"]), ["\u{2} 1.25", "\u{2} 1.5"]);
    }

    #[test]
    fn any_of_several_bytes_ends_a_line() {
        let mut splitter = Splitter::new("\r", 9).or_any_of(b"\n\x03");
        let mut out = Vec::new();
        splitter.push(b"a\rb\nc\x03\r\nd\r", |piece| {
            if let Piece::Line { bytes, .. } = piece {
                out.push(String::from_utf8_lossy(bytes).into_owned());
            }
        });
        assert_eq!(out, ["a", "b", "c", "", "", "d"]);
    }

    #[test]
    fn an_endless_line_is_told_once_and_left_at_the_next_delimiter() {
        assert_eq!(split("\n", 4, &[b"abcdefgh", b"ijkl", b"mn\nxyz\n"]), ["abcd…", "xyz"]);
        assert_eq!(split("\n", 4, &[b"abcd\r\nabcde\nz\n"]), ["abcd", "abcd…", "z"]);
        assert_eq!(split("\r\n", 2, &[b"abcdefgh\r", b"\nz\r\n"]), ["ab…", "z"]);
        assert_eq!(split("\r", 2, &[b"\nabcdefgh", b"\rz\r"]), ["ab…", "z"]);
    }

    #[test]
    fn only_the_first_piece_may_lack_its_beginning() {
        let mut splitter = Splitter::new("\n", 9);
        let mut firsts = Vec::new();
        let mut push = |splitter: &mut Splitter, bytes: &[u8]| {
            splitter.push(bytes, |piece| match piece {
                Piece::Line { is_first, .. } | Piece::TooLong { is_first, .. } => firsts.push(is_first),
            });
        };
        push(&mut splitter, b"a\nb\n");
        splitter.restart();
        push(&mut splitter, b"c\nd\n");
        assert_eq!(firsts, [true, false, true, false]);
    }

    proptest! {
        #[test]
        fn chunking_never_changes_the_lines(
            text in "[ab\\r\\n]{0,60}",
            cuts in proptest::collection::vec(0usize..60, 0..6),
            max in 1usize..12,
            delimiter in prop_oneof![Just("\n"), Just("\r"), Just("\r\n"), Just("ab")],
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.push(0);
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            let whole = split(delimiter, max, &[bytes, delimiter.as_bytes()]);
            let parts: Vec<&[u8]> = chunks.into_iter().chain([delimiter.as_bytes()]).collect();
            prop_assert_eq!(split(delimiter, max, &parts), whole);
        }
    }
}
