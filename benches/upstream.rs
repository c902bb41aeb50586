//! Delivery as the database and the link see it: bytes and commands for a reading, draining a backlog beside a bare driver
//! loop, and a fleet that is switched on together. `-- wire`, `-- drain` or `-- fleet` runs one part alone.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

#[path = "support/drain.rs"]
mod drain;
#[path = "support/mongo_peer.rs"]
mod mongo_peer;
mod support;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::time::{Duration, Instant};

use mongo_peer::Peer;
use support::{introduce, is_wanted};
use tipbucket::clock::Clock;
use tipbucket::model::{
    FieldName, Sample, SealReason, SealedBucket, SensorName, SiteName, Timestamp, Value, WindowLength,
};
use tipbucket::upstream::{Config, Document, Layout, Tuning, Upstream, Uri};

/// 2026-11-30T13:00:00Z.
const START: i64 = 1_796_043_600_000;
/// Bytes of the first command, and of the largest.
const FIRST: usize = 256 << 10;
const LARGEST: usize = 1 << 20;
/// Gateways that are switched on together, and the rate they are to keep.
const FLEET: u32 = 200;
const RATE: u32 = 20;

fn main() {
    if Peer::is_all() || drain::is_all() || !is_wanted() {
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
        drain::all();
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

/// What insert commands of a full batch take, as the driver's compressor packs them (zstd, our level).
fn wire() {
    println!("  {:<44} {:>10} {:>12} {:>14}", "bytes for a reading (two decimals, 1 Hz)", "raw", "zstd", "commands");
    for (name, layout) in [("rows", Layout::Rows), ("columns", Layout::Columns)] {
        for (samples, most) in
            [(60, FIRST), (60, LARGEST), (200, FIRST), (200, LARGEST), (1000, FIRST), (1000, LARGEST)]
        {
            let config = Config { layout, ..Config::default() };
            let context = upstream(config, "bench").context("0badcafe");
            let (mut raw, mut packed, mut commands, mut readings) = (0, 0, 0, 0);
            let mut command: Vec<u8> = Vec::new();
            let mut inside = 0;
            for sensor in 0..1200 {
                let document = Document::of(&bucket(sensor, samples), &context);
                command.extend_from_slice(document.bson().as_bytes());
                (inside, readings) = (inside + 1, readings + samples);
                // As the bytes of a command grow, the documents may, too.
                if inside == 100 * most / FIRST || command.len() >= most {
                    raw += command.len();
                    packed += as_the_driver_packs(&command);
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

/// Bytes of a command as the driver packs it: a stream of unknown length.
fn as_the_driver_packs(command: &[u8]) -> usize {
    let mut encoder = zstd::Encoder::new(Vec::new(), tipbucket::upstream::ZSTD_LEVEL).expect("zstd");
    encoder.write_all(command).expect("into memory");
    encoder.finish().expect("into memory").len()
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
