//! SenML (RFC 8428), in JSON or CBOR: a pack of records whose base name, time, unit and value hold until others are given.
//!
//! The field is the whole name. A time below 2^28 s is relative to the arrival, one from there on is absolute and believed
//! even if it is before 2000, because the standard leaves no doubt. If one name bears several units in a pack these are
//! several quantities: each is told apart by its unit.

use std::borrow::Cow;
use std::collections::HashMap;

use super::found::{Decoded, MAX_BATCH, Measured, Names, Taken};
use super::node::{Members, Node};
use super::{cbor, json, quoted, text_of};
use crate::model::{Timestamp, Value};

/// The version that is read.
const VERSION: f64 = 10.0;
/// Times below are relative to now; in seconds (RFC 8428, section 4.5.3).
const ABSOLUTE_FROM: f64 = 268_435_456.0;
/// What the numbers stand for in CBOR (RFC 8428, section 6).
const LABELS: [(&str, &str); 15] = [
    ("-1", "bver"),
    ("-2", "bn"),
    ("-3", "bt"),
    ("-4", "bu"),
    ("-5", "bv"),
    ("-6", "bs"),
    ("0", "n"),
    ("1", "u"),
    ("2", "v"),
    ("3", "vs"),
    ("4", "vb"),
    ("5", "s"),
    ("6", "t"),
    ("7", "ut"),
    ("8", "vd"),
];

/// What a value may stand under; a record has one of them at most (RFC 8428, section 4.2).
const VALUES: [&str; 4] = ["v", "vs", "vb", "vd"];

/// What holds until another record says otherwise.
#[derive(Default)]
struct Base<'a> {
    name: Cow<'a, str>,
    time: f64,
    unit: Option<Cow<'a, str>>,
    value: Option<Value>,
    sum: Option<Value>,
}

/// One record, resolved.
struct Record<'a> {
    name: String,
    unit: Option<Cow<'a, str>>,
    at: Timestamp,
    is_absolute: bool,
    value: Value,
}

/// What a pack holds.
pub(super) fn decode(payload: &[u8], names: &mut Names, arrival: Timestamp) -> Result<Decoded, String> {
    let is_text = payload.iter().find(|b| !b.is_ascii_whitespace()).is_none_or(|b| matches!(b, b'[' | b'{' | 0xef));
    let top = if is_text { json::parse(text_of(payload)?)? } else { cbor::parse(payload)? };
    let records = top.list().ok_or_else(|| format!("payload is {} where a SenML pack is an array", top.kind()))?;
    if records.len() > MAX_BATCH {
        return Err(format!("pack holds {} records, at most {MAX_BATCH} are taken", records.len()));
    }
    let mut decoded = Decoded::default();
    let mut base = Base::default();
    let mut found = Vec::with_capacity(records.len());
    for (i, record) in records.iter().enumerate() {
        let Node::Map(members) = record else {
            decoded.refused.add(Some(i), format_args!("{} where a record is an object", record.kind()));
            continue;
        };
        let members = labelled(members)?;
        match base.record(&members, arrival) {
            Ok(records) => found.extend(records.into_iter().map(|record| (i, record))),
            Err(reason) => decoded.refused.add(Some(i), reason),
        }
    }
    let parts = several_units(&found);
    for (i, record) in found {
        let part = parts.get(&record.name).filter(|units| units.len() > 1).and(record.unit.as_deref());
        let part = part.map(str::to_owned);
        let mut taken = Taken::new(Some(i), &mut decoded.refused);
        taken.named(names, &record.name, record.value);
        let fields = taken.fields;
        if !fields.is_empty() {
            let (at, is_meant) = (Some(record.at), record.is_absolute);
            decoded.push(Measured { index: Some(i), part, at, is_meant, fields, ..Measured::default() });
        }
    }
    if decoded.readings.is_empty() && decoded.refused.is_empty() {
        return Err("pack holds no value".to_owned());
    }
    decoded.or_reasons()
}

/// The members of a record under the standard's labels. A label that must be understood and is not ends the whole pack.
fn labelled<'n, 'a>(members: &'n Members<'a>) -> Result<HashMap<&'n str, &'n Node<'a>>, String> {
    let mut labelled = HashMap::with_capacity(members.len());
    for (key, value) in members {
        if key.ends_with('_') {
            return Err(format!("label {} must be understood and is not known here", quoted(key)));
        }
        let label = LABELS.iter().find(|(number, _)| *number == key.as_ref()).map_or(key.as_ref(), |(_, label)| label);
        labelled.insert(label, value);
    }
    match labelled.get("bver").map(|node| (node.double(), node.kind())) {
        Some((Some(version), _)) if version > VERSION => {
            Err(format!("SenML version {version} is newer than {VERSION}"))
        }
        Some((None, kind)) => Err(format!("`bver` is {kind}")),
        _ => Ok(labelled),
    }
}

/// The units under which each name stands.
fn several_units(found: &[(usize, Record<'_>)]) -> HashMap<String, Vec<Option<String>>> {
    let mut units: HashMap<String, Vec<Option<String>>> = HashMap::new();
    for (_, record) in found {
        let unit = record.unit.as_ref().map(ToString::to_string);
        match units.get_mut(&record.name) {
            Some(known) if known.contains(&unit) => {}
            Some(known) => known.push(unit),
            None => {
                units.insert(record.name.clone(), vec![unit]);
            }
        }
    }
    units
}

impl<'a> Base<'a> {
    /// Takes over what a record says for those after it, and resolves the record itself: no value, one, or value and sum.
    fn record(
        &mut self,
        members: &HashMap<&str, &'a Node<'_>>,
        arrival: Timestamp,
    ) -> Result<smallvec::SmallVec<[Record<'a>; 1]>, String> {
        let text = |key: &str| match members.get(key) {
            None => Ok(None),
            Some(Node::Text(text)) => Ok(Some(Cow::Borrowed(text.as_ref()))),
            Some(other) => Err(format!("`{key}` is {}", other.kind())),
        };
        let number = |key: &str| match members.get(key) {
            None => Ok(None),
            Some(node) => node.double().map(Some).ok_or_else(|| format!("`{key}` is {}", node.kind())),
        };
        let scalar = |key: &str| match members.get(key) {
            None => Ok(None),
            Some(Node::Scalar(value)) if !matches!(value, Value::Bool(_)) => Ok(Some(value.clone())),
            Some(Node::Unfit(text, unfit)) => Err(format!("`{key}` ({}) {unfit}", quoted(text))),
            Some(other) => Err(format!("`{key}` is {}", other.kind())),
        };
        if let Some(name) = text("bn")? {
            self.name = name;
        }
        if let Some(time) = number("bt")? {
            self.time = time;
        }
        self.unit = text("bu")?.or_else(|| self.unit.take());
        self.value = scalar("bv")?.or_else(|| self.value.take());
        self.sum = scalar("bs")?.or_else(|| self.sum.take());
        let name = format!("{}{}", self.name, text("n")?.unwrap_or_default());
        let unit = text("u")?.or_else(|| self.unit.clone());
        let (at, is_absolute) = when(self.time + number("t")?.unwrap_or(0.0), arrival)?;
        if VALUES.iter().filter(|key| members.contains_key(**key)).count() > 1 {
            return Err("more than one of `v`, `vs`, `vb` and `vd`".to_owned());
        }
        let mut records = smallvec::SmallVec::new();
        let mut add = |name: String, value| records.push(Record { name, unit: unit.clone(), at, is_absolute, value });
        let plain = match (members.get("vs"), members.get("vb"), members.get("vd")) {
            (Some(Node::Text(text)), ..) => {
                Some(Value::text(text).ok_or_else(|| format!("text of {} bytes, over 256", text.len()))?)
            }
            (_, Some(Node::Scalar(Value::Bool(on))), _) => Some(Value::Bool(*on)),
            (.., Some(_)) => return Err("`vd` holds data, not a value".to_owned()),
            (None, None, None) => scalar("v")?.map(|v| plus(v, self.value.as_ref())).transpose()?,
            _ => return Err("`vs` is no text, or `vb` no boolean".to_owned()),
        };
        let sum = scalar("s")?.map(|s| plus(s, self.sum.as_ref())).transpose()?;
        if (plain.is_some() || sum.is_some()) && name.is_empty() {
            return Err("a value without a name".to_owned());
        }
        if let Some(value) = plain {
            add(name.clone(), value);
        }
        if let Some(sum) = sum {
            add(format!("{name}.sum"), sum);
        }
        Ok(records)
    }
}

/// A value with its base added; whole numbers stay exact.
fn plus(value: Value, base: Option<&Value>) -> Result<Value, String> {
    let Some(base) = base else { return Ok(value) };
    if let (Value::I64(a), Value::I64(b)) = (&value, base)
        && let Some(sum) = a.checked_add(*b)
    {
        return Ok(Value::I64(sum));
    }
    let double = |v: &Value| Node::Scalar(v.clone()).double().unwrap_or(0.0);
    Value::float(double(&value) + double(base)).ok_or_else(|| "a sum beyond any double".to_owned())
}

/// The instant that a resolved time means, and whether it was absolute.
fn when(seconds: f64, arrival: Timestamp) -> Result<(Timestamp, bool), String> {
    let is_absolute = seconds >= ABSOLUTE_FROM;
    // By way of whole microseconds, so that 1276020076.001 s is not cut to .000.
    let micros = (seconds * 1e6).round();
    if !(-1e18..1e18).contains(&micros) {
        return Err(format!("`{seconds:e}` is not a time"));
    }
    let millis = (micros as i64).div_euclid(1_000);
    let millis = if is_absolute { millis } else { arrival.as_millis().saturating_add(millis) };
    let at =
        Timestamp::from_millis(millis).ok_or_else(|| format!("time `{seconds}` is outside the years 1970 to 9999"))?;
    Ok((at, is_absolute))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records as `name:part@time=value`, then `! reasons`; or `refused: reason`.
    fn check(payload: &[u8], expected: &[&str]) {
        let arrival = Timestamp::from_millis(1_772_366_400_000).unwrap();
        let told: Vec<String> = match decode(payload, &mut Names::default(), arrival) {
            Err(reason) => vec![format!("refused: {reason}")],
            Ok(decoded) => {
                let lines = decoded.readings.iter().map(|m| {
                    let (name, value) = &m.fields[0];
                    let part = m.part.as_ref().map(|part| format!(":{part}")).unwrap_or_default();
                    format!("{name}{part}@{}={value:?}", m.at.unwrap())
                });
                lines.chain(decoded.refused.reasons().iter().map(|reason| format!("! {reason}"))).collect()
            }
        };
        assert_eq!(told, expected, "{payload:x?}");
    }

    #[test]
    fn bases_hold_until_others_are_given() {
        check(
            br#"[{"bn":"d/","bt":1.276020076001e9,"bu":"A","n":"v","u":"V","v":120.1},{"n":"c","t":-5,"v":1.2}]"#,
            &["d/v@2010-06-08T18:01:16.001Z=F64(120.1)", "d/c@2010-06-08T18:01:11.001Z=F64(1.2)"],
        );
        check(
            br#"[{"bn":"d","bv":20,"v":1},{"v":1.5},{"vs":"on"},{"vb":true},{"s":7}]"#,
            &[
                "d@2026-03-01T12:00:00.000Z=I64(21)",
                "d@2026-03-01T12:00:00.000Z=F64(21.5)",
                "d@2026-03-01T12:00:00.000Z=Text(\"on\")",
                "d@2026-03-01T12:00:00.000Z=Bool(true)",
                "d_sum@2026-03-01T12:00:00.000Z=I64(7)",
            ],
        );
    }

    #[test]
    fn times_below_2_to_the_28_are_relative() {
        check(
            br#"[{"bn":"d","t":-3600,"v":1},{"t":268435455,"v":3},{"t":268435456,"v":4}]"#,
            &[
                "d@2026-03-01T11:00:00.000Z=I64(1)",
                "d@2034-09-02T09:24:15.000Z=I64(3)",
                "d@1978-07-04T21:24:16.000Z=I64(4)",
            ],
        );
        check(br#"[{"n":"d","t":1e30,"v":1}]"#, &["refused: [0]: `1e30` is not a time"]);
    }

    #[test]
    fn one_name_with_several_units_is_several_quantities() {
        check(
            br#"[{"bn":"d","bu":"%RH","v":20},{"u":"lon","v":20.5},{"n":"x","v":1}]"#,
            &[
                "d:%RH@2026-03-01T12:00:00.000Z=I64(20)",
                "d:lon@2026-03-01T12:00:00.000Z=F64(20.5)",
                "dx@2026-03-01T12:00:00.000Z=I64(1)",
            ],
        );
    }

    #[test]
    fn cbor_packs_use_numbers_for_labels() {
        // [{-2: "d", 2: 21.5}]
        let pack = [0x81, 0xa2, 0x21, 0x61, b'd', 0x02, 0xf9, 0x4d, 0x60];
        check(&pack, &["d@2026-03-01T12:00:00.000Z=F64(21.5)"]);
    }

    #[test]
    fn what_cannot_be_understood_ends_the_pack_or_the_record() {
        check(br#"[{"bver":99,"n":"a","v":1}]"#, &["refused: SenML version 99 is newer than 10"]);
        check(
            br#"[{"n":"a","v":1},{"n":"b","v":2,"c_":3}]"#,
            &["refused: label `c_` must be understood and is not known here"],
        );
        check(br#"{"n":"a"}"#, &["refused: payload is an object where a SenML pack is an array"]);
        check(
            br#"[{"n":"a","v":"x"},{"v":1},{"n":"b","vd":"AA"},7,{"n":"c","v":1}]"#,
            &[
                "c@2026-03-01T12:00:00.000Z=I64(1)",
                "! [0]: `v` is a string",
                "! [1]: a value without a name",
                "! [2]: `vd` holds data, not a value",
                "! [3]: a number where a record is an object",
            ],
        );
        check(b"[]", &["refused: pack holds no value"]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text in r#"[\[\]{}:,"bnvtu0-9e.-]{0,60}"#) {
            let _ = decode(&bytes, &mut Names::default(), Timestamp::EPOCH);
            let _ = decode(text.as_bytes(), &mut Names::default(), Timestamp::EPOCH);
        }
    }
}
