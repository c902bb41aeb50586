//! CBOR (RFC 8949) into a tree; the bytes are taken apart by `ciborium-ll`.
//!
//! A length that a payload claims is never believed before its bytes are there, so a claim costs no memory. Depth and
//! number of values are bounded as for JSON; a key that stands twice in one map, and bytes after the value, are errors.
//! Understood tags: big numbers (2, 3), decimal fractions and big floats (4, 5), times (0, 1); others mean what they hold.

use std::borrow::Cow;
use std::collections::HashSet;

use ciborium_io::Read as _;
use ciborium_ll::{Decoder, Error, Header, simple};

use super::node::{MAX_DEPTH, MAX_VALUES, Members, Node};
use super::number::Unfit;
use super::quoted;
use crate::model::Value;

/// Room made in advance for the items of an array or map, whatever it claims to hold.
const ROOM_IN_ADVANCE: usize = 64;
/// A decimal fraction with an exponent beyond this is no measured value.
const MAX_EXPONENT: i64 = 400;

/// Reads exactly one value.
pub(super) fn parse(payload: &[u8]) -> Result<Node<'static>, String> {
    let mut reader = Reader { bytes: Decoder::from(payload), payload, values: 0 };
    let node = match reader.item(0)? {
        Item::Node(node) => node,
        Item::Break => return Err(reader.wrong("a break without a beginning")),
    };
    match reader.payload.len() - reader.bytes.offset() {
        0 => Ok(node),
        more => Err(reader.wrong(&format!("{more} more bytes after the value"))),
    }
}

struct Reader<'p> {
    bytes: Decoder<&'p [u8]>,
    payload: &'p [u8],
    values: usize,
}

enum Item {
    Node(Node<'static>),
    Break,
}

impl Reader<'_> {
    fn item(&mut self, depth: usize) -> Result<Item, String> {
        self.values += 1;
        if depth > MAX_DEPTH {
            return Err(format!("CBOR is nested deeper than {MAX_DEPTH} levels"));
        }
        if self.values > MAX_VALUES {
            return Err(format!("CBOR holds more than {MAX_VALUES} values"));
        }
        let node = match self.header()? {
            Header::Break => return Ok(Item::Break),
            Header::Positive(v) => Node::Scalar(Value::unsigned(v)),
            Header::Negative(v) => negative(v),
            Header::Float(v) => {
                Value::float(v).map_or_else(|| Node::Unfit(v.to_string().into(), Unfit::Special), Node::Scalar)
            }
            Header::Simple(simple::TRUE) => Node::Scalar(Value::Bool(true)),
            Header::Simple(simple::FALSE) => Node::Scalar(Value::Bool(false)),
            Header::Simple(_) => Node::Null,
            Header::Text(length) => Node::Text(Cow::Owned(self.text(length)?)),
            Header::Bytes(length) => {
                self.segments(length)?;
                Node::Bytes
            }
            Header::Array(length) => self.array(length, depth)?,
            Header::Map(length) => self.map(length, depth)?,
            Header::Tag(tag) => self.tagged(tag, depth)?,
        };
        Ok(Item::Node(node))
    }

    /// An item that cannot be a break.
    fn node(&mut self, depth: usize) -> Result<Node<'static>, String> {
        match self.item(depth)? {
            Item::Node(node) => Ok(node),
            Item::Break => Err(self.wrong("a break inside a value of fixed length")),
        }
    }

    fn array(&mut self, length: Option<usize>, depth: usize) -> Result<Node<'static>, String> {
        let mut items = Vec::with_capacity(length.unwrap_or(0).min(ROOM_IN_ADVANCE));
        while length.is_none_or(|length| items.len() < length) {
            match self.item(depth + 1)? {
                Item::Node(node) => items.push(node),
                Item::Break if length.is_none() => break,
                Item::Break => return Err(self.wrong("a break inside an array of fixed length")),
            }
        }
        Ok(Node::List(items))
    }

    fn map(&mut self, length: Option<usize>, depth: usize) -> Result<Node<'static>, String> {
        let mut members: Members<'static> = Vec::with_capacity(length.unwrap_or(0).min(ROOM_IN_ADVANCE));
        while length.is_none_or(|length| members.len() < length) {
            let key = match self.item(depth + 1)? {
                Item::Node(node) => match node.name() {
                    Some(name) => Cow::Owned(name.into_owned()),
                    None => return Err(self.wrong(&format!("a key that is {}", node.kind()))),
                },
                Item::Break if length.is_none() => break,
                Item::Break => return Err(self.wrong("a break inside a map of fixed length")),
            };
            let value = self.node(depth + 1)?;
            members.push((key, value));
        }
        let mut seen = HashSet::with_capacity(members.len());
        match members.iter().find(|(key, _)| !seen.insert(key.as_ref())) {
            Some((key, _)) => Err(format!("key {} stands twice in one map", quoted(key))),
            None => Ok(Node::Map(members)),
        }
    }

    fn tagged(&mut self, tag: u64, depth: usize) -> Result<Node<'static>, String> {
        match tag {
            2 | 3 => match self.header()? {
                Header::Bytes(length) => Ok(big(&self.segments(length)?, tag == 3)),
                _ => Err(self.wrong("a big number that is no byte string")),
            },
            4 | 5 => {
                let parts = self.node(depth + 1)?;
                let parts = parts.list().filter(|parts| parts.len() == 2);
                let parts = parts.ok_or_else(|| self.wrong("a fraction that is no pair"))?;
                let base = if tag == 4 { 10 } else { 2 };
                fraction(&parts[0], &parts[1], base).ok_or_else(|| self.wrong("a fraction that is no pair of numbers"))
            }
            // A time is one where a time is wanted, and no measured value elsewhere; so is the text of tag 0.
            1 => match self.node(depth + 1)? {
                Node::Scalar(Value::I64(v)) => Ok(Node::Text(v.to_string().into())),
                Node::Scalar(Value::U64(v)) => Ok(Node::Text(v.to_string().into())),
                Node::Scalar(Value::F64(v)) => Ok(Node::Text(v.to_string().into())),
                other => Ok(other),
            },
            _ => self.node(depth + 1),
        }
    }

    fn text(&mut self, length: Option<usize>) -> Result<String, String> {
        let bytes = match length {
            Some(length) => self.take(length)?,
            None => {
                let mut whole = Vec::new();
                loop {
                    match self.header()? {
                        Header::Text(Some(length)) => whole.extend(self.take(length)?),
                        Header::Break => break whole,
                        _ => return Err(self.wrong("a piece of text that is no text")),
                    }
                }
            }
        };
        String::from_utf8(bytes).map_err(|_| self.wrong("a text that is not UTF-8"))
    }

    /// A byte string.
    fn segments(&mut self, length: Option<usize>) -> Result<Vec<u8>, String> {
        if let Some(length) = length {
            return self.take(length);
        }
        let mut whole = Vec::new();
        loop {
            match self.header()? {
                Header::Bytes(Some(length)) => whole.extend(self.take(length)?),
                Header::Break => return Ok(whole),
                _ => return Err(self.wrong("a piece of bytes that is none")),
            }
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, String> {
        if length > self.payload.len() - self.bytes.offset() {
            return Err(self.wrong(&format!("the bytes end early ({length} more were announced)")));
        }
        let mut bytes = vec![0; length];
        self.bytes.read_exact(&mut bytes).map_err(|_| self.wrong("the bytes end early"))?;
        Ok(bytes)
    }

    fn header(&mut self) -> Result<Header, String> {
        self.bytes.pull().map_err(|error| match error {
            Error::Io(_) => self.wrong("the bytes end early"),
            Error::Syntax(at) => match self.beyond_memory(at) {
                Some((true, length)) => self.wrong(&format!("the bytes end early ({length} more were announced)")),
                Some((false, _)) => self.wrong("the bytes end early"),
                None => self.wrong("a byte that begins no value"),
            },
        })
    }

    /// The length that the header at `at` announces, if it is one that a 32-bit machine cannot count to; whether in bytes.
    fn beyond_memory(&self, at: usize) -> Option<(bool, u64)> {
        let (head, rest) = self.payload.get(at..)?.split_first()?;
        let length = u64::from_be_bytes(*rest.first_chunk()?);
        let kind = head >> 5;
        (head & 31 == 27 && (2..=5).contains(&kind)).then_some((kind < 4, length))
    }

    fn wrong(&mut self, what: &str) -> String {
        format!("payload is not CBOR: {what} (byte {})", self.bytes.offset())
    }
}

/// A negative number; CBOR has them down to -2^64.
fn negative(inverted: u64) -> Node<'static> {
    match i64::try_from(inverted) {
        Ok(v) => Node::Scalar(Value::I64(!v)),
        Err(_) => Node::Unfit((-1 - i128::from(inverted)).to_string().into(), Unfit::Whole),
    }
}

/// A big number of whatever length; most fit, because some writers use them for everything.
fn big(bytes: &[u8], is_negative: bool) -> Node<'static> {
    let significant = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
    if significant.len() > 8 {
        let words = format!("a number of {} bits", significant.len() * 8);
        return Node::Unfit(words.into(), Unfit::Whole);
    }
    let magnitude = significant.iter().fold(0, |sum, b| sum << 8 | u64::from(*b));
    if is_negative { negative(magnitude) } else { Node::Scalar(Value::unsigned(magnitude)) }
}

/// `mantissa * base^exponent`, by way of text for decimals: 2150e-2 is exactly the double that 21.50 is.
fn fraction(exponent: &Node<'_>, mantissa: &Node<'_>, base: i32) -> Option<Node<'static>> {
    let Node::Scalar(Value::I64(exponent)) = exponent else { return None };
    let said = |mantissa: &str| Node::Unfit(format!("{mantissa} * {base}^{exponent}").into(), Unfit::Decimal);
    let (v, mantissa) = match mantissa {
        Node::Scalar(Value::I64(v)) => (*v as f64, v.to_string()),
        Node::Scalar(Value::U64(v)) => (*v as f64, v.to_string()),
        Node::Unfit(text, unfit) => return Some(Node::Unfit(text.to_string().into(), *unfit)),
        _ => return None,
    };
    if exponent.abs() > MAX_EXPONENT {
        return Some(said(&mantissa));
    }
    let v = match base {
        10 => format!("{mantissa}e{exponent}").parse().ok()?,
        _ => v * f64::from(base).powi(i32::try_from(*exponent).ok()?),
    };
    Some(Value::float(v).map_or_else(|| said(&mantissa), Node::Scalar))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hex: &str, expected: Result<&str, &str>) {
        let digits: Vec<u8> = hex.bytes().filter(|b| *b != b' ').collect();
        let bytes = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        let got = parse(&bytes.collect::<Vec<u8>>());
        match expected {
            Ok(json) => assert_eq!(got, Ok(super::super::json::parse(json).unwrap()), "{hex}"),
            Err(words) => assert!(got.clone().is_err_and(|e| e.contains(words)), "{hex}: {got:?}"),
        }
    }

    #[test]
    fn values_are_those_of_the_standard() {
        check("A2 61 74 FB 40 35 80 00 00 00 00 00 61 68 18 2C", Ok(r#"{"t":21.5,"h":44}"#));
        check("A1 61 61 F9 3C 00", Ok(r#"{"a":1.0}"#));
        check("9F 01 02 FF", Ok("[1,2]"));
        check("BF 61 61 F5 FF", Ok(r#"{"a":true}"#));
        check("7F 61 61 61 62 FF", Ok(r#""ab""#));
        check("1B FF FF FF FF FF FF FF FF", Ok("18446744073709551615"));
        check("3B 7F FF FF FF FF FF FF FF", Ok("-9223372036854775808"));
        check("C2 42 01 00", Ok("256"));
        check("C4 82 21 19 08 66", Ok("21.50"));
        check("C5 82 21 19 00 56", Ok("21.5"));
        check("C1 1A 69 A4 2B C0", Ok("\"1772366784\""));
        check("F7", Ok("null"));
        check("A1 01 02", Ok(r#"{"1":2}"#));
    }

    #[test]
    fn what_is_not_cbor_is_refused_by_name() {
        check("A1 61 61 9A FF FF FF FF", Err("end early"));
        check("A1 61 61 7A FF FF FF FF", Err("announced"));
        check("A1 61 61 01 00", Err("1 more bytes after"));
        check("A2 61 61 01 61 61 02", Err("`a` stands twice"));
        check("FF", Err("break"));
        check("82 01 FF", Err("break"));
        check("61 FF", Err("not UTF-8"));
        check("1C", Err("begins no value"));
        check(&"81".repeat(40), Err("deeper than 32"));
        check("C2 01", Err("no byte string"));
        // A number that no double holds costs its field only.
        let big = parse(&[0xc4, 0x82, 0x1b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert!(matches!(big, Ok(Node::Unfit(_, Unfit::Decimal))), "{big:?}");
        check("C4 82 01 61 61", Err("no pair of numbers"));
    }

    /// Bytes of a map, written by the library that reads them here.
    fn written(pairs: &[(String, Value)]) -> Vec<u8> {
        let mut room = [0; 1024];
        let mut left = &mut room[..];
        let mut encoder = ciborium_ll::Encoder::from(&mut left);
        encoder.push(Header::Map(Some(pairs.len()))).unwrap();
        for (key, value) in pairs {
            encoder.text(key, None).unwrap();
            let header = match value {
                Value::I64(v @ 0..) => Header::Positive(*v as u64),
                Value::I64(v) => Header::Negative(!*v as u64),
                Value::U64(v) => Header::Positive(*v),
                Value::F64(v) => Header::Float(*v),
                Value::Bool(v) => Header::Simple(if *v { simple::TRUE } else { simple::FALSE }),
                Value::Text(_) => unreachable!("not made here"),
            };
            encoder.push(header).unwrap();
        }
        let unused = left.len();
        room[..1024 - unused].to_vec()
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(i: i64, u: u64, f: f64, b: bool) {
            proptest::prop_assume!(f.is_finite());
            let values = [Value::I64(i), Value::unsigned(u), Value::F64(f), Value::Bool(b)];
            let pairs: Vec<_> = values.into_iter().enumerate().map(|(n, v)| (format!("k{n}"), v)).collect();
            let read = parse(&written(&pairs));
            let members = pairs.into_iter().map(|(key, value)| (Cow::Owned(key), Node::Scalar(value))).collect();
            proptest::prop_assert_eq!(read, Ok(Node::Map(members)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
