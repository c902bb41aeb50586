//! What a site file may say of one field of any source: unit, scaling, plausible range, words that are values.
//!
//! Order: what is declared as `invalid` is no value; a text becomes a value by `words`, else a number if it looks like one and
//! a number is wanted; then scale and offset, decimals, and last the plausible range. Whole numbers stay exact unless a scale
//! or a broken offset is given. What depends on earlier values (counters, deadbands) is in `damp.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::arithmetic::{double, multiply, whole_sum};
use super::{number, quoted};
use crate::model::Value;

/// Most decimals; a double has no more than 17 digits.
const MAX_DECIMALS: u8 = 15;

/// The options of one field, as they stand in the site file. Each is optional.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Where the value stands: a JSON pointer.
    pub pointer: Option<String>,
    /// Where the value stands in a packed payload: its first byte.
    pub at: Option<usize>,
    /// What its bytes mean there.
    pub r#type: Option<super::packed::Type>,
    /// In which order they arrive: ABCD is big-endian, DCBA little-endian.
    pub order: Option<super::modbus::Order>,
    /// The unit of the value that is stored.
    pub unit: Option<String>,
    /// Multiplied with the value.
    pub scale: Option<f64>,
    /// Added after scaling.
    pub offset: Option<f64>,
    /// Rounded to so many decimal places.
    pub decimals: Option<u8>,
    /// Smallest plausible value.
    pub min: Option<f64>,
    /// Largest plausible value.
    pub max: Option<f64>,
    /// Values that mean "none": nothing is stored, and nothing is wrong.
    pub invalid: Vec<Plain>,
    /// Texts that are values.
    pub words: BTreeMap<String, Plain>,
    /// The only kind of value that is taken.
    pub kind: Option<Kind>,
    /// What stands between whole and fraction in a text.
    pub decimal: Option<Decimal>,
    /// A text that follows the number in a text, as ` °C` in `21.5 °C`.
    pub suffix: Option<String>,
    /// It only grows; when it falls that is noted, and stored all the same.
    pub counter: bool,
    /// A change smaller than this since the last value that was taken is left out.
    pub deadband: Option<f64>,
    /// A value that comes sooner than this after the last one that was taken is left out.
    #[serde(with = "humantime_serde")]
    pub min_interval: Option<Duration>,
    /// Whether a text that is neither declared nor a number or state is refused. Set where texts come from a place that is
    /// named; the texts of sources that have them by themselves (InfluxDB, Sparkplug) are values as they are.
    #[serde(skip)]
    pub is_strict: bool,
}

/// A value as it is written in a site file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Plain {
    /// On or off.
    Switch(bool),
    /// A whole number.
    Whole(i64),
    /// A decimal.
    Decimal(f64),
    /// A text.
    Text(String),
}

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number; a number in a text too.
    Number,
    /// On or off; 0 and 1 too.
    Switch,
    /// A text.
    Text,
}

/// A decimal mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decimal {
    /// `21.5`
    #[default]
    Point,
    /// `21,5`
    Comma,
}

/// A field as it stands in a site file: just where it is, or all its options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Field(pub Options);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = Field;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON pointer such as \"/t\", or a table such as { pointer = \"/t\", unit = \"°C\" }")
            }

            fn visit_str<E: serde::de::Error>(self, pointer: &str) -> Result<Field, E> {
                Ok(Field(Options { pointer: Some(pointer.to_owned()), ..Options::default() }))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Field, A::Error> {
                Options::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Field)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Writes the table of a field of a source that is not MQTT: keys of its own, and the options that all fields have. Their one
/// meaning is that of [`Options`].
macro_rules! field_table {
    ($(#[$meta:meta])* $visible:vis struct $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $visible struct $name {
            $($own)*
            unit: Option<String>,
            scale: Option<f64>,
            offset: Option<f64>,
            decimals: Option<u8>,
            min: Option<f64>,
            max: Option<f64>,
            #[serde(default)]
            counter: bool,
            deadband: Option<f64>,
            #[serde(default, with = "humantime_serde")]
            min_interval: Option<std::time::Duration>,
        }

        impl $name {
            /// What is done to the field.
            fn options(&self) -> $crate::decode::shape::Options {
                $crate::decode::shape::Options {
                    unit: self.unit.clone(),
                    // A scale of 1 and an offset of 0 do nothing: whole numbers stay whole.
                    scale: self.scale.filter(|scale| *scale != 1.0),
                    offset: self.offset.filter(|offset| *offset != 0.0),
                    decimals: self.decimals,
                    min: self.min,
                    max: self.max,
                    counter: self.counter,
                    deadband: self.deadband,
                    min_interval: self.min_interval,
                    ..Default::default()
                }
            }
        }
    };
}
pub(crate) use field_table;

/// What became of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is to be stored.
    Value(Value),
    /// It was declared to mean "none".
    Absent,
    /// It is not plausible, or no value of the declared kind; in words.
    Refused(String),
}

impl Options {
    /// What in them contradicts itself, each as (key, words).
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let finite = [("scale", self.scale), ("offset", self.offset), ("min", self.min), ("max", self.max)];
        for (key, number) in finite {
            if number.is_some_and(|n| !n.is_finite()) {
                found.push((key, "must be a finite number".to_owned()));
            }
        }
        if self.scale == Some(0.0) {
            found.push(("scale", "is 0: every value would be 0".to_owned()));
        }
        if let (Some(min), Some(max)) = (self.min, self.max)
            && min > max
        {
            found.push(("min", format!("{min} is above max {max}: nothing would be plausible")));
        }
        if self.decimals.is_some_and(|n| n > MAX_DECIMALS) {
            found.push(("decimals", format!("must be at most {MAX_DECIMALS}")));
        }
        if self.deadband.is_some_and(|band| !(band > 0.0 && band.is_finite())) {
            found.push(("deadband", "must be above 0".to_owned()));
        }
        let numeric = self.scale.is_some() || self.offset.is_some() || self.min.is_some() || self.max.is_some();
        if self.kind == Some(Kind::Text) && (numeric || self.decimals.is_some() || self.counter) {
            found.push(("kind", "is text, but numeric options are given".to_owned()));
        }
        if self.counter && self.deadband.is_some() {
            found.push((
                "deadband",
                "stands beside `counter`: what is left out would be missing from the count".to_owned(),
            ));
        }
        found
    }

    /// Whether values stay as they are.
    pub fn is_plain(&self) -> bool {
        let placed = Self {
            pointer: self.pointer.clone(),
            at: self.at,
            r#type: self.r#type,
            order: self.order,
            unit: self.unit.clone(),
            ..Self::default()
        };
        *self == placed
    }

    /// Whether it depends on earlier values what becomes of one.
    pub fn has_memory(&self) -> bool {
        self.counter || self.deadband.is_some() || self.min_interval.is_some()
    }

    /// Whether texts are to be left to them.
    pub fn takes_texts(&self) -> bool {
        self.kind == Some(Kind::Text) || self.reads_texts()
    }

    /// Whether they give texts a meaning.
    pub fn reads_texts(&self) -> bool {
        let words = self.invalid.iter().any(|none| matches!(none, Plain::Text(_)));
        words || !self.words.is_empty() || self.decimal.is_some() || self.suffix.is_some()
    }

    /// What a text is declared to mean.
    pub fn word(&self, text: &str) -> Option<Result<Value, String>> {
        let meant = self.words.get(text.trim())?;
        Some(meant.value().ok_or_else(|| format!("the word {} stands for no finite number", quoted(text))))
    }

    /// What becomes of a value that was read: absent ones are `None`.
    pub fn take(&self, value: Value) -> Result<Option<Value>, String> {
        match self.apply(value) {
            Outcome::Value(value) => Ok(Some(value)),
            Outcome::Absent => Ok(None),
            Outcome::Refused(why) => Err(why),
        }
    }

    /// What becomes of a value.
    pub fn apply(&self, value: Value) -> Outcome {
        if self.invalid.iter().any(|none| none.means(&value)) {
            return Outcome::Absent;
        }
        let value = match self.spoken(value).and_then(|value| self.of_kind(value)) {
            Ok(value) => value,
            Err(reason) => return Outcome::Refused(reason),
        };
        // What a text turned out to be may be declared as none, too.
        if self.invalid.iter().any(|none| none.means(&value)) {
            return Outcome::Absent;
        }
        match self.measured(value) {
            Ok(value) => Outcome::Value(value),
            Err(reason) => Outcome::Refused(reason),
        }
    }

    /// A text becomes what it stands for.
    fn spoken(&self, value: Value) -> Result<Value, String> {
        let Value::Text(text) = &value else { return Ok(value) };
        let text = text.trim();
        if let Some(meant) = self.word(text) {
            return meant;
        }
        let (is_number, shown) = (self.wants_number(), quoted(text));
        let mut bare = text;
        if let Some(suffix) = &self.suffix {
            bare = text.strip_suffix(suffix.trim()).unwrap_or(text).trim_end();
        }
        let decimal = self.decimal.unwrap_or_default();
        if decimal == Decimal::Comma && bare.contains('.') {
            return Err(format!("{shown} holds a point where a decimal comma is declared"));
        }
        let is_free = self.kind == Some(Kind::Text) || (!self.is_strict && self.words.is_empty());
        match number::parse_marked(bare, decimal) {
            Some(Ok(number)) if is_number || !is_free => Ok(number),
            Some(Err(unfit)) if is_number || !is_free => Err(format!("{shown} {unfit}")),
            _ if is_number => Err(format!("{shown} is not a number")),
            _ if is_free => Ok(value),
            _ => number::either(bare).map_err(|_| format!("{shown} is neither a number nor one of the words declared")),
        }
    }

    fn wants_number(&self) -> bool {
        let numeric = self.scale.is_some() || self.offset.is_some() || self.min.is_some() || self.max.is_some();
        self.kind != Some(Kind::Text)
            && (numeric
                || self.kind == Some(Kind::Number)
                || self.decimal.is_some()
                || self.suffix.is_some()
                || self.decimals.is_some()
                || self.counter
                || self.deadband.is_some())
    }

    fn of_kind(&self, value: Value) -> Result<Value, String> {
        match (self.kind, value) {
            (Some(Kind::Number), Value::Bool(on)) => Err(format!("`{on}` is on or off, not a number")),
            (Some(Kind::Switch), Value::I64(v @ 0..=1)) => Ok(Value::Bool(v == 1)),
            (Some(Kind::Switch), Value::Bool(on)) => Ok(Value::Bool(on)),
            (Some(Kind::Switch), other) => Err(format!("{} is neither on nor off", shown(&other))),
            (Some(Kind::Text), Value::Text(text)) => Ok(Value::Text(text)),
            (Some(Kind::Text), other) => Err(format!("{} is not a text", shown(&other))),
            (_, value) => Ok(value),
        }
    }

    /// Scaled, rounded, and within the plausible range.
    fn measured(&self, value: Value) -> Result<Value, String> {
        let value = match (double(&value), self.scale, self.offset) {
            (None, ..) | (_, None, None) => value,
            (Some(v), None, Some(offset)) => {
                let sum = whole_sum(&value, offset).or_else(|| Value::float(v + offset));
                sum.ok_or_else(|| format!("{} is beyond a double once shifted", shown(&value)))?
            }
            (Some(v), Some(scale), offset) => {
                let scaled = multiply(v, scale) + offset.unwrap_or(0.0);
                Value::float(scaled).ok_or_else(|| format!("{} is beyond a double once scaled", shown(&value)))?
            }
        };
        let value = self.decimals.map_or_else(|| value.clone(), |decimals| value.clone().rounded(decimals));
        match (double(&value), self.min, self.max) {
            (Some(v), Some(min), _) if v < min => Err(format!("{} is below its min {min}", shown(&value))),
            (Some(v), _, Some(max)) if v > max => Err(format!("{} is above its max {max}", shown(&value))),
            _ => Ok(value),
        }
    }
}

impl Plain {
    /// Whether a value is this one; 85 and 85.0 are the same here.
    fn means(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Switch(a), Value::Bool(b)) => a == b,
            (Self::Text(a), Value::Text(b)) => a == b.trim(),
            (Self::Whole(a), Value::I64(b)) => a == b,
            (Self::Whole(a), Value::F64(b)) => *a as f64 == *b,
            (Self::Decimal(a), other) => double(other) == Some(*a),
            _ => false,
        }
    }

    fn value(&self) -> Option<Value> {
        match self {
            Self::Switch(on) => Some(Value::Bool(*on)),
            Self::Whole(v) => Some(Value::I64(*v)),
            Self::Decimal(v) => Value::float(*v),
            Self::Text(text) => Value::text(text),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::F64(v) => v.to_string(),
        Value::I64(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::Bool(v) => format!("`{v}`"),
        Value::Text(text) => quoted(text),
    }
}

#[cfg(test)]
mod tests;
