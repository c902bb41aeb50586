//! A payload that is one short text, such as a state (`open`, `heating`).

use super::{quoted, text_of};
use crate::model::{MAX_TEXT_BYTES, Value};

/// The text without white space around it, or why the payload is not one.
pub fn decode(payload: &[u8]) -> Result<Value, String> {
    let text = text_of(payload)?.trim();
    if text.is_empty() {
        return Err("payload is blank".to_owned());
    }
    if text.contains(|c: char| c.is_control() && !c.is_whitespace()) {
        return Err(format!("{} holds control characters", quoted(text)));
    }
    Value::text(text).ok_or_else(|| format!("payload is a text of {} bytes, over {MAX_TEXT_BYTES}", text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_values() {
        assert_eq!(decode(b" open\n"), Ok(Value::text("open").unwrap()));
        assert!(decode(b"  ").unwrap_err().contains("blank"));
        assert!(decode(b"a\0b").unwrap_err().contains("control"));
        assert!(decode(&[b'x'; 300]).unwrap_err().contains("300 bytes"));
        assert!(decode(b"\xff").unwrap_err().contains("UTF-8"));
    }
}
