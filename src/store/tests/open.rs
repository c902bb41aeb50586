//! What is told of open buckets: only what is committed, in its order of arrival, also after a kill.

use std::collections::HashMap;

use super::*;
use crate::model::bucketer::BucketKey;

fn question(known: &[(BucketKey, u32)]) -> Question {
    let known = known.iter().copied().collect::<HashMap<_, _>>();
    Question { known, after: None, buckets: 100, samples: 1000 }
}

fn seconds(growing: &Growing) -> Vec<i64> {
    values(&growing.bucket).into_iter().map(|(second, _)| second).collect()
}

#[tokio::test(start_paused = true)]
async fn open_buckets_are_told_once_they_are_committed_and_until_they_are_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site(folder.path(), clock()).await;
    site.push("a", 3, Value::I64(1)).await;
    assert!(site.outlet.look(question(&[])).await.growing.is_empty(), "it is not on disk yet");
    site.commit(Delivery::of(vec![reading("a", 1, Value::I64(2)), reading("b", 2, Value::I64(3))])).await;
    let told = site.outlet.look(question(&[])).await;
    assert_eq!(told.growing.iter().map(seconds).collect::<Vec<_>>(), [vec![3, 1], vec![2]], "as they came");
    assert_eq!(told.growing[0].bucket.sensor.as_str(), "a");
    let known = [(told.growing[0].key, 2), (told.growing[1].key, 1)];
    let again = site.outlet.look(question(&known)).await;
    assert_eq!((again.growing.len(), again.closed.len(), again.more), (0, 0, false));
    site.commit(Delivery::of(vec![reading("b", 9, Value::I64(4))])).await;
    let more = site.outlet.look(question(&known)).await;
    assert_eq!(more.growing.iter().map(seconds).collect::<Vec<_>>(), [vec![2, 9]]);
    site.buckets(2).await;
    let sealed = site.outlet.look(question(&known)).await;
    assert_eq!((sealed.growing.len(), sealed.closed.len()), (0, 2));
    site.stop().await;
}

async fn at_once(site: &Site, readings: Vec<Reading>) {
    site.commit(Delivery { urgent: true, ..Delivery::of(readings) }).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_kill_the_same_samples_are_told_in_the_same_order() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let mut before = Vec::new();
    for round in 0..4 {
        let mut site = site(folder.path(), time.clone()).await;
        let told = site.outlet.look(question(&[])).await;
        assert_eq!(told.growing.first().map(seconds).unwrap_or_default(), before, "round {round}");
        // Single samples, whose blocks are joined after some time, and batches, which are not.
        for i in 0..40 {
            let second = (round * 13 + i * 7) % 59;
            at_once(&site, vec![reading("a", second, Value::I64(round * 100 + i))]).await;
        }
        let batch = (0..20).map(|i| reading("a", 58 - i, Value::I64(round * 1000 + i))).collect();
        at_once(&site, batch).await;
        before = seconds(&site.outlet.look(question(&[])).await.growing[0]);
        assert_eq!(before.len(), 60 * (round as usize + 1));
        site.end(round % 2 == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_bounded_and_goes_on_behind_the_last_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site(folder.path(), clock()).await;
    let all = (0..10).flat_map(|s| (0..5).map(move |i| reading(&format!("s{s}"), i, Value::I64(i)))).collect();
    site.commit(Delivery::of(all)).await;
    let (mut after, mut told, mut answers) = (None, Vec::new(), 0);
    loop {
        let growth = site.outlet.look(Question { after, buckets: 4, samples: 17, ..Question::default() }).await;
        assert!(growth.growing.len() <= 3, "three of five samples each");
        after = growth.growing.last().map(|growing| growing.key);
        told.extend(growth.growing.iter().map(|growing| growing.bucket.sensor.to_string()));
        answers += 1;
        if !growth.more {
            break;
        }
    }
    assert_eq!((told.len(), answers), (10, 4));
    let one = Question { samples: 1, buckets: 1, ..Question::default() };
    assert_eq!(site.outlet.look(one).await.growing.len(), 1, "one may always be larger");
    site.stop().await;
}
