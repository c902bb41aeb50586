//! The store as sources see it: deliveries into the inlet, group commits with fsync into a SQLite file, sealed buckets drawn
//! and deleted meanwhile as the forwarder does. Then what a long outage costs: a million buckets that wait, and a start
//! after a kill with them.
//!
//! `cargo bench --bench store -- speed`, `… -- backlog` and `… -- memory` run a part of it.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

#[path = "support/backlog.rs"]
mod backlog;
mod support;

use std::time::Duration;

use support::{Site, Stopwatch, introduce, is_wanted, median, peak_memory, policies};
use tipbucket::clock::Clock;
use tipbucket::model::{Policies, SiteName, Timestamp};
use tipbucket::stats::Stats;
use tipbucket::store::{self, Backlog, Config, Delivery, Inlet, Outlet, Settled, Writer};

const ROUNDS: usize = 5;
/// Readings in one round.
const READINGS: usize = 1_000_000;
const SENSORS: usize = 1000;
/// Readings that are made at once.
const AT_ONCE: usize = 10_000;

fn main() {
    if !is_wanted() {
        return;
    }
    let wants = |part: &str| {
        let mut parts = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
        parts.peek().is_none() || parts.any(|wanted| wanted == part)
    };
    // First, since the peak never goes down again.
    if wants("memory") {
        memory();
    }
    if wants("speed") {
        speed();
    }
    if wants("backlog") {
        backlog::measure();
    }
}

/// One line of the first table.
#[derive(Clone, Copy)]
struct Case {
    what: &'static str,
    sensors: usize,
    fields: usize,
    at_once: usize,
    /// Whether the upstream is told to take what it is sent, so that segments are not written.
    lazy: bool,
}

fn speed() {
    introduce("inlet, group commit (fsync) into a SQLite file, segments drawn and deleted");
    println!(
        "  {:<58} {:>12} {:>14} {:>14} {:>8} {:>12}",
        "", "readings/s", "readings/cpu s", "cpu us/reading", "commits", "bytes/read."
    );
    let case = |what, fields, at_once, lazy| Case { what, sensors: SENSORS, fields, at_once, lazy };
    for case in [
        case("1,000 sensors, 1 field, 10,000 to a delivery", 1, 10_000, false),
        case("the same, sent from memory", 1, 10_000, true),
        case("2 fields, 1 reading to a delivery", 2, 1, false),
        case("2 fields, 10 to a delivery", 2, 10, false),
        case("2 fields, 100 to a delivery", 2, 100, false),
        case("2 fields, 100 to a delivery, sent from memory", 2, 100, true),
    ] {
        let mut rounds: Vec<Round> = (0..ROUNDS).map(|_| round(case, READINGS)).collect();
        let mut middle =
            |figure: fn(&Round) -> f64| median(&mut rounds.iter_mut().map(|r| figure(r)).collect::<Vec<_>>());
        let (wall, cpu, commits) = (middle(|r| r.wall), middle(|r| r.cpu), middle(|r| r.commits));
        let written = middle(|r| r.written);
        println!(
            "  {:<58} {:>12.0} {:>14.0} {:>14.3} {:>8.0} {:>12.2}",
            case.what,
            READINGS as f64 / wall,
            READINGS as f64 / cpu,
            cpu * 1e6 / READINGS as f64,
            commits,
            written / READINGS as f64
        );
    }
    println!(
        "  (to make the readings is part of the wall time, not of the processor time; to let go of them is part of both; bytes are those handed to write calls)"
    );
}

/// At a real rate, with the usual windows, so long that open buckets reach what they may take together: the daemon's own sources bring no more, and a flat-out source would fill every bounded queue.
fn memory() {
    introduce(
        "peak resident memory of a process that has a store, a source at a fixed rate, and an outlet that settles",
    );
    for (sensors, rate, seconds) in [(2000, 4000, 60), (10_000, 20_000, 300)] {
        let folder = folder();
        let config = Config { path: folder.path().join("memory.db"), ..Config::default() };
        runtime().block_on(async {
            let stats = Stats::default();
            let (inlet, mut outlet, writer) = open(&config, policies(), sensors, &stats).await;
            outlet.upstream_takes(true);
            let writer = tokio::spawn(writer.run());
            let forwarder = tokio::spawn(draw(outlet));
            let mut site = Site::new(sensors, 1, Clock::system().now());
            let mut beat = tokio::time::interval(Duration::from_millis(100));
            for _ in 0..seconds * 10 {
                beat.tick().await;
                for _ in 0..rate / 1000 {
                    let readings = (0..100).map(|_| site.reading()).collect();
                    inlet.push(Delivery::of(readings)).await.expect("store runs");
                }
            }
            drop(inlet);
            forwarder.abort();
            let _ = forwarder.await;
            writer.await.expect("no panic").expect("store ends well");
        });
        println!(
            "  {:<58} {:>12.1} MiB",
            format!("{sensors} sensors, {rate} readings/s for {seconds} s"),
            peak_memory()
        );
    }
}

/// Buckets that fill and are sealed all the time.
fn capped() -> Policies {
    let mut policies = policies();
    policies.default.max_samples = 300;
    policies
}

struct Round {
    wall: f64,
    cpu: f64,
    commits: f64,
    written: f64,
}

/// Opens a store in a folder.
async fn open(config: &Config, policies: Policies, sensors: usize, stats: &Stats) -> (Inlet, Outlet, Writer) {
    let site = SiteName::new("bench").expect("a sound name");
    let opened = store::open(config, site, policies, sensors, Clock::system(), stats.clone()).await;
    opened.expect("store opens")
}

/// As the daemon has it.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build().expect("runtime")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder")
}

/// A new file, filled with readings; ends when all of them are on disk.
fn round(case: Case, readings: usize) -> Round {
    let folder = folder();
    let config = Config { path: folder.path().join("bench.db"), ..Config::default() };
    runtime().block_on(async {
        let stats = Stats::default();
        let (inlet, mut outlet, writer) = open(&config, capped(), case.sensors, &stats).await;
        outlet.upstream_takes(case.lazy);
        let writer = tokio::spawn(writer.run());
        let forwarder = tokio::spawn(draw(outlet));
        let start = Clock::system().now().minus(Duration::from_secs((readings / case.sensors) as u64));
        let mut site = Site::new(case.sensors, case.fields, Timestamp::clamped(start.as_millis()));
        let written = support::written();
        let watch = Stopwatch::start();
        let mut making = Duration::ZERO;
        for _ in 0..readings / AT_ONCE {
            let begun = support::cpu_of_thread();
            let delivery = |_| Delivery::of((0..case.at_once).map(|_| site.reading()).collect());
            let deliveries: Vec<Delivery> = (0..AT_ONCE / case.at_once).map(delivery).collect();
            making += support::cpu_of_thread() - begun;
            for delivery in deliveries {
                inlet.push(delivery).await.expect("store runs");
            }
        }
        drop(inlet);
        // The inlet is gone: what waits is committed at once.
        while stats.store().readings.get() < readings as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (wall, cpu) = watch.read();
        let written = support::written() - written;
        forwarder.abort();
        let _ = forwarder.await;
        writer.await.expect("no panic").expect("store ends well");
        let commits = stats.store().commits.get() as f64;
        Round { wall: wall.as_secs_f64(), cpu: (cpu - making).as_secs_f64(), commits, written: written as f64 }
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
