//! The messages of a file, and the values in its GetList responses.

use super::tree::{Element, Reader, crc_fits};
use crate::decode::telegram::{Measure, Telegram};
use crate::model::Value;

/// The tag of a GetList response.
const GET_LIST_RESPONSE: u64 = 0x0701;
/// Largest power of ten by which a value may be scaled.
const MAX_SCALER: i8 = 15;

/// Reads all messages; why the file as a whole cannot be taken otherwise.
pub(super) fn read(content: &[u8], telegram: &mut Telegram) -> Result<(), String> {
    let mut reader = Reader::new(content);
    let mut messages = 0;
    while !reader.rest().is_empty() {
        // Some makers pad inside the file.
        if reader.rest().iter().all(|b| *b == 0) {
            break;
        }
        messages += 1;
        message(content, &mut reader, telegram).map_err(|why| format!("message {messages} {why}"))?;
    }
    if messages == 0 { Err("holds no message".to_owned()) } else { Ok(()) }
}

fn message(content: &[u8], reader: &mut Reader<'_>, telegram: &mut Telegram) -> Result<(), String> {
    let start = reader.at();
    if reader.begin_list()? != 6 {
        return Err("is malformed: not six elements".to_owned());
    }
    for _ in 0..3 {
        reader.element()?;
    }
    let body = reader.element()?;
    let covered = &content[start..reader.at()];
    let crc: Option<u16> = reader.element()?.whole();
    let crc = crc.ok_or("is malformed: no CRC")?;
    if !crc_fits(covered, crc.to_be_bytes()) {
        return Err("has a CRC that does not fit".to_owned());
    }
    if reader.element()? != Element::End {
        return Err("is malformed: no end".to_owned());
    }
    let Some([tag, body]) = body.list() else { return Err("is malformed: no body".to_owned()) };
    if tag.whole() == Some(GET_LIST_RESPONSE) {
        values(body, telegram)?;
    }
    Ok(())
}

fn values(body: &Element<'_>, telegram: &mut Telegram) -> Result<(), String> {
    let entries = body.list().and_then(|body| body.get(4)).and_then(Element::list);
    for entry in entries.ok_or("is malformed: no list of values")? {
        let Some([name, _, _, unit, scaler, value, _]) = entry.list() else {
            return Err("is malformed: a value has not seven elements".to_owned());
        };
        let Some(&[a, b, c, d, e, f]) = name.octets() else { continue };
        let history = if f == 0xff { String::new() } else { format!("*{f}") };
        let name = format!("{a}-{b}:{c}.{d}.{e}{history}");
        let unit: Option<u8> = unit.whole().filter(|unit| *unit != 0);
        // Without a unit it is an identifier, a key or a status.
        let (Some(unit), true) = (unit, history.is_empty()) else { continue };
        let raw = match value {
            Element::Signed(v) => Value::I64(*v),
            Element::Unsigned(v) => Value::unsigned(*v),
            _ => continue,
        };
        match scaled(raw, scaler.whole().unwrap_or(0)) {
            Ok(value) => {
                let unit = Some(self::unit(unit));
                telegram.measures.push(Measure { unit, ..Measure::new(name, value) });
            }
            Err(why) => telegram.refuse(&name, why),
        }
    }
    Ok(())
}

/// A whole number times a power of ten; whole numbers stay whole.
fn scaled(raw: Value, scaler: i8) -> Result<Value, String> {
    if scaler.unsigned_abs() > MAX_SCALER.unsigned_abs() {
        return Err(format!("its scaler {scaler} is not between -{MAX_SCALER} and {MAX_SCALER}"));
    }
    let number = match raw {
        Value::I64(v) => v as f64,
        Value::U64(v) => v as f64,
        _ => return Err("is no number".to_owned()),
    };
    let power = u32::from(scaler.unsigned_abs());
    let whole = match raw {
        Value::I64(v) => 10i64.checked_pow(power).and_then(|factor| v.checked_mul(factor)),
        _ => None,
    };
    match (scaler, whole) {
        (0, _) => Ok(raw),
        (1.., Some(whole)) => Ok(Value::I64(whole)),
        (1.., None) => Ok(Value::F64(number * 10f64.powi(i32::from(scaler)))),
        // Dividing by a power of ten is rounded once and right.
        _ => Ok(Value::F64(number / 10f64.powi(i32::from(-scaler)))),
    }
}

/// The units of DLMS (IEC 62056-62) that meters use.
fn unit(code: u8) -> String {
    match code {
        7 | 8 => "°",
        9 => "°C",
        13 | 14 => "m3",
        15 | 16 => "m3/h",
        27 => "W",
        28 => "VA",
        29 => "var",
        30 => "Wh",
        31 => "VAh",
        32 => "varh",
        33 => "A",
        34 => "C",
        35 => "V",
        44 => "Hz",
        56 => "%",
        other => return format!("unit {other}"),
    }
    .to_owned()
}
