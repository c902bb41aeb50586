//! Bytes that the store writes to a card for each reading: at the block layer of a private ext4 where root allows, else as
//! SQLite hands them to the file system. Beside it, in the same run, a row and a commit for each reading, and a plain
//! file that is written before and then overwritten, with as many syncs.
//!
//! Time is simulated, as fast as the disk takes it, so the file system's own timer writes less than in life; `FLASH_SECONDS=…`
//! says how long the run in real time lasts (default 120, 0 leaves it out); `-- real` is that run alone.
//! `FLASH_MOUNT=…` are the mount options of the ext4 (default noatime).
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

#[path = "support/card.rs"]
mod card;
mod support;
#[path = "support/trickle.rs"]
mod trickle;

use std::time::Duration;

use card::Card;
use support::{introduce, is_wanted, policies};
use tipbucket::clock::Clock;
use tipbucket::model::{SiteName, Timestamp};
use tipbucket::stats::Stats;
use tipbucket::store::{self, Backlog, Config, Delivery, Rehearsal, Settled};
use trickle::{Load, Trickle};

/// A full hour: 2026-11-30T13:00:00Z.
const START: i64 = 1_796_043_600_000;
const REAL_SECONDS: u64 = 120;
/// Until a new store has its reserve, which it writes once.
const REAL_WARM_S: u64 = 80;
/// How often readings are handed over.
const TICK: Duration = Duration::from_millis(100);
/// Rows of the comparison: each costs what each other costs.
const ROWS: i64 = 400;

/// Records that the journal keeps at least.
const JOURNAL: usize = 600;
/// The journal has all the slots it needs after 512 commits at least.
const LOADS: [Load; 3] = [
    Load { words: "80 readings/s (400 sensors, 5 s)", sensors: 400, every_ms: 5_000, warm_s: 700, measured_s: 1_800 },
    Load {
        words: "10,000 readings/s (1,000 sensors, 10 Hz)",
        sensors: 1_000,
        every_ms: 100,
        warm_s: 110,
        measured_s: 120,
    },
    Load { words: "10,000 sensors once a minute", sensors: 10_000, every_ms: 60_000, warm_s: 700, measured_s: 1_800 },
];

fn main() {
    if !is_wanted() {
        return;
    }
    fault_vfs::install();
    introduce("bytes written to the card for each reading (one value each), after a warm-up");
    println!("  counted {}", Card::new().words());
    if !std::env::args().any(|argument| argument == "real") {
        simulate();
    }
    let seconds = std::env::var("FLASH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(REAL_SECONDS);
    if seconds > 0 {
        let load = Load { warm_s: REAL_WARM_S, measured_s: seconds, ..LOADS[0] };
        let real = measured(&load, Duration::from_secs(1), true, false);
        let (bytes, told) = (real.bytes_per_reading(), real.told as f64 / real.readings as f64);
        println!(
            "  {} in real time, {seconds} s, {} commits: {bytes:.1} bytes/reading ({told:.1} told)",
            load.words, real.commits
        );
    }
}

/// Everything that can be had in simulated time.
fn simulate() {
    println!(
        "  {:<46} {:>8} {:>8} {:>13} {:>8} {:>10} {:>7}",
        "", "commits", "syncs", "bytes/reading", "told", "plain file", "ratio"
    );
    for load in &LOADS {
        let mut plain = None;
        for (upstream, takes) in [("upstream takes", true), ("upstream away", false)] {
            let store = simulated(load, Duration::from_secs(1), takes);
            let plain = *plain.get_or_insert_with(|| plain_file(load, &store));
            println!(
                "  {:<46} {:>8} {:>8} {:>13.2} {:>8.2} {:>10.2} {:>6.2}x",
                format!("{}, {upstream}", load.words),
                store.commits,
                store.syncs,
                store.bytes_per_reading(),
                store.told as f64 / store.readings as f64,
                plain,
                store.bytes_per_reading() / plain
            );
        }
    }
    for every in [100, 5_000, 10_000].map(Duration::from_millis) {
        let bytes = simulated(&LOADS[0], every, true).bytes_per_reading();
        println!(
            "  {}, a commit every {}: {bytes:.1} bytes/reading",
            LOADS[0].words,
            humantime::format_duration(every)
        );
    }
    println!("  a row and a commit for each reading (SQLite's defaults): {:.0} bytes/reading", row_per_commit());
}

/// What a run wrote after its warm-up.
struct Written {
    bytes: u64,
    readings: u64,
    commits: u64,
    syncs: u64,
    /// The store's own count.
    told: u64,
}

impl Written {
    fn bytes_per_reading(&self) -> f64 {
        self.bytes as f64 / self.readings as f64
    }
}

fn simulated(load: &Load, every: Duration, takes: bool) -> Written {
    measured(load, every, takes, true)
}

fn runtime(paused: bool) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(paused).build().expect("runtime")
}

fn measured(load: &Load, every: Duration, takes: bool, paused: bool) -> Written {
    let card = Card::new();
    let config = Config { path: card.path().join("bench.db"), commit_every: every, ..Config::default() };
    runtime(paused).block_on(async {
        let clock = if paused { Clock::virtual_from(Timestamp::clamped(START)) } else { Clock::system() };
        let (stats, site) = (Stats::default(), SiteName::new("bench").expect("a sound name"));
        let opened = store::open(&config, site, policies(), load.sensors, clock.clone(), stats.clone()).await;
        let (inlet, mut outlet, writer) = opened.expect("store opens");
        let writer = tokio::spawn(writer.run());
        outlet.upstream_takes(takes);
        let forwarder = takes.then(|| tokio::spawn(draw(outlet)));
        let mut trickle = Trickle::new(load);
        let mut feed = async |seconds: u64| {
            let mut pace = tokio::time::interval(TICK);
            for _ in 0..seconds * 10 {
                pace.tick().await;
                let readings = trickle.due(clock.now(), TICK);
                if !readings.is_empty() {
                    inlet.push(Delivery::of(readings)).await.expect("store runs");
                }
            }
        };
        if !paused {
            // The journal's first slots cost more: a gateway has them after ten minutes, and we at once.
            let mut filler = Trickle::new(&Load { every_ms: 1, ..*load });
            for _ in 0..JOURNAL {
                let (to, mut receipt) = tokio::sync::mpsc::channel(1);
                let readings = filler.due(clock.now(), Duration::from_millis(1)).into_iter().take(1).collect();
                let receipt_to = Some(store::Receipt::new(to, 1));
                let delivery = Delivery { urgent: true, receipt: receipt_to, ..Delivery::of(readings) };
                inlet.push(delivery).await.expect("store runs");
                receipt.recv().await.expect("committed");
            }
        }
        feed(load.warm_s).await;
        let now = || {
            let (bytes, syncs) = card.written();
            let store = stats.store();
            Written {
                bytes,
                syncs,
                readings: store.readings.get(),
                commits: store.commits.get(),
                told: store.written.get(),
            }
        };
        let before = now();
        feed(load.measured_s).await;
        let after = now();
        forwarder.inspect(|task| task.abort());
        writer.abort();
        let _ = writer.await;
        Written {
            bytes: after.bytes - before.bytes,
            readings: after.readings - before.readings,
            commits: after.commits - before.commits,
            syncs: after.syncs - before.syncs,
            told: after.told - before.told,
        }
    })
}

async fn draw(mut outlet: impl Backlog) {
    while let Ok(Some(parcel)) = outlet.next().await {
        let settled = Settled { segments: vec![parcel.id], ..Settled::default() };
        if outlet.settle(settled).await.is_err() {
            return;
        }
    }
}

/// The journal's records of the same load, one after the other into a file that was written before.
fn plain_file(load: &Load, store: &Written) -> f64 {
    use std::os::unix::fs::FileExt;
    const FILE_BYTES: usize = 16 << 20;
    let card = Card::new();
    let file = std::fs::File::create(card.path().join("plain")).expect("file");
    file.write_all_at(&vec![0; FILE_BYTES], 0).and_then(|()| file.sync_all()).expect("written before");
    let (mut rehearsal, mut trickle) = (Rehearsal::new(policies(), load.sensors), Trickle::new(load));
    let (second, mut at, mut written, mut readings) = (Duration::from_secs(1), 0, 0, 0);
    let (before, _) = card.written();
    for n in 0..store.commits {
        let now = Timestamp::clamped(START).plus(second * n as u32);
        let batch = trickle.due(now, second);
        readings += batch.len();
        let (bytes, _) = rehearsal.commit(&[Delivery::of(batch)], now).expect("a sound batch");
        if at + bytes > FILE_BYTES {
            at = 0;
        }
        file.write_all_at(&vec![0xA5; bytes], at as u64).and_then(|()| file.sync_data()).expect("overwritten");
        at += bytes;
        written += bytes;
    }
    let counted = if card.counts_everything() { card.written().0 - before } else { written as u64 };
    counted as f64 / readings as f64
}

/// What most would write first: a table, a row for each reading, a commit for each row.
fn row_per_commit() -> f64 {
    let card = Card::new();
    let db = rusqlite::Connection::open(card.path().join("rows.db")).expect("database");
    db.execute_batch("CREATE TABLE reading (id INTEGER PRIMARY KEY, sensor TEXT, at INTEGER, value REAL)")
        .expect("table");
    let insert = |n: i64| {
        let row = rusqlite::params![format!("sensor-{}", n % 400), START + n, n as f64 / 10.0];
        db.execute("INSERT INTO reading (sensor, at, value) VALUES (?1, ?2, ?3)", row).expect("inserted")
    };
    let mut rows = (0..50).map(&insert).sum::<usize>();
    let (before, _) = card.written();
    rows += (0..ROWS).map(&insert).sum::<usize>();
    assert_eq!(rows as i64, 50 + ROWS);
    (card.written().0 - before) as f64 / ROWS as f64
}
