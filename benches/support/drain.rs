//! A backlog drained through the forwarder, beside a bare loop of the driver that inserts the same documents.
//!
//! The server is another process that takes everything and needs a fixed time for each document, so what is counted is our own:
//! rate, processor time, and how far resident memory rises from a forwarder that is connected and has sent one document.
//! Two backlogs: one in memory, whose buckets are packed beforehand, and a real store with its commits and syncs.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::RawDocumentBuf;
use tipbucket::clock::Clock;
use tipbucket::forwarder;
use tipbucket::model::{SealedBucket, SiteName};
use tipbucket::stats::Stats;
use tipbucket::store::{self, Backlog, Delivery, PackedBucket, Parcel, SegmentId, Settled, StoreError};
use tipbucket::upstream::{Config, Document, Upstream, Uri};
use tokio_util::sync::CancellationToken;

use super::mongo_peer::Peer;
use super::support::{Stopwatch, policies};
use super::{bucket, upstream};

/// Buckets that are drained, and those of one segment.
const BACKLOG: usize = 100_000;
const SEGMENT: usize = 100;
/// Different buckets, which come again and again.
const POOL: usize = 1_000;
/// How often each is measured, in turns: times are the server's for the most part.
const ROUNDS: usize = 1;
/// Makes this program measure one row: samples of a bucket, microseconds that the server needs for it, where they wait, and
/// whether the allocator is left as it is.
const ROW: &str = "TIPBUCKET_BENCH_DRAIN";
const STORE_ID: &str = "0badcafe";
/// Ends a row without what the unit sets for the allocator.
const UNTUNED: &str = "untuned";
/// What the daemon runs under.
const UNIT: &str = include_str!("../../systemd/tipbucket.service");

pub fn all() {
    println!(
        "  {:<52} {:>11} {:>11} {:>6} {:>9} {:>9} {:>16}",
        format!("{BACKLOG} buckets drained"),
        "buckets/s",
        "bare loop",
        "of it",
        "cpu µs",
        "bare",
        "MiB (commands)"
    );
    // Each in a process of its own: what an allocator kept of one is not there in the next.
    let rows =
        ["60 0 memory", "60 100 memory", "200 100 memory", "60 100 store", "60 250 store", "200 100 memory untuned"];
    for row in rows {
        let me = std::env::current_exe().expect("this program");
        let mut command = std::process::Command::new(me);
        command.env(ROW, row);
        if !row.ends_with(UNTUNED) {
            command.envs(environment());
        }
        let ended = command.status().expect("this program again");
        assert!(ended.success(), "{row}: {ended}");
    }
}

/// What the unit sets.
fn environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix("Environment="));
    lines.flat_map(str::split_whitespace).filter_map(|setting| setting.split_once('='))
}

/// In such a process: measures its row. Gives `false` at once in any other.
pub fn is_all() -> bool {
    let Ok(row) = std::env::var(ROW) else { return false };
    let words: Vec<&str> = row.split(' ').collect();
    let number = |i: usize| words[i].parse::<u64>().expect("a number");
    measure(number(0) as usize, Duration::from_micros(number(1)), &words[2..]);
    true
}

/// What one way took for the whole backlog.
#[derive(Clone, Copy, Default)]
struct Took {
    wall: Duration,
    cpu: Duration,
    /// How far resident memory rose, in bytes.
    rise: f64,
}

fn measure(samples: usize, delay: Duration, place: &[&str]) {
    let from_store = place[0] == "store";
    let (mut child, uri) = Peer::apart(delay);
    let config = Config { uri: Uri::new(uri.clone()), spread: Duration::ZERO, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let pool: Vec<SealedBucket> = (0..POOL).map(|sensor| bucket(sensor, samples)).collect();
    let context = upstream(config.clone(), "bench").context(STORE_ID);
    let documents: Vec<RawDocumentBuf> =
        pool.iter().map(|bucket| Document::of(bucket, &context).bson().clone()).collect();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(if from_store {
            runtime.block_on(out_of_store(&config, &pool[0]))
        } else {
            runtime.block_on(out_of_memory(&config, &pool))
        });
        bare.push(runtime.block_on(loop_alone(&uri, &documents)));
    }
    stop(&mut child);
    let middle =
        |took: &[Took], of: fn(&Took) -> f64| super::support::median(&mut took.iter().map(of).collect::<Vec<_>>());
    let rate = |took: &[Took]| BACKLOG as f64 / middle(took, |took| took.wall.as_secs_f64());
    let cpu = |took: &[Took]| middle(took, |took| took.cpu.as_secs_f64()) * 1e6 / BACKLOG as f64;
    // Later rounds begin with what the allocator kept.
    let rise = ours[0].rise;
    println!(
        "  {:<52} {:>11.0} {:>11.0} {:>4.0} % {:>9.1} {:>9.1} {:>9.1} ({:.1})",
        format!("{samples} samples, {delay:?} a document, {}", place.join(", ")),
        rate(&ours),
        rate(&bare),
        100.0 * rate(&ours) / rate(&bare),
        cpu(&ours),
        cpu(&bare),
        rise / f64::from(1 << 20),
        rise / super::LARGEST as f64
    );
}

fn stop(child: &mut Child) {
    drop(child.stdin.take());
    let _ = child.wait();
}

/// A backlog of packed buckets.
struct Packed {
    pool: Vec<PackedBucket>,
    next: usize,
    settled: Arc<AtomicUsize>,
    done: CancellationToken,
}

impl Backlog for Packed {
    async fn next(&mut self) -> Result<Option<Parcel>, StoreError> {
        if !self.has_next() {
            self.done.cancelled().await;
            return Ok(None);
        }
        let first = self.next % POOL;
        self.next += SEGMENT;
        Ok(Some(Parcel {
            id: SegmentId((self.next / SEGMENT) as u64),
            buckets: self.pool[first..first + SEGMENT].to_vec(),
        }))
    }

    fn has_next(&self) -> bool {
        self.next < BACKLOG
    }

    fn rewind(&mut self) {
        self.next = 0;
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), StoreError> {
        let settled = self.settled.fetch_add(settled.segments.len(), Ordering::Relaxed) + settled.segments.len();
        if settled * SEGMENT >= BACKLOG {
            self.done.cancel();
        }
        Ok(())
    }

    fn store_id(&self) -> &str {
        STORE_ID
    }
}

async fn out_of_memory(config: &Config, pool: &[SealedBucket]) -> Took {
    let done = CancellationToken::new();
    let packed = pool.iter().map(PackedBucket::pack).collect();
    let backlog = Packed { pool: packed, next: 0, settled: Arc::default(), done: done.clone() };
    let way = warm(config, &pool[0]).await;
    through(backlog, way, &Stats::default(), || done.is_cancelled()).await
}

/// An upstream that is connected and has sent once.
async fn warm(config: &Config, bucket: &SealedBucket) -> Upstream {
    let mut way = upstream(config.clone(), "bench");
    let context = way.context(STORE_ID);
    way.greet().await;
    way.deliver(&mut [Document::of(bucket, &context)], STORE_ID).await;
    way
}

async fn through(backlog: impl Backlog + 'static, way: Upstream, stats: &Stats, is_done: impl Fn() -> bool) -> Took {
    let end = CancellationToken::new();
    let (before, watch) = (resident(), Stopwatch::start());
    let running = tokio::spawn(forwarder::run(backlog, way, Clock::system(), stats.clone(), end.clone()));
    let mut peak = before;
    while !is_done() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        peak = peak.max(resident());
    }
    let (wall, cpu) = watch.read();
    end.cancel();
    running.await.expect("no panic").expect("no failure");
    Took { wall, cpu, rise: peak - before }
}

/// As many buckets of 60 samples in a real store, then through the forwarder.
async fn out_of_store(config: &Config, first: &SealedBucket) -> Took {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = store::Config { path: folder.path().join("drain.db"), ..store::Config::default() };
    fill(&kept, first.count() as usize).await;
    let stats = Stats::default();
    let (inlet, outlet, writer) = open(&kept, first.count(), &stats).await;
    let writer = tokio::spawn(writer.run());
    let way = warm(config, first).await;
    let waiting = || stats.store().backlog_buckets.get();
    assert!(waiting() as usize >= BACKLOG, "{} buckets wait", waiting());
    let took = through(outlet, way, &stats, || waiting() == 0).await;
    drop(inlet);
    writer.await.expect("no panic").expect("the store ends well");
    took
}

async fn open(config: &store::Config, samples: u32, stats: &Stats) -> (store::Inlet, store::Outlet, store::Writer) {
    let mut policies = policies();
    policies.default.max_samples = samples;
    policies.default.window = tipbucket::model::WindowLength::from_seconds(86_400).expect("a day");
    let site = SiteName::new("bench").expect("a sound name");
    store::open(config, site, policies, 10_000, Clock::system(), stats.clone()).await.expect("a store")
}

/// Buckets that are full, of a hundred sensors.
async fn fill(config: &store::Config, samples: usize) {
    let stats = Stats::default();
    let (inlet, outlet, writer) = open(config, samples as u32, &stats).await;
    let writer = tokio::spawn(writer.run());
    let start = Clock::system().now().minus(Duration::from_secs(30 * 86_400));
    let mut site = super::support::Site::new(SEGMENT, 1, start);
    let (to, mut receipts) = tokio::sync::mpsc::channel(1);
    // A bucket is full when the next reading of its sensor comes.
    for _ in 0..=BACKLOG / SEGMENT {
        let readings = (0..SEGMENT * samples).map(|_| site.reading()).collect();
        let receipt = Some(store::Receipt::new(to.clone(), 1));
        inlet.push(Delivery { receipt, urgent: true, ..Delivery::of(readings) }).await.expect("store runs");
        receipts.recv().await.expect("committed");
    }
    drop((inlet, outlet));
    writer.await.expect("no panic").expect("the store ends well");
}

/// The same documents by a bare loop of the driver.
async fn loop_alone(uri: &str, documents: &[RawDocumentBuf]) -> Took {
    let client = Client::with_uri_str(uri).await.expect("a client");
    let collection = client.database("telemetry").collection::<RawDocumentBuf>("buckets");
    let insert = async |first: usize| {
        let documents = &documents[first % POOL..first % POOL + SEGMENT];
        collection.insert_many(documents).ordered(false).await.expect("the peer takes everything");
    };
    insert(0).await;
    let watch = Stopwatch::start();
    for first in (0..BACKLOG).step_by(SEGMENT) {
        insert(first).await;
    }
    let (wall, cpu) = watch.read();
    Took { wall, cpu, rise: 0.0 }
}

/// Resident memory, in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) * 1024.0
}
