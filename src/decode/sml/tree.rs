//! The elements that SML is made of: a type, a length and what follows; lists hold elements.

use crc::{CRC_16_IBM_SDLC, CRC_16_KERMIT, Crc};

const X25: Crc<u16> = Crc::<u16>::new(&CRC_16_IBM_SDLC);
const KERMIT: Crc<u16> = Crc::<u16>::new(&CRC_16_KERMIT);

/// Deepest nesting: a value's time stands seven levels deep.
const MAX_DEPTH: u8 = 12;
/// Most elements of one file.
const MAX_ELEMENTS: usize = 4096;

/// Whether `crc` (as it came, low byte first) is that of `bytes`.
pub(super) fn crc_fits(bytes: &[u8], crc: [u8; 2]) -> bool {
    let told = u16::from_le_bytes(crc);
    X25.checksum(bytes) == told || KERMIT.checksum(bytes) == told
}

/// One element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Element<'a> {
    /// Bytes; none for an optional element that is absent.
    Octets(&'a [u8]),
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    List(Vec<Element<'a>>),
    /// The `00` that ends a message.
    End,
}

impl<'a> Element<'a> {
    pub(super) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn octets(&self) -> Option<&'a [u8]> {
        match self {
            Self::Octets(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A whole number that fits.
    pub(super) fn whole<T: TryFrom<i64> + TryFrom<u64>>(&self) -> Option<T> {
        match self {
            Self::Signed(v) => T::try_from(*v).ok(),
            Self::Unsigned(v) => T::try_from(*v).ok(),
            _ => None,
        }
    }
}

/// Takes elements off the front of some bytes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    all: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0, left: MAX_ELEMENTS }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.all[self.at..]
    }

    /// The number of entries of a list that begins here.
    pub(super) fn begin_list(&mut self) -> Result<usize, String> {
        match self.head()? {
            (0x7, count) => Ok(count),
            _ => Err(format!("is malformed at byte {}: no list", self.at)),
        }
    }

    pub(super) fn element(&mut self) -> Result<Element<'a>, String> {
        self.nested(0)
    }

    /// Type and length: entries of a list, else bytes of content.
    fn head(&mut self) -> Result<(u8, usize), String> {
        let wrong = || "is malformed: a length reaches beyond its end".to_owned();
        let start = self.at;
        let first = *self.all.get(self.at).ok_or_else(wrong)?;
        let mut length = usize::from(first & 0x0f);
        let mut more = first & 0x80 != 0;
        self.at += 1;
        while more {
            let next = *self.all.get(self.at).ok_or_else(wrong)?;
            self.at += 1;
            length = length.checked_mul(16).map(|l| l | usize::from(next & 0x0f)).ok_or_else(wrong)?;
            more = next & 0x80 != 0;
            if length > self.all.len() {
                return Err(wrong());
            }
        }
        let kind = first >> 4 & 0x7;
        if kind != 0x7 && first != 0 {
            // The length counts its own bytes.
            length = length.checked_sub(self.at - start).ok_or_else(wrong)?;
        }
        Ok((kind, length))
    }

    fn nested(&mut self, depth: u8) -> Result<Element<'a>, String> {
        self.left = self.left.checked_sub(1).ok_or_else(|| format!("has more than {MAX_ELEMENTS} elements"))?;
        if self.all.get(self.at) == Some(&0) {
            self.at += 1;
            return Ok(Element::End);
        }
        let (kind, length) = self.head()?;
        if kind == 0x7 {
            if depth == MAX_DEPTH {
                return Err(format!("is nested deeper than {MAX_DEPTH} levels"));
            }
            let mut items = Vec::new();
            for _ in 0..length {
                items.push(self.nested(depth + 1)?);
            }
            return Ok(Element::List(items));
        }
        let bytes = self.all.get(self.at..self.at + length);
        let bytes = bytes.ok_or_else(|| "is malformed: a length reaches beyond its end".to_owned())?;
        self.at += length;
        match (kind, length) {
            (0x0, _) => Ok(Element::Octets(bytes)),
            (0x4, 1) => Ok(Element::Bool(bytes[0] != 0)),
            (0x5, 1..=8) => {
                let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
                Ok(Element::Signed(bytes.iter().fold(sign, |v, b| v << 8 | i64::from(*b))))
            }
            (0x6, 1..=8) => Ok(Element::Unsigned(bytes.iter().fold(0, |v, b| v << 8 | u64::from(*b)))),
            _ => Err(format!("is malformed at byte {}: type {kind} with {length} bytes", self.at)),
        }
    }
}
