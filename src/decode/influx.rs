//! InfluxDB line protocol: `measurement,tag=a field=21.5,n=3i 1556813561098000000`.
//!
//! One reading a line; the sensor is the series (measurement and tags, sorted by their keys), unescaped. A bad line costs one
//! line and is named by its number. Times are nanoseconds unless another form is declared: guessing the unit would put a
//! message of milliseconds into 1970 for one reader and into today for another.

use super::found::{Decoded, Measured, Names, Taken};
use super::times::{self, Format, Local};
use super::{number, quoted, text_of};
use crate::model::Value;

/// Most tags of one line.
const MAX_TAGS: usize = 32;
/// What line protocol writes when nothing else is said.
const NANOSECONDS: Format = Format::Epoch { per_second: 1_000_000_000 };

/// Reads line protocol.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    names: Names,
    /// The text of an escaped key in hand.
    scratch: String,
}

impl Decoder {
    /// What the lines hold.
    pub(super) fn decode(&mut self, payload: &[u8], format: &Format, local: Local<'_>) -> Result<Decoded, String> {
        let format = if *format == Format::Auto { &NANOSECONDS } else { format };
        let mut rest = text_of(payload)?;
        let mut decoded = Decoded::default();
        let mut number = 0;
        let mut across_lines = true;
        let mut says_something = false;
        while !rest.is_empty() {
            number += 1;
            let (line, after) = split_line(rest, &mut across_lines);
            rest = after;
            let line = line.trim_end_matches('\r');
            if line.trim_start().is_empty() {
                continue;
            }
            if line.trim_start().starts_with('#') {
                says_something = true;
                continue;
            }
            match self.line(line, format, local, &mut decoded) {
                Ok(measured) => {
                    if !decoded.push(measured) {
                        break;
                    }
                }
                Err(reason) => decoded.refused.add(None, format_args!("line {number}: {reason}")),
            }
        }
        if decoded.readings.is_empty() && decoded.refused.is_empty() && !says_something {
            return Err("payload holds no line of data".to_owned());
        }
        decoded.or_reasons()
    }

    fn line(&mut self, line: &str, format: &Format, local: Local<'_>, all: &mut Decoded) -> Result<Measured, String> {
        let line = line.trim_start_matches(' ');
        let (series, rest) = cut(line, b' ', false).ok_or("a measurement without fields")?;
        let sensor = series_name(series)?;
        let rest = rest.trim_start_matches(' ');
        let (fields, time) = match cut(rest, b' ', true) {
            Some((fields, time)) => (fields, time.trim()),
            None => (rest, ""),
        };
        let at = match time {
            "" => None,
            time if matches!(format, Format::Epoch { .. })
                && matches!(number::parse(time), Some(Ok(Value::F64(_)))) =>
            {
                return Err(format!("time {} is no whole number", quoted(time)));
            }
            time => Some(times::of_text_as(time, format, local)?),
        };
        let mut taken = Taken::new(None, &mut all.refused);
        if fields.ends_with(',') {
            return Err("a comma without a field".to_owned());
        }
        let mut rest = fields;
        while !rest.is_empty() {
            let (pair, after) = cut(rest, b',', true).unwrap_or((rest, ""));
            rest = after;
            let (key, value) = cut(pair, b'=', false).ok_or_else(|| format!("{} is no field", quoted(pair)))?;
            let value = value_of(value).map_err(|why| format!("field {} {why}", quoted(key)))?;
            unescape(key, &mut self.scratch);
            taken.named(&mut self.names, &self.scratch, value);
        }
        let fields = taken.fields;
        if fields.is_empty() {
            return Err("no field is left".to_owned());
        }
        Ok(Measured { sensor: Some(sensor), at, fields, ..Measured::default() })
    }
}

/// The first line and what follows. A newline inside a quoted value ends no line, until a quotation mark was found that is
/// never closed: from then on every newline does, so that one mark swallows nothing and no text is read again and again.
fn split_line<'t>(text: &'t str, across_lines: &mut bool) -> (&'t str, &'t str) {
    let bytes = text.as_bytes();
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    if *across_lines && bytes[..end].contains(&b'"') {
        let (mut inside, mut escaped) = (false, false);
        for (i, b) in bytes.iter().enumerate() {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => inside = !inside,
                b'\n' if !inside => return (&text[..i], &text[i + 1..]),
                _ => {}
            }
        }
        if !inside {
            return (text, "");
        }
        *across_lines = false;
    }
    (&text[..end], text.get(end + 1..).unwrap_or_default())
}

/// What stands before and after the first unescaped `mark`; within quotation marks there is none, if they count.
fn cut(text: &str, mark: u8, quotes: bool) -> Option<(&str, &str)> {
    let (mut inside, mut escaped) = (false, false);
    for (i, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' if quotes => inside = !inside,
            b if b == mark && !inside => return Some((&text[..i], &text[i + 1..])),
            _ => {}
        }
    }
    None
}

/// Measurement and tags, unescaped; tags in the order of their keys, so that a series has one name.
fn series_name(series: &str) -> Result<String, String> {
    let (measurement, mut rest) = cut(series, b',', false).unwrap_or((series, ""));
    if measurement.is_empty() {
        return Err("the measurement has no name".to_owned());
    }
    if rest.is_empty() && series.len() > measurement.len() {
        return Err("a comma without a tag".to_owned());
    }
    let mut tags: Vec<&str> = Vec::new();
    while !rest.is_empty() {
        let (tag, after) = cut(rest, b',', false).unwrap_or((rest, ""));
        rest = after;
        match cut(tag, b'=', false) {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => tags.push(tag),
            _ => return Err(format!("tag {} has no value", quoted(tag))),
        }
        if tags.len() > MAX_TAGS {
            return Err(format!("more than {MAX_TAGS} tags"));
        }
    }
    tags.sort_unstable();
    let key = |tag: &str| cut(tag, b'=', false).map(|(key, _)| key.to_owned());
    if let Some(pair) = tags.windows(2).find(|pair| key(pair[0]) == key(pair[1])) {
        return Err(format!("tag {} stands twice", quoted(&key(pair[0]).unwrap_or_default())));
    }
    let mut name = String::with_capacity(series.len());
    let mut piece = String::new();
    for (i, part) in std::iter::once(measurement).chain(tags).enumerate() {
        if i > 0 {
            name.push(',');
        }
        unescape(part, &mut piece);
        name.push_str(&piece);
    }
    Ok(name)
}

/// Without the backslashes before `,`, `=` and space; others stand for themselves.
fn unescape(text: &str, into: &mut String) {
    into.clear();
    let mut rest = text;
    while let Some(i) = rest.find('\\') {
        into.push_str(&rest[..i]);
        if !rest[i + 1..].starts_with([',', '=', ' ']) {
            into.push('\\');
        }
        rest = &rest[i + 1..];
    }
    into.push_str(rest);
}

fn value_of(text: &str) -> Result<Value, String> {
    let last = text.as_bytes().last().copied().ok_or("has no value")?;
    if let Some(inside) = text.strip_prefix('"') {
        let inside = inside.strip_suffix('"').ok_or("is a text without its closing quotation mark")?;
        let plain = inside.replace("\\\"", "\"").replace("\\\\", "\\");
        return Value::text(&plain).ok_or_else(|| format!("is a text of {} bytes, over 256", plain.len()));
    }
    // A last character of several bytes is none of those below.
    let digits = text.get(..text.len() - 1).unwrap_or_default();
    let not = |what: &str| format!("({}) is no {what}", quoted(text));
    match last {
        b'i' => digits.parse().map(Value::I64).map_err(|_| not("whole number of 64 bits")),
        b'u' => digits.parse().map(Value::unsigned).map_err(|_| not("unsigned number of 64 bits")),
        b'0'..=b'9' | b'.' => match number::parse(text) {
            // Without a suffix it is a double by the protocol, however it looks.
            Some(Ok(value)) => Ok(match value {
                Value::I64(v) => Value::F64(v as f64),
                Value::U64(v) => Value::F64(v as f64),
                other => other,
            }),
            Some(Err(number::Unfit::Whole)) => text.parse().ok().and_then(Value::float).ok_or_else(|| not("number")),
            _ => Err(not("number")),
        },
        _ => match text {
            "t" | "T" | "true" | "True" | "TRUE" => Ok(Value::Bool(true)),
            "f" | "F" | "false" | "False" | "FALSE" => Ok(Value::Bool(false)),
            _ => Err(not("value")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    /// Readings as `sensor@time name=value …`, one a line, then `! reasons`; or `refused: reason`.
    fn check(payload: &str, expected: &[&str]) {
        let local = Local { zone: None, arrival: Timestamp::EPOCH };
        let told: Vec<String> = match Decoder::default().decode(payload.as_bytes(), &Format::Auto, local) {
            Err(reason) => vec![format!("refused: {reason}")],
            Ok(decoded) => {
                let lines = decoded.readings.iter().map(|m| {
                    let fields: Vec<_> = m.fields.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
                    let at = m.at.map(|t| format!("@{t}")).unwrap_or_default();
                    format!("{}{at} {}", m.sensor.clone().unwrap(), fields.join(" "))
                });
                lines.chain(decoded.refused.reasons().iter().map(|reason| format!("! {reason}"))).collect()
            }
        };
        assert_eq!(told, expected, "{payload}");
    }

    #[test]
    fn a_line_is_a_reading_of_its_series() {
        check(
            "my\\ meas,tag\\,k=v\\=1 f=2.5,i=42i,u=18446744073709551615u,b=t,s=\"a \\\"q\\\", x=1\" 1556813561098000000\n",
            &[
                "my meas,tag,k=v=1@2019-05-02T16:12:41.098Z f=F64(2.5) i=I64(42) u=U64(18446744073709551615) b=Bool(true) \
               s=Text(\"a \\\"q\\\", x=1\")",
            ],
        );
        check("m,b=2,a=1 v=1", &["m,a=1,b=2 v=F64(1.0)"]);
        check("m s=\"two\nlines\",v=1\nm v=2", &["m s=Text(\"two\\nlines\") v=F64(1.0)", "m v=F64(2.0)"]);
        check("m v=-1e3  1556813561098000000\r\n", &["m@2019-05-02T16:12:41.098Z v=F64(-1000.0)"]);
    }

    #[test]
    fn a_bad_line_costs_one_line() {
        check(
            "cpu v=1\ncpu v=\ncpu v=3\n# comment\n\ncpu,h= v=4\ncpu v=5x",
            &[
                "cpu v=F64(1.0)",
                "cpu v=F64(3.0)",
                "! line 2: field `v` has no value",
                "! line 6: tag `h=` has no value",
                "! line 7: field `v` (`5x`) is no value",
            ],
        );
        check("cpu", &["refused: line 1: a measurement without fields"]);
        check(
            "cpu v=9223372036854775808i",
            &["refused: line 1: field `v` (`9223372036854775808i`) is no whole number of 64 bits"],
        );
        check("cpu v=\"x", &["refused: line 1: field `v` is a text without its closing quotation mark"]);
        check(
            "cpu v=\"x\ncpu v=1",
            &["cpu v=F64(1.0)", "! line 1: field `v` is a text without its closing quotation mark"],
        );
        check("cpu v=nan", &["refused: line 1: field `v` (`nan`) is no value"]);
        check("# nothing\n", &[]);
        check("\n\n", &["refused: payload holds no line of data"]);
        check("m,a=1,a=2 f=1", &["refused: line 1: tag `a` stands twice"]);
        check("m f=1,", &["refused: line 1: a comma without a field"]);
        check("m f=1 1.7e18", &["refused: line 1: time `1.7e18` is no whole number"]);
        check("cpu v=1 yesterday", &["refused: line 1: `yesterday` is not a time in numbers since 1970"]);
    }

    #[test]
    fn a_flood_of_lines_is_bounded() {
        let many = "m v=1\n".repeat(super::super::found::MAX_BATCH + 5);
        let local = Local { zone: None, arrival: Timestamp::EPOCH };
        let decoded = Decoder::default().decode(many.as_bytes(), &Format::Auto, local).unwrap();
        assert_eq!(decoded.readings.len(), super::super::found::MAX_BATCH);
        assert!(decoded.refused.to_string().contains("more than 10000 readings"));
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(v: f64, i: i64, u: u64, b: bool, key in "[a-z ,=]{1,9}", tag in "[a-z ,=]{1,9}") {
            proptest::prop_assume!(v.is_finite());
            let escaped = |text: &str| text.replace(',', "\\,").replace('=', "\\=").replace(' ', "\\ ");
            let line = format!("m,t={} {}_v={v:e},i={i}i,u={u}u,b={b} 1556813561098000000", escaped(&tag), escaped(&key));
            let local = Local { zone: None, arrival: Timestamp::EPOCH };
            let decoded = Decoder::default().decode(line.as_bytes(), &Format::Auto, local).unwrap();
            let found = &decoded.readings[0];
            let series = format!("m,t={tag}");
            proptest::prop_assert_eq!(found.sensor.as_deref(), Some(series.as_str()));
            let named = format!("{key}_v");
            proptest::prop_assert_eq!(found.fields[0].0.as_str(), named.as_str());
            let values: Vec<Value> = found.fields.iter().map(|(_, value)| value.clone()).collect();
            proptest::prop_assert_eq!(values, [Value::F64(v), Value::I64(i), Value::unsigned(u), Value::Bool(b)]);
        }

        #[test]
        fn no_text_makes_it_panic(text: String, lines in r#"[mv=,\\ "0-9iut.\n-]{0,60}"#) {
            let local = Local { zone: None, arrival: Timestamp::EPOCH };
            let _ = Decoder::default().decode(text.as_bytes(), &Format::Auto, local);
            let _ = Decoder::default().decode(lines.as_bytes(), &Format::Auto, local);
        }
    }
}
