//! One document as one line of Extended JSON (version 2), as `mongoimport` reads it.
//!
//! Relaxed where nothing is lost by it (doubles, 32-bit integers, dates), canonical where a reader would otherwise guess
//! the type (`$numberLong`, `$numberDecimal`). So what is imported equals, type for type, what MongoDB delivery stores.

use std::fmt::Write;

use mongodb::bson::raw::{RawBsonRef, RawDocument};

/// Appends the line, with its line end; an error if the document is damaged or holds a type that is never made here.
pub(super) fn line(document: &RawDocument, to: &mut String) -> Result<(), String> {
    object(document, to)?;
    to.push('\n');
    Ok(())
}

fn object(document: &RawDocument, to: &mut String) -> Result<(), String> {
    to.push('{');
    for (i, element) in document.iter().enumerate() {
        let (key, value) = element.map_err(|error| error.to_string())?;
        if i > 0 {
            to.push(',');
        }
        text(key.as_str(), to);
        to.push(':');
        put(value, to)?;
    }
    to.push('}');
    Ok(())
}

fn put(value: RawBsonRef<'_>, to: &mut String) -> Result<(), String> {
    let written = match value {
        RawBsonRef::Double(v) => write!(to, "{v:?}"),
        RawBsonRef::Int32(v) => write!(to, "{v}"),
        RawBsonRef::Int64(v) => write!(to, "{{\"$numberLong\":\"{v}\"}}"),
        RawBsonRef::Decimal128(v) => write!(to, "{{\"$numberDecimal\":\"{v}\"}}"),
        RawBsonRef::Boolean(v) => write!(to, "{v}"),
        RawBsonRef::DateTime(v) => match v.try_to_rfc3339_string() {
            Ok(date) => write!(to, "{{\"$date\":\"{date}\"}}"),
            Err(error) => return Err(error.to_string()),
        },
        RawBsonRef::String(v) => {
            text(v, to);
            Ok(())
        }
        RawBsonRef::Document(v) => return object(v, to),
        RawBsonRef::Array(items) => {
            to.push('[');
            for (i, item) in items.into_iter().enumerate() {
                if i > 0 {
                    to.push(',');
                }
                put(item.map_err(|error| error.to_string())?, to)?;
            }
            to.push(']');
            Ok(())
        }
        other => return Err(format!("no document holds a {:?}", other.element_type())),
    };
    written.map_err(|error| error.to_string())
}

fn text(text: &str, to: &mut String) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            // Also the C1 controls and the Unicode line ends: a line stays one line for every reader.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                let _ = write!(to, "\\u{:04x}", c as u32);
            }
            c => to.push(c),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use mongodb::bson::{DateTime, Decimal128, Document, RawDocumentBuf, doc};

    use super::*;

    fn check(document: &Document, expected: &str) {
        let mut found = String::new();
        line(&RawDocumentBuf::try_from(document).unwrap(), &mut found).unwrap();
        assert_eq!(found.strip_suffix('\n').unwrap(), expected);
        assert!(serde_json::from_str::<serde_json::Value>(&found).is_ok());
    }

    #[test]
    fn every_type_has_its_form() {
        check(&doc! { "d": 21.0, "n": -0.0, "e": 1e300, "s": 5e-324 }, r#"{"d":21.0,"n":-0.0,"e":1e300,"s":5e-324}"#);
        check(&doc! { "i": 7, "l": 7_i64 }, r#"{"i":7,"l":{"$numberLong":"7"}}"#);
        check(
            &doc! { "u": Decimal128::from_str("18446744073709551615").unwrap() },
            r#"{"u":{"$numberDecimal":"18446744073709551615"}}"#,
        );
        check(&doc! { "b": true, "a": [{ "x": 1 }, false] }, r#"{"b":true,"a":[{"x":1},false]}"#);
        check(&doc! { "t": DateTime::from_millis(1_796_043_600_123) }, r#"{"t":{"$date":"2026-11-30T13:00:00.123Z"}}"#);
        check(&doc! { "q\"": "a\\b\"\n\u{1}\u{2028}é🌡" }, r#"{"q\"":"a\\b\"\n\u0001\u2028é🌡"}"#);
        check(&doc! { "x": 0.1 + 0.2 }, r#"{"x":0.30000000000000004}"#);
    }
}
