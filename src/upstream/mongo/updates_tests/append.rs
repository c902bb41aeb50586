//! Readings one by one into documents that others write too.

use mongodb::bson::doc;

use super::super::super::{Fate, Report, TroubleKind};
use super::super::append::deliver;
use super::super::breaker::Breaker;
use super::*;
use crate::model::samples::bucket;

fn documents(names: &[&str], samples: i64) -> Vec<Document> {
    let values: Vec<(i64, f64)> = (0..samples).map(|i| (i, i as f64)).collect();
    names.iter().map(|name| Document::of(&bucket(name, START, 0, &values), &context(Form::Append(4)))).collect()
}

async fn send(fake: &mut Fake, documents: &mut [Document]) -> Report {
    deliver(fake, &mut Breaker::default(), documents).await.report
}

/// The values of a sensor in the order in which they are stored, document by document.
fn values(fake: &Fake, sensor: &str) -> Vec<Vec<f64>> {
    let of_sensor = fake.plain.stored.values().filter(|document| document.get_str("sensor").unwrap() == sensor);
    let sample = |sample: &mongodb::bson::Bson| sample.as_document().unwrap().get_f64("temp").unwrap();
    of_sensor.map(|document| document.get_array("samples").unwrap().iter().map(sample).collect()).collect()
}

#[tokio::test]
async fn each_reading_is_an_upsert_below_the_cap() {
    let mut fake = Fake::default();
    let mut sent = documents(&["a"], 6);
    let statement = bson(&sent[0].rows[0]);
    let at = mongodb::bson::DateTime::from_millis(START * 1000);
    let end = mongodb::bson::DateTime::from_millis((START + 600) * 1000);
    let expected = doc! {
        "q": { "site": "s", "sensor": "a", "start": at, "count": { "$lt": 4 } },
        "u": {
            "$push": { "samples": { "$each": [{ "t": at, "temp": 0.0 }] } },
            "$inc": { "count": 1, "stats.temp.count": 1, "stats.temp.sum": 0.0 },
            "$min": { "first": at, "stats.temp.min": 0.0 },
            "$max": { "last": at, "stats.temp.max": 0.0 },
            "$setOnInsert": { "end": end },
        },
        "upsert": true,
    };
    assert_eq!(statement, expected);
    assert_eq!(send(&mut fake, &mut sent).await.fates, [Fate::Delivered]);
    assert_eq!(values(&fake, "a"), [vec![0.0, 1.0, 2.0, 3.0], vec![4.0, 5.0]]);
    let first = fake.plain.stored.values().next().unwrap();
    let stats = first.get_document("stats").unwrap().get_document("temp").unwrap();
    assert_eq!(stats, &doc! { "count": 4, "sum": 6.0, "min": 0.0, "max": 3.0 });
    // Somebody else's readings of the same window are added to.
    let filled = fake.plain.stored.values().filter(|document| document.get_i32("count").unwrap() == 4).count();
    assert_eq!((filled, fake.commands.as_slice()), (1, &[6][..]));
}

#[tokio::test]
async fn after_an_answer_only_what_it_names_is_sent_again() {
    let mut fake = Fake { tricks: [Trick::FailsAt(4, 91)].into(), ..Fake::default() };
    let mut sent = documents(&["a", "b", "c"], 3);
    let report = send(&mut fake, &mut sent).await;
    assert_eq!(report.fates, [Fate::Delivered, Fate::Unsent, Fate::Unsent]);
    assert_eq!(report.trouble.unwrap().kind, TroubleKind::Transient);
    assert_eq!(send(&mut fake, &mut sent[1..]).await.fates, [Fate::Delivered, Fate::Delivered]);
    assert_eq!(fake.commands, [9, 5], "four of nine were done");
    for sensor in ["a", "b", "c"] {
        assert_eq!(values(&fake, sensor), [vec![0.0, 1.0, 2.0]]);
    }
}

#[tokio::test]
async fn a_lost_answer_may_store_a_reading_twice_but_never_loses_one() {
    for (trick, expected) in [
        (Trick::ReplyLost, vec![vec![0.0, 1.0, 0.0, 1.0]]),
        (Trick::Unconfirmed, vec![vec![0.0, 1.0, 0.0, 1.0]]),
        (Trick::RequestLost, vec![vec![0.0, 1.0]]),
    ] {
        let mut fake = Fake { tricks: [trick].into(), ..Fake::default() };
        let mut sent = documents(&["a"], 2);
        assert_eq!(send(&mut fake, &mut sent).await.fates, [Fate::Unsent]);
        assert_eq!(send(&mut fake, &mut sent).await.fates, [Fate::Delivered]);
        assert_eq!(values(&fake, "a"), expected, "{trick:?}");
    }
}

#[tokio::test]
async fn a_refused_reading_puts_the_rest_of_its_bucket_aside_and_the_others_go_on() {
    let mut fake = Fake { tricks: [Trick::FailsAt(4, 121)].into(), ..Fake::default() };
    let mut sent = documents(&["a", "b", "c", "d"], 3);
    let report = send(&mut fake, &mut sent).await;
    let Fate::Refused(words) = &report.fates[1] else { panic!("{:?}", report.fates) };
    assert!(words.contains("121") && words.contains("1 of 3 readings are stored"), "{words}");
    assert_eq!((report.trouble, fake.commands.as_slice()), (None, &[12, 6][..]));
    assert_eq!((values(&fake, "b"), values(&fake, "d")), (vec![vec![0.0]], vec![vec![0.0, 1.0, 2.0]]));
}

#[tokio::test]
async fn a_changed_validator_stops_the_line() {
    let mut fake = Fake::default();
    let mut sent = documents(&["a", "b", "c", "d"], 2);
    fake.tricks = (0..4).map(|_| Trick::FailsAt(0, 121)).collect();
    let report = send(&mut fake, &mut sent).await;
    assert_eq!(report.fates, vec![Fate::Unsent; 4]);
    assert_eq!(report.trouble.unwrap().kind, TroubleKind::Stopped);
    assert_eq!(fake.commands.len(), 3, "three in a row are enough");
    fake.tricks.clear();
    assert_eq!(send(&mut fake, &mut sent).await.fates, vec![Fate::Delivered; 4]);
}

#[tokio::test]
async fn a_command_that_fails_as_a_whole_is_taken_apart() {
    // Eight readings, the third bucket's first is to blame: halves until it is alone.
    let mut fake = Fake { tricks: (0..4).map(|_| Trick::Fails(22)).collect(), ..Fake::default() };
    let mut sent = documents(&["a", "b", "c", "d"], 2);
    let report = send(&mut fake, &mut sent).await;
    assert!(matches!(report.fates[0], Fate::Refused(_)));
    assert_eq!(report.fates[1..], [Fate::Delivered, Fate::Delivered, Fate::Delivered]);
    assert_eq!(fake.commands, [8, 4, 2, 1, 6]);
}

#[tokio::test]
async fn a_document_that_somebody_made_meanwhile_is_added_to() {
    let mut fake = Fake { tricks: [Trick::FailsAt(0, 11000)].into(), ..Fake::default() };
    assert_eq!(send(&mut fake, &mut documents(&["a"], 2)).await.fates, [Fate::Delivered]);
    assert_eq!(values(&fake, "a"), [vec![0.0, 1.0]]);
    // A unique index that forbids a window's second document never lets go.
    let mut fake = Fake { tricks: (0..20).map(|_| Trick::FailsAt(0, 11000)).collect(), ..Fake::default() };
    let report = send(&mut fake, &mut documents(&["a"], 2)).await;
    let Fate::Refused(words) = &report.fates[0] else { panic!("{:?}", report.fates) };
    assert!(words.contains("unique index") && words.contains("0 of 2"), "{words}");
}

#[tokio::test]
async fn an_error_that_nobody_knows_stops_the_line_in_the_end() {
    let mut fake = Fake { tricks: (0..8).map(|_| Trick::Fails(4711)).collect(), ..Fake::default() };
    let mut sent = documents(&["a"], 2);
    let mut kinds = Vec::new();
    for _ in 0..8 {
        kinds.push(send(&mut fake, &mut sent).await.trouble.unwrap().kind);
    }
    assert_eq!((kinds[6], kinds[7]), (TroubleKind::Transient, TroubleKind::Stopped));
    assert_eq!(send(&mut fake, &mut sent).await.fates, [Fate::Delivered]);
}

#[tokio::test]
async fn a_thinned_bucket_has_no_readings_to_append() {
    let thinned = bucket("a", START, 0, &[(0, 1.0)]).thinned(&SiteName::new("s").unwrap());
    let mut sent = vec![Document::of(&thinned, &context(Form::Append(4)))];
    sent.extend(documents(&["b"], 1));
    let report = send(&mut Fake::default(), &mut sent).await;
    assert!(matches!(report.fates[0], Fate::Refused(_)));
    assert_eq!(report.fates[1], Fate::Delivered);
}

/// Sends what is left again and again; what became of each in the end, and after how many rounds nothing was left.
async fn rounds(
    fake: &mut Fake,
    sent: &mut Vec<Document>,
    fresh: impl Fn(usize) -> Vec<Document>,
) -> (Vec<Fate>, usize) {
    let (mut breaker, mut ends) = (Breaker::default(), Vec::new());
    for round in 1..=30 {
        let left = sent.len();
        sent.extend(fresh(round));
        let mut fates = deliver(fake, &mut breaker, sent).await.report.fates;
        fates.truncate(left);
        sent.truncate(left);
        let mut kept = fates.iter().map(|fate| *fate == Fate::Unsent);
        sent.retain(|_| kept.next().unwrap());
        ends.extend(fates.into_iter().filter(|fate| *fate != Fate::Unsent));
        if sent.is_empty() {
            return (ends, round);
        }
    }
    (ends, 30)
}

#[tokio::test]
async fn a_reading_at_which_the_server_hangs_up_is_found_and_the_others_are_stored() {
    let mut fake = Fake { closes: Some(5.0), ..Fake::default() };
    // The last bucket alone is long enough to hold that value.
    let mut sent = documents(&["a", "b", "c"], 4);
    sent.extend(documents(&["d"], 8));
    let (ends, rounds) = rounds(&mut fake, &mut sent, |n| documents(&[&format!("n{n}")], 1)).await;
    assert_eq!((ends.len(), rounds), (4, 7), "{ends:?}");
    let Some(Fate::Refused(words)) = ends.last() else { panic!("{ends:?}") };
    assert!(words.contains("whenever it is sent this bucket alone (5 times)"), "{words}");
    assert!(words.contains("5 of 8 readings are stored"), "{words}");
    for sensor in ["a", "b", "c"] {
        let stored: Vec<f64> = values(&fake, sensor).concat();
        (0..4).for_each(|n| assert!(stored.contains(&f64::from(n)), "{sensor}: {stored:?}"));
    }
    // Rather twice than never: three commands were cut off behind them before one was taken apart.
    assert!(values(&fake, "a").concat().len() <= 4 * 4);
}

#[tokio::test]
async fn in_an_outage_no_bucket_with_readings_is_put_aside() {
    let mut fake = Fake { closes: Some(0.0), ..Fake::default() };
    let mut sent = documents(&["a", "b", "c", "d"], 2);
    let (ends, _) = rounds(&mut fake, &mut sent, |_| Vec::new()).await;
    assert_eq!((ends.len(), sent.len()), (0, 4));
}
