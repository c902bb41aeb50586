//! The tables of `nmea`, `dsmr`, `sml`, `iec62056-21` and `binary`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;

use super::Telegrams;
use super::ask::{Ask, How};
use super::binary::{self, FrameConfig};
use super::config::{Field, Shared, Wrong, check_rhythm};
use crate::decode::nmea::{Nmea, Time};
use crate::decode::readout::{Readout, dsmr, iec};
use crate::decode::sml::Sml;
use crate::model::SensorName;
use crate::sources::serial::Format;
use crate::sources::{Claims, Kind, Recording, Source, SourceConfig, read};

/// The kinds' rows.
pub(in crate::sources) const NMEA: Kind = Kind { name: "nmea", read: read::<NmeaConfig> };
pub(in crate::sources) const DSMR: Kind = Kind { name: "dsmr", read: read::<DsmrConfig> };
pub(in crate::sources) const SML: Kind = Kind { name: "sml", read: read::<SmlConfig> };
pub(in crate::sources) const IEC: Kind = Kind { name: "iec62056-21", read: read::<IecConfig> };
pub(in crate::sources) const BINARY: Kind = Kind { name: "binary", read: read::<BinaryConfig> };

/// Most meters behind a meter (DSMR: four channels; the codes leave room for nine).
const CHANNELS: std::ops::RangeInclusive<u8> = 1..=9;
/// Fastest speed an optical head may be asked for.
const READOUT_BAUDS: std::ops::RangeInclusive<u32> = 300..=19_200;
/// Most wake-up characters: what battery meters ask for is below it.
const MAX_WAKE_UP: usize = 128;

/// Writes a table with the keys of all such tables and some of its own. `$baud` and `$format` are its defaults.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident, $baud:literal, $format:literal, { $($own:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            port: String,
            baud: Option<u32>,
            format: Option<Format>,
            sensor: String,
            /// How long nothing may come before the source is told to be out of order; for ever if absent.
            #[serde(default, with = "humantime_serde")]
            silent_after: Option<Duration>,
            /// A reading that comes sooner after the last one is not taken.
            #[serde(default, with = "humantime_serde")]
            min_interval: Duration,
            $($own)*
        }

        impl $name {
            fn port(&self) -> Shared {
                let format = self.format.unwrap_or_else(|| Format::try_from($format.to_owned()).unwrap_or_default());
                let mut shared = Shared::new(&self.port, self.baud.unwrap_or($baud), format, &self.sensor);
                shared.silent_after = self.silent_after;
                shared.min_interval = self.min_interval;
                shared
            }
        }

        impl SourceConfig for $name {
            fn claims(&self) -> Claims {
                self.all_claims()
            }
            fn tells_time(&self) -> bool {
                self.has_own_time()
            }
            fn contradictions(&self) -> Vec<(String, String)> {
                self.checked().err().unwrap_or_default()
            }
            fn build(self: Box<Self>) -> Box<dyn Source> {
                Box::new(self.checked().expect("a table without contradictions can be built"))
            }
            fn replay(self: Box<Self>, recording: Recording, over: Arc<Notify>) -> Option<Box<dyn Source>> {
                let mut source = self.checked().expect("a table without contradictions can be built");
                let asks = source.ask.is_some();
                source.keeper.replay(recording, over, asks);
                Some(Box::new(source))
            }
        }
    };
}

table!(
    /// A receiver or instrument that speaks NMEA 0183.
    NmeaConfig, 4800, "8N1", {
        #[serde(default)]
        fields: BTreeMap<String, Field>,
        #[serde(default)]
        time: Time,
        #[serde(default)]
        checksum: Need,
    }
);

/// Whether something must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Need {
    #[default]
    Required,
    Optional,
}

impl NmeaConfig {
    fn has_own_time(&self) -> bool {
        self.time == Time::Gps
    }

    fn shared(&self) -> Shared {
        Shared { fields: self.fields.clone(), ..self.port() }
    }

    fn all_claims(&self) -> Claims {
        self.shared().claims()
    }

    fn checked(&self) -> Result<Telegrams, Wrong> {
        let (shared, mut wrong) = (self.shared(), Wrong::new());
        let taker = shared.taker(&mut wrong);
        let decoder = Nmea::new(self.time, self.checksum == Need::Required);
        finished(&shared, Box::new(decoder), taker, None, wrong)
    }
}

table!(
    /// The P1 port of a smart meter.
    DsmrConfig, 115_200, "8N1", {
        #[serde(default)]
        fields: BTreeMap<String, Field>,
        /// Names of the meters behind the meter, by their channel.
        #[serde(default)]
        meters: BTreeMap<String, String>,
    }
);

impl DsmrConfig {
    fn has_own_time(&self) -> bool {
        true
    }

    fn shared(&self) -> Shared {
        Shared { fields: self.fields.clone(), ..self.port() }
    }

    fn all_claims(&self) -> Claims {
        let mut claims = self.shared().claims();
        claims.sensors.extend(self.meters.values().cloned());
        claims
    }

    fn checked(&self) -> Result<Telegrams, Wrong> {
        let (shared, mut wrong) = (self.shared(), Wrong::new());
        let mut taker = shared.taker(&mut wrong);
        for (channel, name) in &self.meters {
            let at = || format!("meters.{channel}");
            let number = channel.parse().ok().filter(|n| CHANNELS.contains(n));
            match (number, SensorName::new(name)) {
                (None, _) => wrong.push((at(), "is no channel: write 1 to 9, as { 1 = \"gas\" }".into())),
                (_, Err(error)) => wrong.push((at(), error.to_string())),
                (Some(number), Ok(name)) => taker.iter_mut().for_each(|taker| {
                    taker.meters.insert(number, name.clone());
                }),
            }
        }
        finished(&shared, Box::new(Readout::new(dsmr::READ)), taker, None, wrong)
    }
}

table!(
    /// A meter that pushes SML.
    SmlConfig, 9600, "8N1", {
        #[serde(default)]
        fields: BTreeMap<String, Field>,
    }
);

impl SmlConfig {
    fn has_own_time(&self) -> bool {
        false
    }

    fn shared(&self) -> Shared {
        Shared { fields: self.fields.clone(), ..self.port() }
    }

    fn all_claims(&self) -> Claims {
        self.shared().claims()
    }

    fn checked(&self) -> Result<Telegrams, Wrong> {
        let (shared, mut wrong) = (self.shared(), Wrong::new());
        let taker = shared.taker(&mut wrong);
        finished(&shared, Box::new(Sml::default()), taker, None, wrong)
    }
}

table!(
    /// A meter read through its optical port.
    IecConfig, 300, "7E1", {
        #[serde(default)]
        fields: BTreeMap<String, Field>,
        #[serde(default)]
        mode: Mode,
        #[serde(default = "quarter_hour", with = "humantime_serde")]
        poll: Duration,
        #[serde(default = "three_seconds", with = "humantime_serde")]
        timeout: Duration,
        #[serde(default = "fastest")]
        max_baud: u32,
        #[serde(default)]
        wake_up: usize,
    }
);

/// Who begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// The meter answers `/?!`.
    #[default]
    Request,
    /// The meter sends by itself.
    Push,
}

fn quarter_hour() -> Duration {
    Duration::from_secs(900)
}
fn three_seconds() -> Duration {
    Duration::from_secs(3)
}
fn fastest() -> u32 {
    *READOUT_BAUDS.end()
}

impl IecConfig {
    fn has_own_time(&self) -> bool {
        false
    }

    fn shared(&self) -> Shared {
        Shared { fields: self.fields.clone(), ..self.port() }
    }

    fn all_claims(&self) -> Claims {
        self.shared().claims()
    }

    fn checked(&self) -> Result<Telegrams, Wrong> {
        let (shared, mut wrong) = (self.shared(), Wrong::new());
        let taker = shared.taker(&mut wrong);
        check_rhythm(self.poll, self.timeout, &mut wrong);
        if !READOUT_BAUDS.contains(&self.max_baud) {
            wrong.push(("max_baud".into(), format!("{} is not between 300 and 19200", self.max_baud)));
        }
        if self.wake_up > MAX_WAKE_UP {
            wrong.push(("wake_up".into(), format!("{} is more than {MAX_WAKE_UP} characters", self.wake_up)));
        }
        if self.mode == Mode::Request && self.baud.is_some_and(|baud| baud != 300) {
            let words = "the dialogue begins at 300; `max_baud` bounds the speed after it (a meter that sends by itself has mode = \"push\")";
            wrong.push(("baud".into(), words.into()));
        }
        let how = How::Readout { max_baud: self.max_baud, wake_up: self.wake_up };
        let ask = (self.mode == Mode::Request).then(|| Ask::new(self.poll, self.timeout, how));
        finished(&shared, Box::new(Readout::new(iec::READ)), taker, ask, wrong)
    }
}

table!(
    /// A device with frames of its own.
    BinaryConfig, 9600, "8N1", {
        start: String,
        length: binary::LengthConfig,
        checksum: Option<binary::ChecksumConfig>,
        #[serde(default)]
        order: binary::ByteOrder,
        fields: Vec<binary::ColumnConfig>,
        /// What to send, in hexadecimal bytes; without it the device sends by itself.
        request: Option<String>,
        #[serde(default = "ten_seconds", with = "humantime_serde")]
        poll: Duration,
        #[serde(default = "one_second", with = "humantime_serde")]
        timeout: Duration,
        /// How long a start value may last.
        #[serde(default = "three_minutes", with = "humantime_serde")]
        warm_up: Duration,
    }
);

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}
fn one_second() -> Duration {
    Duration::from_secs(1)
}
fn three_minutes() -> Duration {
    Duration::from_secs(180)
}

impl BinaryConfig {
    fn has_own_time(&self) -> bool {
        false
    }

    fn all_claims(&self) -> Claims {
        let units = self.fields.iter().filter_map(|column| column.unit());
        let units = units.map(|(field, unit)| (self.sensor.clone(), field, unit)).collect();
        Claims { units, ..self.port().claims() }
    }

    fn checked(&self) -> Result<Telegrams, Wrong> {
        let (shared, mut wrong) = (self.port(), Wrong::new());
        let mut taker = shared.taker(&mut wrong);
        check_rhythm(self.poll, self.timeout, &mut wrong);
        let frame = FrameConfig {
            start: &self.start,
            length: &self.length,
            checksum: self.checksum.as_ref(),
            order: self.order,
            fields: &self.fields,
        };
        let decoder = frame.checked(&mut wrong);
        let ask = binary::request(self.request.as_deref(), &mut wrong)
            .map(|bytes| Ask::new(self.poll, self.timeout, How::Request(bytes)));
        if let Some(taker) = &mut taker {
            taker.warm_up = self.warm_up;
            taker.memory = self.fields.iter().filter_map(binary::ColumnConfig::memory).collect();
            taker.start_values = self.fields.iter().filter_map(binary::ColumnConfig::start_value).collect();
        }
        match decoder {
            Some(decoder) => finished(&shared, Box::new(decoder), taker, ask, wrong),
            None => Err(wrong),
        }
    }
}

fn finished(
    shared: &Shared,
    decoder: Box<dyn crate::decode::telegram::Decoder>,
    taker: Option<super::Taker>,
    ask: Option<Ask>,
    wrong: Wrong,
) -> Result<Telegrams, Wrong> {
    match taker {
        Some(taker) if wrong.is_empty() => Ok(shared.source(decoder, taker, ask)),
        _ => Err(wrong),
    }
}
