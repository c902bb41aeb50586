//! Ruuvi's advertisements as Ruuvi documents them: formats 3 (RAWv1) and 5 (RAWv2) of the tags, 6 and E1 of Ruuvi Air; names as
//! in Ruuvi's own gateway.

use crate::model::Value;

/// Ruuvi's number among the makers of Bluetooth devices, as it is sent.
const COMPANY: [u8; 2] = [0x99, 0x04];
/// What an advertisement of a maker begins with.
const MAKERS_DATA: u8 = 0xff;
/// Longest advertisement, the extended one.
const MAX_BYTES: usize = 255;

/// What an advertisement holds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Values {
    pub(super) values: Vec<(&'static str, Value)>,
    /// What it says it has no value of.
    pub(super) invalid: Vec<&'static str>,
}

impl Values {
    fn add(&mut self, name: &'static str, value: Option<Value>) {
        match value {
            Some(value) => self.values.push((name, value)),
            None => self.invalid.push(name),
        }
    }
}

/// Bytes from hexadecimal digits.
pub(super) fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) || text.len() > 2 * MAX_BYTES || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!("not hexadecimal digits of at most {MAX_BYTES} bytes"));
    }
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok()).unwrap_or(0);
    Ok(text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect())
}

/// The values in an advertisement, or in the maker's data alone.
pub(super) fn advertisement(bytes: &[u8]) -> Result<Values, String> {
    let mut rest = bytes;
    while let [length, kind, after @ ..] = rest {
        let length = usize::from(*length);
        let Some(data) = length.checked_sub(1).and_then(|n| after.get(..n)) else { break };
        if *kind == MAKERS_DATA && data.starts_with(&COMPANY) {
            return formatted(&data[2..]);
        }
        rest = &after[length - 1..];
    }
    Err("not an advertisement of a Ruuvi tag".to_owned())
}

fn formatted(data: &[u8]) -> Result<Values, String> {
    match data {
        [3, data @ ..] if data.len() >= 13 => Ok(format_3(data)),
        [5, data @ ..] if data.len() >= 17 => Ok(format_5(data)),
        [6, data @ ..] if data.len() >= 16 => Ok(format_6(data)),
        [0xe1, data @ ..] if data.len() >= 28 => Ok(format_e1(data)),
        [3 | 5 | 6 | 0xe1, ..] => Err("the advertisement ends early".to_owned()),
        [8, ..] => Err("format 8 is encrypted: the gateway cannot read it".to_owned()),
        [other, ..] => Err(format!("format {other:X} is not known here (3, 5, 6 and E1 are)")),
        [] => Err("the advertisement is empty".to_owned()),
    }
}

fn format_3(data: &[u8]) -> Values {
    let mut values = Values::default();
    let sign = if data[1] & 0x80 == 0 { 1.0 } else { -1.0 };
    let temperature = sign * (f64::from(data[1] & 0x7f) * 100.0 + f64::from(data[2])) / 100.0;
    values.add("temperature", Value::float(temperature));
    values.add("humidity", Value::float(f64::from(data[0]) / 2.0));
    values.add("pressure", Some(Value::I64(i64::from(word(data, 3)) + 50_000)));
    for (name, at) in [("accelX", 5), ("accelY", 7), ("accelZ", 9)] {
        values.add(name, Value::float(f64::from(word(data, at) as i16) / 1_000.0));
    }
    values.add("voltage", Value::float(f64::from(word(data, 11)) / 1_000.0));
    values
}

fn format_5(data: &[u8]) -> Values {
    let mut values = climate(data);
    let signed = |at: usize| unless(data, at, 0x8000).map(|raw| f64::from(raw as i16));
    for (name, at) in [("accelX", 6), ("accelY", 8), ("accelZ", 10)] {
        values.add(name, signed(at).and_then(|raw| Value::float(raw / 1_000.0)));
    }
    let (volts, transmitted) = (word(data, 12) >> 5, word(data, 12) & 0x1f);
    values.add("voltage", (volts != 0x7ff).then(|| f64::from(volts + 1_600) / 1_000.0).and_then(Value::float));
    values.add("txPower", (transmitted != 0x1f).then(|| Value::I64(i64::from(transmitted) * 2 - 40)));
    values.add("movementCounter", (data[14] != 0xff).then(|| Value::I64(i64::from(data[14]))));
    values.add("measurementSequenceNumber", unless(data, 15, 0xffff).map(|raw| Value::I64(i64::from(raw))));
    values
}

/// What formats 5, 6 and E1 begin with.
fn climate(data: &[u8]) -> Values {
    let mut values = Values::default();
    let temperature = unless(data, 0, 0x8000).map(|raw| f64::from(raw as i16) / 200.0);
    values.add("temperature", temperature.and_then(Value::float));
    values.add("humidity", unless(data, 2, 0xffff).and_then(|raw| Value::float(f64::from(raw) / 400.0)));
    values.add("pressure", unless(data, 4, 0xffff).map(|raw| Value::I64(i64::from(raw) + 50_000)));
    values
}

/// Its luminosity is left out: no device that was made has a sensor for it.
fn format_6(data: &[u8]) -> Values {
    let mut values = climate(data);
    values.add("PM2.5", tenths(data, 6));
    values.add("CO2", unless(data, 8, 0xffff).map(|raw| Value::I64(i64::from(raw))));
    indexes(&mut values, data[10], data[11], data[15]);
    values.add("measurementSequenceNumber", Some(Value::I64(i64::from(data[14]))));
    values
}

fn format_e1(data: &[u8]) -> Values {
    let mut values = climate(data);
    for (name, at) in [("PM1.0", 6), ("PM2.5", 8), ("PM4.0", 10), ("PM10.0", 12)] {
        values.add(name, tenths(data, at));
    }
    values.add("CO2", unless(data, 14, 0xffff).map(|raw| Value::I64(i64::from(raw))));
    indexes(&mut values, data[16], data[17], data[27]);
    let long = |at: usize| u32::from_be_bytes([0, data[at], data[at + 1], data[at + 2]]);
    if long(18) != 0xff_ffff {
        values.add("luminosity", Value::float(f64::from(long(18)) / 100.0));
    }
    let sequence = Some(long(24)).filter(|raw| *raw != 0xff_ffff);
    values.add("measurementSequenceNumber", sequence.map(|raw| Value::I64(i64::from(raw))));
    values
}

/// The indexes of organic compounds and nitrogen oxides: nine bits each, the lowest among the flags.
fn indexes(values: &mut Values, voc: u8, nox: u8, flags: u8) {
    for (name, high, low) in [("VOC", voc, flags >> 6 & 1), ("NOx", nox, flags >> 7)] {
        let index = u16::from(high) << 1 | u16::from(low);
        values.add(name, (index != 0x1ff).then(|| Value::I64(i64::from(index))));
    }
}

fn tenths(data: &[u8], at: usize) -> Option<Value> {
    unless(data, at, 0xffff).and_then(|raw| Value::float(f64::from(raw) / 10.0))
}

/// Two bytes, unless they say that there is no value.
fn unless(data: &[u8], at: usize, invalid: u16) -> Option<u16> {
    Some(word(data, at)).filter(|raw| *raw != invalid)
}

/// Two bytes, high byte first.
fn word(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values as `name=value …`, then `! invalid …`.
    fn check(hex: &str, expected: Result<&str, &str>) {
        let told = from_hex(hex).and_then(|bytes| advertisement(&bytes)).map(|found| {
            let mut words: Vec<String> = found.values.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            words.extend(found.invalid.iter().map(|name| format!("!{name}")));
            words.join(" ")
        });
        match expected {
            Ok(expected) => assert_eq!(told.as_deref(), Ok(expected), "{hex}"),
            Err(words) => assert!(told.clone().is_err_and(|e| e.contains(words)), "{hex}: {told:?}"),
        }
    }

    /// The test vectors of Ruuvi's documentation.
    #[test]
    fn advertisements_are_read_as_documented() {
        check(
            "0201061BFF99040512FC5394C37C0004FFFC040CAC364200CD02005E000001",
            Ok("temperature=F64(24.3) humidity=F64(53.49) pressure=I64(100044) accelX=F64(0.004) accelY=F64(-0.004) \
                accelZ=F64(1.036) voltage=F64(2.977) txPower=I64(4) movementCounter=I64(66) \
                measurementSequenceNumber=I64(205)"),
        );
        check(
            "11FF990403291A1ECE1EFC18F94202CA0B53",
            Ok("temperature=F64(26.3) humidity=F64(20.5) pressure=I64(102766) accelX=F64(-1.0) accelY=F64(-1.726) \
                accelZ=F64(0.714) voltage=F64(2.899)"),
        );
        check(
            "0201061BFF9904058000FFFFFFFF800080008000FFFFFFFFFF02005E000001",
            Ok("!temperature !humidity !pressure !accelX !accelY !accelZ !voltage !txPower !movementCounter \
                !measurementSequenceNumber"),
        );
    }

    #[test]
    fn air_quality_is_read_as_documented() {
        check(
            "17FF9904061083 3BA0 C086 001B 0232 0500 FFFF DDD0 8FBABE".replace(' ', "").as_str(),
            Ok(
                "temperature=F64(21.135) humidity=F64(38.16) pressure=I64(99286) PM2.5=F64(2.7) CO2=I64(562) VOC=I64(11) \
                NOx=I64(1) measurementSequenceNumber=I64(221)",
            ),
        );
        check(
            "2BFF9904E1170C5668C79E0065007004BD11CA00C90A0213E0AC000000DECDEE100000000000CBB8334C884F",
            Ok("temperature=F64(29.5) humidity=F64(55.3) pressure=I64(101102) PM1.0=F64(10.1) PM2.5=F64(11.2) \
                PM4.0=F64(121.3) PM10.0=F64(455.4) CO2=I64(201) VOC=I64(20) NOx=I64(4) luminosity=F64(13027.0) \
                measurementSequenceNumber=I64(14601710)"),
        );
        check(
            &format!("2BFF9904E18000{}", "F".repeat(74)),
            Ok(
                "!temperature !humidity !pressure !PM1.0 !PM2.5 !PM4.0 !PM10.0 !CO2 !VOC !NOx !measurementSequenceNumber",
            ),
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        check("0201061BFF4C000512FC5394C37C0004FFFC040CAC364200CD02005E000001", Err("not an advertisement of a Ruuvi"));
        check("02010605FF99040512", Err("ends early"));
        check("04FF990406", Err("ends early"));
        check("04FF990407", Err("format 7 is not known"));
        check("04FF990408", Err("encrypted"));
        check("xyz", Err("hexadecimal"));
        check("00", Err("not an advertisement"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text: String) {
            let _ = advertisement(&bytes);
            let _ = formatted(&bytes);
            let _ = from_hex(&text);
        }
    }
}
