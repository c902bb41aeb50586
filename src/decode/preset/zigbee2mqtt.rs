//! Zigbee2MQTT: `BASE/NAME` with a JSON state of the device; names may hold slashes.
//!
//! States in capitals (`ON`) are booleans; other texts describe and are left out. `last_seen`, if the bridge sends it, is the
//! reading's time. `update` and `device` speak about firmware, not about the room.

use super::{Decoded, Frame, Message, Names, Style};

const STYLE: Style = Style {
    skip: |path, key| {
        path.is_empty() && matches!(key, "last_seen" | "update" | "update_available" | "device" | "elapsed")
    },
    ..Style::STATES
};

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    let levels = message.levels();
    let device = levels.get(1..).unwrap_or_default();
    let is_command = matches!(device.last(), Some(&("set" | "get"))) || device.contains(&"set");
    if device.first() == Some(&"bridge") || (is_command && device.len() > 1) {
        return Ok(Decoded::default());
    }
    if message.is_structured() || device.len() < 2 {
        let top = message.json()?;
        let mut decoded = Decoded::default();
        let at = message.time(top.get("last_seen"), &mut decoded).map_err(|e| format!("at `/last_seen`: {e}"))?;
        let frame = Frame { sensor: Some(device.join("/")), at };
        return decoded.whole(frame, &top, "", STYLE, names);
    }
    // The bridge can also send each attribute to a topic of its own.
    let (attribute, device) = device.split_last().unwrap_or((&"value", &[]));
    Decoded::single(device.join("/"), attribute, message.plain()?, names)
}
