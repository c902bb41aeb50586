//! Delimited text: lines out of a stream, and values out of a line by a regular expression, columns, keys or JSON.
//!
//! A field that cannot be read is refused alone; the others of its line stand.

mod form;
mod split;
mod value;

use std::borrow::Cow;
use std::collections::HashMap;

use regex::Regex;

pub use form::{FixedColumn, Form};
pub use split::{Piece, Splitter};

use self::form::Raw;
use super::shape::{Decimal, Options};
use super::times::{self, Local};
use crate::model::{FieldName, Fields, MAX_TEXT_BYTES, Timestamp, Value};

/// How a line is read. Checked where the settings are read.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Where the values stand.
    pub form: Form,
    /// Lines that match one of these say nothing: banners, comments.
    pub skip: Vec<Regex>,
    /// What matches one of these is cut away before anything else: marks, checksums.
    pub strip: Vec<Regex>,
    /// The name whose value names the sensor.
    pub sensor_field: Option<String>,
    /// The name whose value is the reading's time.
    pub time_field: Option<String>,
    /// Names whose values are texts, whatever they look like.
    pub text_fields: Vec<String>,
    /// How numbers are written.
    pub decimal: Decimal,
    /// What may stand behind a number and means nothing: units.
    pub suffixes: Vec<String>,
    /// Names whose contents are in another notation: there a decimal number is none.
    pub hex_fields: Vec<String>,
    /// Per name, what is done to its value.
    pub options: HashMap<String, Options>,
}

/// What a line says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The sensor it names.
    pub sensor: Option<String>,
    /// The time it names.
    pub time: Option<Timestamp>,
    /// What can be read; empty if the line says that there is no value.
    pub fields: Fields,
    /// What cannot, in words.
    pub refused: Vec<String>,
    /// Names whose content is declared to mean that there is no value.
    pub absent: Vec<String>,
    /// Whether something stood there that was not needed.
    pub has_remains: bool,
    /// Whether the very first value is among what cannot be read: the line's beginning may be missing.
    pub is_first_refused: bool,
}

impl Rules {
    /// Whether a line bears a time of its own.
    pub const fn tells_time(&self) -> bool {
        self.time_field.is_some()
    }

    /// Reads a line (without its delimiter); `None` if it says nothing; in words why it cannot be read at all.
    pub fn decode(&self, line: &str, local: Local<'_>) -> Result<Option<Decoded>, String> {
        if line.trim().is_empty() || self.skip.iter().any(|skip| skip.is_match(line)) {
            return Ok(None);
        }
        let mut line = Cow::Borrowed(line);
        for strip in &self.strip {
            if strip.is_match(&line) {
                line = strip.replace_all(&line, "").into_owned().into();
            }
        }
        let also: Vec<&str> = self.sensor_field.iter().chain(&self.time_field).map(String::as_str).collect();
        let items = self.form.take_apart(&line, &also)?;
        let mut decoded = Decoded { has_remains: items.has_remains, ..Decoded::default() };
        for (index, (name, raw)) in items.items.into_iter().enumerate() {
            let refused_before = decoded.refused.len();
            if self.sensor_field.as_ref() == Some(&name) {
                decoded.sensor = Some(raw.text().ok_or_else(|| format!("`{name}` names no sensor"))?.trim().to_owned());
            } else if self.time_field.as_ref() == Some(&name) {
                let text = raw.text().ok_or_else(|| format!("`{name}` is no time"))?;
                decoded.time = Some(times::of_text(text.trim(), local).map_err(|why| format!("`{name}`: {why}"))?);
            } else {
                match self.value(&name, &raw).map(|value| (FieldName::new(&name), value)) {
                    Ok((Ok(field), Some(value))) => decoded.fields.push((field, value)),
                    Ok((_, None)) => decoded.absent.push(name),
                    Ok((Err(error), _)) => decoded.refused.push(error.to_string()),
                    Err(words) => decoded.refused.push(format!("field {name}: {words}")),
                }
            }
            decoded.is_first_refused |= index == 0 && decoded.refused.len() > refused_before;
        }
        if let Some(name) = self.sensor_field.as_ref().filter(|_| decoded.sensor.is_none()) {
            return Err(format!("line names no sensor (`{name}`)"));
        }
        if let Some(name) = self.time_field.as_ref().filter(|_| decoded.time.is_none()) {
            return Err(format!("line names no time (`{name}`)"));
        }
        Ok(Some(decoded))
    }

    /// A field's value; `None` if it says that there is none.
    fn value(&self, name: &str, raw: &Raw<'_>) -> Result<Option<Value>, String> {
        let value = match raw {
            Raw::Twice => return Err("stands twice in the line".to_owned()),
            Raw::Whole(whole) => Value::I64(*whole),
            Raw::Text(text) if self.hex_fields.iter().any(|hex| hex == name) => {
                return Err(format!("`{}` is no hexadecimal number", value::shortened(text)));
            }
            Raw::Json(serde_json::Value::Number(number)) => json_number(number)?,
            Raw::Json(serde_json::Value::Bool(on)) => Value::Bool(*on),
            Raw::Json(serde_json::Value::String(text)) => self.text_value(name, text)?,
            Raw::Json(_) => return Err("is no single value".to_owned()),
            Raw::Text(text) => self.text_value(name, text)?,
        };
        self.options.get(name).map_or(Ok(Some(value.clone())), |options| options.take(value))
    }

    /// The number without a unit that may stand behind it.
    fn without_suffix<'t>(&self, text: &'t str) -> &'t str {
        let bare = self.suffixes.iter().filter_map(|suffix| text.strip_suffix(suffix.as_str()));
        bare.min_by_key(|bare| bare.len()).unwrap_or(text)
    }

    fn text_value(&self, name: &str, text: &str) -> Result<Value, String> {
        match text.trim() {
            "" => Err("is empty".to_owned()),
            text if self.text_fields.iter().any(|field| field == name) => {
                Value::text(text).ok_or_else(|| format!("text is longer than {MAX_TEXT_BYTES} bytes"))
            }
            text => match self.options.get(name).and_then(|options| options.word(text)) {
                Some(meant) => meant,
                None => value::value(self.without_suffix(text), self.decimal),
            },
        }
    }
}

impl Raw<'_> {
    fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some((*text).to_owned()),
            Self::Json(serde_json::Value::String(text)) => Some(text.clone()),
            Self::Json(serde_json::Value::Number(number)) => Some(number.to_string()),
            Self::Whole(whole) => Some(whole.to_string()),
            Self::Json(_) | Self::Twice => None,
        }
    }
}

fn json_number(number: &serde_json::Number) -> Result<Value, String> {
    let whole = number.as_i64().map(Value::I64).or_else(|| number.as_u64().map(Value::unsigned));
    whole.or_else(|| number.as_f64().and_then(Value::float)).ok_or_else(|| format!("{number} is not a finite number"))
}

#[cfg(test)]
mod tests;
