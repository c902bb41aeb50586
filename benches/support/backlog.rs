//! A store with many buckets that wait: sealing, drawing and deleting among them, and a start after a kill.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use tipbucket::model::{FieldName, Policies, Reading, SensorName, Timestamp, Value, WindowLength};
use tipbucket::stats::Stats;
use tipbucket::store::{Backlog, Config, Delivery, Inlet, Settled};

use super::support::{Stopwatch, introduce, median, policies, written};
use super::{folder, open, runtime};

const SENSORS: usize = 1000;
/// Commits measured at each length of the backlog.
const SAMPLES: usize = 200;
/// Segments deleted at each length.
const DELETED: usize = 50;
/// Buckets sealed in one measured commit.
const SEALED: usize = 100;
/// Samples in a bucket.
const FILL: usize = 60;
/// Buckets sealed in one commit that only fills the store.
const FILLING: usize = 200;
/// Readings in one commit that only fills the journal.
const JOURNALLING: usize = 10_000;
const JOURNALLED: usize = 1_000_000;
const STARTS: usize = 5;
/// Buckets sealed while a slow sensor holds the journal back: more than it can hold.
const HELD_BACK: usize = 300_000;
const SLOW: &str = "slow";

/// A minute fills a bucket.
fn minutes() -> Policies {
    let mut policies = policies();
    policies.default.max_samples = FILL as u32;
    policies.default.window = WindowLength::from_seconds(60).expect("a minute");
    policies
}

/// Buckets that stay open while we measure.
fn long() -> Policies {
    let mut policies = policies();
    policies.default.max_samples = 60_000;
    policies.default.max_bytes = 8 << 20;
    policies.default.window = WindowLength::from_seconds(31 * 86_400).expect("a month");
    policies.default.grace = Duration::from_secs(3600);
    policies
}

/// One sensor's buckets stay open while those of all others are sealed: the journal is kept for it.
fn one_slow() -> Policies {
    let mut policies = minutes();
    policies.by_sensor.insert(SensorName::new(SLOW).expect("a sound name"), long().default);
    policies
}

pub fn measure() {
    introduce("a backlog: buckets of 60 samples, 100 sealed in a commit; a commit is a transaction with its fsync");
    println!(
        "  {:<14} {:>16} {:>16} {:>14} {:>16} {:>16} {:>14} {:>16}",
        "buckets wait",
        "seal 100, p50 ms",
        "bytes/seal 100",
        "draw, p50 ms",
        "delete, p50 ms",
        "both, cpu ms",
        "draw, idle ms",
        "delete, idle ms"
    );
    let folder = folder();
    let (hop, sync) = floors(folder.path());
    let path = folder.path().join("backlog.db");
    // To keep rollups costs with each bucket, whatever the backlog; it is not the deleting.
    let config = Config { path, keep_rollups: Duration::ZERO, ..Config::default() };
    let mut made = 0;
    for buckets in [1000, 1_000_000] {
        runtime().block_on(grow(&config, &mut made, buckets));
    }
    println!(
        "  of a draw the way to a blocking thread and back takes {hop:.3} ms, of a delete a bare fdatasync {sync:.3} ms"
    );
    runtime().block_on(journal(&config));
    let mut starts: Vec<f64> = (0..STARTS).map(|_| start(&config)).collect();
    println!(
        "  start after a kill, {JOURNALLED} readings journalled, {made} buckets waiting: {:.0} ms (median of {STARTS})",
        median(&mut starts) * 1000.0
    );
    runtime().block_on(hold_back(&config, &mut made));
    let mut starts: Vec<f64> = (0..STARTS).map(|_| start(&config)).collect();
    println!(
        "  the same, and {HELD_BACK} more buckets since a sensor's reading that is not sealed: {:.0} ms",
        median(&mut starts) * 1000.0
    );
}

/// What no store can go below here, in ms: an empty errand to a blocking thread, and three pages of a file that is there
/// already, overwritten and synced as the log is.
fn floors(folder: &Path) -> (f64, f64) {
    let mut hops: Vec<f64> = runtime().block_on(async {
        let mut hops = Vec::new();
        for _ in 0..SAMPLES {
            let watch = Instant::now();
            tokio::task::spawn_blocking(|| ()).await.expect("it ends");
            hops.push(watch.elapsed().as_secs_f64() * 1000.0);
        }
        hops
    });
    let file = std::fs::File::create(folder.join("floor")).expect("a file");
    let page = [7; 4096];
    let write = |place: u64| file.write_all_at(&page, place * 4096).expect("written");
    (0..256).for_each(write);
    file.sync_all().expect("synced");
    let sync = |turn: usize| {
        let watch = Instant::now();
        (0..3).for_each(|page| write((turn as u64 * 3 + page) % 256));
        file.sync_data().expect("synced");
        watch.elapsed().as_secs_f64() * 1000.0
    };
    let mut syncs: Vec<f64> = (0..SAMPLES).map(sync).collect();
    (median(&mut hops), median(&mut syncs))
}

/// Pushes a delivery and waits until it is on disk.
async fn commit(inlet: &Inlet, delivery: Delivery) {
    let (to, mut receipts) = tokio::sync::mpsc::channel(1);
    let receipt = Some(tipbucket::store::Receipt::new(to, 1));
    inlet.push(Delivery { receipt, urgent: true, ..delivery }).await.expect("store runs");
    receipts.recv().await.expect("committed");
}

/// When the first reading was made: the begin of a minute.
const START: i64 = 1_699_999_980_000;

fn reading(sensor: usize, second: usize) -> Reading {
    reading_of(&format!("sensor-{sensor}"), sensor + second, second)
}

fn reading_of(sensor: &str, n: usize, second: usize) -> Reading {
    let field = FieldName::new("t").expect("a sound name");
    let sensor = SensorName::new(sensor).expect("a sound name");
    let at = Timestamp::clamped(START).plus(Duration::from_millis(second as u64 * 1000 + n as u64 * 7 % 20));
    Reading { sensor, at, fields: [(field, Value::F64((n * 7 % 300) as f64 / 10.0))].into_iter().collect() }
}

/// The readings of the next buckets: a minute of one sensor after the other, then the next minute.
fn filled(made: &mut usize, count: usize) -> Delivery {
    let minute =
        |bucket: usize| (0..FILL).map(move |second| reading(bucket % SENSORS, bucket / SENSORS * FILL + second));
    let delivery = Delivery::of((*made..*made + count).flat_map(minute).collect());
    *made += count;
    delivery
}

/// Fills the store up to so many buckets and measures there.
async fn grow(config: &Config, made: &mut usize, buckets: usize) {
    let stats = Stats::default();
    let (inlet, mut outlet, writer) = open(config, minutes(), SENSORS + 1, &stats).await;
    let writer = tokio::spawn(writer.run());
    while *made + SEALED * SAMPLES < buckets {
        let count = FILLING.min(buckets - SEALED * SAMPLES - *made);
        commit(&inlet, filled(made, count)).await;
    }
    let took = || stats.store().commit_us.get() as f64 / 1000.0;
    let mut seals = Vec::new();
    let before = written();
    for _ in 0..SAMPLES {
        commit(&inlet, filled(made, SEALED)).await;
        seals.push(took());
    }
    let bytes = (written() - before) / SAMPLES as u64;
    let waiting = stats.store().backlog_buckets.get();
    let watch = Stopwatch::start();
    let (draw, delete) = drain(&mut outlet, &stats, Some((&inlet, *made / SENSORS * FILL))).await;
    let cpu = watch.read().1.as_secs_f64() * 1000.0 / DELETED as f64;
    let (idle_draw, idle_delete) = drain(&mut outlet, &stats, None).await;
    println!(
        "  {waiting:<14} {:>16.3} {bytes:>16} {draw:>14.3} {delete:>16.3} {cpu:>16.3} {idle_draw:>14.3} {idle_delete:>16.3}",
        median(&mut seals),
    );
    drop((inlet, outlet));
    writer.await.expect("no panic").expect("store ends well");
}

/// Draws some segments and deletes them, each in a commit of its own: the middle of how long either took, in ms. With an
/// inlet a reading comes along that wants its receipt, so that one commit follows another at once; without one they lie
/// 20 ms apart, and what has slept meanwhile, processor and disk, takes its time.
async fn drain(outlet: &mut impl Backlog, stats: &Stats, inlet: Option<(&Inlet, usize)>) -> (f64, f64) {
    let (mut draws, mut deletes) = (Vec::new(), Vec::new());
    for turn in 0..DELETED {
        let drawing = Instant::now();
        let parcel = outlet.next().await.expect("a segment").expect("one waits");
        draws.push(drawing.elapsed().as_secs_f64() * 1000.0);
        let settled = Settled { segments: vec![parcel.id], ..Settled::default() };
        let settle = async { outlet.settle(settled).await.expect("settled") };
        match inlet {
            Some((inlet, second)) => {
                let push = async {
                    // First the writer takes up what is settled.
                    for _ in 0..4 {
                        tokio::task::yield_now().await;
                    }
                    commit(inlet, Delivery::of(vec![reading(turn, second)])).await;
                };
                tokio::join!(settle, push);
            }
            None => settle.await,
        }
        deletes.push(stats.store().commit_us.get() as f64 / 1000.0);
    }
    (median(&mut draws), median(&mut deletes))
}

/// Leaves readings of open buckets in the journal, and the store as a kill leaves it.
async fn journal(config: &Config) {
    let stats = Stats::default();
    let (inlet, outlet, writer) = open(config, long(), SENSORS + 1, &stats).await;
    let writer = tokio::spawn(writer.run());
    for made in (0..JOURNALLED).step_by(JOURNALLING) {
        let readings = made..made + JOURNALLING;
        commit(&inlet, Delivery::of(readings.map(|n| reading(n % SENSORS, n / SENSORS)).collect())).await;
    }
    writer.abort();
    let _ = writer.await;
    drop((inlet, outlet));
}

/// Seals buckets while a slow sensor's stays open, and leaves the store as a kill leaves it.
async fn hold_back(config: &Config, made: &mut usize) {
    let stats = Stats::default();
    let (inlet, outlet, writer) = open(config, one_slow(), SENSORS + 1, &stats).await;
    let writer = tokio::spawn(writer.run());
    commit(&inlet, Delivery::of(vec![reading_of(SLOW, 0, *made / SENSORS * FILL)])).await;
    for _ in (0..HELD_BACK).step_by(FILLING) {
        commit(&inlet, filled(made, FILLING)).await;
    }
    writer.abort();
    let _ = writer.await;
    drop((inlet, outlet));
}

/// How long it takes until readings could be taken, in seconds.
fn start(config: &Config) -> f64 {
    runtime().block_on(async {
        let stats = Stats::default();
        let watch = Instant::now();
        let opened = open(config, long(), SENSORS + 1, &stats).await;
        let took = watch.elapsed().as_secs_f64();
        assert!(stats.store().open_buckets.get() >= SENSORS as i64, "the open buckets are there");
        drop(opened);
        took
    })
}
