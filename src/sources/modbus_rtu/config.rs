//! `type = "modbus-rtu"` of the site file, and what it means once it is checked.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;

use super::ModbusRtu;
use super::bus::{Framing, Pace};
use super::device::Device;
use super::plan::{Wanted, blocks};
use crate::decode::modbus::{MAX_REGISTERS, Order, Shape, Table, Type};
use crate::decode::shape::{Options, Plain, field_table};
use crate::model::{FieldName, MAX_FIELDS, SensorName};
use crate::sources::serial::{DEFAULT_BAUD, Format, Keeper, Port};
use crate::sources::{Claims, Recording, Source, SourceConfig};

/// Device addresses of the standard end at 247; some devices answer to whoever asks at a reserved one (248, 254). 0 is the
/// broadcast, which nobody answers.
const UNIT_IDS: std::ops::RangeInclusive<u8> = 1..=254;
/// Most repetitions of a request: more would keep the line busy for one device.
const MAX_RETRIES: u32 = 10;
/// Longest wait for one answer.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// A serial line with Modbus devices on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    port: String,
    #[serde(default = "default_baud")]
    baud: u32,
    #[serde(default)]
    format: Format,
    /// How long a device may take to answer.
    #[serde(default = "default_timeout", with = "humantime_serde")]
    timeout: Duration,
    /// How long the line is silent before a request, besides the 3.5 characters of the standard.
    #[serde(default = "default_gap", with = "humantime_serde")]
    gap: Duration,
    /// How often a request without a right answer is repeated at once.
    #[serde(default = "default_retries")]
    retries: u32,
    /// Most registers that are read in vain to join two requests into one.
    #[serde(default)]
    max_gap: u16,
    devices: Vec<DeviceConfig>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceConfig {
    sensor: String,
    unit_id: u8,
    #[serde(default = "default_poll", with = "humantime_serde")]
    poll: Duration,
    /// Most registers in one request, for devices that allow fewer than the standard's 125.
    #[serde(default = "default_max_registers")]
    max_registers: u16,
    registers: Vec<RegisterConfig>,
}

field_table! {
    pub(super) struct RegisterConfig {
        field: String,
        table: Table,
        address: u16,
        #[serde(rename = "type")]
        kind: Option<Type>,
        #[serde(default)]
        order: Order,
        bit: Option<u8>,
        bits: Option<[u8; 2]>,
        /// How many registers a string has.
        length: Option<u16>,
        #[serde(default)]
        invalid: OneOrMany,
        /// Strings that are values.
        #[serde(default)]
        words: BTreeMap<String, Plain>,
        /// Address of the register with the decimal exponent (SunSpec scale factor), in the same table.
        scale_register: Option<u16>,
    }
}

/// Raw contents: one or several whole numbers, or texts such as `"0x80000000"`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged, expecting = "expected a whole number or a text such as \"0x8000\", or a list of them")]
enum OneOrMany {
    #[default]
    None,
    One(Raw),
    Many(Vec<Raw>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a whole number, or a text such as \"0x8000\"")]
enum Raw {
    Number(i64),
    Text(String),
}

fn default_baud() -> u32 {
    DEFAULT_BAUD
}
pub(super) fn default_timeout() -> Duration {
    Duration::from_secs(1)
}
fn default_gap() -> Duration {
    Duration::from_millis(20)
}
pub(super) fn default_retries() -> u32 {
    1
}
fn default_poll() -> Duration {
    Duration::from_secs(10)
}
fn default_max_registers() -> u16 {
    MAX_REGISTERS
}

/// What is wrong, as (key path, words).
type Wrong = Vec<(String, String)>;

impl SourceConfig for Config {
    fn claims(&self) -> Claims {
        claims(&self.port, &self.devices)
    }

    fn contradictions(&self) -> Wrong {
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

impl Config {
    /// The source, or everything that is wrong.
    pub(super) fn checked(&self) -> Result<ModbusRtu, Wrong> {
        let port = Port { path: self.port.clone(), baud: self.baud, format: self.format };
        let character = port.character();
        // 3.5 characters of silence separate frames (V1.02, section 2.5.1.1).
        let gap = self.gap.max(character * 7 / 2);
        let pace = Pace { timeout: self.timeout, gap, character, framing: Framing::Rtu };
        let line = Line { port, pace, retries: self.retries, max_gap: self.max_gap, unit_ids: UNIT_IDS };
        line.checked(&self.devices)
    }
}

/// What a line with devices is, whatever carries it.
pub(super) struct Line {
    pub(super) port: Port,
    pub(super) pace: Pace,
    pub(super) retries: u32,
    pub(super) max_gap: u16,
    pub(super) unit_ids: std::ops::RangeInclusive<u8>,
}

impl Line {
    /// The source, or everything that is wrong.
    pub(super) fn checked(self, configured: &[DeviceConfig]) -> Result<ModbusRtu, Wrong> {
        let mut wrong = self.port.contradictions();
        let mut say = |key: &str, words: String| wrong.push((key.to_owned(), words));
        let timeout = self.pace.timeout;
        if timeout.is_zero() || timeout > MAX_TIMEOUT {
            say("timeout", "must be from 1ms to 60s".to_owned());
        }
        if self.pace.gap > MAX_TIMEOUT {
            say("gap", "must be at most 60s".to_owned());
        }
        if self.retries > MAX_RETRIES {
            say("retries", format!("{} is more than {MAX_RETRIES}", self.retries));
        }
        if configured.is_empty() {
            say("devices", "names no device; add a [[sources.NAME.devices]] table".to_owned());
        }
        let mut sensors = HashSet::new();
        for (i, device) in configured.iter().enumerate() {
            if !sensors.insert(&device.sensor) {
                say(&format!("devices[{i}].sensor"), format!("`{}` is already another device's sensor", device.sensor));
            }
        }
        let mut devices = Vec::new();
        for (i, device) in configured.iter().enumerate() {
            match device.checked(self.max_gap, timeout, &self.unit_ids) {
                Ok(device) => devices.push(device),
                Err(inner) => wrong.extend(inner.into_iter().map(|(k, words)| (format!("devices[{i}].{k}"), words))),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(ModbusRtu::new(Keeper::new(self.port), self.pace, self.retries, devices))
    }
}

/// What devices claim.
pub(super) fn claims(port: &str, devices: &[DeviceConfig]) -> Claims {
    let units = devices.iter().flat_map(|device| {
        let with_unit = device.registers.iter().filter_map(|r| Some((r.field.clone(), r.unit.clone()?)));
        with_unit.map(|(field, unit)| (device.sensor.clone(), field, unit))
    });
    Claims {
        port: Some(port.to_owned()),
        sensors: devices.iter().map(|d| d.sensor.clone()).collect(),
        units: units.collect(),
        ..Claims::default()
    }
}

impl DeviceConfig {
    pub(super) fn checked(
        &self,
        max_gap: u16,
        timeout: Duration,
        unit_ids: &std::ops::RangeInclusive<u8>,
    ) -> Result<Device, Wrong> {
        let mut wrong = Wrong::new();
        let mut say = |key: &str, words: String| wrong.push((key.to_owned(), words));
        let sensor = SensorName::new(&self.sensor).map_err(|e| say("sensor", e.to_string())).ok();
        if !unit_ids.contains(&self.unit_id) {
            say("unit_id", format!("{} is not between {} and {}", self.unit_id, unit_ids.start(), unit_ids.end()));
        }
        if self.poll < Duration::from_millis(1) {
            say("poll", "must be at least 1ms".to_owned());
        }
        if !(1..=MAX_REGISTERS).contains(&self.max_registers) {
            say("max_registers", format!("{} is not between 1 and {MAX_REGISTERS}", self.max_registers));
        }
        if self.registers.is_empty() {
            say("registers", "names no register".to_owned());
        }
        if self.registers.len() > MAX_FIELDS {
            say("registers", format!("names {} fields, at most {MAX_FIELDS} are allowed", self.registers.len()));
        }
        let mut fields = Vec::new();
        let mut wanted = Vec::new();
        for (i, register) in self.registers.iter().enumerate() {
            let field = FieldName::new(&register.field);
            let twice = field.as_ref().is_ok_and(|f| fields.contains(f));
            let at = |key: &str| format!("registers[{i}].{key}");
            match field {
                Ok(field) if twice => wrong.push((at("field"), format!("`{field}` is already another register's"))),
                Ok(field) => fields.push(field),
                Err(error) => wrong.push((at("field"), error.to_string())),
            }
            match register.checked(self.max_registers) {
                Ok(one) => wanted.push(one),
                Err(inner) => wrong.extend(inner.into_iter().map(|(key, words)| (at(key), words))),
            }
        }
        match sensor {
            Some(sensor) if wrong.is_empty() => {
                let blocks = blocks(self.unit_id, &wanted, max_gap, self.max_registers);
                Ok(Device::new(sensor, self.unit_id, self.poll, timeout, fields, blocks))
            }
            _ => Err(wrong),
        }
    }
}

impl RegisterConfig {
    pub(super) fn checked(&self, most: u16) -> Result<Wanted, Vec<(&'static str, String)>> {
        let kind = self.kind.unwrap_or(if self.table.is_bits() { Type::Bool } else { Type::U16 });
        let mut wrong = Vec::new();
        if self.table.is_bits() {
            self.only_a_bit(kind, &mut wrong);
        }
        let one_register = kind.width() == 1 && kind != Type::String;
        if one_register && matches!(self.order, Order::Cdab | Order::Dcba) {
            wrong.push(("order", "swaps words, but the type has only one".to_owned()));
        }
        let bits = match (self.bit, self.bits) {
            (None, None) => None,
            (Some(_), Some(_)) => {
                wrong.push(("bits", "and `bit` exclude each other".to_owned()));
                None
            }
            (Some(bit), None) => Some((bit, bit, true)),
            (None, Some([low, high])) => Some((low, high, false)),
        };
        if let Some((low, high, as_bit)) = bits {
            let key = if as_bit { "bit" } else { "bits" };
            let most = kind.width() * 16 - 1;
            if !matches!(kind, Type::U16 | Type::U32 | Type::U64) {
                wrong.push((key, "needs type = \"u16\", \"u32\" or \"u64\"".to_owned()));
            } else if low > high || u16::from(high) > most {
                wrong.push((key, format!("must lie between 0 (lowest) and {most}, the lower one first")));
            }
        }
        let registers = self.registers(kind, most, &mut wrong);
        let unscaled = matches!(kind, Type::Bool | Type::String) || bits.is_some();
        let options = Options { words: self.words.clone(), ..self.options() };
        if unscaled && (options.scale.is_some() || options.offset.is_some() || self.scale_register.is_some()) {
            wrong.push(("scale", "a bit, bit field or string cannot be scaled".to_owned()));
        }
        if !self.words.is_empty() && kind != Type::String {
            wrong.push(("words", "are for strings".to_owned()));
        }
        wrong.extend(options.contradictions());
        let mut invalid = self.invalid.raw(kind).unwrap_or_else(|words| {
            wrong.push(("invalid", words));
            Vec::new()
        });
        if self.scale_register.is_some() {
            invalid.extend(kind.not_implemented());
        }
        let shape = Shape { kind, order: self.order, bits, invalid, options, registers };
        let wanted = Wanted { table: self.table, address: self.address, exponent: self.scale_register, shape };
        let (start, end) = wanted.span();
        if end > 0x1_0000 {
            wrong.push(("address", format!("{} and the type's width reach beyond 65535", self.address)));
        }
        if end - start > u32::from(if self.table.is_bits() { self.table.most() } else { most }) {
            wrong.push(("scale_register", "value and scale do not fit into one request".to_owned()));
        }
        if wrong.is_empty() { Ok(wanted) } else { Err(wrong) }
    }

    /// How many registers a string has.
    fn registers(&self, kind: Type, most: u16, wrong: &mut Vec<(&'static str, String)>) -> u16 {
        match (kind, self.length) {
            (Type::String, Some(length)) if (1..=most).contains(&length) => return length,
            (Type::String, Some(length)) => {
                wrong.push(("length", format!("{length} is not between 1 and {most} registers")));
            }
            (Type::String, None) => wrong.push(("length", "is missing: how many registers the string has".to_owned())),
            (_, Some(_)) => wrong.push(("length", "has a meaning with type = \"string\" only".to_owned())),
            (_, None) => return 0,
        }
        1
    }

    fn only_a_bit(&self, kind: Type, wrong: &mut Vec<(&'static str, String)>) {
        if kind != Type::Bool {
            wrong.push(("type", "must be \"bool\" in a table of single bits".to_owned()));
        }
        if self.bit.is_some() || self.bits.is_some() {
            wrong.push(("bit", "the table's entries are single bits already".to_owned()));
        }
        if self.scale_register.is_some() || !matches!(self.invalid, OneOrMany::None) {
            wrong.push(("invalid", "and `scale_register` have no meaning for single bits".to_owned()));
        }
    }
}

impl OneOrMany {
    /// The unsigned contents, in the width of `kind`.
    fn raw(&self, kind: Type) -> Result<Vec<u64>, String> {
        let raws = match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => &many[..],
        };
        let bits = u32::from(kind.width()) * 16;
        raws.iter().map(|raw| raw.bits(bits)).collect()
    }
}

impl Raw {
    fn bits(&self, width: u32) -> Result<u64, String> {
        let value = match self {
            Self::Number(n) => i128::from(*n),
            Self::Text(text) => match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
                Some(hex) => u64::from_str_radix(hex, 16).map(i128::from),
                None => text.parse(),
            }
            .map_err(|_| format!("`{text}` is no whole number, as -1 or \"0x8000\""))?,
        };
        let (low, high) = (-(1i128 << (width - 1)), (1i128 << width) - 1);
        if value < low || value > high {
            return Err(format!("{value} does not fit into {width} bits"));
        }
        Ok(value as u64 & (u64::MAX >> (64 - width)))
    }
}
