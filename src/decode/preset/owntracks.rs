//! OwnTracks: `owntracks/USER/DEVICE` with `"_type": "location"`; other types hold no readings. A position that is nowhere on
//! Earth is refused.

use super::{Decoded, Frame, Message, Names, Node, Style, Taken, walk};

/// What a position may be, in degrees.
const EARTH: [(&str, f64); 2] = [("lat", 90.0), ("lon", 180.0)];

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
    let mut taken = Taken::new(None, &mut decoded.refused);
    walk::every(&top, "", STYLE, names, &mut taken);
    for (name, most) in EARTH {
        if let Some(degrees) = top.get(name).and_then(Node::double).filter(|v| v.abs() > most) {
            taken.fields.retain(|(field, _)| field.as_str() != name);
            taken.refuse(format_args!("`{name}` is {degrees}, which is nowhere on Earth"));
        }
    }
    let fields = taken.fields;
    if fields.is_empty() && decoded.refused.is_empty() {
        return Err("location holds no number".to_owned());
    }
    decoded.take(Frame { sensor: Some(sensor.to_owned()), at }, fields);
    decoded.or_reasons()
}
