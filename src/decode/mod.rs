//! Payload and frame decoders: bytes in, values out. Pure, bounded, and they never panic whatever the bytes.

pub mod arithmetic;
pub mod auto;
pub mod binary;
mod cbor;
pub mod damp;
pub mod found;
mod influx;
mod json;
pub mod line;
pub mod modbus;
pub mod nmea;
mod node;
pub mod number;
pub mod packed;
pub mod pointer;
pub mod preset;
pub mod readout;
mod ruuvi;
mod senml;
pub mod shape;
pub mod sml;
pub mod sparkplug;
pub mod telegram;
pub mod text;
pub mod times;
pub mod tree;
pub mod units;
mod walk;

/// Longest piece of a payload quoted in a reason.
const MAX_QUOTED_CHARS: usize = 40;

/// A short piece of foreign text, made safe for a log line.
fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_QUOTED_CHARS).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}

/// The payload as text without a byte order mark, or why it is not text.
fn text_of(payload: &[u8]) -> Result<&str, String> {
    match std::str::from_utf8(payload) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(_) if payload.starts_with(&[0x1f, 0x8b]) => Err("payload is gzip-compressed, not text".to_owned()),
        Err(e) => Err(format!("payload is not UTF-8 text (byte {})", e.valid_up_to())),
    }
}
