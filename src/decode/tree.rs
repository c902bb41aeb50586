//! JSON and CBOR payloads into measured fields: those that pointers name, or every number and boolean there is.
//!
//! A whole payload is refused only when it cannot be read, when an object in it holds one key twice, or when nothing in it
//! is left to keep. An array at the top is a batch of readings if they bear a time or a sensor name of their own; readings
//! that stand deeper are found by `each`.

use std::borrow::Cow;
use std::fmt;

use jiff::tz::TimeZone;

use super::found::{Decoded, MAX_BATCH, Measured, Names, Taken};
use super::node::Node;
use super::pointer::{Pointer, Stood};
use super::times::{self, Format};
use super::walk::{Style, Walk};
use super::{cbor, json, number, quoted, text_of};
use crate::model::{FieldName, Fields, MAX_TEXT_BYTES, Timestamp, Value};

/// What to take from a payload.
#[derive(Debug)]
pub struct Decoder {
    shape: Shape,
    names: Names,
}

/// Where in a payload things stand.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The fields; empty to take every number and boolean. A name holds a `*` for each `*` of its pointer.
    pub fields: Vec<(FieldName, Pointer)>,
    /// Those of the fields whose texts are kept as they are, because options give them a meaning. Of the others a text must be a
    /// number or a state.
    pub texts: Vec<FieldName>,
    /// Where the readings stand, if not at the top. The keys that its `*` stand for name the sensor.
    pub each: Option<Pointer>,
    /// The reading's own time.
    pub time: Option<Pointer>,
    /// How that is written.
    pub format: Format,
    /// The zone of times that have no offset.
    pub zone: Option<TimeZone>,
    /// Whether a time that cannot be read gives way to the time of arrival.
    pub arrival_for_bad_time: bool,
    /// The sensor's name.
    pub sensor: Option<Pointer>,
}

/// What a reading inherits from the place where it stands.
#[derive(Clone, Debug, Default)]
struct Place {
    index: Option<usize>,
    sensor: Option<String>,
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
        Self { shape, names: Names::default() }
    }

    /// What the JSON that arrived `now` holds, or why nothing of it can be taken.
    pub fn json(&mut self, payload: &[u8], now: Timestamp) -> Result<Decoded, String> {
        let top = json::parse(text_of(payload)?)?;
        self.tree(&top, now)
    }

    /// What the CBOR that arrived `now` holds, or why nothing of it can be taken.
    pub fn cbor(&mut self, payload: &[u8], now: Timestamp) -> Result<Decoded, String> {
        let top = cbor::parse(payload)?;
        self.tree(&top, now)
    }

    fn tree(&mut self, top: &Node<'_>, now: Timestamp) -> Result<Decoded, String> {
        let mut decoded = Decoded::default();
        let apart = self.shape.time.is_some() || self.shape.sensor.is_some();
        match top {
            _ if self.shape.each.is_some() => self.each(top, now, &mut decoded)?,
            Node::List(items) if apart => {
                if items.len() > MAX_BATCH {
                    return Err(format!("payload holds {} readings, at most {MAX_BATCH} are taken", items.len()));
                }
                for (i, item) in items.iter().enumerate() {
                    let place = Place { index: Some(i), sensor: None };
                    if matches!(item, Node::Map(_)) {
                        self.reading(item, place, now, &mut decoded);
                    } else {
                        decoded.refused.add(Some(i), format_args!("{} where an object is expected", item.kind()));
                    }
                }
            }
            Node::Map(_) | Node::List(_) => self.reading(top, Place::default(), now, &mut decoded),
            _ if self.shape.fields.iter().any(|(_, p)| p.as_str().is_empty()) => {
                self.reading(top, Place::default(), now, &mut decoded);
            }
            other => {
                let kind = other.kind();
                return Err(format!(
                    "payload is {kind} where an object is expected (bare numbers: decode = \"number\")"
                ));
            }
        }
        decoded.or_reasons()
    }

    /// The readings that stand deeper.
    fn each(&mut self, top: &Node<'_>, now: Timestamp, decoded: &mut Decoded) -> Result<(), String> {
        let Some(pointer) = self.shape.each.clone() else { return Ok(()) };
        let mut found = Vec::new();
        pointer.each(top, &mut |stood, node| {
            if found.len() <= MAX_BATCH {
                found.push((name_of(stood), node));
            }
        });
        if found.len() > MAX_BATCH {
            return Err(format!("payload holds more than {MAX_BATCH} readings at `{}`", pointer.as_str()));
        }
        if found.is_empty() && !pointer.is_empty_batch(top) {
            return Err(format!("nothing at `{}`", pointer.as_str()));
        }
        for (i, (sensor, node)) in found.into_iter().enumerate() {
            self.reading(node, Place { index: Some(i), sensor }, now, decoded);
        }
        Ok(())
    }

    fn reading(&mut self, node: &Node<'_>, place: Place, now: Timestamp, decoded: &mut Decoded) {
        let at = self.own_time(node, now, decoded);
        let sensor = self.shape.sensor.as_ref().map(|pointer| own_name(node, pointer)).transpose();
        let Place { index, sensor: inherited } = place;
        let measured = at.and_then(|at| {
            let fields = self.fields(node, index, decoded)?;
            Ok(Measured { index, sensor: sensor?.or(inherited), at, fields, ..Measured::default() })
        });
        match measured {
            Ok(measured) if measured.fields.is_empty() => {}
            Ok(measured) => {
                decoded.push(measured);
            }
            Err(reason) => decoded.refused.add(index, reason),
        }
    }

    /// The time that the reading bears; nothing there, or null, means the time of arrival.
    fn own_time(&self, node: &Node<'_>, now: Timestamp, decoded: &mut Decoded) -> Result<Option<Timestamp>, String> {
        let Shape { time: Some(pointer), zone, format, .. } = &self.shape else { return Ok(None) };
        let local = times::Local { zone: zone.as_ref(), arrival: now };
        match pointer.find(node).map_or(Ok(None), |found| times::of_node(found, format, local)) {
            Ok(at) => Ok(at),
            Err(reason) if self.shape.arrival_for_bad_time => {
                decoded.notes.push(format!("time of arrival taken: at `{}`: {reason}", pointer.as_str()));
                Ok(None)
            }
            Err(reason) => Err(format!("at `{}`: {reason}", pointer.as_str())),
        }
    }

    /// The fields of one reading; bad ones are added to the refused, and the error tells why there is none.
    fn fields(&mut self, node: &Node<'_>, index: Option<usize>, decoded: &mut Decoded) -> Result<Fields, String> {
        let fields = &self.shape.fields;
        let known = decoded.refused.len();
        let mut taken = Taken::new(index, &mut decoded.refused);
        // Null where a value is wanted: the device has none now.
        let mut says_none = false;
        if fields.is_empty() {
            let apart = [&self.shape.time, &self.shape.sensor].map(|p| p.as_ref().and_then(|p| p.find(node)));
            says_none = only_nulls(node, &apart);
            let mut walk =
                Walk { names: &mut self.names, style: Style::PLAIN, apart, path: String::new(), taken: &mut taken };
            walk.node(node);
        } else {
            for (name, pointer) in fields {
                let place = Pointed { pointer, keeps_texts: self.shape.texts.contains(name) };
                if pointer.wildcards() == 0 {
                    if let Some(found) = pointer.find(node) {
                        says_none |= *found == Node::Null;
                        place.take(&mut taken, name, found);
                    }
                } else {
                    place.several(&mut taken, name, node, &mut self.names);
                }
            }
        }
        let Taken { fields, .. } = taken;
        if !fields.is_empty() || (says_none && decoded.refused.len() == known) {
            return Ok(fields);
        }
        if decoded.refused.len() > known {
            return Err("no field is left".to_owned());
        }
        Err(match &self.shape.fields[..] {
            [] => "payload holds no number and no boolean".to_owned(),
            [(name, pointer)] => format!("nothing at `{}` for field `{name}`", pointer.as_str()),
            [(_, first), ..] => format!("none of the fields was found (`{}` and others)", first.as_str()),
        })
    }
}

/// The keys among what the `*` stood for, joined; indexes are no names.
fn name_of(stood: &[Stood<'_>]) -> Option<String> {
    let keys = stood.iter().filter_map(|step| match step {
        Stood::Key(key) => Some(*key),
        Stood::Index(_) => None,
    });
    let keys: Vec<&str> = keys.collect();
    (!keys.is_empty()).then(|| keys.join("/"))
}

/// The sensor's name at `pointer`: a text or a whole number.
fn own_name(node: &Node<'_>, pointer: &Pointer) -> Result<String, String> {
    let Some(found) = pointer.find(node) else { return Err(format!("no sensor name at `{}`", pointer.as_str())) };
    let name = found.name().map(Cow::into_owned);
    name.ok_or_else(|| format!("sensor name at `{}` is {}", pointer.as_str(), found.kind()))
}

/// Whether there is something and all of it is null, but for the nodes apart.
fn only_nulls(node: &Node<'_>, apart: &[Option<&Node<'_>>]) -> bool {
    let is_apart = |node: &Node<'_>| apart.iter().flatten().any(|apart| std::ptr::addr_eq(*apart, node));
    match node {
        Node::Null => true,
        Node::Map(members) => {
            let mut values = members.iter().map(|(_, value)| value).filter(|value| !is_apart(value)).peekable();
            values.peek().is_some() && values.all(|value| only_nulls(value, apart))
        }
        Node::List(items) => !items.is_empty() && items.iter().all(|item| is_apart(item) || only_nulls(item, apart)),
        _ => false,
    }
}

/// Where a field stands, and what its texts are.
struct Pointed<'p> {
    pointer: &'p Pointer,
    keeps_texts: bool,
}

impl Pointed<'_> {
    /// Every value of a pointer with `*`, under the name with these filled in.
    fn several(&self, taken: &mut Taken<'_>, name: &FieldName, node: &Node<'_>, names: &mut Names) {
        self.pointer.each(node, &mut |stood, found| {
            let mut filled = String::with_capacity(name.as_str().len() + 16);
            let mut stood = stood.iter();
            for (i, piece) in name.as_str().split('*').enumerate() {
                if i > 0 {
                    stood.next().into_iter().for_each(|step| filled.push_str(&step.to_string()));
                }
                filled.push_str(piece);
            }
            match names.get(&filled) {
                Ok(name) => self.take(taken, &name, found),
                Err(reason) => taken.refuse(format_args!("field {}: {reason}", quoted(&filled))),
            }
        });
    }

    /// One value: structure is none, and a text is what it stands for.
    fn take(&self, taken: &mut Taken<'_>, name: &FieldName, node: &Node<'_>) {
        let refuse = |taken: &mut Taken<'_>, why: fmt::Arguments<'_>| {
            taken.refuse(format_args!("field `{name}` at `{}` {why}", self.pointer.as_str()));
        };
        match node {
            Node::Null => {}
            Node::Scalar(value) => taken.push(name.clone(), value.clone()),
            Node::Text(text) if self.keeps_texts => match Value::text(text) {
                Some(value) => taken.push(name.clone(), value),
                None => refuse(taken, format_args!("is a text of {} bytes, over {MAX_TEXT_BYTES}", text.len())),
            },
            Node::Text(text) => match number::either(text.trim()) {
                Ok(value) => taken.push(name.clone(), value),
                Err(why) => refuse(taken, format_args!("is a text: {why} (a field of texts needs kind = \"text\")")),
            },
            Node::Unfit(text, unfit) => refuse(taken, format_args!("({}) {unfit}", quoted(text))),
            other => refuse(taken, format_args!("is {}, not a value", other.kind())),
        }
    }
}

#[cfg(test)]
mod tests;
