//! The sections of the site file that belong to no single part: `[site]`, `[bucket]`, `[sensors.NAME]`, `[log]`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// `[site]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Site {
    /// The installation's name; required.
    pub name: String,
    /// Most sensors kept; readings of further ones are refused and counted.
    pub max_sensors: u32,
    /// IANA zone of devices that send local time without an offset.
    pub timezone: Option<String>,
    /// How far ahead of our clock a reading's own time may be.
    #[serde(with = "humantime_serde")]
    pub max_future: Duration,
}

impl Default for Site {
    fn default() -> Self {
        Self { name: String::new(), max_sensors: 10_000, timezone: None, max_future: Duration::from_secs(600) }
    }
}

/// `[bucket]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bucket {
    /// How long a window is.
    #[serde(with = "humantime_serde")]
    pub window: Duration,
    /// Most samples in one bucket.
    pub max_samples: u32,
    /// Most bytes of one bucket's document.
    pub max_bytes: ByteSize,
    /// How long after its end a window stays open.
    #[serde(with = "humantime_serde")]
    pub grace: Duration,
    /// Decimal places kept of a number with a fraction.
    pub decimals: Option<u8>,
    /// How old a reading may be when it arrives; older ones are refused. Holds for the whole site.
    #[serde(with = "humantime_serde")]
    pub max_age: Option<Duration>,
}

impl Default for Bucket {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(600),
            max_samples: 1000,
            max_bytes: ByteSize::kib(64),
            grace: Duration::from_secs(30),
            decimals: None,
            max_age: None,
        }
    }
}

/// `[sensors.NAME]`: what differs from `[bucket]`, and what goes into the documents' `meta`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sensor {
    /// As in `[bucket]`.
    #[serde(with = "humantime_serde")]
    pub window: Option<Duration>,
    /// As in `[bucket]`.
    pub max_samples: Option<u32>,
    /// As in `[bucket]`.
    pub max_bytes: Option<ByteSize>,
    /// As in `[bucket]`.
    #[serde(with = "humantime_serde")]
    pub grace: Option<Duration>,
    /// As in `[bucket]`.
    pub decimals: Option<u8>,
    /// Unit of each field.
    pub units: BTreeMap<String, String>,
    /// What else is worth knowing about the sensor.
    pub tags: BTreeMap<String, String>,
}

impl Sensor {
    /// `[bucket]` with what this sensor overrides.
    pub fn over(&self, bucket: &Bucket) -> Bucket {
        Bucket {
            window: self.window.unwrap_or(bucket.window),
            max_samples: self.max_samples.unwrap_or(bucket.max_samples),
            max_bytes: self.max_bytes.unwrap_or(bucket.max_bytes),
            grace: self.grace.unwrap_or(bucket.grace),
            decimals: self.decimals.or(bucket.decimals),
            max_age: bucket.max_age,
        }
    }
}

/// `[log]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The least important messages written.
    pub level: Level,
    /// Where they go, and in which form.
    pub format: LogFormat,
}

/// `log.level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Data was lost, or a person must act.
    Error,
    /// Unexpected, nothing lost.
    Warn,
    /// Started, stopped, recovered.
    #[default]
    Info,
    /// Per batch.
    Debug,
    /// Per frame.
    Trace,
}

impl Level {
    /// The word in the site file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// `log.format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// The journal under systemd, otherwise text.
    #[default]
    Auto,
    /// Lines on the standard error output.
    Text,
    /// Structured entries in systemd's journal.
    Journald,
}
