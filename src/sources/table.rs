//! Reads a table of the site file into a struct, strictly: a number is a number, a text is a text, 1.5 is not 2.
//!
//! Values that came from the environment are always text there, so for them alone `"5"` is also a number and `"true"` also
//! a truth value. Enumerations report which words are allowed; the path of the offending key comes with every error.

use config::{Value, ValueKind};
use serde::de::value::{Error, MapAccessDeserializer, MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_path_to_error::Segment;

use super::ReadError;

/// Origin of values that came from the environment.
pub const ENVIRONMENT: &str = "environment";

/// Reads `value`; the error names the key inside it.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T, ReadError> {
    serde_path_to_error::deserialize(Strict(value))
        .map_err(|error| ReadError { path: path_text(error.path()), message: error.inner().to_string() })
}

/// The path as it would be written in TOML: keys that are not bare are quoted.
fn path_text(path: &serde_path_to_error::Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                if !text.is_empty() {
                    text.push('.');
                }
                if is_bare(key) {
                    text.push_str(key);
                } else {
                    text.push_str(&format!("{key:?}"));
                }
            }
            Segment::Unknown => {}
        }
    }
    text
}

/// Whether TOML allows this key without quotes.
pub fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

struct Strict(Value);

impl Strict {
    /// What a text from the environment means where a number or a truth value is wanted.
    fn plain(self) -> Self {
        let ValueKind::String(text) = &self.0.kind else { return self };
        if self.0.origin() != Some(ENVIRONMENT) {
            return self;
        }
        let text = text.trim();
        let kind = if let Ok(number) = text.parse::<i64>() {
            ValueKind::I64(number)
        } else if let Ok(truth) = text.parse::<bool>() {
            ValueKind::Boolean(truth)
        } else if let Ok(number) = text.parse::<f64>() {
            ValueKind::Float(number)
        } else {
            return self;
        };
        Self(Value::new(None, kind))
    }
}

macro_rules! plain {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.plain().deserialize_any(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Strict {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.kind {
            ValueKind::Nil => visitor.visit_unit(),
            ValueKind::Boolean(truth) => visitor.visit_bool(truth),
            ValueKind::I64(number) => visitor.visit_i64(number),
            ValueKind::I128(number) => visitor.visit_i128(number),
            ValueKind::U64(number) => visitor.visit_u64(number),
            ValueKind::U128(number) => visitor.visit_u128(number),
            ValueKind::Float(number) => visitor.visit_f64(number),
            ValueKind::String(text) => visitor.visit_string(text),
            ValueKind::Array(values) => {
                let mut items = SeqDeserializer::new(values.into_iter().map(Strict));
                let taken = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(taken)
            }
            ValueKind::Table(table) => visitor.visit_map(entries(table)),
        }
    }

    plain! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.kind == ValueKind::Nil { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0.kind {
            ValueKind::String(text) => {
                let word: StringDeserializer<Error> = text.into_deserializer();
                visitor.visit_enum(word)
            }
            ValueKind::Table(table) => visitor.visit_enum(MapAccessDeserializer::new(entries(table))),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Strict {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

type Entries = MapDeserializer<'static, std::vec::IntoIter<(String, Strict)>, Error>;

/// In the order of their names: the same file always gives the same first error.
fn entries(table: config::Map<String, Value>) -> Entries {
    let mut entries: Vec<_> = table.into_iter().map(|(key, value)| (key, Strict(value))).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    MapDeserializer::new(entries.into_iter())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Probe {
        #[serde(default)]
        count: u16,
        #[serde(default)]
        scale: f64,
        #[serde(default)]
        name: String,
        #[serde(default)]
        word: Option<Word>,
        #[serde(default)]
        on: bool,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        map: BTreeMap<String, Inner>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        a: u8,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Thin,
        Evict,
    }

    fn value(text: &str) -> Value {
        let built = config::Config::builder().add_source(config::File::from_str(text, config::FileFormat::Toml));
        built.build().unwrap().cache
    }

    fn check(text: &str, expected: (&str, &str)) {
        let error = read::<Probe>(value(text)).unwrap_err();
        assert_eq!((error.path.as_str(), error.message.as_str()), expected, "{text}");
    }

    #[test]
    fn well_formed_tables_are_read() {
        let probe: Probe = read(value(
            "count = 7\nscale = 2\nname = \"x\"\nword = \"evict\"\non = true\nlist = [{ a = 1 }]\nmap.\"k.1\" = { a = 2 }",
        ))
        .unwrap();
        assert_eq!((probe.count, probe.scale, probe.on, probe.word), (7, 2.0, true, Some(Word::Evict)));
        assert_eq!((probe.list, probe.map["k.1"].a), (vec![Inner { a: 1 }], 2));
    }

    #[test]
    fn nothing_is_bent_to_fit() {
        check("count = 1.5", ("count", "invalid type: floating point `1.5`, expected u16"));
        check("count = 70000", ("count", "invalid value: integer `70000`, expected u16"));
        check("count = \"7\"", ("count", "invalid type: string \"7\", expected u16"));
        check("name = 7", ("name", "invalid type: integer `7`, expected a string"));
        check("on = 1", ("on", "invalid type: integer `1`, expected a boolean"));
        check("word = 3", ("word", "invalid type: integer `3`, expected enum Word"));
    }

    #[test]
    fn errors_name_the_key_and_what_is_allowed() {
        check("word = \"thim\"", ("word", "unknown variant `thim`, expected `thin` or `evict`"));
        check("list = [{ a = 1 }, { b = 2 }]", ("list[1].b", "unknown field `b`, expected `a`"));
        check("list = [{}]", ("list[0]", "missing field `a`"));
        check("map.\"k.1\" = { a = -1 }", ("map.\"k.1\".a", "invalid value: integer `-1`, expected u8"));
    }

    #[test]
    fn texts_from_the_environment_are_also_numbers_and_truth_values() {
        let origin = ENVIRONMENT.to_owned();
        let from_env = |text: &str| Value::new(Some(&origin), text);
        let table = [("count", "7"), ("scale", "0.5"), ("on", "true"), ("name", "12"), ("word", "thin")];
        let table: config::Map<String, Value> = table.into_iter().map(|(k, v)| (k.to_owned(), from_env(v))).collect();
        let probe: Probe = read(Value::new(None, table)).unwrap();
        assert_eq!((probe.count, probe.scale, probe.on, probe.name.as_str()), (7, 0.5, true, "12"));
    }
}
