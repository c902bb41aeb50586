//! Victron's Venus OS: `N/PORTAL/SERVICE/INSTANCE/PATH` with `{"value": …}`.
//!
//! The sensor is the topic without `N/`, the field `value`. Null and an empty list mean that the device has no value now.

use super::{Decoded, Message, Names, Node, Style, walk};
use crate::decode::found::Taken;
use crate::decode::quoted;

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    let Some(path) = message.topic.strip_prefix("N/") else {
        // Requests to read and write, of whoever sends them.
        let is_request = message.topic.starts_with("R/") || message.topic.starts_with("W/");
        return if is_request {
            Ok(Decoded::default())
        } else {
            Err("topic is not Venus OS's (N/PORTAL/…)".to_owned())
        };
    };
    if path
        .split('/')
        .nth(1)
        .is_some_and(|service| matches!(service, "keepalive" | "heartbeat" | "full_publish_completed"))
    {
        return Ok(Decoded::default());
    }
    let top = message.json()?;
    let mut decoded = Decoded::default();
    match top.get("value") {
        None => return Err("payload holds no `value`".to_owned()),
        Some(Node::Null) => return Ok(decoded),
        Some(Node::List(items)) if items.is_empty() => return Ok(decoded),
        Some(Node::Text(text)) => return Err(format!("value {} is a text, not a number", quoted(text))),
        Some(node @ (Node::Scalar(_) | Node::Unfit(..))) => {
            let mut taken = Taken::new(None, &mut decoded.refused);
            walk::every(node, "value", Style::PLAIN, names, &mut taken);
            let fields = taken.fields;
            decoded.take(super::Frame { sensor: Some(path.to_owned()), at: None }, fields);
        }
        Some(other) => return Err(format!("value is {}, not a number", other.kind())),
    }
    decoded.or_reasons()
}
