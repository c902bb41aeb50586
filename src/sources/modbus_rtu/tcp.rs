//! `type = "modbus-tcp"`: the same devices behind an address, as Modbus TCP or as plain RTU frames over a connection
//! (serial device servers).

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;

use super::ModbusRtu;
use super::bus::{self, Pace};
use super::config::{DeviceConfig, Line, claims, default_retries, default_timeout};
use crate::sources::serial::{DEFAULT_BAUD, Format, Port, is_address};
use crate::sources::{Claims, Recording, Source, SourceConfig};

/// The port that the standard names.
const STANDARD_PORT: u16 = 502;
/// Silence before a frame without a length, for device servers that put pieces together: as at 9600 baud.
const RTU_GAP: Duration = Duration::from_millis(20);
/// Characters of a line that nobody knows are taken to be as slow as at 9600 baud.
const RTU_CHARACTER: Duration = Duration::from_micros(1146);

/// Devices behind an address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// `HOST` or `HOST:PORT`.
    address: String,
    #[serde(default)]
    framing: Framing,
    #[serde(default = "default_timeout", with = "humantime_serde")]
    timeout: Duration,
    #[serde(default = "default_retries")]
    retries: u32,
    #[serde(default)]
    max_gap: u16,
    devices: Vec<DeviceConfig>,
}

/// What stands on the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Framing {
    /// Modbus TCP.
    #[default]
    Tcp,
    /// RTU frames with their CRC.
    Rtu,
}

impl Config {
    fn with_port(&self) -> String {
        if is_address(&self.address) { self.address.clone() } else { format!("{}:{STANDARD_PORT}", self.address) }
    }

    pub(super) fn checked(&self) -> Result<ModbusRtu, Vec<(String, String)>> {
        let address = self.with_port();
        if !is_address(&address) {
            let words = format!("`{}` is no host, as \"10.0.0.7\" or \"meter.local:502\"", self.address);
            return Err(vec![("address".to_owned(), words)]);
        }
        let port = Port { path: format!("tcp://{address}"), baud: DEFAULT_BAUD, format: Format::default() };
        let timeout = self.timeout;
        let pace = match self.framing {
            Framing::Tcp => {
                Pace { timeout, gap: Duration::ZERO, character: Duration::ZERO, framing: bus::Framing::Tcp }
            }
            Framing::Rtu => Pace { timeout, gap: RTU_GAP, character: RTU_CHARACTER, framing: bus::Framing::Rtu },
        };
        // A device that is reached directly often answers as unit 0 or 255.
        let line = Line { port, pace, retries: self.retries, max_gap: self.max_gap, unit_ids: 0..=255 };
        line.checked(&self.devices)
    }
}

impl SourceConfig for Config {
    fn claims(&self) -> Claims {
        claims(&format!("tcp://{}", self.with_port()), &self.devices)
    }

    fn contradictions(&self) -> Vec<(String, String)> {
        self.checked().err().unwrap_or_default()
    }

    fn build(self: Box<Self>) -> Box<dyn Source> {
        Box::new(self.checked().expect("a table without contradictions can be built"))
    }

    fn replay(self: Box<Self>, recording: Recording, over: Arc<Notify>) -> Option<Box<dyn Source>> {
        let mut source = self.checked().expect("a table without contradictions can be built");
        source.replay(recording, over);
        Some(Box::new(source))
    }
}
