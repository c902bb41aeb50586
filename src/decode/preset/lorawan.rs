//! LoRaWAN network servers: The Things Stack v3 and ChirpStack v4.
//!
//! Readings are what the payload formatter (codec) made, and how each gateway heard it. Numbers in texts and `TRUE`/`FALSE`
//! are values there, because formatters write them so. The time is that of reception by the server: keys named
//! `timestamp` further inside are 32-bit counters of gateways. Other events than uplinks hold no readings.

use super::{Decoded, Frame, Message, Names, Node, Style, Taken, walk};
use crate::model::Value;

/// Most gateways of one uplink.
const MAX_GATEWAYS: usize = 32;
const FORMATTED: Style = Style { numbers_in_texts: true, ..Style::STATES };

/// `v3/APPLICATION@TENANT/devices/DEVICE/up`.
pub(super) fn things_stack(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    if !message.topic.ends_with("/up") && message.topic.contains("/devices/") {
        return Ok(Decoded::default());
    }
    let top = message.json()?;
    let uplink = top.get("uplink_message").ok_or("payload holds no `uplink_message`")?;
    let sensor = top.at(&["end_device_ids", "device_id"]).and_then(|id| id.text()).map(str::to_owned);
    let mut decoded = Decoded::default();
    let received = top.get("received_at").or_else(|| uplink.get("received_at"));
    let at = message.time(received, &mut decoded).map_err(|e| format!("at `/received_at`: {e}"))?;
    let mut taken = Taken::new(None, &mut decoded.refused);
    match uplink.get("decoded_payload") {
        Some(payload @ Node::Map(_)) => walk::every(payload, "decoded_payload", FORMATTED, names, &mut taken),
        None | Some(Node::Null) => {
            taken.refuse("`decoded_payload` is missing: the application has no payload formatter");
        }
        Some(other) => taken.refuse(format_args!("`decoded_payload` is {}, not an object", other.kind())),
    }
    // The stack leaves out what is zero, so an uplink without a count is the first one.
    let count = uplink.get("f_cnt");
    let first = Node::Scalar(Value::I64(0));
    walk::every(count.unwrap_or(&first), "f_cnt", Style::PLAIN, names, &mut taken);
    heard(uplink.get("rx_metadata"), "rx_metadata", names, &mut taken);
    let fields = taken.fields;
    decoded.take(Frame { sensor, at }, fields);
    decoded.or_reasons()
}

/// `application/APPLICATION/device/EUI/event/up`, as JSON.
pub(super) fn chirpstack(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    let is_status = message.topic.ends_with("/event/status");
    let is_uplink = message.topic.ends_with("/event/up") || !message.topic.contains("/event/");
    if message.topic.contains("/command/") || !(is_uplink || is_status) {
        return Ok(Decoded::default());
    }
    if !message.is_structured() {
        return Err("payload is not JSON (is the integration's marshaler protobuf? set it to JSON)".to_owned());
    }
    let top = message.json()?;
    let sensor = top.at(&["deviceInfo", "devEui"]).and_then(|id| id.text()).map(str::to_owned);
    if sensor.is_none() {
        return Err("payload holds no `deviceInfo.devEui`".to_owned());
    }
    let mut decoded = Decoded::default();
    let at = message.time(top.get("time"), &mut decoded).map_err(|e| format!("at `/time`: {e}"))?;
    let mut taken = Taken::new(None, &mut decoded.refused);
    if is_status {
        let says = |key: &str| matches!(top.get(key), Some(Node::Scalar(Value::Bool(true))));
        // A device on mains, or one that does not know, is said to have 0 %.
        let has_level = !says("externalPowerSource") && !says("batteryLevelUnavailable");
        for key in
            ["margin", "batteryLevel", "externalPowerSource"].iter().filter(|key| has_level || **key != "batteryLevel")
        {
            top.get(key).into_iter().for_each(|node| walk::every(node, key, Style::PLAIN, names, &mut taken));
        }
    } else {
        match top.get("object") {
            Some(object @ Node::Map(_)) => walk::every(object, "object", FORMATTED, names, &mut taken),
            None | Some(Node::Null) => taken.refuse("`object` is missing: the device profile has no codec"),
            Some(other) => taken.refuse(format_args!("`object` is {}, not an object", other.kind())),
        }
        top.get("fCnt").into_iter().for_each(|node| walk::every(node, "fCnt", Style::PLAIN, names, &mut taken));
        heard(top.get("rxInfo"), "rxInfo", names, &mut taken);
    }
    let fields = taken.fields;
    decoded.take(Frame { sensor, at }, fields);
    decoded.or_reasons()
}

/// How strongly each gateway heard the device; what a gateway leaves out is not invented.
fn heard(gateways: Option<&Node<'_>>, path: &str, names: &mut Names, taken: &mut Taken<'_>) {
    let gateways = gateways.and_then(Node::list).unwrap_or_default();
    for (i, gateway) in gateways.iter().take(MAX_GATEWAYS).enumerate() {
        for key in ["rssi", "snr"] {
            if let Some(node) = gateway.get(key) {
                walk::every(node, &format!("{path}[{i}].{key}"), Style::PLAIN, names, taken);
            }
        }
    }
}
