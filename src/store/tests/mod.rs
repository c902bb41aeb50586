//! The store against real files: through its two ends, with restarts between.

mod accounts;
mod clock;
mod commits;
mod damage;
mod kept;
mod lanes;
mod lazy;
mod open;
mod pack;
mod room;
mod time;
mod verify;
mod view;

use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;
use tokio::task::JoinHandle;

use super::*;
use crate::model::{
    BucketPolicy, FieldName, Reading, Sample, SealedBucket, SensorName, SourceName, Timestamp, Value, WindowLength,
};

const START: i64 = 1_796_043_600_000;

struct Site {
    inlet: Inlet,
    outlet: Outlet,
    writer: JoinHandle<anyhow::Result<()>>,
    stats: Stats,
    clock: Clock,
}

fn site_name() -> SiteName {
    SiteName::new("test").unwrap()
}

fn policies(max_samples: u32) -> Policies {
    let default = BucketPolicy {
        window: WindowLength::from_seconds(60).unwrap(),
        max_samples,
        max_bytes: 64 << 10,
        grace: Duration::from_secs(5),
        decimals: None,
    };
    Policies { default, by_sensor: Default::default() }
}

async fn site_with(
    folder: &Path,
    clock: Clock,
    config: impl Fn(&mut Config),
    max_samples: u32,
    max_sensors: usize,
) -> Site {
    let mut settings = Config { path: folder.join("t.db"), max_bytes: ByteSize::mib(48), ..Config::default() };
    config(&mut settings);
    let stats = Stats::default();
    let opened = open(&settings, site_name(), policies(max_samples), max_sensors, clock.clone(), stats.clone());
    let (inlet, outlet, writer) = opened.await.unwrap();
    Site { inlet, outlet, writer: tokio::spawn(writer.run()), stats, clock }
}

async fn site(folder: &Path, clock: Clock) -> Site {
    site_with(folder, clock, |_| {}, 1000, 100).await
}

impl Site {
    async fn push(&self, sensor: &str, at: i64, value: Value) {
        self.inlet.push(Delivery::of(vec![reading(sensor, at, value)])).await.unwrap();
    }

    /// Pushes and waits until it is on disk.
    async fn commit(&self, mut delivery: Delivery) {
        let (to, mut receipts) = mpsc::channel(1);
        delivery.receipt = Some(Receipt::new(to, 7));
        self.inlet.push(delivery).await.unwrap();
        assert_eq!(receipts.recv().await, Some(7));
    }

    async fn buckets(&mut self, n: usize) -> (Vec<SealedBucket>, Vec<SegmentId>) {
        self.buckets_within(n, Duration::from_secs(3600)).await
    }

    async fn buckets_within(&mut self, n: usize, each: Duration) -> (Vec<SealedBucket>, Vec<SegmentId>) {
        let (mut buckets, mut segments) = (Vec::new(), Vec::new());
        while buckets.len() < n {
            let parcel =
                tokio::time::timeout(each, self.outlet.next()).await.expect("buckets in time").unwrap().unwrap();
            segments.push(parcel.id);
            buckets.extend(parcel.buckets.iter().map(|bucket| bucket.unpack().unwrap()));
        }
        (buckets, segments)
    }

    async fn stop(self) {
        drop((self.inlet, self.outlet));
        self.writer.await.unwrap().unwrap();
    }

    async fn end(self, kill: bool) {
        if kill { self.kill().await } else { self.stop().await }
    }

    /// As a SIGKILL: nothing is finished.
    async fn kill(self) {
        self.writer.abort();
        assert!(self.writer.await.unwrap_err().is_cancelled());
    }
}

fn reading(sensor: &str, seconds: i64, value: Value) -> Reading {
    reading_ms(sensor, seconds * 1000, value)
}

fn reading_ms(sensor: &str, millis: i64, value: Value) -> Reading {
    let fields = [(FieldName::new("temp").unwrap(), value)].into_iter().collect();
    Reading::new(SensorName::new(sensor).unwrap(), Timestamp::clamped(START + millis), fields).unwrap()
}

/// The `n`-th batch of values that do not compress.
fn noise(n: i64, samples: i64) -> Delivery {
    let value = |i: i64| Value::F64((i as f64).sin());
    Delivery::of((n * samples..(n + 1) * samples).map(|i| reading_ms("noise", i, value(i))).collect())
}

fn message(kind: OriginKind, content: u64, readings: Vec<Reading>) -> Delivery {
    let origin = Origin { source: SourceName::new("broker").unwrap(), content, topic: 1, kind };
    Delivery { readings, origin: Some(origin), ..Delivery::default() }
}

fn clock() -> Clock {
    Clock::virtual_from(Timestamp::clamped(START))
}

fn values(bucket: &SealedBucket) -> Vec<(i64, Value)> {
    bucket.samples.iter().map(|s| ((s.at.as_millis() - START) / 1000, s.fields[0].1.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn readings_become_buckets_and_delivered_buckets_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site(folder.path(), clock()).await;
    site.push("a/b", 1, Value::F64(21.5)).await;
    site.push("a/b", 2, Value::F64(21.7)).await;
    site.push("c", 3, Value::text("on").unwrap()).await;
    let (buckets, segments) = site.buckets(2).await;
    assert_eq!(site.clock.now(), Timestamp::clamped(START + 65_000), "window and grace have passed");
    assert_eq!(buckets[0].sensor.as_str(), "a/b");
    assert_eq!(values(&buckets[0]), [(1, Value::F64(21.5)), (2, Value::F64(21.7))]);
    assert_eq!(values(&buckets[1]), [(3, Value::text("on").unwrap())]);
    assert_eq!(site.stats.store().backlog_buckets.get(), 2);
    site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
    assert_eq!(site.stats.store().backlog_buckets.get(), 0);
    site.outlet.rewind();
    assert!(tokio::time::timeout(Duration::from_secs(60), site.outlet.next()).await.is_err());
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn open_buckets_survive_a_kill_and_a_clean_stop_and_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    for (round, kill) in [(0, true), (1, false), (2, true)] {
        let site = site(folder.path(), time.clone()).await;
        site.commit(Delivery::of(vec![reading("s", round, Value::I64(round))])).await;
        if kill { site.kill().await } else { site.stop().await }
    }
    let mut site = site(folder.path(), time).await;
    let (buckets, _) = site.buckets(1).await;
    assert_eq!(values(&buckets[0]), [(0, Value::I64(0)), (1, Value::I64(1)), (2, Value::I64(2))]);
    assert_eq!(buckets[0].part, 0);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn commits_are_grouped_and_a_full_or_urgent_batch_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let site = site(folder.path(), clock()).await;
    for i in 0..100 {
        site.push("s", i, Value::I64(i)).await;
    }
    site.commit(Delivery::of(vec![reading("s", 100, Value::I64(100))])).await;
    assert_eq!(site.stats.store().commits.get(), 1);
    let before = tokio::time::Instant::now();
    site.commit(Delivery { urgent: true, ..Delivery::of(vec![reading("s", 101, Value::I64(0))]) }).await;
    assert!(before.elapsed() < Duration::from_millis(900), "{:?}", before.elapsed());
    assert_eq!(site.stats.store().readings.get(), 102);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sensor_that_invents_fields_is_stored_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let made_up = |i: i64| {
        let field = |k: i64| (FieldName::new(&format!("f{}", i * 20 + k)).unwrap(), Value::I64(k));
        let (name, at) = (SensorName::new("s").unwrap(), Timestamp::clamped(START + i));
        Delivery::of(vec![Reading::new(name, at, (0..20).map(field).collect()).unwrap()])
    };
    let first = site(folder.path(), time.clone()).await;
    // Small blocks are joined on the way.
    for i in 0..40 {
        first.commit(made_up(i)).await;
    }
    first.kill().await;
    let mut second = site(folder.path(), time).await;
    let (buckets, _) = second.buckets(1).await;
    assert!(buckets[0].samples.len() == 40 && buckets[0].samples.iter().all(|sample| sample.fields.len() == 20));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_part_is_never_numbered_twice_also_across_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let mut parts = Vec::new();
    for round in 0..4 {
        let mut site = site_with(folder.path(), time.clone(), |_| {}, 1, 100).await;
        site.commit(Delivery::of(vec![reading("s", 1, Value::I64(round))])).await;
        let (buckets, segments) = site.buckets(1).await;
        parts.push(buckets[0].part);
        site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
        if round % 2 == 0 { site.kill().await } else { site.stop().await }
    }
    assert_eq!(parts, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_message_delivered_again_is_stored_once_also_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let first = site(folder.path(), time.clone()).await;
    // Without a time of its own each delivery would get another arrival time.
    first.commit(message(OriginKind::Fresh { packet_id: 9 }, 5, vec![reading("s", 1, Value::I64(1))])).await;
    first.commit(message(OriginKind::Repeated { packet_id: 9 }, 5, vec![reading("s", 2, Value::I64(1))])).await;
    first.kill().await;
    let mut second = site(folder.path(), time).await;
    second.commit(message(OriginKind::Repeated { packet_id: 9 }, 5, vec![reading("s", 3, Value::I64(1))])).await;
    second.commit(message(OriginKind::Fresh { packet_id: 10 }, 5, vec![reading("s", 4, Value::I64(1))])).await;
    let (buckets, _) = second.buckets(1).await;
    assert_eq!(values(&buckets[0]), [(1, Value::I64(1)), (4, Value::I64(1))]);
    assert_eq!(second.stats.store().redelivered.get(), 1);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn equal_readings_stamped_in_one_millisecond_are_as_many_readings() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site(folder.path(), clock()).await;
    let stamped = |value| Delivery { stamped: true, ..Delivery::of(vec![reading("s", 1, Value::I64(value))]) };
    for value in [7, 7, 7, 8, 7] {
        site.inlet.push(stamped(value)).await.unwrap();
    }
    site.commit(Delivery::of(vec![reading("s", 1, Value::I64(7))])).await;
    let (buckets, _) = site.buckets(1).await;
    let order: Vec<_> =
        buckets[0].samples.iter().map(|s| (s.at.as_millis() - START - 1000, s.fields[0].1.clone())).collect();
    assert_eq!(order, [7, 7, 7, 8, 7].iter().enumerate().map(|(i, v)| (i as i64, Value::I64(*v))).collect::<Vec<_>>());
    assert_eq!(site.stats.store().duplicates.get(), 1, "with a time of its own it is the same reading");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_invented_sensors_is_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let site = site_with(folder.path(), clock(), |_| {}, 1000, 3).await;
    for i in 0..10 {
        site.push(&format!("s{i}"), 1, Value::I64(1)).await;
    }
    site.commit(Delivery::of(vec![reading("s0", 2, Value::I64(1))])).await;
    assert_eq!((site.stats.store().readings.get(), site.stats.store().sensor_limit.get()), (4, 7));
    assert_eq!(site.stats.store().sensors.get(), 3);
    let entries = losses(&folder.path().join("t.db"), 0, Timestamp::LAST, 10).unwrap();
    assert_eq!(entries.iter().map(|entry| entry.samples).sum::<u64>(), 7, "accepted or in the ledger");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn thousands_of_buckets_that_end_together_come_in_order_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site_with(folder.path(), clock(), |_| {}, 1000, 3000).await;
    for i in 0..2000 {
        site.push(&format!("s{i:04}"), 1, Value::I64(i)).await;
    }
    let (buckets, segments) = site.buckets(2000).await;
    assert!(buckets.is_sorted_by_key(|bucket| bucket.sensor.clone()) && segments.is_sorted());
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_sensor_does_not_hold_the_journal_back() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let small = |config: &mut Config| config.max_bytes = ByteSize::mib(24);
    let site = site_with(folder.path(), time.clone(), small, 1000, 100).await;
    site.commit(Delivery::of(vec![reading("slow", 40, Value::I64(-1))])).await;
    // Every commit fills some slots; the slow bucket is older than all of them.
    for round in 0..150 {
        site.commit(Delivery { urgent: true, ..noise(round, 2000) }).await;
    }
    let slots = |folder: &Path| -> i64 {
        database::open_reader(&folder.join("t.db"))
            .unwrap()
            .query_row("SELECT count(*) FROM slot", [], |row| row.get(0))
            .unwrap()
    };
    assert!(slots(folder.path()) < 2_000, "{}", slots(folder.path()));
    site.kill().await;
    let mut site = site_with(folder.path(), time, small, 1000, 100).await;
    let mut slow = Vec::new();
    while slow.is_empty() {
        let (buckets, _) = site.buckets(1).await;
        slow.extend(buckets.into_iter().filter(|bucket| bucket.sensor.as_str() == "slow"));
    }
    assert_eq!(values(&slow[0]), [(40, Value::I64(-1))]);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_budget_refuses_until_what_is_delivered_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let full = |config: &mut Config| {
        config.max_bytes = ByteSize::mib(5);
        config.when_full = WhenFull::Refuse;
    };
    let mut site = site_with(folder.path(), clock(), full, 500, 100).await;
    let mut sent = 0i64;
    let (to, mut receipts) = mpsc::channel(10_000);
    while site.stats.store().condition.get().up != Some(false) {
        let delivery = Delivery { receipt: Some(Receipt::new(to.clone(), sent as u64)), ..noise(sent, 500) };
        match tokio::time::timeout(Duration::from_secs(5), site.inlet.push(delivery)).await {
            Ok(pushed) => pushed.unwrap(),
            Err(_) => break,
        }
        sent += 1;
        assert!(sent < 5000, "the budget is never met");
    }
    let acknowledged = std::iter::from_fn(|| receipts.try_recv().ok()).count();
    assert!(acknowledged < sent as usize);
    let (_, segments) = site.buckets(acknowledged / 2).await;
    site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
    let rest = sent as usize - acknowledged;
    for _ in 0..rest.min(5) {
        tokio::time::timeout(Duration::from_secs(120), receipts.recv()).await.expect("there is room again");
    }
    assert_eq!(site.stats.store().condition.get().up, Some(true));
    site.kill().await;
}

#[tokio::test(start_paused = true)]
async fn with_thin_the_oldest_keep_their_rollups_and_their_identity() {
    let folder = tempfile::tempdir().unwrap();
    let thin = |config: &mut Config| config.max_bytes = ByteSize::mib(5);
    let time = clock();
    let site = site_with(folder.path(), time.clone(), thin, 500, 100).await;
    for n in 0..1100 {
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
    }
    let thinned = site.stats.store().thinned.get();
    assert!(thinned > 0);
    assert_eq!(site.stats.store().evicted.get(), 0, "rollups are small: nothing had to go");
    site.kill().await;
    let mut site = site_with(folder.path(), time, thin, 500, 100).await;
    let (buckets, _) = site.buckets(1100).await;
    let rolled: Vec<_> = buckets.iter().filter(|bucket| bucket.rollup.is_some()).collect();
    assert_eq!(rolled.iter().map(|bucket| u64::from(bucket.count())).sum::<u64>(), thinned);
    assert_eq!(buckets.iter().map(|bucket| u64::from(bucket.count())).sum::<u64>(), 1100 * 500);
    // What is left is what the samples would have given.
    let samples: Vec<_> =
        noise(0, 500).readings.iter().map(|r| Sample { at: r.at, fields: r.fields.clone() }).collect();
    let whole = SealedBucket { samples, rollup: None, ..rolled[0].clone() };
    assert_eq!((rolled[0].stats(), rolled[0].span()), (whole.stats(), whole.span()));
    assert_eq!(rolled[0].hash(&site_name()), whole.hash(&site_name()), "a full copy upstream is the same bucket");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn with_evict_the_oldest_make_room_and_stand_in_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let evict = |config: &mut Config| {
        config.max_bytes = ByteSize::mib(5);
        config.when_full = WhenFull::Evict;
    };
    let site = site_with(folder.path(), clock(), evict, 500, 100).await;
    for n in 0..1100 {
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
    }
    assert!(site.stats.store().evicted.get() > 0);
    let db = database::open_reader(&folder.path().join("t.db")).unwrap();
    let sum = |sql: &str| -> i64 { db.query_row(sql, [], |row| row.get(0)).unwrap() };
    let stored = sum("SELECT coalesce(sum(samples), 0) FROM segment");
    let lost = sum("SELECT coalesce(sum(samples), 0) FROM ledger");
    assert_eq!(stored + lost, 1100 * 500, "accepted = stored + ledger");
    site.stop().await;
}
