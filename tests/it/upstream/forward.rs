//! The forwarder between a backlog in memory and a real server or folder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tipbucket::clock::Clock;
use tipbucket::forwarder;
use tipbucket::model::DeadLetter;
use tipbucket::stats::Stats;
use tipbucket::store::{Backlog, PackedBucket, Parcel, SegmentId, Settled, StoreError};
use tipbucket::upstream::{Config, Format, Kind, Upstream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{STORE, bucket, config, impatient, patient, upstream, with};
use crate::support::mongo;
use crate::support::proxy::{Mode, Proxy};

#[derive(Clone, Default)]
struct Memory(Arc<(Mutex<State>, Notify)>, u64);

#[derive(Default)]
struct State {
    segments: BTreeMap<u64, Vec<PackedBucket>>,
    letters: Vec<DeadLetter>,
}

impl Memory {
    fn add(&self, id: u64, sensors: impl IntoIterator<Item = String>) {
        let buckets = sensors.into_iter().map(|sensor| PackedBucket::pack(&bucket(&sensor, 0, &[1.0, 2.0]))).collect();
        self.0.0.lock().unwrap().segments.insert(id, buckets);
        self.0.1.notify_one();
    }

    fn left(&self) -> usize {
        self.0.0.lock().unwrap().segments.len()
    }
}

impl Backlog for Memory {
    async fn next(&mut self) -> Result<Option<Parcel>, StoreError> {
        loop {
            if let Some((&id, buckets)) = self.0.0.lock().unwrap().segments.range(self.1 + 1..).next() {
                self.1 = id;
                return Ok(Some(Parcel { id: SegmentId(id), buckets: buckets.clone() }));
            }
            self.0.1.notified().await;
        }
    }

    fn rewind(&mut self) {
        self.1 = 0;
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), StoreError> {
        let mut state = self.0.0.lock().unwrap();
        for id in settled.segments {
            state.segments.remove(&id.0).expect("settled once");
        }
        state.letters.extend(settled.dead_letters);
        Ok(())
    }

    fn store_id(&self) -> &str {
        STORE
    }
}

struct Running {
    stats: Stats,
    shutdown: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

fn start(memory: &Memory, upstream: Upstream) -> Running {
    let (stats, shutdown) = (Stats::default(), CancellationToken::new());
    let run = forwarder::run(memory.clone(), upstream, Clock::system(), stats.clone(), shutdown.clone());
    Running { stats, shutdown, task: tokio::spawn(run) }
}

impl Running {
    async fn stop(self) -> Stats {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
        self.stats
    }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + crate::support::patience(Duration::from_secs(60));
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn sensors(range: std::ops::Range<u32>) -> impl Iterator<Item = String> {
    range.map(|i| format!("s{i:04}"))
}

#[tokio::test]
async fn a_backlog_drains_into_the_database_and_outages_change_nothing() {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    proxy.mode(Mode::Refuse);
    let memory = Memory::default();
    for segment in 0..10 {
        memory.add(u64::from(segment) + 1, sensors(segment * 50..(segment + 1) * 50));
    }
    let running = start(&memory, with(config(&proxy.mongodb_uri(), &database), impatient()));
    let upstream_stats = running.stats.clone();
    until("the outage is told", || upstream_stats.upstream().condition.get().up == Some(false)).await;
    assert_eq!(memory.left(), 10);
    proxy.mode(Mode::Pass);
    until("the first buckets arrive", || upstream_stats.upstream().buckets.get() >= 100).await;
    proxy.mode(Mode::Swallow);
    tokio::time::sleep(Duration::from_millis(200)).await;
    proxy.mode(Mode::Pass);
    for segment in 10..12 {
        memory.add(u64::from(segment) + 1, sensors(segment * 50..(segment + 1) * 50));
    }
    until("everything is settled", || memory.left() == 0).await;
    assert_eq!(server.documents(&database, "buckets").await.len(), 600);
    let stats = running.stop().await;
    let up = stats.upstream();
    assert_eq!((up.buckets.get(), up.readings.get(), up.conflicts.get(), up.refused.get()), (600, 1200, 0, 0));
    assert!(up.failures.get() > 0);
    assert_eq!(up.condition.get().up, Some(true));
}

#[tokio::test]
async fn stopping_finishes_the_archive_file() {
    let folder = tempfile::tempdir().unwrap();
    let archive =
        Config { kind: Kind::Archive, format: Format::Ndjson, folder: folder.path().to_owned(), ..Config::default() };
    let memory = Memory::default();
    memory.add(1, sensors(0..30));
    let running = start(&memory, upstream(archive));
    until("the file is begun", || std::fs::read_dir(folder.path()).unwrap().next().is_some()).await;
    assert_eq!(memory.left(), 1, "not settled before it is durable");
    let stats = running.stop().await;
    assert_eq!((memory.left(), stats.upstream().buckets.get()), (0, 30));
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap();
    assert!(file.file_name().to_str().unwrap().starts_with("telemetry.buckets-"));
    assert_eq!(std::fs::read_to_string(file.path()).unwrap().lines().count(), 30);
}

#[tokio::test]
async fn a_full_archive_file_settles_its_segments_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Config {
        kind: Kind::Archive,
        folder: folder.path().to_owned(),
        max_file_bytes: bytesize::ByteSize::kib(64),
        ..Config::default()
    };
    let memory = Memory::default();
    for segment in 0..20 {
        memory.add(u64::from(segment) + 1, sensors(segment * 20..(segment + 1) * 20));
    }
    let running = start(&memory, upstream(archive));
    until("most segments are settled", || memory.left() < 10).await;
    let stats = running.stop().await;
    assert_eq!((memory.left(), stats.upstream().buckets.get()), (0, 400));
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_database_that_hangs() {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    let memory = Memory::default();
    memory.add(1, sensors(0..1));
    let upstream = with(config(&proxy.mongodb_uri(), &database), patient());
    let running = start(&memory, upstream);
    until("the first bucket is settled", || memory.left() == 0).await;
    proxy.mode(Mode::Swallow);
    memory.add(2, sensors(1..2));
    let begun = Instant::now();
    while server.documents(&database, "buckets").await.len() < 2 {
        assert!(begun.elapsed() < crate::support::patience(Duration::from_secs(30)));
    }
    let started = Instant::now();
    running.stop().await;
    assert!(started.elapsed() < crate::support::patience(Duration::from_secs(8)), "{:?}", started.elapsed());
    assert_eq!(memory.left(), 1, "not proven, not settled");
}

#[tokio::test(start_paused = true)]
async fn an_archive_file_is_finished_when_it_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Config { kind: Kind::Archive, folder: folder.path().to_owned(), ..Config::default() };
    let memory = Memory::default();
    memory.add(1, sensors(0..3));
    let started = tokio::time::Instant::now();
    let running = start(&memory, upstream(archive));
    until("its segment is settled", || memory.left() == 0).await;
    let age = started.elapsed().as_secs();
    assert!((600..610).contains(&age), "max_file_age is ten minutes, not {age} s");
    running.stop().await;
}

#[tokio::test]
async fn random_faults_neither_lose_nor_double_a_bucket() {
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    let memory = Memory::default();
    for segment in 0..60 {
        memory.add(u64::from(segment) + 1, sensors(segment * 30..(segment + 1) * 30));
    }
    let mut random = fastrand::Rng::with_seed(7);
    let running = start(&memory, with(config(&proxy.mongodb_uri(), &database), impatient()));
    let modes = [Mode::CutReply, Mode::CutRequest, Mode::Refuse, Mode::Delay(Duration::from_millis(30)), Mode::Pass];
    for _ in 0..40 {
        proxy.mode(random.choice(modes).unwrap());
        tokio::time::sleep(Duration::from_millis(random.u64(20..120))).await;
    }
    proxy.mode(Mode::Pass);
    until("everything is settled", || memory.left() == 0).await;
    let stats = running.stop().await;
    let stored = server.documents(&database, "buckets").await;
    let found: Vec<&str> = stored.iter().map(|document| document.get_str("sensor").unwrap()).collect();
    assert_eq!(found, sensors(0..1800).collect::<Vec<_>>());
    assert_eq!((stats.upstream().buckets.get(), stats.upstream().conflicts.get()), (1800, 0));
}
