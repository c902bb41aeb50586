//! Documents in every shape: each preset field by field, columns, summaries, and what a shape must not change.

use std::collections::HashMap;

use mongodb::bson::{Bson, DateTime, Document as Bsondoc, doc};

use super::*;
use crate::model::samples::{bucket, sample};
use crate::model::{Sample, SealReason, Value, WindowLength};
use crate::upstream::{Collections, Config, Layout, Preset, Shape, Times};

const START: i64 = 1_796_043_600_000;

fn context(config: &Config) -> Context {
    Context {
        site: SiteName::new("greenhouse-7").unwrap(),
        store: "0badcafe".into(),
        retention: None,
        shape: Shape::of(config),
        meta: HashMap::new(),
        collections: Collections::new("telemetry", "buckets", None),
        form: Default::default(),
    }
}

fn at(seconds: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(START + seconds * 1000))
}

/// A bucket of an hour, or of ten minutes, with temperatures at these seconds.
fn temperatures(window: u32, values: &[(i64, f64)]) -> SealedBucket {
    let mut bucket = bucket("s-1", START / 1000, 0, values);
    bucket.window = WindowLength::from_seconds(window).unwrap().window_of(Timestamp::clamped(START));
    bucket
}

/// The document of a bucket must be `expected` and, behind it, nothing but what proves that it is stored.
fn check(config: &Config, bucket: &SealedBucket, expected: &Bsondoc) {
    let document = Document::of(bucket, &context(config));
    let mut found = Bsondoc::try_from(document.bson().clone()).unwrap();
    let proof = ["_id", "hash", "store", "schema"].map(|key| found.remove(key).unwrap());
    let hash = bucket.hash(&SiteName::new("greenhouse-7").unwrap());
    assert_eq!(proof[1], Bson::String(hash[..24].to_owned()), "in every shape the same");
    assert_eq!(&found, expected);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "and in this order");
}

fn preset(preset: Preset) -> Config {
    Config { preset: Some(preset), ..Config::default() }
}

#[test]
fn preset_hourly() {
    let bucket = temperatures(3600, &[(0, 20.5), (61, 21.0), (3599, 19.0)]);
    let expected = doc! {
        "sensorId": "s-1", "hour": at(0), "count": 3, "sum": 60.5, "min": 19.0, "max": 21.0,
        "samples": [{ "m": 0, "t": 20.5 }, { "m": 1, "t": 21.0 }, { "m": 59, "t": 19.0 }],
    };
    check(&preset(Preset::Hourly), &bucket, &expected);
}

#[test]
fn preset_measurements() {
    let bucket = temperatures(3600, &[(4, 20.5), (64, 21.0)]);
    let expected = doc! {
        "device_id": "s-1", "hour_bucket": at(0), "created_at": at(4), "count": 2,
        "measurements": [{ "time": at(4), "temp": 20.5 }, { "time": at(64), "temp": 21.0 }],
    };
    check(&preset(Preset::Measurements), &bucket, &expected);
}

#[test]
fn preset_values() {
    let bucket = temperatures(3600, &[(4, 20.5), (64, 21.0)]);
    let expected = doc! {
        "deviceId": "s-1", "bucketStart": at(0), "count": 2, "sumVal": 41.5, "minVal": 20.5, "maxVal": 21.0,
        "readings": [{ "t": at(4), "val": 20.5 }, { "t": at(64), "val": 21.0 }],
    };
    check(&preset(Preset::Values), &bucket, &expected);
}

#[test]
fn preset_readings_with_and_without_its_summary() {
    let bucket = temperatures(600, &[(4, 20.0), (299, 21.0), (300, 19.0)]);
    let readings =
        doc! { "readings": [{ "t": at(4), "v": 20.0 }, { "t": at(299), "v": 21.0 }, { "t": at(300), "v": 19.0 }] };
    let mut expected = doc! { "sensor_id": "s-1", "start": at(0), "end": at(600), "count": 3 };
    expected.extend(readings.clone());
    check(&preset(Preset::Readings), &bucket, &expected);
    let five_minutes = Config { summary: Some(Duration::from_secs(300)), ..preset(Preset::Readings) };
    let mut expected = doc! {
        "sensor_id": "s-1", "start": at(0), "end": at(600), "count": 3,
        "summary": [
            { "start": at(0), "count": 2, "sum": 41.0, "min": 20.0, "max": 21.0, "avg": 20.5 },
            { "start": at(300), "count": 1, "sum": 19.0, "min": 19.0, "max": 19.0, "avg": 19.0 },
        ],
    };
    expected.extend(readings);
    check(&five_minutes, &bucket, &expected);
}

#[test]
fn preset_samples() {
    let mut bucket = temperatures(600, &[(4, 20.5), (9, 21.0)]);
    let expected = doc! {
        "sensorId": "s-1", "startTs": at(0), "count": 2, "sumTemp": 41.5, "minTemp": 20.5, "maxTemp": 21.0,
        "samples": [{ "ts": at(4), "temp": 20.5 }, { "ts": at(9), "temp": 21.0 }],
    };
    check(&preset(Preset::Samples), &bucket, &expected);
    bucket.samples.push(sample(START + 10_000, &[("hum", Value::I64(40))]));
    let expected = doc! {
        "sensorId": "s-1", "startTs": at(0), "count": 3,
        "sumTemp": 41.5, "minTemp": 20.5, "maxTemp": 21.0, "count_temp": 2,
        "sumHum": 40_i64, "minHum": 40_i64, "maxHum": 40_i64, "count_hum": 1,
        "samples": [{ "ts": at(4), "temp": 20.5 }, { "ts": at(9), "temp": 21.0 }, { "ts": at(10), "hum": 40_i64 }],
    };
    check(&preset(Preset::Samples), &bucket, &expected);
}

#[test]
fn in_a_shape_for_one_field_further_fields_keep_their_names() {
    let mut bucket = temperatures(3600, &[]);
    bucket.samples =
        vec![sample(START, &[("hum", Value::F64(40.0)), ("t", Value::F64(20.5)), ("m", Value::Bool(true))])];
    let config = Config { field: Some("t".into()), ..preset(Preset::Hourly) };
    let expected = doc! {
        "sensorId": "s-1", "hour": at(0), "count": 1,
        "sum_hum": 40.0, "min_hum": 40.0, "max_hum": 40.0, "sum": 20.5, "min": 20.5, "max": 20.5,
        "samples": [{ "m": 0, "hum": 40.0, "t": 20.5, "m_": true }],
    };
    check(&config, &bucket, &expected);
}

#[test]
fn columns_have_one_length_and_null_where_nothing_was() {
    let mut bucket = temperatures(600, &[]);
    bucket.samples = vec![
        sample(START + 500, &[("temp", Value::F64(20.5))]),
        sample(START + 1500, &[("hum", Value::I64(40))]),
        sample(START + 2500, &[("temp", Value::F64(21.0)), ("t", Value::Bool(true))]),
    ];
    let columns = Config { layout: Layout::Columns, ..Config::default() };
    let found = |config: &Config| {
        let document = Document::of(&bucket, &context(config));
        Bsondoc::try_from(document.bson().clone()).unwrap().get_document("samples").unwrap().clone()
    };
    let expected = doc! {
        "t": [500, 1500, 2500], "temp": [20.5, Bson::Null, 21.0], "hum": [Bson::Null, 40_i64, Bson::Null],
        "t_": [Bson::Null, Bson::Null, true],
    };
    assert_eq!(found(&columns), expected);
    let dates = found(&Config { times: Times::Date, ..columns });
    assert_eq!(dates.get_array("t").unwrap()[1], Bson::DateTime(DateTime::from_millis(START + 1500)));
}

#[test]
fn columns_are_smaller_than_rows() {
    let values: Vec<(i64, f64)> = (0..200).map(|i| (i, 20.0 + i as f64 / 100.0)).collect();
    let bytes = |layout| {
        let config = Config { layout, ..Config::default() };
        Document::of(&temperatures(600, &values), &context(&config)).bytes()
    };
    let (rows, columns) = (bytes(Layout::Rows), bytes(Layout::Columns));
    assert!(columns * 10 < rows * 8, "{columns} and {rows} bytes");
}

#[test]
fn a_bucket_that_was_cut_can_say_so() {
    let mut config = Config::default();
    config.names.overflow = "hasOverflow".into();
    let mut bucket = temperatures(600, &[(0, 1.0)]);
    let overflow = |bucket: &SealedBucket| {
        let found = Bsondoc::try_from(Document::of(bucket, &context(&config)).bson().clone()).unwrap();
        found.get_bool("hasOverflow").ok()
    };
    assert_eq!(overflow(&bucket), None);
    for cut in [SealReason::Samples, SealReason::Bytes] {
        bucket.sealed = cut;
        assert_eq!(overflow(&bucket), Some(true));
    }
}

#[test]
fn what_arrives_late_is_kept_for_a_while() {
    let mut context = context(&Config::default());
    let (day, hour) = (Duration::from_secs(86_400), Duration::from_secs(3600));
    context.retention = Some(Retention { after_window: day, after_sending: hour });
    let bucket = temperatures(600, &[(0, 1.0)]);
    let end = bucket.window.end();
    let expires = |now: Timestamp| {
        let found = Bsondoc::try_from(Document::sent_at(&bucket, &context, now).bson().clone()).unwrap();
        Timestamp::clamped(found.get_datetime("expireAt").unwrap().timestamp_millis())
    };
    assert_eq!(expires(end), end.plus(day));
    assert_eq!(expires(end.plus(21 * day)), end.plus(21 * day).plus(hour), "after three weeks without a network");
}

#[test]
fn without_a_hash_the_whole_content_is_compared() {
    let mut config = Config::default();
    let one = temperatures(600, &[(0, 1.0), (1, 2.0)]);
    let other = temperatures(600, &[(0, 1.0), (1, 2.5)]);
    for hash in ["hash", ""] {
        config.names.hash = hash.into();
        let mut context = context(&config);
        context.retention = Some(Retention { after_window: Duration::ZERO, after_sending: Duration::ZERO });
        let ours = Document::of(&one, &context);
        let is = |stored: &Document| is_same(stored.bson(), &ours, &context.shape);
        let mut again = context.clone();
        again.store = "feedbeef".into();
        assert!(is(&Document::sent_at(&one, &again, Timestamp::LAST)), "another card, another time: the same content");
        assert!(!is(&Document::of(&other, &context)));
        assert!(!is_same(&RawDocumentBuf::new(), &ours, &context.shape));
    }
}

#[test]
fn thinned_buckets_have_every_shape() {
    for preset in [None, Some(Preset::Hourly), Some(Preset::Readings), Some(Preset::Samples)] {
        for layout in [Layout::Rows, Layout::Columns] {
            let summary = Some(Duration::from_secs(300));
            let context = context(&Config { preset, layout, summary, ..Config::default() });
            let whole = temperatures(600, &[(0, 1.0), (1, 2.0)]);
            let thin = Document::of(&whole.clone().thinned(&context.site), &context);
            let found = Bsondoc::try_from(thin.bson().clone()).unwrap();
            assert_eq!((found.get_i32("count").unwrap(), found.get_bool("thinned").unwrap()), (2, true));
        }
    }
}

#[test]
fn every_sample_is_in_rows_and_in_columns() {
    let samples = |n: usize| -> Vec<Sample> {
        (0..n as i64)
            .map(|i| sample(START + i, &[if i % 3 == 0 { ("a", Value::I64(i)) } else { ("b", Value::I64(i)) }]))
            .collect()
    };
    for n in [1, 2, 100] {
        let mut bucket = temperatures(600, &[]);
        bucket.samples = samples(n);
        let config = Config { layout: Layout::Columns, ..Config::default() };
        let found = Bsondoc::try_from(Document::of(&bucket, &context(&config)).bson().clone()).unwrap();
        let columns = found.get_document("samples").unwrap();
        for (row, sample) in bucket.samples.iter().enumerate() {
            let (name, value) = &sample.fields[0];
            let Value::I64(value) = value else { panic!() };
            assert_eq!(columns.get_array(name.as_str()).unwrap()[row], Bson::Int64(*value));
            assert_eq!(columns.get_array("t").unwrap()[row], Bson::Int32(row as i32));
        }
    }
}
