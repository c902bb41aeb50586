//! Tasmota: `tele/DEVICE/SENSOR`, `tele/DEVICE/STATE`, `stat/DEVICE/…`, also with the levels in another order.
//!
//! Of the answers to `Status` those with sensors (8, 10) and with the state (11) are readings, as their `tele` kin; the
//! others are settings. `Time` is local time without an offset, so the site needs a time zone. Devices with several channels turn numbers into
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
    // Answers to `Status 8`, `10` and `11` hold the same one level deeper.
    let deeper = top.get("StatusSNS").or_else(|| top.get("StatusSTS"));
    if deeper.is_none() && suffix.strip_prefix("STATUS").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())) {
        return Ok(Decoded::default());
    }
    let inner = deeper.unwrap_or(&top);
    let time = top.get("Time").or_else(|| inner.get("Time"));
    let mut decoded = Decoded::default();
    let at = message.time(time, &mut decoded).map_err(|e| format!("at `/Time`: {e}"))?;
    decoded.whole(Frame { sensor: Some(sensor), at }, inner, "", STYLE, names)
}
