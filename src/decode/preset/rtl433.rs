//! rtl_433: JSON events, one or several lines in a message, or a topic for each value below `devices`.
//!
//! A device is its model, channel and id; radio repeats of the same event are one reading. A number with its unit in the
//! text (`"0.700 kWh"`) is refused, because the key may name another unit than the text.

use super::{Decoded, Frame, Message, Names, Node, Style, Taken, number, text_of, walk};
use crate::decode::{json, quoted};

/// Most events in one message.
const MAX_EVENTS: usize = 1_000;
const STYLE: Style = Style {
    skip: |path, key| {
        path.is_empty() && matches!(key, "time" | "model" | "id" | "channel" | "subtype" | "brand" | "protocol")
    },
    ..Style::PLAIN
};

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    if message.topic.ends_with("/states") {
        return Ok(Decoded::default());
    }
    if !message.is_structured()
        && let Some((_, device)) = message.topic.split_once("/devices/")
        && let Some((device, field)) = device.rsplit_once('/')
    {
        if matches!(field, "time" | "id" | "channel" | "model" | "mic" | "subtype" | "protocol") {
            return Ok(Decoded::default());
        }
        return Decoded::single(device.to_owned(), field, message.plain()?, names);
    }
    let text = text_of(message.payload)?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut decoded = Decoded::default();
    let mut events = 0;
    for line in lines {
        events += 1;
        if events > MAX_EVENTS {
            return Err(format!("payload holds more than {MAX_EVENTS} events"));
        }
        if let Err(reason) = event(line, message, names, &mut decoded) {
            decoded.refused.add(None, if events > 1 { format!("line {events}: {reason}") } else { reason });
        }
    }
    if events == 0 {
        return Err("payload is blank".to_owned());
    }
    decoded.or_reasons()
}

fn event(line: &str, message: &Message<'_>, names: &mut Names, decoded: &mut Decoded) -> Result<(), String> {
    let top = json::parse(line)?;
    if top.get("model").is_none() && (top.get("frames").is_some() || top.get("lvl").is_some()) {
        // Its own statistics and log.
        return Ok(());
    }
    let model = top.get("model").and_then(|model| model.text()).ok_or("event names no `model`")?;
    let mut sensor = model.to_owned();
    for key in ["channel", "id"] {
        if let Some(part) = top.get(key).and_then(|node| node.name()) {
            sensor.push('/');
            sensor.push_str(&part);
        }
    }
    let at = message.time(top.get("time"), decoded).map_err(|e| format!("at `/time`: {e}"))?;
    let mut taken = Taken::new(None, &mut decoded.refused);
    walk::every(&top, "", STYLE, names, &mut taken);
    if let Node::Map(members) = &top {
        for (key, value) in members {
            if let Some(text) = value.text().filter(|text| key != "time" && is_number_with_unit(text)) {
                taken.refuse(format_args!(
                    "field {} is a number with a unit in the text ({})",
                    quoted(key),
                    quoted(text)
                ));
            }
        }
    }
    let fields = taken.fields;
    let known = decoded.readings.iter().any(|m| m.sensor.as_ref() == Some(&sensor) && m.at == at && m.fields == fields);
    if !known {
        decoded.take(Frame { sensor: Some(sensor), at }, fields);
    }
    Ok(())
}

/// As `0.700 kWh`.
fn is_number_with_unit(text: &str) -> bool {
    text.split_once(' ').is_some_and(|(number, unit)| {
        number::parse(number).is_some() && unit.starts_with(|c: char| c.is_alphabetic() || matches!(c, '°' | '%'))
    })
}
