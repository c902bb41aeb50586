//! Ruuvi Gateway: `ruuvi/GATEWAY/TAG` with the tag's advertisement in hexadecimal, or already decoded.
//!
//! `ts` is when the tag was heard. Values that the advertisement itself marks as invalid are refused by name.

use super::{Decoded, Frame, Message, Names, Style, Taken, walk};
use crate::decode::{quoted, ruuvi};

/// What the gateway says beside the values.
const STYLE: Style = Style {
    skip: |path, key| path.is_empty() && matches!(key, "ts" | "gwts" | "dataFormat" | "aoa" | "data" | "coords"),
    ..Style::PLAIN
};

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    let levels = message.levels();
    if matches!(levels.last(), Some(&"gw_status")) {
        return Ok(Decoded::default());
    }
    let top = message.json()?;
    let mut decoded = Decoded::default();
    let at = message.time(top.get("ts"), &mut decoded).map_err(|e| format!("at `/ts`: {e}"))?;
    let sensor = levels.last().map(|tag| (*tag).to_owned());
    let mut taken = Taken::new(None, &mut decoded.refused);
    walk::every(&top, "", STYLE, names, &mut taken);
    let is_decoded = top.get("dataFormat").is_some();
    match top.get("data").and_then(|data| data.text()) {
        Some(data) if !is_decoded => match ruuvi::from_hex(data).and_then(|bytes| ruuvi::advertisement(&bytes)) {
            Ok(values) => {
                for (name, value) in values.values {
                    taken.named(names, name, value);
                }
                if !values.invalid.is_empty() {
                    taken.refuse(format_args!("the tag says that it has no {}", values.invalid.join(", ")));
                }
            }
            Err(reason) => taken.refuse(format_args!("data {}: {reason}", quoted(data))),
        },
        _ if is_decoded => {}
        _ => taken.refuse("payload holds no `data`"),
    }
    let fields = taken.fields;
    decoded.take(Frame { sensor, at }, fields);
    decoded.or_reasons()
}
