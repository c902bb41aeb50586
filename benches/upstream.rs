//! Delivery as the database and the link see it: bytes and commands for a reading, draining a backlog beside a bare driver
//! loop, and a fleet that is switched on together. `-- wire`, `-- drain` or `-- fleet` runs one part alone.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

#[path = "support/mongo_peer.rs"]
mod mongo_peer;
mod support;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use mongo_peer::Peer;
use mongodb::Client;
use mongodb::bson::{RawDocumentBuf, doc};
use support::{introduce, is_wanted};
use tipbucket::clock::Clock;
use tipbucket::forwarder;
use tipbucket::model::{
    FieldName, Sample, SealReason, SealedBucket, SensorName, SiteName, Timestamp, Value, WindowLength,
};
use tipbucket::stats::Stats;
use tipbucket::store::{Backlog, PackedBucket, Parcel, SegmentId, Settled, StoreError};
use tipbucket::upstream::{Config, Document, Layout, Tuning, Upstream, Uri};
use tokio_util::sync::CancellationToken;

/// 2026-11-30T13:00:00Z.
const START: i64 = 1_796_043_600_000;
/// Buckets of one segment, and of the backlog that is drained.
const SEGMENT: usize = 100;
const BACKLOG: usize = 100_000;
/// Bytes of the first command, and of the largest.
const FIRST: usize = 256 << 10;
const LARGEST: usize = 1 << 20;
/// Gateways that are switched on together, and the rate they are to keep.
const FLEET: u32 = 200;
const RATE: u32 = 20;

fn main() {
    if !is_wanted() {
        return;
    }
    introduce("delivery to MongoDB");
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let is_part = |name: &str| wanted.is_empty() || wanted.iter().any(|part| part == name);
    if is_part("wire") {
        wire();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    if is_part("drain") {
        for delay in [0, 10] {
            runtime.block_on(drain(Duration::from_millis(delay)));
        }
    }
    if is_part("fleet") {
        runtime.block_on(fleet());
    }
}

/// A walk with two decimals, one sample a second with a jitter of up to 20 ms.
fn bucket(sensor: usize, samples: usize) -> SealedBucket {
    let mut random = fastrand::Rng::with_seed(sensor as u64);
    let temp = FieldName::new("temp").expect("a sound name");
    let mut hundredths = 2100_i64;
    let samples = (0..samples as i64).map(|i| {
        hundredths += random.i64(-5..=5);
        let at = Timestamp::clamped(START + i * 1000 + random.i64(0..20));
        Sample { at, fields: [(temp.clone(), Value::F64(hundredths as f64 / 100.0))].into_iter().collect() }
    });
    SealedBucket {
        sensor: SensorName::new(&format!("sensor-{sensor:06}")).expect("a sound name"),
        window: WindowLength::from_seconds(600).expect("a sound length").window_of(Timestamp::clamped(START)),
        part: 0,
        sealed: SealReason::Window,
        late: false,
        samples: samples.collect(),
        rollup: None,
        clock: tipbucket::model::ClockState::Synced,
    }
}

fn upstream(config: Config, site: &str) -> Upstream {
    let site = SiteName::new(site).expect("a sound name");
    Upstream::new(config, site, HashMap::new(), Clock::system(), Tuning::default())
}

/// What insert commands of a full batch take, as the driver's compressor packs them (zstd, its own level).
fn wire() {
    println!("  {:<44} {:>10} {:>12} {:>14}", "bytes for a reading (two decimals, 1 Hz)", "raw", "zstd", "commands");
    for (name, layout) in [("rows", Layout::Rows), ("columns", Layout::Columns)] {
        for (samples, most) in [(60, FIRST), (200, FIRST), (200, LARGEST), (1000, FIRST)] {
            let config = Config { layout, ..Config::default() };
            let context = upstream(config, "bench").context("0badcafe");
            let (mut raw, mut packed, mut commands, mut readings) = (0, 0, 0, 0);
            let mut command: Vec<u8> = Vec::new();
            let mut inside = 0;
            for sensor in 0..400 {
                let document = Document::of(&bucket(sensor, samples), &context);
                command.extend_from_slice(document.bson.as_bytes());
                (inside, readings) = (inside + 1, readings + samples);
                if inside == 100 || command.len() >= most {
                    raw += command.len();
                    packed += zstd::bulk::compress(&command, 0).expect("zstd").len();
                    commands += 1;
                    (inside, command) = (0, Vec::new());
                }
            }
            readings -= inside * samples;
            println!(
                "  {:<44} {:>10.1} {:>12.2} {:>14.5}",
                format!("{name}, {samples} samples, commands of {} KiB", most >> 10),
                raw as f64 / readings as f64,
                packed as f64 / readings as f64,
                f64::from(commands) / readings as f64
            );
        }
    }
}

/// A backlog that is made while it is drawn.
struct Made {
    next: u64,
    settled: u64,
    done: CancellationToken,
}

impl Backlog for Made {
    async fn next(&mut self) -> Result<Option<Parcel>, StoreError> {
        if self.next as usize * SEGMENT >= BACKLOG {
            self.done.cancelled().await;
            return Ok(None);
        }
        let first = self.next as usize * SEGMENT;
        self.next += 1;
        let buckets = (first..first + SEGMENT).map(|sensor| PackedBucket::pack(&bucket(sensor, 60))).collect();
        Ok(Some(Parcel { id: SegmentId(self.next), buckets }))
    }

    fn rewind(&mut self) {
        self.next = 0;
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), StoreError> {
        self.settled += settled.segments.len() as u64;
        if self.settled as usize * SEGMENT >= BACKLOG {
            self.done.cancel();
        }
        Ok(())
    }

    fn store_id(&self) -> &str {
        "0badcafe"
    }
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}

/// The whole backlog through the forwarder, then the same documents by a bare loop of the driver.
async fn drain(delay: Duration) {
    let peer = Peer::start(delay);
    let config = Config { uri: Uri::new(peer.uri()), spread: Duration::ZERO, ..Config::default() };
    let way = upstream(config.clone(), "bench");
    let context = way.context("0badcafe");
    let (stats, end, done) = (Stats::default(), CancellationToken::new(), CancellationToken::new());
    let backlog = Made { next: 0, settled: 0, done: done.clone() };
    let (before, started) = (resident(), Instant::now());
    let running = tokio::spawn(forwarder::run(backlog, way, Clock::system(), stats.clone(), end.clone()));
    let mut peak = before;
    while !done.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        peak = peak.max(resident());
    }
    let ours = started.elapsed();
    end.cancel();
    running.await.expect("no panic").expect("no failure");

    let client = Client::with_uri_str(peer.uri()).await.expect("a client");
    let collection = client.database("telemetry").collection::<RawDocumentBuf>("buckets");
    let mut bare = Duration::ZERO;
    for first in (0..BACKLOG).step_by(SEGMENT) {
        let documents: Vec<RawDocumentBuf> =
            (first..first + SEGMENT).map(|sensor| Document::of(&bucket(sensor, 60), &context).bson).collect();
        let started = Instant::now();
        collection.insert_many(&documents).ordered(false).await.expect("the peer takes everything");
        bare += started.elapsed();
    }
    let _ = client.database("telemetry").run_command(doc! { "ping": 1 }).await;
    println!(
        "  {BACKLOG} buckets of 60, a server that needs {delay:?} for a command: {:.0} buckets/s; bare driver loop {:.0}/s: {:.0} %; resident memory {before:.1} to {peak:.1} MiB",
        BACKLOG as f64 / ours.as_secs_f64(),
        BACKLOG as f64 / bare.as_secs_f64(),
        100.0 * bare.as_secs_f64() / ours.as_secs_f64()
    );
}

/// Gateways of one fleet that begin in the same moment.
async fn fleet() {
    let peer = Peer::start(Duration::ZERO);
    let config = Config {
        uri: Uri::new(peer.uri()),
        fleet_size: Some(FLEET),
        max_connects_per_second: RATE,
        ..Config::default()
    };
    let started = Instant::now();
    let mut gateways = tokio::task::JoinSet::new();
    for i in 0..FLEET {
        let mut way = upstream(config.clone(), &format!("gateway-{i:04}"));
        gateways.spawn(async move {
            tokio::time::sleep(way.manners().first_connection()).await;
            let report = way.greet().await;
            way.close().await;
            report.reached
        });
    }
    let reached = gateways.join_all().await.into_iter().filter(|reached| *reached).count();
    let mut seconds: BTreeMap<u64, u32> = BTreeMap::new();
    for at in peer.accepted() {
        *seconds.entry((at - started).as_secs()).or_default() += 1;
    }
    println!(
        "  {FLEET} gateways switched on together, {RATE} connections/s allowed: {reached} connected within {:.0} s, {} connections, at most {} in a second",
        started.elapsed().as_secs_f64(),
        seconds.values().sum::<u32>(),
        seconds.values().max().copied().unwrap_or(0)
    );
}
