//! What known software sends, understood without a list of fields: one preset for each.
//!
//! A preset knows where in a payload values stand, what is no value, where the reading's own time stands and which part of
//! topic or payload names the device. What a preset reads by design without finding readings (a birth certificate of
//! another kind, a command, a log line) is neither a reading nor refused; what should have been readings and is not, is
//! refused.

mod cloud;
mod lorawan;
mod owntracks;
mod rtl433;
mod ruuvi_gateway;
mod shelly;
mod statestream;
mod tasmota;
mod victron;
mod zigbee2mqtt;

use jiff::tz::TimeZone;

pub(in crate::decode) use self::cloud::is_envelope;
use super::found::{Decoded, Measured, Names, Taken};
use super::node::Node;
use super::times::{self, Format, Local};
use super::walk::{self, Style};
use super::{influx, json, number, senml, sparkplug, text_of};
use crate::model::{Timestamp, Value};

/// Software whose messages are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the name of the software")]
pub enum Preset {
    Zigbee2mqtt,
    Tasmota,
    Shelly,
    HaStatestream,
    TtsV3,
    ChirpstackV4,
    SparkplugB,
    Senml,
    Victron,
    Owntracks,
    Rtl433,
    Ruuvi,
    Influx,
    Cloud,
}

/// Every preset and its name in a site file.
pub const PRESETS: [(&str, Preset); 14] = [
    ("zigbee2mqtt", Preset::Zigbee2mqtt),
    ("tasmota", Preset::Tasmota),
    ("shelly", Preset::Shelly),
    ("ha-statestream", Preset::HaStatestream),
    ("tts-v3", Preset::TtsV3),
    ("chirpstack-v4", Preset::ChirpstackV4),
    ("sparkplug-b", Preset::SparkplugB),
    ("senml", Preset::Senml),
    ("victron", Preset::Victron),
    ("owntracks", Preset::Owntracks),
    ("rtl433", Preset::Rtl433),
    ("ruuvi", Preset::Ruuvi),
    ("influx", Preset::Influx),
    ("cloud", Preset::Cloud),
];

impl Preset {
    /// Its name in a site file.
    pub fn name(self) -> &'static str {
        PRESETS.iter().find(|(_, preset)| *preset == self).map_or("", |(name, _)| name)
    }
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'m> {
    /// Where it was published.
    pub topic: &'m str,
    /// What was published.
    pub payload: &'m [u8],
    /// When it arrived.
    pub arrival: Timestamp,
    /// The zone of times that have no offset.
    pub zone: Option<&'m TimeZone>,
    /// How times are written, where the preset leaves that open.
    pub format: &'m Format,
    /// Whether a time that cannot be read gives way to the time of arrival.
    pub arrival_for_bad_time: bool,
}

/// What presets remember from message to message.
#[derive(Debug, Default)]
pub struct Presets {
    names: Names,
    influx: influx::Decoder,
    sparkplug: sparkplug::Host,
}

impl Presets {
    /// What a message holds, or why nothing of it can be taken.
    pub fn decode(&mut self, preset: Preset, message: &Message<'_>) -> Result<Decoded, String> {
        let Message { topic, payload, arrival, format, .. } = *message;
        let names = &mut self.names;
        match preset {
            Preset::Influx => self.influx.decode(payload, format, message.local()),
            Preset::Senml => senml::decode(payload, names, arrival),
            Preset::SparkplugB => self.sparkplug.decode(topic, payload, names, arrival),
            Preset::Zigbee2mqtt => zigbee2mqtt::decode(message, names),
            Preset::Tasmota => tasmota::decode(message, names),
            Preset::Shelly => shelly::decode(message, names),
            Preset::HaStatestream => statestream::decode(message, names),
            Preset::TtsV3 => lorawan::things_stack(message, names),
            Preset::ChirpstackV4 => lorawan::chirpstack(message, names),
            Preset::Victron => victron::decode(message, names),
            Preset::Owntracks => owntracks::decode(message, names),
            Preset::Rtl433 => rtl433::decode(message, names),
            Preset::Ruuvi => ruuvi_gateway::decode(message, names),
            Preset::Cloud => cloud::decode(message, names),
        }
    }

    /// What is to be published since the last call (Sparkplug's requests for a birth).
    pub fn requests(&mut self) -> Vec<sparkplug::Request> {
        self.sparkplug.requests()
    }
}

/// Names and times that a reading inherits from its message.
#[derive(Default)]
struct Frame {
    sensor: Option<String>,
    at: Option<Timestamp>,
}

impl<'m> Message<'m> {
    fn local(&self) -> Local<'m> {
        Local { zone: self.zone, arrival: self.arrival }
    }

    fn levels(&self) -> Vec<&'m str> {
        self.topic.split('/').collect()
    }

    /// The payload as JSON.
    fn json(&self) -> Result<Node<'m>, String> {
        json::parse(text_of(self.payload)?)
    }

    /// Whether it looks like a JSON object or array.
    fn is_structured(&self) -> bool {
        matches!(
            self.payload.iter().find(|b| !(b.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(b))),
            Some(b'{' | b'[')
        )
    }

    /// The payload as one plain value: a number, a state, either in quotation marks.
    fn plain(&self) -> Result<Value, String> {
        number::decode_either(self.payload)
    }

    /// The time that a node claims; nothing there, or null, means the time of arrival.
    fn time(&self, node: Option<&Node<'_>>, decoded: &mut Decoded) -> Result<Option<Timestamp>, String> {
        match node.map_or(Ok(None), |node| times::of_node(node, self.format, self.local())) {
            Err(reason) if self.arrival_for_bad_time => {
                decoded.notes.push(format!("time of arrival taken: {reason}"));
                Ok(None)
            }
            other => other,
        }
    }
}

impl Decoded {
    /// Adds the reading that these fields make, if there is any.
    fn take(&mut self, frame: Frame, fields: crate::model::Fields) {
        if !fields.is_empty() {
            self.push(Measured { sensor: frame.sensor, at: frame.at, fields, ..Measured::default() });
        }
    }

    /// One value under one name.
    fn single(sensor: String, field: &str, value: Value, names: &mut Names) -> Result<Self, String> {
        let mut decoded = Self::default();
        let mut taken = Taken::new(None, &mut decoded.refused);
        taken.named(names, field, value);
        let fields = taken.fields;
        decoded.take(Frame { sensor: Some(sensor), at: None }, fields);
        decoded.or_reasons()
    }

    /// Everything under a node as one reading. An object of nothing but texts and nulls (a button, a sensor without a value)
    /// is no reading and no fault.
    fn whole(
        mut self,
        frame: Frame,
        node: &Node<'_>,
        path: &str,
        style: Style,
        names: &mut Names,
    ) -> Result<Self, String> {
        let mut taken = Taken::new(None, &mut self.refused);
        walk::every(node, path, style, names, &mut taken);
        let fields = taken.fields;
        self.take(frame, fields);
        if self.readings.is_empty() && self.refused.is_empty() && !matches!(node, Node::Map(_) | Node::List(_)) {
            return Err(format!("payload is {} where an object is expected", node.kind()));
        }
        self.or_reasons()
    }
}

#[cfg(test)]
mod tests;
