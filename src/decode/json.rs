//! JSON text into a tree that borrows from it.
//!
//! Our own reader, because readings need what general ones do not give: whole numbers beyond 64 bits and overflowing
//! decimals are noticed per number instead of rounded, a key that stands twice in one object is an error, and depth and
//! number of values are bounded. Otherwise strict RFC 8259: no NaN, no comments, nothing after the value.

use std::borrow::Cow;
use std::collections::HashSet;

use super::node::{MAX_DEPTH, MAX_VALUES, Members, Node};
use super::{number, quoted};
use crate::model::Value;

/// Objects with more keys are checked for twins through a set.
const FEW_KEYS: usize = 16;

/// Reads exactly one value, with white space around it.
pub(super) fn parse(text: &str) -> Result<Node<'_>, String> {
    let mut reader = Reader { text, at: 0, values: 0 };
    reader.space();
    let node = reader.value(0)?;
    reader.space();
    match reader.peek() {
        None => Ok(node),
        Some(0) => Err(reader.wrong("a NUL byte after the value")),
        Some(_) => Err(reader.wrong("more text after the value")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    values: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Node<'a>, String> {
        self.values += 1;
        if depth > MAX_DEPTH {
            return Err(format!("JSON is nested deeper than {MAX_DEPTH} levels"));
        }
        if self.values > MAX_VALUES {
            return Err(format!("JSON holds more than {MAX_VALUES} values"));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Node::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Node::Scalar(Value::Bool(true))),
            Some(b'f') => self.word("false", Node::Scalar(Value::Bool(false))),
            Some(b'n') => self.word("null", Node::Null),
            Some(b'N' | b'I') => Err(self.wrong("NaN and Infinity are not JSON")),
            Some(_) => Err(self.wrong("a value is expected")),
            None => Err(self.wrong("the text ends early")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>, String> {
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(Node::Map(Vec::new()));
        }
        // Most payloads have a handful of keys: one allocation.
        let mut members: Members<'a> = Vec::with_capacity(8);
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a key in double quotes is expected"));
            }
            let key = self.string()?;
            if members.len() <= FEW_KEYS && members.iter().any(|(earlier, _)| *earlier == key) {
                return Err(twice(&key));
            }
            self.space();
            if !self.take(b':') {
                return Err(self.wrong("`:` is expected"));
            }
            self.space();
            let value = self.value(depth + 1)?;
            members.push((key, value));
            self.space();
            if self.take(b'}') {
                break;
            }
            if !self.take(b',') {
                return Err(self.wrong("`,` or `}` is expected"));
            }
        }
        if members.len() > FEW_KEYS {
            let mut seen = HashSet::with_capacity(members.len());
            if let Some((key, _)) = members.iter().find(|(key, _)| !seen.insert(key.as_ref())) {
                return Err(twice(key));
            }
        }
        Ok(Node::Map(members))
    }

    fn array(&mut self, depth: usize) -> Result<Node<'a>, String> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Node::List(items));
        }
        loop {
            self.space();
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Node::List(items));
            }
            if !self.take(b',') {
                return Err(self.wrong("`,` or `]` is expected"));
            }
        }
    }

    fn number(&mut self) -> Result<Node<'a>, String> {
        let start = self.at;
        self.take(b'-');
        let whole = self.digits();
        if whole == 0 || (whole > 1 && self.text.as_bytes()[self.at - whole] == b'0') {
            return Err(self.wrong("not a JSON number"));
        }
        let mut exact = true;
        if self.take(b'.') {
            exact = false;
            if self.digits() == 0 {
                return Err(self.wrong("not a JSON number"));
            }
        }
        if self.take(b'e') || self.take(b'E') {
            exact = false;
            let _ = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return Err(self.wrong("not a JSON number"));
            }
        }
        let text = &self.text[start..self.at];
        let value = if exact { number::integer(text) } else { number::decimal(text) };
        Ok(value.map_or_else(|unfit| Node::Unfit(Cow::Borrowed(text), unfit), Node::Scalar))
    }

    /// A string, borrowed unless it holds escapes. `at` is on the opening quote.
    fn string(&mut self) -> Result<Cow<'a, str>, String> {
        self.at += 1;
        let start = self.at;
        self.plain()?;
        if self.take(b'"') {
            return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
        }
        let mut owned = self.text[start..self.at].to_owned();
        loop {
            if self.take(b'"') {
                return Ok(Cow::Owned(owned));
            }
            self.at += 1;
            owned.push(self.escape()?);
            let from = self.at;
            self.plain()?;
            owned.push_str(&self.text[from..self.at]);
        }
    }

    /// Moves over characters that stand for themselves, up to a quote or a backslash.
    fn plain(&mut self) -> Result<(), String> {
        let rest = &self.text.as_bytes()[self.at..];
        let n = rest.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20).unwrap_or(rest.len());
        self.at += n;
        match self.peek() {
            Some(b'"' | b'\\') => Ok(()),
            Some(_) => Err(self.wrong("a control character inside a string")),
            None => Err(self.wrong("the text ends inside a string")),
        }
    }

    /// What stands after a backslash.
    fn escape(&mut self) -> Result<char, String> {
        let kind = self.peek();
        self.at += 1;
        Ok(match kind {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&first) && self.take(b'\\') && self.take(b'u') {
                    let second = self.hex4()?;
                    let low = second.wrapping_sub(0xdc00);
                    if low < 0x400 { 0x1_0000 + ((first - 0xd800) << 10) + low } else { first }
                } else {
                    first
                };
                char::from_u32(code).ok_or_else(|| self.wrong("half of a surrogate pair"))?
            }
            _ => {
                self.at -= 1;
                return Err(self.wrong("an unknown escape"));
            }
        })
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let hex = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        let code = hex.iter().try_fold(0, |code, &b| char::from(b).to_digit(16).map(|digit| code * 16 + digit));
        match code {
            Some(code) if hex.len() == 4 => {
                self.at += 4;
                Ok(code)
            }
            _ => Err(self.wrong("four hexadecimal digits are expected")),
        }
    }

    fn word(&mut self, word: &str, node: Node<'a>) -> Result<Node<'a>, String> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(node)
        } else {
            Err(self.wrong("a value is expected"))
        }
    }

    fn digits(&mut self) -> usize {
        let n = self.text.as_bytes()[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += n;
        n
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn wrong(&self, what: &str) -> String {
        format!("payload is not JSON: {what} (byte {})", self.at)
    }
}

fn twice(key: &str) -> String {
    format!("key {} stands twice in one object", quoted(key))
}

#[cfg(test)]
mod tests {
    use super::super::number::Unfit;
    use super::*;

    /// The same value as `serde_json` sees it.
    fn same(node: &Node<'_>, value: &serde_json::Value) -> bool {
        use serde_json::Value as J;
        match (node, value) {
            (Node::Null, J::Null) => true,
            (Node::Scalar(Value::Bool(a)), J::Bool(b)) => a == b,
            // Minus zero without a point is the whole number 0 to us.
            (Node::Scalar(Value::I64(0)), J::Number(b)) => b.as_f64() == Some(0.0),
            (Node::Scalar(Value::I64(a)), J::Number(b)) => b.as_i64() == Some(*a),
            (Node::Scalar(Value::U64(a)), J::Number(b)) => b.as_u64() == Some(*a),
            (Node::Scalar(Value::F64(a)), J::Number(b)) => b.as_f64().map(f64::to_bits) == Some(a.to_bits()),
            (Node::Unfit(_, Unfit::Whole), J::Number(b)) => b.is_f64(),
            (Node::Text(a), J::String(b)) => a == b,
            (Node::List(a), J::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
            (Node::Map(a), J::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(k, v)| b.get(k.as_ref()).is_some_and(|w| same(v, w)))
            }
            _ => false,
        }
    }

    /// Ours and a general reader agree, except where ours is meant to differ.
    fn agree(text: &str) {
        match (parse(text), serde_json::from_str::<serde_json::Value>(text)) {
            (Ok(node), Ok(value)) => assert!(same(&node, &value), "{text:?}: {node:?} against {value:?}"),
            (Err(e), Ok(_)) => assert!(e.contains("twice") || e.contains("nested"), "{text:?}: {e}"),
            (Ok(_), Err(e)) => assert!(e.to_string().contains("out of range"), "{text:?}: {e}"),
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn it_reads_what_a_general_reader_reads() {
        for text in [
            r#"{"a":1,"b":[true,false,null,-0,0.5,1e3,-1.5E-7],"c":{"d":"x"}}"#,
            r#" [ ] "#,
            r#"{"u":"\u00e9\ud83c\udf21\n\"\\\/"}"#,
            r#""\ud800""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
            "18446744073709551615",
            "18446744073709551616",
            "-9223372036854775808",
            "1e400",
            "1e-400",
            "01",
            "+1",
            ".5",
            "5.",
            "-",
            "1e",
            "[1,]",
            "{\"a\":1,}",
            "{'a':1}",
            "{\"a\" 1}",
            "nul",
            "\"a\u{1}b\"",
            "\"abc",
            "\"\\x\"",
            "\"\\u12\"",
            "",
            "{}x",
            "NaN",
        ] {
            agree(text);
        }
    }

    #[test]
    fn depth_count_and_twins_are_bounded() {
        let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
        assert!(parse(&deep).unwrap_err().contains("deeper than 32"));
        let many = format!("[{}1]", "1,".repeat(MAX_VALUES));
        assert!(parse(&many).unwrap_err().contains("more than 131072 values"));
        assert_eq!(parse(r#"{"t":1,"t":2}"#).unwrap_err(), "key `t` stands twice in one object");
        let wide: String = (0..40).map(|i| format!("\"k{i}\":1,")).collect();
        assert!(parse(&format!("{{{wide}\"k39\":2}}")).unwrap_err().contains("`k39` stands twice"));
    }

    proptest::proptest! {
        #[test]
        fn it_agrees_on_any_text(text: String) {
            agree(&text);
        }

        #[test]
        fn it_agrees_on_json_like_text(text in r#"[\[\]{},:"\\ntfue0-9.eE+\-a ]{0,24}"#) {
            agree(&text);
        }
    }
}
