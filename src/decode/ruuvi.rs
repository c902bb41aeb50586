//! Ruuvi tags' advertisements, formats 3 (RAWv1) and 5 (RAWv2), as Ruuvi documents them; names as in Ruuvi's own gateway.

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
        [3 | 5, ..] => Err("the advertisement ends early".to_owned()),
        [other, ..] => Err(format!("format {other} is not known here (3 and 5 are)")),
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
    let mut values = Values::default();
    let unless = |at: usize, invalid: u16| Some(word(data, at)).filter(|raw| *raw != invalid);
    let signed = |at: usize| unless(at, 0x8000).map(|raw| f64::from(raw as i16));
    values.add("temperature", signed(0).and_then(|raw| Value::float(raw / 200.0)));
    values.add("humidity", unless(2, 0xffff).and_then(|raw| Value::float(f64::from(raw) / 400.0)));
    values.add("pressure", unless(4, 0xffff).map(|raw| Value::I64(i64::from(raw) + 50_000)));
    for (name, at) in [("accelX", 6), ("accelY", 8), ("accelZ", 10)] {
        values.add(name, signed(at).and_then(|raw| Value::float(raw / 1_000.0)));
    }
    let (volts, transmitted) = (word(data, 12) >> 5, word(data, 12) & 0x1f);
    values.add("voltage", (volts != 0x7ff).then(|| f64::from(volts + 1_600) / 1_000.0).and_then(Value::float));
    values.add("txPower", (transmitted != 0x1f).then(|| Value::I64(i64::from(transmitted) * 2 - 40)));
    values.add("movementCounter", (data[14] != 0xff).then(|| Value::I64(i64::from(data[14]))));
    values.add("measurementSequenceNumber", unless(15, 0xffff).map(|raw| Value::I64(i64::from(raw))));
    values
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
    fn other_bytes_are_refused() {
        check("0201061BFF4C000512FC5394C37C0004FFFC040CAC364200CD02005E000001", Err("not an advertisement of a Ruuvi"));
        check("02010605FF99040512", Err("ends early"));
        check("04FF990406", Err("format 6"));
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
