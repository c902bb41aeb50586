//! What `[[sources.NAME.topics]]` says: a filter, and how its messages are read.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::decode::preset::Preset;
use crate::decode::shape::Field;

/// One topic filter and how its messages are read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// With `+` and `#`.
    pub filter: String,
    /// The sensor's name: a template (`{1}`, `{topic}`, `{name}`, `{property:NAME}`) or a JSON pointer into the payload (`/device/id`). Without
    /// it: what the payload or the preset names, else the topic.
    #[serde(default)]
    pub sensor: Option<String>,
    /// How the payload is read.
    #[serde(default)]
    pub decode: Decode,
    /// Fields and where they stand, or options for fields by their names. Without places every number and boolean is one.
    #[serde(default)]
    pub fields: BTreeMap<String, Field>,
    /// For one plain value: the field's name, a template.
    #[serde(default)]
    pub field: Option<String>,
    /// User properties (MQTT 5) that become fields of each reading: the field's name, and the property's.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// For JSON and CBOR: where the readings stand if not at the top, as `/data/*`.
    #[serde(default)]
    pub each: Option<String>,
    /// For JSON and CBOR: where the reading's own time stands; without it the time of arrival counts.
    #[serde(default)]
    pub time: Option<String>,
    /// How times are written.
    #[serde(default)]
    pub time_format: Option<String>,
    /// What becomes of a reading whose own time cannot be read or believed.
    #[serde(default)]
    pub bad_time: BadTime,
    /// A field that keeps the time that the payload claims, beside the one that counts.
    #[serde(default)]
    pub keep_time: Option<String>,
    /// The zone of times that come without an offset.
    #[serde(default)]
    pub timezone: Option<String>,
    /// For packed payloads: their length in bytes, if longer than the fields.
    #[serde(default)]
    pub length: Option<usize>,
    /// A sensor that sends nothing for so long is told to be silent.
    #[serde(default, with = "humantime_serde::option")]
    pub silent_after: Option<Duration>,
    /// Highest quality of service to ask for.
    #[serde(default = "one")]
    pub qos: u8,
    /// Whether values retained by the broker are taken (each once).
    #[serde(default = "yes")]
    pub retained: bool,
}

/// How a payload is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "most are names of software")]
pub enum Decode {
    /// A JSON object, or an array of them.
    #[default]
    Json,
    /// The same in CBOR.
    Cbor,
    /// One plain number.
    Number,
    /// ON/OFF or true/false.
    State,
    /// A short text.
    Text,
    /// Numbers at fixed places.
    Packed,
    /// Whatever topic and payload show.
    Auto,
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

impl Decode {
    /// The software whose messages these are.
    pub const fn preset(self) -> Option<Preset> {
        Some(match self {
            Self::Json | Self::Cbor | Self::Number | Self::State | Self::Text | Self::Packed | Self::Auto => {
                return None;
            }
            Self::Zigbee2mqtt => Preset::Zigbee2mqtt,
            Self::Tasmota => Preset::Tasmota,
            Self::Shelly => Preset::Shelly,
            Self::HaStatestream => Preset::HaStatestream,
            Self::TtsV3 => Preset::TtsV3,
            Self::ChirpstackV4 => Preset::ChirpstackV4,
            Self::SparkplugB => Preset::SparkplugB,
            Self::Senml => Preset::Senml,
            Self::Victron => Preset::Victron,
            Self::Owntracks => Preset::Owntracks,
            Self::Rtl433 => Preset::Rtl433,
            Self::Ruuvi => Preset::Ruuvi,
            Self::Influx => Preset::Influx,
            Self::Cloud => Preset::Cloud,
        })
    }

    /// Whether pointers find something in it.
    pub const fn is_tree(self) -> bool {
        matches!(self, Self::Json | Self::Cbor | Self::Auto)
    }

    /// Whether it is one plain value.
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::Number | Self::State | Self::Text)
    }
}

/// What becomes of a reading whose own time cannot be read or believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BadTime {
    /// It is refused, and kept as a dead letter.
    #[default]
    Refuse,
    /// It is taken with the time of its arrival.
    Arrival,
}

fn one() -> u8 {
    1
}
fn yes() -> bool {
    true
}
