//! How the payloads of a topic are read: built from the site file, with every contradiction named by its key.

use std::collections::HashMap;

use jiff::tz::TimeZone;

use super::topic::{BadTime, Decode, Topic};
use crate::decode::auto::{self, Pick};
use crate::decode::found::{Decoded, Measured};
use crate::decode::packed::{self, Slot};
use crate::decode::pointer::Pointer;
use crate::decode::preset::{Message, Preset, Presets};
use crate::decode::shape::{Options, Outcome};
use crate::decode::times::{self, Format};
use crate::decode::{number, text, tree};
use crate::model::{FieldName, Fields, MAX_FIELDS, Timestamp, Value};

/// Notes a contradiction: key, words.
pub(super) type Note<'a> = &'a mut dyn FnMut(&str, String);

/// How payloads are read.
#[derive(Debug)]
pub(super) struct Recipe {
    decode: Decode,
    tree: tree::Decoder,
    packed: packed::Decoder,
    zone: Option<TimeZone>,
    format: Format,
    /// Options of fields that have any effect on values.
    pub(super) options: HashMap<FieldName, Options>,
    pub(super) bad_time: BadTime,
    pub(super) keep_time: Option<FieldName>,
    /// User properties that become fields.
    pub(super) properties: Vec<(FieldName, String)>,
}

/// Most user properties of a message that become fields.
const MAX_PROPERTIES: usize = 32;

/// One message, as it is read.
pub(super) struct Came<'m> {
    pub(super) topic: &'m str,
    pub(super) payload: &'m [u8],
    pub(super) now: Timestamp,
    /// What the sender says that it is (MQTT 5).
    pub(super) content_type: Option<&'m str>,
}

impl Recipe {
    /// Reads an entry; `pointer` is where the payload names the sensor.
    pub(super) fn new(topic: &Topic, sensor: Option<Pointer>, note: Note<'_>) -> Self {
        let mut shape = tree::Shape { sensor, ..tree::Shape::default() };
        let mut slots = Vec::new();
        let mut options = HashMap::new();
        for (name, field) in &topic.fields {
            let key = format!("fields.{name}");
            match FieldName::new(name) {
                Ok(field_name) => {
                    if options.contains_key(&field_name) {
                        note(&key, format!("would be stored as `{field_name}`, as another field is"));
                    }
                    place(topic, &field_name, &field.0, &mut shape, &mut slots, &mut |inner, words| {
                        note(&if inner.is_empty() { key.clone() } else { format!("{key}.{inner}") }, words);
                    });
                    let mut field = field.0.clone();
                    field.is_strict = field.pointer.is_some() && field.takes_texts();
                    if field.is_strict {
                        shape.texts.push(field_name.clone());
                    }
                    options.insert(field_name, field);
                }
                Err(e) => note(&key, e.to_string()),
            }
        }
        if topic.fields.len() > MAX_FIELDS {
            note("fields", format!("holds {} fields, at most {MAX_FIELDS} are allowed", topic.fields.len()));
        }
        let placed = shape.fields.len() + slots.len();
        if placed > 0 && placed < topic.fields.len() {
            note("fields", "some say where they stand and some do not: then only the former would be taken".to_owned());
        }
        times_of(topic, &mut shape, note);
        check(topic, slots.len(), note);
        options.retain(|_, options| !options.is_plain());
        Self {
            decode: topic.decode,
            zone: shape.zone.clone(),
            format: shape.format.clone(),
            tree: tree::Decoder::new(shape),
            packed: packed::Decoder::new(slots, topic.length),
            options,
            bad_time: topic.bad_time,
            keep_time: topic
                .keep_time
                .as_deref()
                .and_then(|name| FieldName::new(name).map_err(|e| note("keep_time", e.to_string())).ok()),
            properties: properties_of(topic, note),
        }
    }

    /// The same for a site in this zone, unless the entry names one of its own.
    pub(super) fn assume_zone(&mut self, zone: &TimeZone) {
        self.zone.get_or_insert_with(|| zone.clone());
        self.tree.assume_zone(zone);
    }

    /// What a message's payload holds. `field` names a plain value; `picked` is what an earlier message of the topic was, if that is to
    /// be found out, and becomes what this one is.
    pub(super) fn read(
        &mut self,
        presets: &mut Presets,
        came: &Came<'_>,
        field: &Result<FieldName, String>,
        picked: &mut Option<Pick>,
    ) -> Result<Decoded, String> {
        let payload = came.payload;
        let pick = match self.decode {
            Decode::Json => Pick::Json,
            Decode::Cbor => Pick::Cbor,
            Decode::Packed => return self.packed.decode(payload),
            Decode::Text => return one(field, text::decode(payload)?),
            Decode::Number | Decode::State => return one(field, self.plain(payload, field)?),
            Decode::Auto => {
                let pick = picked.filter(|pick| matches!(pick, Pick::Preset(_)));
                let pick = *picked.insert(pick.unwrap_or_else(|| auto::pick(came.topic, payload)));
                // Known software is known better than by a content type; that may be wrong, too, so that it is a hint.
                let hint = came.content_type.and_then(hinted).filter(|_| !matches!(pick, Pick::Preset(_)));
                if let Some(hint) = hint.filter(|hint| *hint != pick)
                    && let Ok(decoded) = self.read_as(hint, presets, came, field)
                {
                    *picked = Some(hint);
                    return Ok(decoded);
                }
                pick
            }
            _ => Pick::Preset(self.decode.preset().ok_or("no decoder")?),
        };
        self.read_as(pick, presets, came, field)
    }

    fn read_as(
        &mut self,
        pick: Pick,
        presets: &mut Presets,
        came: &Came<'_>,
        field: &Result<FieldName, String>,
    ) -> Result<Decoded, String> {
        let Came { topic, payload, now, .. } = *came;
        match pick {
            Pick::Json => self.tree.json(payload, now),
            Pick::Cbor => self.tree.cbor(payload, now),
            Pick::Plain => one(field, number::decode_either(payload)?),
            Pick::Preset(preset) => {
                let (zone, format) = (self.zone.as_ref(), &self.format);
                let arrival_for_bad_time = self.bad_time == BadTime::Arrival;
                let message = Message { topic, payload, arrival: now, zone, format, arrival_for_bad_time };
                presets.decode(preset, &message)
            }
        }
    }

    /// A number or a state. Where the field's options give texts a meaning, the text itself: they are applied later.
    fn plain(&self, payload: &[u8], field: &Result<FieldName, String>) -> Result<Value, String> {
        let read = if self.decode == Decode::State { number::decode_state } else { number::decode };
        let options = field.as_ref().ok().and_then(|field| self.options.get(field));
        let error = match (read(payload), options) {
            (Err(error), Some(_)) => error,
            (other, _) => return other,
        };
        let spoken = text::decode(payload)?;
        match options.map(|options| options.apply(spoken.clone())) {
            Some(Outcome::Value(Value::Text(_))) | None => Err(error),
            Some(Outcome::Refused(_)) if !options.is_some_and(Options::reads_texts) => Err(error),
            Some(_) => Ok(spoken),
        }
    }
}

/// What a content type says of a payload.
fn hinted(content_type: &str) -> Option<Pick> {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    Some(match kind.as_str() {
        "application/senml+json" | "application/senml+cbor" => Pick::Preset(Preset::Senml),
        "application/json" | "text/json" => Pick::Json,
        "application/cbor" => Pick::Cbor,
        "text/plain" => Pick::Plain,
        other if other.ends_with("+json") => Pick::Json,
        other if other.ends_with("+cbor") => Pick::Cbor,
        _ => return None,
    })
}

/// The user properties that become fields.
fn properties_of(topic: &Topic, note: Note<'_>) -> Vec<(FieldName, String)> {
    if topic.properties.len() > MAX_PROPERTIES {
        note(
            "properties",
            format!("holds {} properties, at most {MAX_PROPERTIES} are allowed", topic.properties.len()),
        );
    }
    let named = topic.properties.iter().filter_map(|(field, property)| match FieldName::new(field) {
        Ok(field) => Some((field, property.clone())),
        Err(e) => {
            note(&format!("properties.{field}"), e.to_string());
            None
        }
    });
    named.collect()
}

/// One value as a reading.
fn one(field: &Result<FieldName, String>, value: Value) -> Result<Decoded, String> {
    let fields = Fields::from_iter([(field.clone()?, value)]);
    let mut decoded = Decoded::default();
    decoded.readings.push(Measured { fields, ..Measured::default() });
    Ok(decoded)
}

/// Where a field stands.
fn place(
    topic: &Topic,
    name: &FieldName,
    options: &Options,
    shape: &mut tree::Shape,
    slots: &mut Vec<Slot>,
    note: Note<'_>,
) {
    for (key, words) in options.contradictions() {
        note(key, words);
    }
    if let Some(pointer) = &options.pointer {
        match Pointer::new(pointer) {
            Ok(_) if !topic.decode.is_tree() => {
                note("pointer", "points into JSON or CBOR; this payload has no such places".to_owned());
            }
            Ok(pointer) if name.as_str().matches('*').count() != pointer.wildcards() => {
                note(
                    "",
                    format!("the name needs a `*` for each of the {} in `{}`", pointer.wildcards(), pointer.as_str()),
                );
            }
            Ok(pointer) => shape.fields.push((name.clone(), pointer)),
            Err(e) => note("", e),
        }
    }
    let packed = topic.decode == Decode::Packed;
    match (options.at, options.r#type) {
        (Some(at), Some(kind)) if packed => {
            let slot = Slot { name: name.clone(), at, kind, order: options.order.unwrap_or_default() };
            if slot.end() > packed::MAX_BYTES {
                note("at", format!("ends beyond {} bytes", packed::MAX_BYTES));
            }
            slots.push(slot);
        }
        (None, None) if !packed && options.order.is_none() => {}
        _ if packed => note("", "a packed field needs `at` and `type`".to_owned()),
        _ => note("at", "`at`, `type` and `order` are for decode = \"packed\"".to_owned()),
    }
}

fn times_of(topic: &Topic, shape: &mut tree::Shape, note: Note<'_>) {
    let pointer = |key: &str, text: &Option<String>, note: Note<'_>| {
        text.as_ref().and_then(|text| Pointer::new(text).map_err(|e| note(key, e)).ok())
    };
    shape.time = pointer("time", &topic.time, note);
    shape.each = pointer("each", &topic.each, note);
    if let Some(format) = &topic.time_format {
        shape.format = Format::new(format).map_err(|e| note("time_format", e)).unwrap_or_default();
    }
    if let Some(zone) = &topic.timezone {
        shape.zone = times::zone(zone).map_err(|e| note("timezone", e)).ok();
    }
    shape.arrival_for_bad_time = topic.bad_time == BadTime::Arrival;
}

/// What does not fit the way in which the payload is read.
fn check(topic: &Topic, slots: usize, note: Note<'_>) {
    let decode = topic.decode;
    if decode.is_plain() && (topic.time.is_some() || topic.fields.values().any(|field| field.0.pointer.is_some())) {
        note("decode", "plain payloads have no `time` and no pointers; they need decode = \"json\"".to_owned());
    } else if topic.time.is_some() && !decode.is_tree() {
        note("time", "is for decode = \"json\" and \"cbor\"; a preset knows where the time stands".to_owned());
    }
    if topic.each.is_some() && !decode.is_tree() {
        note("each", "is for decode = \"json\" and \"cbor\"".to_owned());
    }
    let has_times = topic.time.is_some() || decode.preset().is_some() || decode == Decode::Auto;
    let without = |key: &str, is_there: bool, note: Note<'_>| {
        if is_there && !has_times {
            note(key, "has no use without `time`".to_owned());
        }
    };
    without("timezone", topic.timezone.is_some(), note);
    without("time_format", topic.time_format.is_some(), note);
    without("bad_time", topic.bad_time != BadTime::Refuse, note);
    without("keep_time", topic.keep_time.is_some(), note);
    if topic.length.is_some() && decode != Decode::Packed {
        note("length", "is for decode = \"packed\"".to_owned());
    }
    if topic.length.is_some_and(|length| length > packed::MAX_BYTES) {
        note("length", format!("must be at most {}", packed::MAX_BYTES));
    }
    if decode == Decode::Packed && slots == 0 {
        note("fields", "are needed to know what the bytes mean: { t = { at = 0, type = \"i16\" } }".to_owned());
    }
    if topic.field.is_some() && !decode.is_plain() && decode != Decode::Auto {
        note("field", "is for one plain value; here the fields have names of their own".to_owned());
    }
}
