//! The documents of open buckets, against a database of plain rules.

use mongodb::bson::{Document as Bsondoc, doc};

use super::super::{Document, Form};
use super::*;
use crate::model::samples::sample;
use crate::model::{SealReason, SensorName, SiteName, Timestamp, Value, WindowLength};
use crate::upstream::plain::{Did, Plain, TAKEN};
use crate::upstream::{Collections, Names, Preset};

const START: i64 = 1_796_043_600_000;

fn context(shape: Shape) -> Context {
    Context {
        site: SiteName::new("s").unwrap(),
        store: "0badcafe".into(),
        retention: None,
        shape,
        collections: Collections::new("telemetry", "buckets", None),
        form: Form::Live,
        meta: Default::default(),
    }
}

fn bucket() -> SealedBucket {
    SealedBucket {
        sensor: SensorName::new("boiler").unwrap(),
        window: WindowLength::from_seconds(600).unwrap().window_of(Timestamp::clamped(START)),
        part: 0,
        sealed: SealReason::Window,
        late: false,
        clock: ClockState::Synced,
        samples: Vec::new(),
        rollup: None,
    }
}

fn with(samples: &[(i64, f64)]) -> SealedBucket {
    let samples = samples.iter().map(|(s, v)| sample(START + s * 1000, &[("temp", Value::F64(*v))]));
    SealedBucket { samples: samples.collect(), ..bucket() }
}

fn known(samples: u32) -> Option<Known> {
    Some(Known { samples, clock: ClockState::Synced })
}

fn update(bucket: &SealedBucket, known: Option<Known>, context: &Context) -> LiveUpdate {
    live_update(bucket, known, context, Timestamp::clamped(START + 1000))
}

fn parts(update: &LiveUpdate) -> (Bsondoc, Bsondoc) {
    let part = |key: &str| Bsondoc::try_from(update.statement.get_document(key).unwrap()).unwrap();
    (part("q"), part("u"))
}

#[test]
fn what_goes_on_regularly_is_added_and_guarded() {
    let sent = update(&with(&[(0, 1.0), (1, 2.5), (2, 0.5)]), known(1), &context(Shape::default()));
    let (q, u) = parts(&sent);
    let start = mongodb::bson::DateTime::from_millis(START);
    let at = |s: i64| mongodb::bson::DateTime::from_millis(START + 1000 * s);
    assert_eq!((sent.whole, sent.gained, sent.then.samples), (false, 2, 3));
    let expected = doc! { "_id": sent.id.as_str(), "sensor": "boiler", "start": start, "store": "0badcafe", "lastSeq": { "$lt": 3_i64 } };
    assert_eq!(q, expected);
    let expected = doc! {
        "$push": { "samples": { "$each": [{ "t": at(1), "temp": 2.5 }, { "t": at(2), "temp": 0.5 }] } },
        "$inc": { "count": 2, "stats.temp.count": 2, "stats.temp.sum": 3.0 },
        "$min": { "first": at(1), "stats.temp.min": 0.5 },
        "$max": { "last": at(2), "stats.temp.max": 2.5 },
        "$set": { "lastSeq": 3_i64, "stats.temp.last": 0.5 },
        "$setOnInsert": { "site": "s", "part": 0, "end": at(600), "clock": "synced", "schema": 1 },
    };
    assert_eq!(u, expected);
}

#[test]
fn what_does_not_replaces_the_whole_document() {
    let plain = context(Shape::default());
    let regular = with(&[(0, 1.0), (1, 2.0), (2, 3.0)]);
    assert!(update(&regular, None, &plain).whole, "nothing is known");
    assert!(!update(&regular, known(2), &plain).whole);
    assert!(update(&with(&[(0, 1.0), (2, 2.0), (1, 3.0)]), known(2), &plain).whole, "out of order");
    assert!(update(&SealedBucket { clock: ClockState::Restamped, ..regular.clone() }, known(2), &plain).whole);
    let mut novel = regular.clone();
    novel.samples[2] = sample(START + 2000, &[("temp", Value::F64(3.0)), ("hum", Value::I64(1))]);
    assert!(update(&novel, known(2), &plain).whole, "a new field");
    let whole_only = [
        Shape { layout: Layout::Columns, ..Shape::default() },
        Shape { summary: Some(std::time::Duration::from_secs(300)), ..Shape::default() },
        Shape { names: Names { stats_avg: "avg".into(), ..Names::default() }, ..Shape::default() },
    ];
    for shape in whole_only {
        assert!(update(&regular, known(2), &context(shape)).whole);
    }
    let (_, document) = parts(&update(&regular, None, &plain));
    assert_eq!(document.get_i64("lastSeq").unwrap(), 3);
    for absent in ["hash", "sealed"] {
        assert!(!document.contains_key(absent), "{absent} is the sealed bucket's");
    }
}

#[test]
fn the_sealed_document_ends_it() {
    let context = context(Shape::default());
    let (mut plain, open) = (Plain::default(), with(&[(0, 1.0), (1, 2.0)]));
    assert_eq!(plain.update(&update(&open, None, &context).statement), Ok(Did::Made));
    let sealed = Document::of(&open, &context);
    let bytes = Bsondoc::try_from(sealed.bson().as_ref()).unwrap();
    plain.stored.insert(sealed.id.clone(), bytes.clone());
    for late in [None, known(1)] {
        let further = with(&[(0, 1.0), (1, 2.0), (2, 3.0)]);
        assert_eq!(plain.update(&update(&further, late, &context).statement), Err(TAKEN));
    }
    assert_eq!(plain.stored[&sealed.id], bytes);
}

#[test]
fn another_gateways_open_bucket_is_left_alone() {
    let (ours, mut theirs) = (context(Shape::default()), context(Shape::default()));
    theirs.store = "feedbeef".into();
    let mut plain = Plain::default();
    plain.update(&update(&with(&[(0, 1.0)]), None, &theirs).statement).unwrap();
    assert_eq!(plain.update(&update(&with(&[(0, 1.0), (1, 2.0)]), None, &ours).statement), Err(TAKEN));
}

fn shapes() -> Vec<Shape> {
    let presets = [Preset::Hourly, Preset::Measurements, Preset::Values, Preset::Readings, Preset::Samples];
    let columns = Shape { layout: Layout::Columns, ..Shape::default() };
    let flat = Shape { rollups: Rollups::Flat, ..Shape::default() };
    let summary = Shape { summary: Some(std::time::Duration::from_secs(60)), ..Preset::Readings.shape() };
    presets.into_iter().map(Preset::shape).chain([Shape::default(), columns, flat, summary]).collect()
}

/// One to three fields out of four, values whose sums are exact.
fn random_sample(random: &mut fastrand::Rng, at: i64) -> crate::model::Sample {
    let usual = random.u8(0..10) < 8;
    let number = |random: &mut fastrand::Rng| Value::F64(f64::from(random.i32(-50..50)) / 2.0);
    let mut fields = vec![("temp", number(random))];
    if !usual {
        match random.u8(0..4) {
            0 => fields.push(("hum", Value::I64(random.i64(0..100)))),
            1 => fields = vec![("hum", Value::I64(random.i64(0..100)))],
            2 => fields.push(("state", Value::text("on").unwrap())),
            _ => fields = vec![("t", number(random)), ("temp", Value::I64(3))],
        }
    }
    sample(START + at * 250, &fields)
}

#[test]
fn the_document_always_says_what_the_samples_say_whatever_is_lost_repeated_or_late() {
    let (mut added, mut replaced) = (0, 0);
    for seed in 0..600 {
        let mut random = fastrand::Rng::with_seed(seed);
        let context = context(random.choice(shapes()).unwrap());
        let (mut plain, mut open, mut known, mut sent) = (Plain::default(), bucket(), None, Vec::<LiveUpdate>::new());
        let mut at = 0;
        for _ in 0..12 {
            for _ in 0..random.usize(1..5) {
                at += random.i64(0..20);
                let late = if random.u8(0..12) == 0 { random.i64(0..=at) } else { 0 };
                open.samples.push(random_sample(&mut random, at - late));
            }
            let now = update(&open, known, &context);
            if random.u8(0..6) == 0 {
                // It never arrives, and nobody knows.
                known = None;
                sent.push(now);
                continue;
            }
            assert!(plain.update(&now.statement).is_ok(), "seed {seed}");
            (added, replaced) = (added + u32::from(!now.whole), replaced + u32::from(now.whole));
            let id = now.id.clone();
            sent.push(now);
            // The same one again, and others that were under way, change nothing.
            for _ in 0..random.usize(0..3) {
                let stray = random.choice(&sent).unwrap();
                assert_eq!(plain.update(&stray.statement), Err(TAKEN), "seed {seed}");
            }
            known = Some(sent.last().unwrap().then).filter(|_| random.u8(0..8) > 0);
            let mut ordered = open.clone();
            ordered.samples.sort_by_key(|sample| sample.at);
            let ending = Ending::Open(open.count());
            let expected = build(&ordered, &context, &id, &ending, Timestamp::clamped(START));
            assert_eq!(plain.stored[&id], Bsondoc::try_from(expected.as_ref()).unwrap(), "seed {seed}");
        }
    }
    assert!(added > 500 && replaced > 500, "both ways were taken: {added}, {replaced}");
}
