//! Variable-length integers (LEB128, zigzag for signed ones) and a reader that never runs past its bytes.

/// Bytes that do not decode; says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);

/// Appends an unsigned integer, 7 bits a byte, lowest first.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed integer so that small ones of either sign are short.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from the front of a slice; every failure is [`Damaged`], never a panic.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes` from the front.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Bytes not yet read.
    pub const fn left(&self) -> usize {
        self.0.len()
    }

    /// Everything not yet read, without reading it.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Damaged> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Damaged("bytes end early"))?;
        self.0 = tail;
        Ok(head)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, Damaged> {
        Ok(self.take(1)?[0])
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// An unsigned integer.
    pub fn varint(&mut self) -> Result<u64, Damaged> {
        let mut value = 0;
        for (i, &byte) in self.0.iter().enumerate().take(10) {
            if i == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.0 = &self.0[i + 1..];
                return Ok(value);
            }
        }
        Err(Damaged("integer without an end"))
    }

    /// Passes over so many integers.
    pub fn skip_varints(&mut self, n: usize) -> Result<(), Damaged> {
        if n == 0 {
            return Ok(());
        }
        let mut ends = self.0.iter().enumerate().filter(|(_, byte)| **byte < 0x80);
        let (last, _) = ends.nth(n - 1).ok_or(Damaged("bytes end early"))?;
        self.0 = &self.0[last + 1..];
        Ok(())
    }

    /// A signed integer.
    pub fn signed(&mut self) -> Result<i64, Damaged> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// An unsigned integer of at most `max`.
    pub fn bounded(&mut self, max: usize) -> Result<usize, Damaged> {
        usize::try_from(self.varint()?).ok().filter(|&n| n <= max).ok_or(Damaged("count above its bound"))
    }

    /// An unsigned 32-bit integer.
    pub fn u32(&mut self) -> Result<u32, Damaged> {
        u32::try_from(self.varint()?).map_err(|_| Damaged("number above 32 bits"))
    }

    /// A length and that many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let n = self.bounded(self.0.len())?;
        self.take(n)
    }

    /// A length and that many bytes of UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damaged("text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_survive_at_their_ends() {
        for value in [0, 1, 127, 128, 1 << 32, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(Reader::new(&out).varint(), Ok(value));
        }
        for value in [0, -1, 1, 63, -64, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(Reader::new(&out).signed(), Ok(value));
        }
    }

    #[test]
    fn an_endless_integer_is_damage_and_not_a_panic() {
        assert!(Reader::new(&[0xff; 20]).varint().is_err());
        assert!(Reader::new(&[]).varint().is_err());
        assert!(Reader::new(&[5, 1, 2]).bytes().is_err());
    }
}
