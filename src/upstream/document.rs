//! A sealed bucket as the document that goes upstream: mode `buckets`, layout `rows`. Pure: the same bucket and context
//! give the same bytes.
//!
//! Fields stand in the order of `docs/DOCUMENTS.md`. A double stays a double and a whole number a 64-bit integer, exact
//! over its whole range; one that needs the 64th bit becomes a Decimal128, which holds it exactly too.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::raw::{CString, RawArrayBuf, RawBsonRef};
use mongodb::bson::{DateTime, Decimal128, RawBson, RawDocumentBuf};

use super::{Names, identity};
use crate::model::{FieldName, FieldStats, Number, SealedBucket, SensorName, SiteName, Timestamp, Value};

/// Version of the document's form, in its field `schema`.
const SCHEMA: i32 = 1;
/// Largest document that is sent: half of MongoDB's 16 MiB, so that a batch always fits one command.
pub const MAX_DOCUMENT_BYTES: usize = 8 << 20;

/// What a document says besides its bucket.
#[derive(Clone, Debug)]
pub struct Context {
    /// The installation.
    pub site: SiteName,
    /// The random id that was born with the database file.
    pub store: String,
    /// How long after its window's end the database keeps a bucket; `None` is for ever.
    pub retention: Option<Duration>,
    /// What the fields are called.
    pub names: Names,
    /// What is known about sensors.
    pub meta: HashMap<SensorName, Meta>,
}

/// What is known about a sensor besides its readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Units of its fields.
    pub units: Vec<(FieldName, String)>,
    /// Free labels.
    pub tags: Vec<(String, String)>,
}

/// A document on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its `_id`.
    pub id: String,
    /// Its content hash.
    pub hash: String,
    /// How many samples it holds.
    pub samples: u32,
    /// How often its `_id` was found taken by other content: 0, 1 or 2.
    pub rekeyed: u8,
    /// How often it was sent.
    pub tries: u32,
    /// How often it was answered with an error that this program does not know.
    pub(crate) riddles: u32,
    /// The exact bytes.
    pub bson: RawDocumentBuf,
}

impl Document {
    /// The document of a bucket.
    pub fn of(bucket: &SealedBucket, context: &Context) -> Self {
        let id = identity::id(&context.site, bucket);
        let hash = bucket.hash(&context.site);
        let bson = build(bucket, context, &id, &hash);
        Self { id, hash, samples: bucket.count(), rekeyed: 0, tries: 0, riddles: 0, bson }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bson.as_bytes().len()
    }

    /// The same content under the next `_id`; `false` if there is none left.
    pub(crate) fn rekey(&mut self, store: &str) -> bool {
        if self.rekeyed >= 2 {
            return false;
        }
        let taken = if self.rekeyed == 0 { "".to_owned() } else { format!("~{store}") };
        let original = self.id.strip_suffix(taken.as_str()).unwrap_or(&self.id).to_owned();
        self.rekeyed += 1;
        self.id = identity::rekeyed(&original, store, &self.hash, self.rekeyed);
        let mut next = RawDocumentBuf::new();
        for (key, value) in self.bson.iter().flatten() {
            match key.as_str() {
                "_id" => next.append(key, self.id.as_str()),
                _ => next.append(key, value),
            }
        }
        self.bson = next;
        true
    }
}

fn build(bucket: &SealedBucket, context: &Context, id: &str, hash: &str) -> RawDocumentBuf {
    let names = &context.names;
    let mut doc = Builder::new();
    doc.put("_id", id);
    doc.put(&names.site, context.site.as_str());
    doc.put(&names.sensor, bucket.sensor.as_str());
    doc.put(&names.part, whole(bucket.part));
    doc.put(&names.start, date(bucket.window.start()));
    doc.put(&names.end, date(bucket.window.end()));
    if let Some((first, last)) = bucket.span() {
        doc.put(&names.first, date(first));
        doc.put(&names.last, date(last));
    }
    doc.put(&names.count, whole(bucket.count()));
    let stats = bucket.stats();
    doc.put(&names.stats, rollups(&stats, names));
    doc.put(&names.samples, rows(bucket, names));
    doc.put(&names.sealed, bucket.sealed.as_str());
    if bucket.late {
        doc.put(&names.late, true);
    }
    if let Some(meta) = context.meta.get(&bucket.sensor).and_then(|meta| about(meta, &stats, names)) {
        doc.put(&names.meta, meta);
    }
    if bucket.rollup.is_some() {
        doc.put(&names.thinned, true);
    }
    doc.put(&names.clock, bucket.clock.as_str());
    doc.put(&names.hash, hash);
    doc.put(&names.store, context.store.as_str());
    doc.put(&names.schema, SCHEMA);
    if let Some(retention) = context.retention {
        doc.put(&names.expire_at, date(bucket.window.end().plus(retention)));
    }
    doc.0
}

fn rollups(stats: &[(FieldName, FieldStats)], names: &Names) -> RawDocumentBuf {
    let mut all = Builder::new();
    for (field, stats) in stats {
        let mut one = Builder::new();
        one.put(&names.stats_count, whole(stats.count));
        if let Some((sum, min, max)) = stats.numbers {
            one.put(&names.stats_sum, number(sum));
            one.put(&names.stats_min, number(min));
            one.put(&names.stats_max, number(max));
        }
        one.put(&names.stats_first, value(&stats.first));
        one.put(&names.stats_last, value(&stats.last));
        all.put(&names.field(field.as_str()), one.0);
    }
    all.0
}

fn rows(bucket: &SealedBucket, names: &Names) -> RawArrayBuf {
    let mut rows = RawArrayBuf::new();
    for sample in &bucket.samples {
        let mut row = Builder::new();
        row.put(&names.samples_t, date(sample.at));
        for (field, v) in &sample.fields {
            row.put(&names.field(field.as_str()), value(v));
        }
        rows.push(row.0);
    }
    rows
}

/// Units of the fields that occur, and tags; `None` if there is neither.
fn about(meta: &Meta, stats: &[(FieldName, FieldStats)], names: &Names) -> Option<RawDocumentBuf> {
    let mut about = Builder::new();
    let mut units = Builder::new();
    for (field, unit) in meta.units.iter().filter(|(field, _)| stats.iter().any(|(known, _)| known == field)) {
        units.put(&names.field(field.as_str()), unit.as_str());
    }
    let mut tags = Builder::new();
    for (tag, text) in &meta.tags {
        tags.put(&tag.replace(['.', '$', '\0'], "_"), text.as_str());
    }
    for (key, part) in [("units", units), ("tags", tags)] {
        if !part.0.is_empty() {
            about.put(key, part.0);
        }
    }
    (!about.0.is_empty()).then_some(about.0)
}

fn value(value: &Value) -> RawBson {
    match value {
        Value::F64(v) => RawBson::Double(*v),
        Value::I64(v) => RawBson::Int64(*v),
        Value::U64(v) => RawBson::Decimal128(decimal(*v)),
        Value::Bool(v) => RawBson::Boolean(*v),
        Value::Text(v) => RawBson::String((**v).to_owned()),
    }
}

fn number(number: Number) -> RawBson {
    match number {
        Number::F64(v) => RawBson::Double(v),
        Number::I64(v) => RawBson::Int64(v),
        Number::U64(v) => RawBson::Decimal128(decimal(v)),
    }
}

/// Counts fit 32 bits by far (caps); should one not, it is still told exactly.
fn whole(count: u32) -> RawBson {
    i32::try_from(count).map_or(RawBson::Int64(count.into()), RawBson::Int32)
}

fn date(at: Timestamp) -> DateTime {
    DateTime::from_millis(at.as_millis())
}

/// IEEE 754 decimal128, binary integer form: biased exponent 6176 (10⁰) above a 113-bit coefficient, little-endian.
fn decimal(v: u64) -> Decimal128 {
    let bits = (6176_u128 << 113) | u128::from(v);
    Decimal128::from_bytes(bits.to_le_bytes())
}

/// Appends under names that were checked where they entered.
struct Builder(RawDocumentBuf);

impl Builder {
    fn new() -> Self {
        Self(RawDocumentBuf::new())
    }

    fn put(&mut self, key: &str, value: impl mongodb::bson::raw::BindRawBsonRef) {
        let key = CString::try_from(key).expect("a checked name holds no NUL");
        self.0.append(key, value);
    }
}

/// The content hash inside a stored document, if it is there as text.
pub(crate) fn stored_hash<'a>(document: &'a mongodb::bson::RawDocument, names: &Names) -> Option<&'a str> {
    match document.get(&names.hash) {
        Ok(Some(RawBsonRef::String(hash))) => Some(hash),
        _ => None,
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
