//! A sealed bucket as the document that goes upstream: mode `buckets`, layout `rows`. Pure: the same bucket and context
//! give the same bytes.
//!
//! Fields stand in the order of `docs/DOCUMENTS.md`. A double stays a double and a whole number a 64-bit integer, exact
//! over its whole range; one that needs the 64th bit becomes a Decimal128, which holds it exactly too.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::raw::{CString, RawArrayBuf, RawBsonRef};
use mongodb::bson::{DateTime, Decimal128, RawBson, RawDocumentBuf};

use super::{Names, content, identity};
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
        let hash = content::hash(&context.site, bucket);
        let bson = build(bucket, context, &id, &hash);
        Self { id, hash, samples: bucket.samples.len() as u32, rekeyed: 0, tries: 0, riddles: 0, bson }
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
    if let (Some(first), Some(last)) = (bucket.samples.first(), bucket.samples.last()) {
        doc.put(&names.first, date(first.at));
        doc.put(&names.last, date(last.at));
    }
    doc.put(&names.count, whole(bucket.samples.len() as u32));
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
    doc.put(&names.clock, "synced");
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
mod tests {
    use std::str::FromStr;

    use mongodb::bson::{Bson, Document as Bsondoc, doc};

    use super::*;
    use crate::model::SealReason;
    use crate::upstream::samples::{bucket, sample};

    const START: i64 = 1_796_043_600_000;

    fn context() -> Context {
        Context {
            site: SiteName::new("greenhouse-7").unwrap(),
            store: "0badcafe".into(),
            retention: None,
            names: Names::default(),
            meta: HashMap::new(),
        }
    }

    fn parsed(document: &Document) -> Bsondoc {
        Bsondoc::try_from(document.bson.clone()).unwrap()
    }

    fn at(ms: i64) -> Bson {
        Bson::DateTime(DateTime::from_millis(START + ms))
    }

    #[test]
    fn a_whole_document_field_by_field() {
        let mut bucket = bucket("boiler/1", START / 1000, 2, &[]);
        bucket.late = true;
        bucket.sealed = SealReason::Late;
        bucket.samples = vec![
            sample(START, &[("temp", Value::F64(21.5)), ("on", Value::Bool(true)), ("n", Value::I64(3))]),
            sample(START + 1500, &[("temp", Value::F64(20.0)), ("mode", Value::text("eco").unwrap())]),
            sample(START + 2000, &[("n", Value::U64(u64::MAX)), ("t", Value::I64(1))]),
        ];
        let mut context = context();
        context.retention = Some(Duration::from_secs(86_400));
        let celsius = (FieldName::new("temp").unwrap(), "°C".to_owned());
        let unused = (FieldName::new("hum").unwrap(), "%".to_owned());
        context.meta.insert(
            bucket.sensor.clone(),
            Meta { units: vec![celsius, unused], tags: vec![("room".into(), "cellar".into())] },
        );
        let document = Document::of(&bucket, &context);
        let max = Bson::Decimal128(Decimal128::from_str("18446744073709551615").unwrap());
        let sum = 18_446_744_073_709_551_618_f64;
        let expected = doc! {
            "_id": "greenhouse-7/boiler%2F1|20261130T130000.000Z|600|2",
            "site": "greenhouse-7", "sensor": "boiler/1", "part": 2,
            "start": at(0), "end": at(600_000), "first": at(0), "last": at(2000),
            "count": 3,
            "stats": {
                "temp": { "count": 2, "sum": 41.5, "min": 20.0, "max": 21.5, "first": 21.5, "last": 20.0 },
                "on": { "count": 1, "first": true, "last": true },
                "n": { "count": 2, "sum": sum, "min": 3_i64, "max": &max, "first": 3_i64, "last": &max },
                "mode": { "count": 1, "first": "eco", "last": "eco" },
                "t_": { "count": 1, "sum": 1_i64, "min": 1_i64, "max": 1_i64, "first": 1_i64, "last": 1_i64 },
            },
            "samples": [
                { "t": at(0), "temp": 21.5, "on": true, "n": 3_i64 },
                { "t": at(1500), "temp": 20.0, "mode": "eco" },
                { "t": at(2000), "n": &max, "t_": 1_i64 },
            ],
            "sealed": "late", "late": true,
            "meta": { "units": { "temp": "°C" }, "tags": { "room": "cellar" } },
            "clock": "synced", "hash": content::hash(&context.site, &bucket), "store": "0badcafe", "schema": 1,
            "expireAt": at(600_000 + 86_400_000),
        };
        let found = parsed(&document);
        assert_eq!(found, expected);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "and in this order");
        assert_eq!((document.samples, document.rekeyed), (3, 0));
    }

    #[test]
    fn every_field_can_be_called_otherwise() {
        let mut context = context();
        context.names.sensor = "sensorId".into();
        context.names.start = "startTs".into();
        context.names.samples = "readings".into();
        context.names.samples_t = "ts".into();
        context.names.stats_sum = "total".into();
        context.names.hash = "h".into();
        let found = parsed(&Document::of(&bucket("a", START / 1000, 0, &[(0, 1.0)]), &context));
        assert_eq!(found.get_str("sensorId").unwrap(), "a");
        assert_eq!(found.get("startTs"), Some(&at(0)));
        assert_eq!(found.get_array("readings").unwrap()[0], Bson::Document(doc! { "ts": at(0), "temp": 1.0 }));
        assert_eq!(found.get_document("stats").unwrap().get_document("temp").unwrap().get_f64("total").unwrap(), 1.0);
        assert!(found.contains_key("h") && !found.contains_key("hash") && !found.contains_key("sensor"));
    }

    #[test]
    fn what_is_not_there_is_absent() {
        let found = parsed(&Document::of(&bucket("a", START / 1000, 0, &[(0, 1.0)]), &context()));
        for key in ["late", "meta", "expireAt", "thinned"] {
            assert!(!found.contains_key(key), "{key}");
        }
    }

    #[test]
    fn the_same_bucket_gives_the_same_bytes() {
        let one = bucket("a", START / 1000, 0, &[(0, 1.0), (1, 2.0)]);
        assert_eq!(Document::of(&one, &context()), Document::of(&one, &context()));
    }

    #[test]
    fn a_sample_takes_the_bytes_that_the_bucketer_counts() {
        let fields = [("temp", Value::F64(1.0)), ("mode", Value::text("eco").unwrap()), ("big", Value::U64(u64::MAX))];
        let one = |n: usize| {
            let mut b = bucket("a", START / 1000, 0, &[]);
            b.samples = (0..n).map(|i| sample(START + i as i64, &fields)).collect();
            Document::of(&b, &context()).bytes()
        };
        // Beyond 10,000 samples every index has five digits, as `document_bytes` counts it.
        assert_eq!(one(10_002) - one(10_001), sample(START, &fields).document_bytes() as usize);
    }

    #[test]
    fn rekeying_changes_the_id_alone() {
        let mut document = Document::of(&bucket("a~b", START / 1000, 0, &[(0, 1.0)]), &context());
        let before = parsed(&document);
        for (times, ending) in [(1, "|0~0badcafe".to_owned()), (2, format!("|0~0badcafe-{}", &document.hash[..8]))] {
            assert!(document.rekey("0badcafe"));
            let after = parsed(&document);
            assert!(document.id.starts_with("greenhouse-7/a~b|2026"), "{}", document.id);
            assert!(document.id.ends_with(&ending), "{}", document.id);
            assert_eq!(after.get_str("_id").unwrap(), document.id);
            assert_eq!(document.rekeyed, times);
            let rest = |d: &Bsondoc| d.clone().into_iter().skip(1).collect::<Bsondoc>();
            assert_eq!(rest(&after), rest(&before));
        }
        assert!(!document.rekey("0badcafe"));
    }

    #[test]
    fn decimals_hold_every_unsigned_number() {
        for v in [0, 1, i64::MAX as u64 + 1, u64::MAX] {
            assert_eq!(decimal(v), Decimal128::from_str(&v.to_string()).unwrap());
        }
    }
}
