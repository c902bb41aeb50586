//! Buckets that are sent before they are written: under kills, stops, an upstream that comes and goes, and a slow one.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn rows(folder: &Path) -> i64 {
    let db = database::open_reader(&folder.join("t.db")).unwrap();
    db.query_row("SELECT count(*) FROM segment", [], |row| row.get(0)).unwrap()
}

fn settled(segments: Vec<SegmentId>) -> Settled {
    Settled { segments, dead_letters: vec![] }
}

/// A store whose upstream takes everything, with one sealed bucket of sensor `s` that is drawn and not settled.
async fn with_one_drawn(folder: &Path, time: &Clock) -> (Site, SealedBucket, Vec<SegmentId>) {
    let mut site = site(folder, time.clone()).await;
    site.outlet.upstream_takes(true);
    site.commit(Delivery::of(vec![reading("s", 1, Value::I64(1)), reading("s", 2, Value::I64(2))])).await;
    let (mut buckets, segments) = site.buckets(1).await;
    assert_eq!(rows(folder), 0, "it is sent from memory");
    assert_eq!(site.stats.store().backlog_buckets.get(), 1);
    (site, buckets.remove(0), segments)
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_delivered_in_time_is_never_written() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let (mut site, _, segments) = with_one_drawn(folder.path(), &time).await;
    site.outlet.settle(settled(segments)).await.unwrap();
    assert_eq!(site.stats.store().backlog_buckets.get(), 0);
    site.outlet.rewind();
    assert!(tokio::time::timeout(Duration::from_secs(5), site.outlet.next()).await.is_err(), "it is not drawn again");
    let commits = site.stats.store().commits.get();
    site.commit(Delivery::of(vec![reading("s", 70, Value::I64(3))])).await;
    assert_eq!(site.stats.store().commits.get(), commits + 1, "the settlement goes along with the next readings");
    site.kill().await;
    let mut site = self::site(folder.path(), time).await;
    let (buckets, _) = site.buckets(1).await;
    assert_eq!(values(&buckets[0]), [(70, Value::I64(3))], "what was settled does not come back");
    assert_eq!(rows(folder.path()), 1, "nothing is known of the upstream after a start");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_settled_comes_again_as_it_was_after_a_kill_and_after_a_stop() {
    for kill in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let time = clock();
        let (site, bucket, _) = with_one_drawn(folder.path(), &time).await;
        // Late: the bucket is closed, whatever happens.
        site.commit(Delivery::of(vec![reading("s", 3, Value::I64(3))])).await;
        site.end(kill).await;
        let mut site = self::site(folder.path(), time.clone()).await;
        let (buckets, segments) = site.buckets(2).await;
        assert_eq!(buckets[0], bucket);
        assert_eq!((buckets[1].part, values(&buckets[1])), (1, vec![(3, Value::I64(3))]));
        site.outlet.settle(settled(segments)).await.unwrap();
        assert_eq!((rows(folder.path()), site.stats.store().backlog_buckets.get()), (0, 0));
        site.kill().await;
        let mut site = self::site(folder.path(), time).await;
        assert!(tokio::time::timeout(Duration::from_secs(300), site.outlet.next()).await.is_err());
        site.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_lost_with_a_kill_makes_it_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let (mut site, bucket, segments) = with_one_drawn(folder.path(), &time).await;
    site.outlet.settle(settled(segments)).await.unwrap();
    site.kill().await;
    let mut site = self::site(folder.path(), time).await;
    assert_eq!(site.buckets(1).await.0, [bucket]);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_without_further_readings_is_on_disk_soon() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let (mut site, _, segments) = with_one_drawn(folder.path(), &time).await;
    site.outlet.settle(settled(segments)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    site.kill().await;
    let mut site = self::site(folder.path(), time).await;
    assert!(tokio::time::timeout(Duration::from_secs(300), site.outlet.next()).await.is_err());
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_written_when_the_bound_has_passed_and_settled_as_a_row_then() {
    let folder = tempfile::tempdir().unwrap();
    let (mut site, _, segments) = with_one_drawn(folder.path(), &clock()).await;
    tokio::time::sleep(Duration::from_secs(28)).await;
    assert_eq!(rows(folder.path()), 0);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!((rows(folder.path()), site.stats.store().backlog_buckets.get()), (1, 1));
    site.outlet.settle(settled(segments)).await.unwrap();
    assert_eq!((rows(folder.path()), site.stats.store().backlog_buckets.get()), (0, 0));
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_written_soon_when_the_upstream_stops_taking() {
    let folder = tempfile::tempdir().unwrap();
    let (mut site, bucket, _) = with_one_drawn(folder.path(), &clock()).await;
    site.outlet.upstream_takes(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rows(folder.path()), 1);
    site.outlet.rewind();
    assert_eq!(site.buckets(1).await.0, [bucket], "and drawn from there");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_a_bound_of_zero_everything_is_written_at_the_seal() {
    let folder = tempfile::tempdir().unwrap();
    let off = |config: &mut Config| config.write_behind = Duration::ZERO;
    let mut site = site_with(folder.path(), clock(), off, 1000, 100).await;
    site.outlet.upstream_takes(true);
    site.commit(Delivery::of(vec![reading("s", 1, Value::I64(1))])).await;
    site.buckets(1).await;
    assert_eq!(rows(folder.path()), 1);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn memory_for_them_is_bounded_and_they_are_drawn_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site_with(folder.path(), clock(), |_| {}, 500, 100).await;
    site.outlet.upstream_takes(true);
    for n in 0..700 {
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
    }
    let written = rows(folder.path());
    assert!((100..700).contains(&written), "{written} of 700 segments of 4 KB and more are written");
    let (buckets, segments) = site.buckets(700).await;
    assert!(segments.is_sorted() && buckets.is_sorted_by_key(|bucket| bucket.samples[0].at));
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_spilled_bucket_is_frozen_whole_and_its_spill_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let small = |config: &mut Config| config.max_bytes = ByteSize::mib(24);
    let mut site = site_with(folder.path(), time.clone(), small, 1000, 100).await;
    site.outlet.upstream_takes(true);
    site.commit(Delivery::of(vec![reading("slow", 40, Value::I64(1))])).await;
    let spills = || -> i64 {
        let db = database::open_reader(&folder.path().join("t.db")).unwrap();
        db.query_row("SELECT count(*) FROM spill", [], |row| row.get(0)).unwrap()
    };
    for round in 0..150 {
        site.commit(Delivery { urgent: true, ..noise(round, 2000) }).await;
        let drawn = tokio::time::timeout(Duration::from_millis(1), site.outlet.next()).await;
        if let Ok(Ok(Some(parcel))) = drawn {
            site.outlet.settle(settled(vec![parcel.id])).await.unwrap();
        }
    }
    assert!(spills() > 0);
    site.commit(Delivery::of(vec![reading("slow", 41, Value::I64(2))])).await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    site.kill().await;
    let mut site = site_with(folder.path(), time, small, 1000, 100).await;
    let mut slow = Vec::new();
    while slow.is_empty() {
        let (buckets, segments) = site.buckets(1).await;
        slow.extend(buckets.into_iter().filter(|bucket| bucket.sensor.as_str() == "slow"));
        site.outlet.settle(settled(segments)).await.unwrap();
    }
    assert_eq!(values(&slow[0]), [(40, Value::I64(1)), (41, Value::I64(2))]);
    site.stop().await;
    assert_eq!(spills(), 0);
}

#[derive(Clone, Debug)]
enum Event {
    Push {
        sensor: u8,
        back: i64,
        value: i64,
    },
    Pass {
        seconds: u64,
    },
    Upstream {
        takes: bool,
    },
    /// Draws everything there is; settles it or forgets it.
    Draw {
        settle: bool,
    },
    Restart {
        kill: bool,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (0u8..3, 0i64..150, 0i64..3).prop_map(|(sensor, back, value)| Event::Push { sensor, back, value }),
        4 => (1u64..50).prop_map(|seconds| Event::Pass { seconds }),
        2 => any::<bool>().prop_map(|takes| Event::Upstream { takes }),
        3 => any::<bool>().prop_map(|settle| Event::Draw { settle }),
        2 => any::<bool>().prop_map(|kill| Event::Restart { kill }),
    ];
    prop::collection::vec(event, 1..80)
}

type Key = (String, i64, u32);

/// What an upstream holds: buckets by identity.
#[derive(Default)]
struct Upstream(BTreeMap<Key, SealedBucket>);

impl Upstream {
    async fn draw(&mut self, site: &mut Site, settle: bool) {
        let mut segments = Vec::new();
        while let Ok(drawn) = tokio::time::timeout(Duration::from_millis(30), site.outlet.next()).await {
            let parcel = drawn.unwrap().unwrap();
            for bucket in parcel.buckets.iter().map(|bucket| bucket.unpack().unwrap()) {
                let key = (bucket.sensor.to_string(), bucket.window.start().as_millis(), bucket.part);
                let known = self.0.entry(key).or_insert_with(|| bucket.clone());
                assert_eq!(*known, bucket, "one identity, two contents");
            }
            segments.push(parcel.id);
        }
        if settle && !segments.is_empty() {
            site.outlet.settle(settled(segments)).await.unwrap();
        } else {
            site.outlet.rewind();
        }
    }
}

async fn run(events: Vec<Event>, max_samples: u32) {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let open = || site_with(folder.path(), time.clone(), |_| {}, max_samples, 10);
    let (mut site, mut upstream) = (open().await, Upstream::default());
    // Sets, since a copy of a sample in a bucket that is closed is kept as another one.
    let mut accepted = BTreeSet::new();
    for event in events {
        match event {
            Event::Push { sensor, back, value } => {
                let at = (time.now().as_millis() - START) / 1000 + 200 - back;
                accepted.insert((format!("s{sensor}"), at, value));
                site.commit(Delivery::of(vec![reading(&format!("s{sensor}"), at, Value::I64(value))])).await;
            }
            Event::Pass { seconds } => tokio::time::sleep(Duration::from_secs(seconds)).await,
            Event::Upstream { takes } => site.outlet.upstream_takes(takes),
            Event::Draw { settle } => upstream.draw(&mut site, settle).await,
            Event::Restart { kill } => {
                site.end(kill).await;
                // What runs on a blocking thread ends before the virtual clock goes on.
                tokio::time::sleep(Duration::from_millis(1)).await;
                site = open().await;
            }
        }
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    upstream.draw(&mut site, true).await;
    assert_eq!(site.stats.store().backlog_buckets.get(), 0);
    let db = database::open_reader(&folder.path().join("t.db")).unwrap();
    assert_eq!(segment::count(&db).unwrap(), engine::Count::default());
    site.stop().await;
    let samples = |bucket: &SealedBucket| -> Vec<(String, i64, i64)> {
        let sample = |(at, value)| match value {
            Value::I64(value) => (bucket.sensor.to_string(), at, value),
            _ => unreachable!(),
        };
        values(bucket).into_iter().map(sample).collect()
    };
    let found: BTreeSet<_> = upstream.0.values().flat_map(samples).collect();
    assert_eq!(found, accepted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_sample_is_delivered_under_one_identity_whatever_happens(events in events(), max_samples in 1u32..9) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(events, max_samples));
    }
}
