//! JSON payloads into measured fields: those that pointers name, or every number and boolean there is.
//!
//! What is good is kept and what is not is named, so that one bad field costs one field. A whole payload is refused only
//! when it is not JSON, when an object in it holds one key twice, or when nothing in it is left to keep. An array at the
//! top is a batch of readings if they bear a time or a sensor name of their own.

mod parse;
mod pointer;

use std::collections::HashMap;
use std::fmt;

use jiff::tz::TimeZone;
use smallvec::SmallVec;

use self::parse::Node;
pub use self::pointer::Pointer;
use super::{quoted, text_of, times};
use crate::model::{FieldName, Fields, MAX_FIELDS, MAX_TEXT_BYTES, Timestamp, Value};

/// Most readings in one payload; a logger that was offline for a day at 10 s intervals sends 8,640.
pub const MAX_BATCH: usize = 10_000;
/// Most distinct field names remembered, so that a known one costs no allocation.
const MAX_REMEMBERED: usize = 10_000;
/// Most reasons spelled out for one payload; the others are counted.
const MAX_REASONS: usize = 8;

/// What to take from a payload.
#[derive(Debug)]
pub struct Decoder {
    shape: Shape,
    names: HashMap<Box<str>, FieldName, foldhash::fast::RandomState>,
}

/// Where in a payload things stand.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The fields; empty to take every number and boolean.
    pub fields: Vec<(FieldName, Pointer)>,
    /// The reading's own time.
    pub time: Option<Pointer>,
    /// The zone of times that have no offset.
    pub zone: Option<TimeZone>,
    /// The sensor's name.
    pub sensor: Option<Pointer>,
}

/// What a payload held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// What was measured.
    pub readings: SmallVec<[Measured; 1]>,
    /// What could not be taken.
    pub refused: Refused,
}

/// One reading, before it is known whether its name and time are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Where it stands in a batch.
    pub index: Option<usize>,
    /// The sensor's name, if the payload tells it.
    pub sensor: Option<String>,
    /// Its own time, if it has one.
    pub at: Option<Timestamp>,
    /// At least one field, every name once.
    pub fields: Fields,
}

/// Reasons why parts of a payload were refused: the first few in words, the others counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    reasons: Vec<String>,
    more: usize,
}

impl Refused {
    /// Adds one. `place` is put before it, if it says anything.
    pub fn add(&mut self, place: Option<usize>, reason: impl fmt::Display) {
        if self.reasons.len() < MAX_REASONS {
            self.reasons.push(place.map_or_else(|| reason.to_string(), |i| format!("[{i}]: {reason}")));
        } else {
            self.more += 1;
        }
    }

    /// Whether nothing was refused.
    pub fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("; "))?;
        if self.more > 0 { write!(f, "; and {} more", self.more) } else { Ok(()) }
    }
}

impl Decoder {
    /// Whether readings bear a time of their own.
    pub const fn reads_time(&self) -> bool {
        self.shape.time.is_some()
    }

    /// Times without an offset are of this zone, unless the shape names another.
    pub fn assume_zone(&mut self, zone: &TimeZone) {
        self.shape.zone.get_or_insert_with(|| zone.clone());
    }

    /// A decoder for payloads of this shape.
    pub fn new(shape: Shape) -> Self {
        Self { shape, names: HashMap::default() }
    }

    /// What the payload that arrived `now` holds, or why nothing of it can be taken.
    pub fn decode(&mut self, payload: &[u8], now: Timestamp) -> Result<Decoded, String> {
        let text = text_of(payload)?;
        let top = parse::parse(text)?;
        let mut decoded = Decoded::default();
        match &top {
            Node::List(items) if self.shape.time.is_some() || self.shape.sensor.is_some() => {
                if items.len() > MAX_BATCH {
                    return Err(format!("payload holds {} readings, at most {MAX_BATCH} are taken", items.len()));
                }
                for (i, item) in items.iter().enumerate() {
                    if matches!(item, Node::Map(_)) {
                        self.reading(item, Some(i), now, &mut decoded);
                    } else {
                        decoded.refused.add(Some(i), format_args!("{} where an object is expected", item.kind()));
                    }
                }
            }
            Node::Map(_) | Node::List(_) => self.reading(&top, None, now, &mut decoded),
            _ if self.shape.fields.iter().any(|(_, p)| p.as_str().is_empty()) => {
                self.reading(&top, None, now, &mut decoded);
            }
            other => {
                let kind = other.kind();
                return Err(format!(
                    "payload is {kind} where an object is expected (bare numbers: decode = \"number\")"
                ));
            }
        }
        if decoded.readings.is_empty() {
            return Err(if decoded.refused.is_empty() {
                "payload is an empty array".to_owned()
            } else {
                decoded.refused.to_string()
            });
        }
        Ok(decoded)
    }

    fn reading(&mut self, node: &Node<'_>, index: Option<usize>, now: Timestamp, decoded: &mut Decoded) {
        let Shape { time, zone, sensor, .. } = &self.shape;
        let local = times::Local { zone: zone.as_ref(), arrival: now };
        let at = time.as_ref().map_or(Ok(None), |pointer| own_time(node, pointer, local));
        let sensor = sensor.as_ref().map(|pointer| own_name(node, pointer)).transpose();
        let measured = at.and_then(|at| {
            let fields = self.fields(node, index, &mut decoded.refused)?;
            Ok(Measured { index, sensor: sensor?, at, fields })
        });
        match measured {
            Ok(measured) => decoded.readings.push(measured),
            Err(reason) => decoded.refused.add(index, reason),
        }
    }

    /// The fields of one reading; bad ones are added to `refused`, and the error tells why there is none.
    fn fields(&mut self, node: &Node<'_>, index: Option<usize>, refused: &mut Refused) -> Result<Fields, String> {
        let fields = &self.shape.fields;
        let known = refused.reasons.len() + refused.more;
        let mut taken = Taken { fields: Fields::new(), index, refused };
        if fields.is_empty() {
            let apart = [&self.shape.time, &self.shape.sensor].map(|p| p.as_ref().and_then(|p| p.find(node)));
            let mut every = Every { names: &mut self.names, apart, path: String::new(), taken: &mut taken };
            every.visit(node);
        } else {
            for (name, pointer) in fields {
                if let Some(found) = pointer.find(node) {
                    taken.pointed(name, pointer, found);
                }
            }
        }
        let Taken { fields, refused, .. } = taken;
        if !fields.is_empty() {
            return Ok(fields);
        }
        if refused.reasons.len() + refused.more > known {
            return Err("no field is left".to_owned());
        }
        Err(match &self.shape.fields[..] {
            [] => "payload holds no number and no boolean".to_owned(),
            [(name, pointer)] => format!("nothing at `{}` for field `{name}`", pointer.as_str()),
            [(_, first), ..] => format!("none of the fields was found (`{}` and others)", first.as_str()),
        })
    }
}

/// The time at `pointer`; nothing there, or null, means the time of arrival.
fn own_time(node: &Node<'_>, pointer: &Pointer, local: times::Local<'_>) -> Result<Option<Timestamp>, String> {
    let time = match pointer.find(node) {
        None | Some(Node::Null) => return Ok(None),
        Some(Node::Scalar(value)) => times::of_value(value, local),
        Some(Node::Text(text)) => times::of_text(text, local),
        Some(other) => Err(format!("{} is not a time", other.kind())),
    };
    time.map(Some).map_err(|reason| format!("at `{}`: {reason}", pointer.as_str()))
}

/// The sensor's name at `pointer`: a text or a whole number.
fn own_name(node: &Node<'_>, pointer: &Pointer) -> Result<String, String> {
    match pointer.find(node) {
        Some(Node::Text(text)) => Ok(text.to_string()),
        Some(Node::Scalar(Value::I64(v))) => Ok(v.to_string()),
        Some(Node::Scalar(Value::U64(v))) => Ok(v.to_string()),
        Some(other) => Err(format!("sensor name at `{}` is {}", pointer.as_str(), other.kind())),
        None => Err(format!("no sensor name at `{}`", pointer.as_str())),
    }
}

/// The fields of one reading, as they are found.
struct Taken<'r> {
    fields: Fields,
    index: Option<usize>,
    refused: &'r mut Refused,
}

impl Taken<'_> {
    /// A field that a pointer names: texts are welcome, structure is not.
    fn pointed(&mut self, name: &FieldName, pointer: &Pointer, node: &Node<'_>) {
        let refuse = |taken: &mut Self, why: fmt::Arguments<'_>| {
            taken.refused.add(taken.index, format_args!("field `{name}` at `{}` {why}", pointer.as_str()));
        };
        match node {
            Node::Null => {}
            Node::Scalar(value) => self.push(name.clone(), value.clone()),
            Node::Text(text) => match Value::text(text) {
                Some(value) => self.push(name.clone(), value),
                None => refuse(self, format_args!("is a text of {} bytes, over {MAX_TEXT_BYTES}", text.len())),
            },
            Node::Unfit(text, unfit) => refuse(self, format_args!("({}) {unfit}", quoted(text))),
            other => refuse(self, format_args!("is {}, not a value", other.kind())),
        }
    }

    fn push(&mut self, name: FieldName, value: Value) {
        if self.fields.iter().any(|(earlier, _)| *earlier == name) {
            self.refused.add(self.index, format_args!("two values for one field `{name}`: the first is kept"));
        } else if self.fields.len() < MAX_FIELDS {
            self.fields.push((name, value));
        } else {
            self.refused
                .add(self.index, format_args!("field {} is one of more than {MAX_FIELDS}", quoted(name.as_str())));
        }
    }
}

/// Takes every number and boolean, under the names on the way to it, joined by dots.
struct Every<'d, 't, 'r, 'n, 'a> {
    names: &'d mut HashMap<Box<str>, FieldName, foldhash::fast::RandomState>,
    /// The time and the sensor's name are no fields.
    apart: [Option<&'n Node<'a>>; 2],
    path: String,
    taken: &'t mut Taken<'r>,
}

impl Every<'_, '_, '_, '_, '_> {
    fn visit(&mut self, node: &Node<'_>) {
        match node {
            Node::Map(members) => members.iter().for_each(|(key, value)| self.member(key, value)),
            Node::List(items) => {
                items.iter().enumerate().for_each(|(i, value)| self.member(&i.to_string(), value));
            }
            _ => {}
        }
    }

    fn member(&mut self, key: &str, node: &Node<'_>) {
        if self.apart.iter().flatten().any(|apart| std::ptr::addr_eq(*apart, node)) {
            return;
        }
        match node {
            Node::Null | Node::Text(_) => return,
            Node::Scalar(value) if self.path.is_empty() => return self.leaf(key, value),
            _ => {}
        }
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        match node {
            Node::Scalar(value) => {
                let path = std::mem::take(&mut self.path);
                self.leaf(&path, value);
                self.path = path;
            }
            Node::Unfit(text, unfit) => {
                let (path, text) = (quoted(&self.path), quoted(text));
                self.taken.refused.add(self.taken.index, format_args!("field {path} ({text}) {unfit}"));
            }
            _ => self.visit(node),
        }
        self.path.truncate(length);
    }

    fn leaf(&mut self, path: &str, value: &Value) {
        match self.name(path) {
            Ok(name) => self.taken.push(name, value.clone()),
            Err(reason) => self.taken.refused.add(self.taken.index, format_args!("field {}: {reason}", quoted(path))),
        }
    }

    fn name(&mut self, path: &str) -> Result<FieldName, crate::model::NameError> {
        if let Some(name) = self.names.get(path) {
            return Ok(name.clone());
        }
        let name = FieldName::new(path)?;
        if self.names.len() < MAX_REMEMBERED {
            self.names.insert(path.into(), name.clone());
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests;
