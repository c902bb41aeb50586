//! A whole day of the whole daemon in virtual time: simulated sensors, an upstream that is away for eight hours, a
//! restart in the middle of it. Everything that was read arrives exactly once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tipbucket::clock::Clock;
use tipbucket::model::Timestamp;
use tipbucket::stats::Stats;
use tipbucket::upstream::Tuning;
use tipbucket::{daemon, settings};
use tokio::sync::oneshot;

const START: i64 = 1_796_043_600_000;
const HOUR: Duration = Duration::from_secs(3600);
/// Sensors and the seconds between their readings.
const SENSORS: i64 = 12;
const EVERY: i64 = 60;

struct Running {
    stop: oneshot::Sender<()>,
    daemon: tokio::task::JoinHandle<anyhow::Result<()>>,
    stats: Stats,
}

fn start(folder: &Path, clock: &Clock) -> Running {
    let site = folder.join("site.toml");
    let text = format!(
        r#"
        [site]
        name = "day"
        [store]
        path = "{0}/t.db"
        max_bytes = "64MiB"
        commit_every = "1m"
        [bucket]
        window = "10m"
        [upstream]
        type = "archive"
        folder = "{0}/archive"
        format = "ndjson"
        max_file_age = "5m"
        [web]
        enabled = false
        [sources.sim]
        type = "simulated"
        sensors = {SENSORS}
        every = "{EVERY}s"
        "#,
        folder.display()
    );
    fs::write(&site, text).unwrap();
    let settings = settings::load(&site, []).unwrap();
    let stats = Stats::default();
    let (stop, stopped) = oneshot::channel::<()>();
    let run = daemon::run_with(settings, clock.clone(), stats.clone(), Tuning::default(), async {
        let _ = stopped.await;
    });
    Running { stop, daemon: tokio::spawn(run), stats }
}

impl Running {
    async fn stop(self) -> Stats {
        self.stop.send(()).unwrap();
        self.daemon.await.unwrap().unwrap();
        self.stats
    }
}

/// How often each (sensor, sample) stands in the archive.
fn archived(folder: &Path) -> BTreeMap<(String, String), u32> {
    let mut found = BTreeMap::new();
    for file in fs::read_dir(folder.join("archive")).unwrap() {
        for line in fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let document: serde_json::Value = serde_json::from_str(line).unwrap();
            let sensor = document["sensor"].as_str().unwrap();
            let samples = document["samples"].as_array().unwrap();
            assert_eq!(document["count"], samples.len());
            for sample in samples {
                *found.entry((sensor.to_owned(), sample.to_string())).or_default() += 1;
            }
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn a_day_with_an_outage_and_a_restart_arrives_exactly_once() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    fs::create_dir(&archive).unwrap();
    let clock = Clock::virtual_from(Timestamp::from_millis(START).unwrap());

    let running = start(folder.path(), &clock);
    tokio::time::sleep(8 * HOUR).await;
    let before = running.stats.upstream().buckets.get();
    assert!(before >= 7 * 6 * SENSORS as u64, "{before} buckets in eight good hours");

    // The disk with the archive is pulled: in its place stands something that is no folder.
    fs::rename(&archive, folder.path().join("pulled")).unwrap();
    fs::write(&archive, "").unwrap();
    tokio::time::sleep(4 * HOUR).await;
    assert_eq!(running.stats.upstream().condition.get().up, Some(false));
    assert!(running.stats.store().backlog_buckets.get() >= 3 * 6 * SENSORS);
    let first = running.stop().await;

    let running = start(folder.path(), &clock);
    tokio::time::sleep(4 * HOUR).await;
    let backlog = running.stats.store().backlog_buckets.get();
    assert!(backlog >= 7 * 6 * SENSORS, "{backlog} buckets wait after eight hours without an upstream");
    fs::remove_file(&archive).unwrap();
    fs::rename(folder.path().join("pulled"), &archive).unwrap();
    tokio::time::sleep(8 * HOUR).await;
    assert_eq!(running.stats.upstream().condition.get().up, Some(true));
    // What is open still holds the last window.
    let open = running.stats.store().open_buckets.get();
    let second = running.stop().await;

    let accepted = first.store().readings.get() + second.store().readings.get();
    assert!(accepted as i64 >= SENSORS * (24 * 3600 / EVERY - 4), "{accepted} readings in a day");
    let archived = archived(folder.path());
    assert!(archived.values().all(|times| *times == 1), "a sample stands in the archive twice");
    let waiting = accepted as usize - archived.len();
    let window = (600 + 60) / EVERY;
    assert!(
        open <= 2 * SENSORS && waiting <= (SENSORS * 2 * window) as usize,
        "{waiting} samples of {accepted} did not arrive"
    );
}
