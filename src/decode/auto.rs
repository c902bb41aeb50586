//! Which decoder a message is for, told by its topic and then by its payload.
//!
//! Only unmistakable marks count; what bears none is read as plain JSON, CBOR or one value. Nothing is guessed about times:
//! a key that is called `timestamp` may be a counter.

use super::preset::Preset;
use super::{cbor, json, node::Node, preset, text_of};

/// What was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The messages of known software.
    Preset(Preset),
    /// Some JSON.
    Json,
    /// Some CBOR.
    Cbor,
    /// A number or a state.
    Plain,
}

impl Pick {
    /// Its name, as `decode = "…"` would have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preset(preset) => preset.name(),
            Self::Json => "json",
            Self::Cbor => "cbor",
            Self::Plain => "a plain number or state",
        }
    }
}

/// Picks a decoder for a message.
pub fn pick(topic: &str, payload: &[u8]) -> Pick {
    if let Some(preset) = by_topic(topic) {
        return Pick::Preset(preset);
    }
    let Ok(text) = text_of(payload) else {
        return match cbor::parse(payload) {
            Ok(top) => by_tree(&top).map_or(Pick::Cbor, Pick::Preset),
            Err(_) => Pick::Plain,
        };
    };
    let text = text.trim();
    if text.starts_with(['{', '[']) {
        // Events of rtl_433 may come several to a message; the first one tells.
        let top = json::parse(text).or_else(|e| text.lines().next().map_or(Err(e), json::parse));
        return top.ok().and_then(|top| by_tree(&top)).map_or(Pick::Json, Pick::Preset);
    }
    if is_line_protocol(text) {
        return Pick::Preset(Preset::Influx);
    }
    match cbor::parse(payload) {
        Ok(top @ (Node::Map(_) | Node::List(_))) => by_tree(&top).map_or(Pick::Cbor, Pick::Preset),
        _ => Pick::Plain,
    }
}

fn by_topic(topic: &str) -> Option<Preset> {
    let levels: Vec<&str> = topic.split('/').collect();
    match levels.as_slice() {
        ["spBv1.0", ..] => Some(Preset::SparkplugB),
        ["zigbee2mqtt", _, ..] => Some(Preset::Zigbee2mqtt),
        ["tele" | "stat", _, ..] | [_, "tele" | "stat", ..] | ["tasmota", "discovery", ..] => Some(Preset::Tasmota),
        ["shellies", _, ..] | [.., "events", "rpc"] => Some(Preset::Shelly),
        [.., device, "status", component] if is_shelly(device) || component.contains(':') => Some(Preset::Shelly),
        ["homeassistant", _, _, _] => Some(Preset::HaStatestream),
        [_, "sensor" | "binary_sensor" | "switch" | "number", _, "state"] => Some(Preset::HaStatestream),
        ["v3", _, "devices", ..] => Some(Preset::TtsV3),
        ["application", _, "device", _, "event" | "command", ..] => Some(Preset::ChirpstackV4),
        ["N", _, _, _, ..] => Some(Preset::Victron),
        ["owntracks", _, _, ..] => Some(Preset::Owntracks),
        ["rtl_433", _, ..] => Some(Preset::Rtl433),
        ["ruuvi", _, _] => Some(Preset::Ruuvi),
        ["$aws", "things", ..] | ["v1", "gateway", "telemetry"] => Some(Preset::Cloud),
        _ => None,
    }
}

fn is_shelly(device: &str) -> bool {
    device.starts_with("shelly") && device.contains('-')
}

fn by_tree(top: &Node<'_>) -> Option<Preset> {
    let has = |key: &str| top.get(key).is_some();
    if let Some(first) = top.list().and_then(<[_]>::first) {
        let named = ["n", "bn", "0", "-2"].iter().any(|key| first.get(key).is_some());
        let valued = ["v", "vs", "vb", "bv", "s", "2", "3", "4", "bt", "-3"].iter().any(|key| first.get(key).is_some());
        if named && valued {
            return Some(Preset::Senml);
        }
    }
    if has("uplink_message") && has("end_device_ids") {
        Some(Preset::TtsV3)
    } else if top.at(&["deviceInfo", "devEui"]).is_some() {
        Some(Preset::ChirpstackV4)
    } else if has("model") && has("time") && (has("id") || has("mic")) {
        Some(Preset::Rtl433)
    } else if has("gw_mac") && has("data") {
        Some(Preset::Ruuvi)
    } else if top.get("_type").and_then(Node::text) == Some("location") {
        Some(Preset::Owntracks)
    } else if top.get("method").and_then(Node::text).is_some_and(|method| method.starts_with("Notify")) {
        Some(Preset::Shelly)
    } else {
        preset::is_envelope(top).then_some(Preset::Cloud)
    }
}

/// `measurement[,tags] field=value…`
fn is_line_protocol(text: &str) -> bool {
    let Some(line) = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#')) else { return false };
    line.split_once(' ').is_some_and(|(series, rest)| {
        let fields = rest.split_once('=').is_some_and(|(key, value)| !key.is_empty() && !value.is_empty());
        !series.is_empty() && !series.contains('=') | series.contains(',') && fields
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(topic: &str, payload: &[u8], expected: &str) {
        assert_eq!(pick(topic, payload).name(), expected, "{topic} {payload:?}");
    }

    #[test]
    fn topics_tell_first() {
        check("zigbee2mqtt/cellar", b"online", "zigbee2mqtt");
        check("tele/desk/SENSOR", b"{}", "tasmota");
        check("shellies/plug/relay/0/power", b"21", "shelly");
        check("home/terrace/events/rpc", b"{}", "shelly");
        check("homeassistant/sensor/office/state", b"21", "ha-statestream");
        check("weather/sensor/outside/state", b"21", "ha-statestream");
        check("v3/app@tenant/devices/d/up", b"{}", "tts-v3");
        check("application/a/device/d/event/up", b"{}", "chirpstack-v4");
        check("N/1/battery/0/Dc", b"{}", "victron");
        check("spBv1.0/g/NDATA/e", b"", "sparkplug-b");
        check("$aws/things/t/shadow/update/accepted", b"{}", "cloud");
    }

    #[test]
    fn then_the_payload_tells() {
        check("x", br#"[{"bn":"d","v":1}]"#, "senml");
        check("x", br#"{"time":"2022","model":"M","id":1}"#, "rtl433");
        check("x", br#"{"d":[{"ts":1,"values":{"t":1}}]}"#, "cloud");
        check("x", br#"[{"data":{"body":{"t":1}}}]"#, "cloud");
        check("x", br#"{"t":1}"#, "json");
        check("x", b" [1,2]", "json");
        check("x", b"cpu,host=a v=1 1556813561098000000", "influx");
        check("x", b"cpu v=1i", "influx");
        check("x", b"21.5", "a plain number or state");
        check("x", b"ON", "a plain number or state");
        check("x", &[0xa1, 0x61, b't', 0x15], "cbor");
        check("x", &[0x81, 0xa2, 0x21, 0x61, b'd', 0x02, 0xf9, 0x4d, 0x60], "senml");
        check("x", &[0xff, 0xfe, 0x32, 0], "a plain number or state");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(topic: String, payload: Vec<u8>) {
            let _ = pick(&topic, &payload);
        }
    }
}
