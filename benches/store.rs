//! The store as sources see it: deliveries into the inlet, group commits with fsync into a SQLite file, sealed buckets drawn
//! and deleted meanwhile as the forwarder does.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

mod support;

use std::time::Duration;

use support::{Site, Stopwatch, introduce, is_wanted, median, policies};
use tipbucket::clock::Clock;
use tipbucket::model::{SiteName, Timestamp};
use tipbucket::stats::Stats;
use tipbucket::store::{self, Backlog, Config, Delivery, Inlet, Settled};

const ROUNDS: usize = 5;
/// Readings in one round.
const READINGS: usize = 1_000_000;
const SENSORS: usize = 1000;

fn main() {
    if !is_wanted() {
        return;
    }
    introduce("inlet, group commit (fsync) into a SQLite file, segments drawn and deleted; 1,000 sensors, 2 fields");
    println!("  {:<34} {:>12} {:>14} {:>14} {:>10}", "", "readings/s", "readings/cpu s", "cpu us/reading", "commits");
    for at_once in [1, 10, 100] {
        let mut rounds: Vec<Round> = (0..ROUNDS).map(|_| round(at_once)).collect();
        let mut middle =
            |figure: fn(&Round) -> f64| median(&mut rounds.iter_mut().map(|r| figure(r)).collect::<Vec<_>>());
        let (wall, cpu, commits) = (middle(|r| r.wall), middle(|r| r.cpu), middle(|r| r.commits));
        println!(
            "  {:<34} {:>12.0} {:>14.0} {:>14.2} {:>10.0}",
            format!("{at_once} reading(s) to a delivery"),
            READINGS as f64 / wall,
            READINGS as f64 / cpu,
            cpu * 1e6 / READINGS as f64,
            commits
        );
    }
}

struct Round {
    wall: f64,
    cpu: f64,
    commits: f64,
}

/// A new file, filled with [`READINGS`] readings; ends when all of them are on disk.
fn round(at_once: usize) -> Round {
    // As the daemon has it.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build().expect("runtime");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
    let config = Config { path: folder.path().join("bench.db"), ..Config::default() };
    runtime.block_on(async {
        let stats = Stats::default();
        let opened = store::open(
            &config,
            SiteName::new("bench").expect("a sound name"),
            policies(),
            SENSORS,
            Clock::system(),
            stats.clone(),
        )
        .await;
        let (inlet, outlet, writer) = opened.expect("store opens");
        let writer = tokio::spawn(writer.run());
        let forwarder = tokio::spawn(draw(outlet));
        let watch = Stopwatch::start();
        fill(inlet, at_once).await;
        // The inlet is gone: what waits is committed at once.
        while stats.store().readings.get() < READINGS as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (wall, cpu) = watch.read();
        forwarder.abort();
        let _ = forwarder.await;
        writer.await.expect("no panic").expect("store ends well");
        let commits = stats.store().commits.get() as f64;
        Round { wall: wall.as_secs_f64(), cpu: cpu.as_secs_f64(), commits }
    })
}

async fn fill(inlet: Inlet, at_once: usize) {
    let start = Clock::system().now().minus(Duration::from_secs((READINGS / SENSORS) as u64));
    let mut site = Site::new(SENSORS, 2, Timestamp::clamped(start.as_millis()));
    for _ in 0..READINGS / at_once {
        let readings = (0..at_once).map(|_| site.reading()).collect();
        inlet.push(Delivery::of(readings)).await.expect("store runs");
    }
}

async fn draw(mut outlet: impl Backlog) {
    while let Ok(Some(parcel)) = outlet.next().await {
        let settled = Settled { segments: vec![parcel.id], ..Settled::default() };
        if outlet.settle(settled).await.is_err() {
            return;
        }
    }
}
