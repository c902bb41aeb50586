//! OwnTracks: `owntracks/USER/DEVICE` with `"_type": "location"`; other types hold no readings.

use super::{Decoded, Frame, Message, Names, Style};

const STYLE: Style =
    Style { skip: |path, key| path.is_empty() && matches!(key, "tst" | "created_at" | "isotst"), ..Style::PLAIN };

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    let top = message.json()?;
    match top.get("_type").and_then(|kind| kind.text()) {
        Some("location") => {}
        Some("encrypted") => return Err("payload is encrypted: the gateway cannot read it".to_owned()),
        Some(_) => return Ok(Decoded::default()),
        None => return Err("payload holds no `_type`".to_owned()),
    }
    let mut decoded = Decoded::default();
    let at = message.time(top.get("tst"), &mut decoded).map_err(|e| format!("at `/tst`: {e}"))?;
    let sensor = message.topic.split_once('/').map_or(message.topic, |(_, device)| device);
    decoded.whole(Frame { sensor: Some(sensor.to_owned()), at }, &top, "", STYLE, names)
}
