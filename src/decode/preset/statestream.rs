//! Home Assistant's statestream and ESPHome: `PREFIX/sensor/NAME/state` with one value, bare or as a JSON string.
//!
//! The last level is the field, what stands before it the sensor. Attributes that are texts (a unit, an icon) are no
//! readings, and neither is `unavailable`, `unknown`, `nan` or null. A lamp of ESPHome's says its state as an object. Commands
//! to a device are none of its readings.

use std::borrow::Cow;

use super::{Decoded, Frame, Message, Names, Node, Style, json, number, text_of};
use crate::decode::quoted;
use crate::model::Value;

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    let Some((entity, attribute)) = message.topic.rsplit_once('/') else {
        return Err("topic is no entity's (PREFIX/DOMAIN/NAME/state)".to_owned());
    };
    if attribute == "command" {
        return Ok(Decoded::default());
    }
    if attribute == "state"
        && message.is_structured()
        && let top @ Node::Map(_) = message.json()?
    {
        let frame = Frame { sensor: Some(entity.to_owned()), at: None };
        return Decoded::default().whole(frame, &top, "", Style::STATES, names);
    }
    Decoded::single(entity.to_owned(), attribute, value(message.payload)?, names)
}

fn value(payload: &[u8]) -> Result<Value, String> {
    let text = text_of(payload)?.trim();
    let text = match text.as_bytes().first() {
        Some(b'"') => match json::parse(text)? {
            Node::Text(inner) => Cow::Owned(inner.trim().to_owned()),
            other => return Err(format!("payload is {}", other.kind())),
        },
        Some(b'{' | b'[') => return Err("payload is a list or an object, not one value".to_owned()),
        _ => Cow::Borrowed(text),
    };
    number::either(&text).map_err(|reason| match reason {
        reason if text.is_empty() || number::says_none(&text) || number::parse(&text).is_some() => reason,
        _ => format!("{} is a text where a number or a state is expected", quoted(&text)),
    })
}
