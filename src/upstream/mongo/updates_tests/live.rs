//! What takes the place of live documents.

use std::time::Duration;

use super::super::super::{LiveReport, LiveUpdate, Shown, TroubleKind, live_update};
use super::super::breaker::Breaker;
use super::super::deliver::deliver;
use super::super::live::send;
use super::*;
use crate::model::samples::bucket;
use crate::model::{SealedBucket, Timestamp};
use crate::upstream::{Fate, Known};

const PROBE: Duration = Duration::from_secs(300);

fn open(samples: u32) -> SealedBucket {
    let samples: Vec<(i64, f64)> = (0..samples).map(|i| (i.into(), f64::from(i) / 2.0)).collect();
    bucket("boiler", START, 0, &samples)
}

fn update(bucket: &SealedBucket, known: Option<Known>) -> LiveUpdate {
    live_update(bucket, known, &context(Form::Live), Timestamp::clamped(START * 1000))
}

async fn show(fake: &mut Fake, updates: &[LiveUpdate]) -> LiveReport {
    send(fake, updates, PROBE).await.0
}

async fn seal(fake: &mut Fake, bucket: &SealedBucket, form: Form) -> (Document, crate::upstream::Report) {
    let mut sent = [Document::of(bucket, &context(form))];
    let report = deliver(fake, &mut Breaker::default(), &mut sent, STORE).await.report;
    let [document] = sent;
    (document, report)
}

#[tokio::test]
async fn the_sealed_bucket_takes_the_place_of_its_live_document_byte_for_byte() {
    // Also in mode `buckets`: the site file may have been changed while the bucket was open.
    for form in [Form::Live, Form::Buckets] {
        let mut fake = Fake::default();
        let first = update(&open(3), None);
        assert_eq!(show(&mut fake, std::slice::from_ref(&first)).await.fates, [Shown::Made]);
        let second = update(&open(5), Some(first.then));
        assert_eq!(show(&mut fake, &[second]).await.fates, [Shown::Done]);
        let (sent, report) = seal(&mut fake, &open(6), form).await;
        assert_eq!((report.fates, report.conflicts, report.trouble), (vec![Fate::Delivered], 0, None));
        assert_eq!(fake.plain.stored.len(), 1);
        let buckets = Document::of(&open(6), &context(Form::Buckets));
        assert_eq!((&sent.id, sent.bson()), (&buckets.id, buckets.bson()), "as mode `buckets` would have it");
        assert_eq!(fake.plain.stored[&sent.id], bson(buckets.bson()));
        // Whatever was under way meets a document that is final.
        assert_eq!(show(&mut fake, &[first]).await.fates, [Shown::Taken]);
        assert_eq!(fake.plain.stored[&sent.id], bson(buckets.bson()));
    }
}

#[tokio::test]
async fn a_bucket_that_was_never_shown_is_simply_stored_and_sent_twice_it_is_there_once() {
    let mut fake = Fake { tricks: [Trick::ReplyLost].into(), ..Fake::default() };
    let (_, report) = seal(&mut fake, &open(2), Form::Live).await;
    assert_eq!((report.fates, report.trouble.unwrap().kind), (vec![Fate::Unsent], TroubleKind::Transient));
    let (_, report) = seal(&mut fake, &open(2), Form::Live).await;
    assert_eq!((report.fates, report.conflicts, fake.plain.stored.len()), (vec![Fate::Delivered], 0, 1));
}

#[tokio::test]
async fn what_is_not_ours_is_not_replaced() {
    let mut fake = Fake::default();
    let mut theirs = context(Form::Live);
    theirs.store = "feedbeef".into();
    let foreign = live_update(&open(9), None, &theirs, Timestamp::clamped(START * 1000));
    show(&mut fake, std::slice::from_ref(&foreign)).await;
    let before = fake.plain.stored[&foreign.id].clone();
    assert_eq!(show(&mut fake, &[update(&open(20), None)]).await.fates, [Shown::Taken]);
    let (sent, report) = seal(&mut fake, &open(2), Form::Live).await;
    assert_eq!((report.fates, report.conflicts), (vec![Fate::Delivered], 1));
    assert_eq!(sent.id, format!("{}~{STORE}", foreign.id));
    assert_eq!(fake.plain.stored[&foreign.id], before);
}

#[tokio::test]
async fn what_is_final_is_not_replaced_either() {
    // The same store under the same `_id` with other content: part of its journal was lost with a damaged card.
    let mut fake = Fake::default();
    let (first, _) = seal(&mut fake, &open(5), Form::Live).await;
    let before = fake.plain.stored[&first.id].clone();
    for form in [Form::Live, Form::Buckets] {
        let (other, report) = seal(&mut fake, &open(4), form).await;
        assert_eq!((report.fates, report.conflicts), (vec![Fate::Delivered], 1));
        assert_eq!(other.id, format!("{}~{STORE}", first.id));
    }
    assert_eq!((fake.plain.stored.len(), &fake.plain.stored[&first.id]), (2, &before));
}

#[tokio::test]
async fn a_late_update_between_two_tries_is_replaced_too() {
    // The seal finds nothing, a live update that was under way arrives, and only then the seal is run: the server says
    // that the `_id` is taken.
    let mut fake = Fake { tricks: [Trick::Answered, Trick::FailsAt(0, 11000)].into(), ..Fake::default() };
    show(&mut fake, &[update(&open(1), None)]).await;
    let (sent, report) = seal(&mut fake, &open(2), Form::Live).await;
    assert_eq!((report.fates, report.conflicts), (vec![Fate::Delivered], 0));
    assert_eq!(fake.plain.stored[&sent.id], bson(sent.bson()));
}

#[tokio::test]
async fn what_a_person_must_put_right_does_not_hold_up_delivery() {
    for (code, is_off, kind) in [
        (13, true, None),
        (462, false, Some(TroubleKind::Overload)),
        (91, false, Some(TroubleKind::Transient)),
        (22, true, None),
    ] {
        let mut fake = Fake { tricks: [Trick::Fails(code)].into(), ..Fake::default() };
        let report = show(&mut fake, &[update(&open(1), None)]).await;
        assert_eq!((report.off.is_some(), report.trouble.map(|trouble| trouble.kind)), (is_off, kind), "{code}");
        assert_eq!(report.fates, [Shown::Unknown]);
    }
    let mut fake = Fake { tricks: [Trick::FailsAt(0, 121)].into(), ..Fake::default() };
    let report = show(&mut fake, &[update(&open(1), None)]).await;
    assert!(matches!(report.fates[0], Shown::Refused(_)) && report.trouble.is_none() && report.off.is_none());
}

#[tokio::test]
async fn whatever_is_lost_on_the_way_the_end_is_the_sealed_bucket_and_nothing_else() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut fake = Fake::default();
        let tricks = [Trick::Answered, Trick::Answered, Trick::ReplyLost, Trick::RequestLost, Trick::Unconfirmed];
        let (mut samples, mut known, mut strays) = (0, None, Vec::new());
        for _ in 0..random.usize(0..8) {
            samples += random.u32(1..4);
            let now = update(&open(samples), known);
            fake.tricks.push_back(random.choice(tricks).unwrap());
            let report = show(&mut fake, std::slice::from_ref(&now)).await;
            known = Some(now.then)
                .filter(|_| report.fates == [Shown::Done] || (now.whole && report.fates == [Shown::Made]));
            strays.push(now);
        }
        let whole = open(samples + 1);
        let mut sent = [Document::of(&whole, &context(Form::Live))];
        for _ in 0..50 {
            fake.tricks.push_back(random.choice(tricks).unwrap());
            let report = deliver(&mut fake, &mut Breaker::default(), &mut sent, STORE).await.report;
            if let Some(stray) = random.choice(&strays) {
                let _ = fake.plain.update(&stray.statement);
            }
            if report.fates == [Fate::Delivered] {
                break;
            }
        }
        assert_eq!(fake.plain.stored.len(), 1, "seed {seed}");
        assert_eq!(fake.plain.stored[&sent[0].id], bson(sent[0].bson()), "seed {seed}");
    }
}
