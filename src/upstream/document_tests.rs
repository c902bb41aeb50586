//! Documents, field by field.

use std::str::FromStr;

use mongodb::bson::{Bson, Document as Bsondoc, doc};
use mongodb::bson::{DateTime, Decimal128};

use proptest::prelude::*;

use super::*;
use crate::model::Value;
use crate::model::samples::{bucket, sample};
use crate::model::{Sample, SealReason};

const START: i64 = 1_796_043_600_000;

fn context() -> Context {
    Context {
        site: SiteName::new("greenhouse-7").unwrap(),
        store: "0badcafe".into(),
        retention: None,
        shape: Shape::default(),
        meta: HashMap::new(),
        collections: Collections::new("telemetry", "buckets", None),
        form: Default::default(),
    }
}

fn parsed(document: &Document) -> Bsondoc {
    Bsondoc::try_from(document.bson().clone()).unwrap()
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
    context.retention =
        Some(Retention { after_window: Duration::from_secs(86_400), after_sending: Duration::from_secs(3600) });
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
        "clock": "synced", "hash": &bucket.hash(&context.site)[..24], "store": "0badcafe", "schema": 1,
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
    context.shape.names.sensor = "sensorId".into();
    context.shape.names.start = "startTs".into();
    context.shape.names.samples = "readings".into();
    context.shape.names.samples_t = "ts".into();
    context.shape.names.stats_sum = "total".into();
    context.shape.names.hash = "h".into();
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
    assert_eq!(Document::of(&one, &context()).bson(), Document::of(&one, &context()).bson());
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
fn bytes_that_were_given_away_are_made_again() {
    let again = || Document::of(&bucket("a", START / 1000, 0, &[(0, 1.0)]), &context());
    let before = again().bson().clone();
    // What cannot be made again stays.
    for mut document in [again(), again().made_again_by(Arc::new(again))] {
        let size = document.bytes();
        for _ in 0..2 {
            assert_eq!(document.give(), before);
            assert_eq!((document.bytes(), document.clone().into_bytes()), (size, before.as_bytes().to_vec()));
        }
        assert_eq!(document.bson(), &before);
        document.give();
        assert!(document.rekey("0badcafe"));
        let rekeyed = document.give();
        assert_eq!((rekeyed.get_str("_id").unwrap(), document.bson()), (document.id.as_str(), &rekeyed));
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<f64>().prop_filter_map("finite", Value::float),
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(Value::unsigned),
        any::<bool>().prop_map(Value::Bool),
        "\\PC{0,20}".prop_map(|text| Value::text(&text).unwrap()),
    ]
}

fn any_bucket() -> impl Strategy<Value = SealedBucket> {
    let field = (prop_oneof!["[a-z_t]{1,3}", "\\PC{1,8}"], any_value());
    let fields = proptest::collection::btree_map(field.0.prop_map(|n| FieldName::new(&n).unwrap()), field.1, 1..5);
    let samples = proptest::collection::vec((0..600_000_i64, fields), 1..20);
    (samples, "[^\\p{Cc}]{1,12}", 0..3_u32).prop_map(|(mut samples, sensor, part)| {
        samples.sort_by_key(|(at, _)| *at);
        let mut bucket = bucket(&sensor, START / 1000, part, &[]);
        bucket.samples = samples
            .into_iter()
            .map(|(at, fields)| Sample { at: Timestamp::clamped(START + at), fields: fields.into_iter().collect() })
            .collect();
        bucket
    })
}

/// The value back out of a document.
fn back(value: &Bson) -> Value {
    match value {
        Bson::Double(v) => Value::F64(*v),
        Bson::Int64(v) => Value::I64(*v),
        Bson::Decimal128(v) => Value::U64(v.to_string().parse().unwrap()),
        Bson::Boolean(v) => Value::Bool(*v),
        Bson::String(v) => Value::Text(v.as_str().into()),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn every_sample_stands_in_the_document_as_it_was(bucket in any_bucket()) {
        let context = context();
        let found = parsed(&Document::of(&bucket, &context));
        let rows = found.get_array("samples").unwrap();
        prop_assert_eq!(rows.len(), bucket.samples.len());
        for (row, sample) in rows.iter().zip(&bucket.samples) {
            let row = row.as_document().unwrap();
            prop_assert_eq!(row.get("t").unwrap(), &Bson::DateTime(date(sample.at)));
            prop_assert_eq!(row.len(), sample.fields.len() + 1, "no two fields meet");
            for (name, value) in &sample.fields {
                prop_assert_eq!(&back(row.get(&*context.shape.names.field(name.as_str())).unwrap()), value);
            }
        }
        let counted: i32 = found.get_document("stats").unwrap().values().map(|s| s.as_document().unwrap().get_i32("count").unwrap()).sum();
        prop_assert_eq!(counted as usize, bucket.samples.iter().map(|s| s.fields.len()).sum::<usize>());
    }
}

#[test]
fn a_thinned_bucket_keeps_its_rollups_and_its_hash_and_says_so() {
    let bucket = bucket("a", 1_796_043_600, 0, &[(0, 21.5), (5, 20.0)]);
    let context = context();
    let whole = parsed(&Document::of(&bucket, &context));
    let thin = parsed(&Document::of(&bucket.clone().thinned(&context.site), &context));
    assert!(thin.get_bool("thinned").unwrap());
    assert!(thin.get_array("samples").unwrap().is_empty() && !whole.contains_key("thinned"));
    for key in ["_id", "first", "last", "count", "stats", "hash"] {
        assert_eq!(thin.get(key), whole.get(key), "{key}");
    }
}

#[test]
fn the_document_says_what_is_known_of_the_clock_and_unsynced_times_delete_nothing() {
    let mut context = context();
    context.retention = Some(Retention { after_window: Duration::from_secs(86_400), after_sending: Duration::ZERO });
    for (clock, expires) in [(ClockState::Synced, true), (ClockState::Restamped, true), (ClockState::Unsynced, false)] {
        let mut bucket = bucket("s", 0, 0, &[(1, 2.0)]);
        bucket.clock = clock;
        let document = Document::of(&bucket, &context);
        let bson = parsed(&document);
        assert_eq!(bson.get_str("clock").unwrap(), clock.as_str());
        assert_eq!(bson.contains_key("expireAt"), expires, "{clock:?}");
    }
}
