//! Envelopes of cloud services: AWS IoT device shadows, Azure IoT Hub by Event Grid, ThingsBoard's telemetry.
//!
//! The envelope is told by its shape. A shadow has a time for each value, in a tree beside the values; an Azure event has
//! one for all; ThingsBoard's gateway format has the device's name as a key and a time in each entry.

use super::{Decoded, Frame, Message, Names, Node, Style, Taken, walk};
use crate::decode::found::MAX_BATCH;
use crate::model::{Fields, Timestamp};

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    if message.levels().last() == Some(&"rejected") {
        // The answer to a request of somebody's.
        return Ok(Decoded::default());
    }
    let top = message.json()?;
    let mut decoded = Decoded::default();
    if let Some(events) = top.list() {
        bounded(events.len())?;
        for (i, event) in events.iter().enumerate() {
            if let Err(reason) = event_or_entry(event, message, names, &mut decoded) {
                decoded.refused.add(Some(i), reason);
            }
        }
    } else if let Some(state) = top.get("state").or_else(|| top.at(&["current", "state"])) {
        let current = top.get("current").unwrap_or(&top);
        shadow(&top, current, state, message, names, &mut decoded)?;
    } else if is_by_device(&top) {
        by_device(&top, message, names, &mut decoded)?;
    } else {
        event_or_entry(&top, message, names, &mut decoded)?;
    }
    decoded.or_reasons()
}

/// Whether it is a shape that is understood here.
pub(in crate::decode) fn is_envelope(top: &Node<'_>) -> bool {
    let is_event = |node: &Node<'_>| node.at(&["data", "body"]).is_some();
    top.list().is_some_and(|items| items.first().is_some_and(is_event))
        || is_event(top)
        || top.at(&["state", "reported"]).is_some()
        || is_by_device(top)
}

fn bounded(count: usize) -> Result<(), String> {
    if count > MAX_BATCH {
        Err(format!("payload holds {count} readings, at most {MAX_BATCH} are taken"))
    } else {
        Ok(())
    }
}

/// An event of Azure's, or an entry of ThingsBoard's.
fn event_or_entry(
    event: &Node<'_>,
    message: &Message<'_>,
    names: &mut Names,
    decoded: &mut Decoded,
) -> Result<(), String> {
    if event.get("values").is_some() {
        return entry(event, None, message, names, decoded);
    }
    if is_plain_telemetry(message.topic) && matches!(event, Node::Map(_)) {
        return one(Frame::default(), event, "", names, decoded);
    }
    let kind = event.get("eventType").or_else(|| event.get("type")).and_then(|kind| kind.text());
    if kind.is_some_and(|kind| kind.starts_with("Microsoft.") && !kind.ends_with(".DeviceTelemetry")) {
        // A device came or went, a subscription is to be confirmed.
        return Ok(());
    }
    let body =
        event.at(&["data", "body"]).ok_or("no envelope that is known here (AWS shadow, Azure event, ThingsBoard)")?;
    if let Node::Text(_) = body {
        return Err(
            "`data.body` is base64 text: let the device send content type application/json and encoding utf-8, \
                    then Azure passes it on as JSON"
                .to_owned(),
        );
    }
    let id = event.at(&["data", "systemProperties", "iothub-connection-device-id"]).and_then(|id| id.text());
    let subject = event.get("subject").and_then(|subject| subject.text());
    let sensor = id.or_else(|| subject.map(|s| s.strip_prefix("devices/").unwrap_or(s))).map(str::to_owned);
    let at = message.time(event.get("eventTime").or_else(|| event.get("time")), decoded)?;
    one(Frame { sensor, at }, body, "data.body", names, decoded)
}

/// ThingsBoard's devices may send `{"temp": 21.5}` alone.
fn is_plain_telemetry(topic: &str) -> bool {
    topic == "v1/devices/me/telemetry"
}

/// `{"device": [{"ts": …, "values": {…}}, …], …}`
fn is_by_device(top: &Node<'_>) -> bool {
    let Node::Map(members) = top else { return false };
    let is_entries = |node: &Node<'_>| node.list().is_some_and(|l| l.iter().all(|e| e.get("values").is_some()));
    let has_any = members.iter().any(|(_, node)| node.list().is_some_and(|l| !l.is_empty()));
    has_any && members.iter().all(|(_, node)| is_entries(node))
}

fn by_device(top: &Node<'_>, message: &Message<'_>, names: &mut Names, decoded: &mut Decoded) -> Result<(), String> {
    let Node::Map(members) = top else { return Ok(()) };
    bounded(members.iter().map(|(_, node)| node.list().map_or(0, <[_]>::len)).sum())?;
    for (device, entries) in members {
        for (i, node) in entries.list().unwrap_or_default().iter().enumerate() {
            if let Err(reason) = entry(node, Some(device), message, names, decoded) {
                decoded.refused.add(Some(i), reason);
            }
        }
    }
    Ok(())
}

/// `{"ts": …, "values": {…}}`
fn entry(
    entry: &Node<'_>,
    device: Option<&str>,
    message: &Message<'_>,
    names: &mut Names,
    decoded: &mut Decoded,
) -> Result<(), String> {
    let at = message.time(entry.get("ts"), decoded).map_err(|e| format!("at `/ts`: {e}"))?;
    let values = entry.get("values").ok_or("entry without `values`")?;
    one(Frame { sensor: device.map(str::to_owned), at }, values, "", names, decoded)
}

fn one(frame: Frame, node: &Node<'_>, path: &str, names: &mut Names, decoded: &mut Decoded) -> Result<(), String> {
    let mut taken = Taken::new(None, &mut decoded.refused);
    walk::every(node, path, Style::PLAIN, names, &mut taken);
    let fields = taken.fields;
    if !matches!(node, Node::Map(_) | Node::List(_)) && fields.is_empty() {
        return Err(format!("is {}, not a number", node.kind()));
    }
    decoded.take(frame, fields);
    Ok(())
}

/// What the device reported; each value has its own time in `metadata`. What is only desired is no reading.
fn shadow(
    top: &Node<'_>,
    current: &Node<'_>,
    state: &Node<'_>,
    message: &Message<'_>,
    names: &mut Names,
    decoded: &mut Decoded,
) -> Result<(), String> {
    let Some(reported) = state.get("reported") else { return Ok(()) };
    let thing = message.topic.split('/').skip_while(|level| *level != "things").nth(1);
    let mut found = Vec::new();
    leaves(reported, current.at(&["metadata", "reported"]), String::new(), &mut found);
    let mut instants: Vec<(Option<Timestamp>, Fields)> = Vec::new();
    for (path, node, time) in found {
        let at = message.time(time.or_else(|| top.get("timestamp")), decoded)?;
        let slot = match instants.iter().position(|(known, _)| *known == at) {
            Some(slot) => slot,
            None => {
                instants.push((at, Fields::new()));
                instants.len() - 1
            }
        };
        let mut taken = Taken::new(None, &mut decoded.refused);
        taken.fields = std::mem::take(&mut instants[slot].1);
        walk::every(node, &path, Style::PLAIN, names, &mut taken);
        instants[slot].1 = taken.fields;
    }
    for (at, fields) in instants {
        decoded.take(Frame { sensor: thing.map(str::to_owned), at }, fields);
    }
    Ok(())
}

/// Every number and boolean of a tree, with its path and its time in the parallel tree.
fn leaves<'n, 'a>(
    node: &'n Node<'a>,
    meta: Option<&'n Node<'a>>,
    path: String,
    found: &mut Vec<(String, &'n Node<'a>, Option<&'n Node<'a>>)>,
) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match node {
        Node::Map(members) => {
            for (key, value) in members {
                leaves(value, meta.and_then(|meta| meta.get(key)), join(key), found);
            }
        }
        Node::List(items) => {
            for (i, item) in items.iter().enumerate() {
                leaves(item, meta.and_then(|meta| meta.list()?.get(i)), format!("{path}[{i}]"), found);
            }
        }
        // More than a reading may hold is refused where the fields are taken.
        Node::Scalar(_) | Node::Unfit(..) if found.len() <= crate::model::MAX_FIELDS => {
            found.push((path, node, meta.and_then(|meta| meta.get("timestamp"))));
        }
        _ => {}
    }
}
