//! Tasmota: `tele/DEVICE/SENSOR`, `tele/DEVICE/STATE`, `stat/DEVICE/…`, also with the levels in another order.
//!
//! `Time` is local time without an offset, so the site needs a time zone. Devices with several channels turn numbers into
//! arrays under the same keys: `Power` becomes `Power[0]`, `Power[1]`.

use super::{Decoded, Frame, Message, Names, Style};

const PREFIXES: [&str; 3] = ["tele", "stat", "cmnd"];
const STYLE: Style = Style { skip: |_, key| matches!(key, "Time" | "Epoch"), ..Style::STATES };

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    let levels = message.levels();
    let suffix = levels.last().copied().unwrap_or_default();
    if levels.contains(&"cmnd") || suffix.starts_with("INFO") || levels.get(1) == Some(&"discovery") {
        return Ok(Decoded::default());
    }
    let device: Vec<&str> = levels[..levels.len() - 1].iter().filter(|l| !PREFIXES.contains(l)).copied().collect();
    let sensor = if device.is_empty() { message.topic.to_owned() } else { device.join("/") };
    if !message.is_structured() && suffix != "LWT" {
        return Decoded::single(sensor, suffix, message.plain()?, names);
    }
    let top = message.json()?;
    // Answers to `Status 8` and `Status 10` hold the sensors one level deeper.
    let inner = top.get("StatusSNS").unwrap_or(&top);
    let time = top.get("Time").or_else(|| inner.get("Time"));
    let mut decoded = Decoded::default();
    let at = message.time(time, &mut decoded).map_err(|e| format!("at `/Time`: {e}"))?;
    decoded.whole(Frame { sensor: Some(sensor), at }, inner, "", STYLE, names)
}
