//! Single flipped bits anywhere in the database or its log: the store never panics, serves, invents nothing, and what it
//! can no longer read it says.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytesize::ByteSize;
use fastrand::Rng;
use fault_vfs::Watch;
use tipbucket::clock::Clock;
use tipbucket::model::{SealedBucket, Timestamp};
use tipbucket::store::Backlog;
use tracing::Dispatch;

use crate::history::live;
use crate::site::{START, Site, database, log, runtime};
use crate::told::words;

/// Flips in a run of the suite.
const FLIPS: usize = 1_000;
const FLIPS_VARIABLE: &str = "TIPBUCKET_FLIPS";
const SEED: u64 = 7;
const THREADS: usize = 2;
const LATER_MS: i64 = 3 * 86_400_000;
/// The header of a database, and of a log: where a bit means most.
const HEADER: usize = 100;
const PAGE: usize = 1024;
/// Sensors that share a page.
const NAMES: [&[u8]; 3] = [b"slow", b"tick", b"noise"];
/// Readings of the last commit of [`crate::history`].
const LAST_COMMIT: usize = 2;
/// A store that cannot be read is asked so often before that is the answer.
const ERRORS: usize = 50;

/// What came of a damaged store.
#[derive(Default)]
struct Outcome {
    /// Samples by sensor and time.
    samples: BTreeMap<(String, i64), String>,
    /// Everything it said: in its log, as errors when drawing, or instead of opening.
    said: String,
    opened: bool,
}

/// Lines at WARN and above of everything that runs under it.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn dispatch(&self) -> Dispatch {
        let lines = self.clone();
        let builder = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false);
        Dispatch::new(builder.with_writer(move || lines.clone()).finish())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Opens what there is and draws everything, however often it must be asked.
fn serve(folder: &Path) -> Outcome {
    let lines = Lines::default();
    let dispatch = lines.dispatch();
    let of_threads = dispatch.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&of_threads)))
        .build()
        .unwrap();
    let mut outcome = tracing::dispatcher::with_default(&dispatch, || runtime.block_on(draw_all(folder)));
    outcome.said.push_str(&lines.text());
    outcome
}

async fn draw_all(folder: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let clock = Clock::virtual_from(Timestamp::clamped(START + LATER_MS));
    let mut site = match Site::open_with(folder, clock, |config| config.max_bytes = ByteSize::mib(16)).await {
        Ok(site) => site,
        Err(error) => {
            outcome.said = error.to_string();
            return outcome;
        }
    };
    outcome.opened = true;
    let mut errors = 0;
    while errors < ERRORS {
        match tokio::time::timeout(Duration::from_secs(5), site.outlet.next()).await {
            Err(_) | Ok(Ok(None)) => break,
            Ok(Ok(Some(parcel))) => {
                for bucket in &parcel.buckets {
                    match bucket.unpack() {
                        Ok(bucket) => outcome.add(&bucket),
                        Err(error) => outcome.said.push_str(&format!("{error}\n")),
                    }
                }
            }
            Ok(Err(error)) => {
                outcome.said.push_str(&format!("{error}\n"));
                errors += 1;
            }
        }
    }
    site.kill().await;
    outcome
}

impl Outcome {
    /// After rows came back from a damaged file everything is drawn again.
    fn add(&mut self, bucket: &SealedBucket) {
        for sample in &bucket.samples {
            let place = (bucket.sensor.to_string(), sample.at.as_millis() - START);
            self.samples.insert(place, words(&sample.fields));
        }
    }

    /// Compares with what was there before the flip. `torn`: readings that the last commit alone held; a log that is
    /// damaged there looks like one whose last commit was never finished.
    fn check(&self, store: &Store, torn: usize) -> Result<(), String> {
        if !self.opened {
            return if self.said.is_empty() { Err("it refuses without a word".to_owned()) } else { Ok(()) };
        }
        for (place, fields) in &self.samples {
            match store.pushed.get(place) {
                Some(known) if known == fields => {}
                _ if store.is_under_another_name(place, fields) && self.said.contains("damaged") => {}
                other => return Err(format!("{place:?} is {fields}, it was {other:?}")),
            }
        }
        let missing = store.stored.iter().filter(|place| !self.samples.contains_key(*place)).count();
        if missing > torn && self.said.is_empty() {
            return Err(format!("{missing} samples are gone, and nothing is said"));
        }
        Ok(())
    }
}

/// A store before the flip.
struct Store {
    base: Vec<u8>,
    wal: Vec<u8>,
    /// Everything that ever was in it.
    pushed: BTreeMap<(String, i64), String>,
    /// What was still there as samples.
    stored: Vec<(String, i64)>,
}

impl Store {
    /// What a sensor or a field measured is kept when its name is lost.
    fn is_under_another_name(&self, (sensor, at): &(String, i64), fields: &str) -> bool {
        let values = |fields: &str| -> Vec<String> {
            fields.split(' ').filter_map(|field| Some(field.split_once('=')?.1.to_owned())).collect()
        };
        let sensors = |known: &str| known == sensor || sensor.starts_with("lost-sensor-");
        let mut same = self.pushed.iter().filter(|((known, when), _)| sensors(known) && when == at);
        let renamed =
            |known: &str| known == fields || fields.contains("lost-field-") && values(known) == values(fields);
        same.any(|(_, known)| renamed(known))
    }
}

/// As after a kill, or with everything copied from the log into the database, where each bit counts.
fn store(copied: bool) -> Store {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::on(folder.path());
    watch.spare_the_disk();
    let history = runtime().block_on(live(folder.path(), &|_| {}));
    let pushed = history.readings.into_iter().map(|(sensor, at, fields)| ((sensor, at), fields)).collect();
    if copied {
        let db = rusqlite::Connection::open(database(folder.path())).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
    let (base, wal) = (fs::read(database(folder.path())).unwrap(), fs::read(log(folder.path())).unwrap_or_default());
    let outcome = serve(folder.path());
    assert_eq!((outcome.opened, outcome.said.as_str()), (true, ""), "without a flip nothing is said");
    Store { base, wal, pushed, stored: outcome.samples.into_keys().collect() }
}

/// Where to flip: headers, the few bytes of names on which every sample depends, and anywhere.
fn place(random: &mut Rng, bytes: &[u8]) -> usize {
    match random.u8(..20) {
        0 | 1 => random.usize(..HEADER),
        2 => {
            let names = bytes
                .chunks(PAGE)
                .position(|page| NAMES.iter().all(|name| page.windows(name.len()).any(|w| w == *name)));
            names.map_or(0, |page| page * PAGE) + random.usize(..PAGE)
        }
        _ => random.usize(..bytes.len()),
    }
}

fn flip_and_serve(folder: &Path, flip: usize, store: &Store) -> Result<bool, String> {
    let mut random = Rng::with_seed(SEED * 1_000_003 + flip as u64);
    let (mut base, mut wal) = (store.base.clone(), store.wal.clone());
    let in_log = !wal.is_empty() && random.bool();
    let (name, file, torn) = if in_log { ("log", &mut wal, LAST_COMMIT) } else { ("database", &mut base, 0) };
    let (at, bit) = (place(&mut random, file), random.u8(..8));
    file[at] ^= 1 << bit;
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let _ = fs::remove_file(&entry).or_else(|_| fs::remove_dir_all(&entry));
    }
    fs::write(folder.join("t.db.lock"), b"a tipbucket store lives here\n").unwrap();
    fs::write(database(folder), &base).unwrap();
    fs::write(log(folder), &wal).unwrap();
    let place = format!("flip {flip}, {name} byte {at} bit {bit}");
    let outcome = catch_unwind(AssertUnwindSafe(|| serve(folder))).map_err(|_| format!("{place}: it panics"))?;
    outcome.check(store, torn).map_err(|why| format!("{place}: {why}; it said: {}", outcome.said))?;
    Ok(!outcome.said.is_empty())
}

fn check(copied: bool, share: f64) {
    fault_vfs::install();
    let flips =
        std::env::var(FLIPS_VARIABLE).map_or(FLIPS, |flips| flips.parse().expect("TIPBUCKET_FLIPS is a number"));
    let flips = (flips as f64 * share) as usize;
    let store = store(copied);
    let (failures, harmful) = (Mutex::new(Vec::new()), Mutex::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, failures, harmful) = (&store, &failures, &harmful);
            scope.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                let watch = Watch::on(folder.path());
                watch.spare_the_disk();
                for flip in (thread..flips).step_by(THREADS) {
                    match flip_and_serve(folder.path(), flip, store) {
                        Ok(harm) => *harmful.lock().unwrap() += usize::from(harm),
                        Err(why) => failures.lock().unwrap().push(why),
                    }
                }
            });
        }
    });
    let (failures, harmful) = (failures.into_inner().unwrap(), harmful.into_inner().unwrap());
    eprintln!("{harmful} of {flips} flips are told of");
    assert!(failures.is_empty(), "{} of {flips}:\n{}", failures.len(), failures[..failures.len().min(8)].join("\n"));
    assert!(harmful > flips / 20, "only {harmful} flips hit anything");
}

#[test]
fn a_flipped_bit_in_the_log_is_told() {
    check(false, 0.3);
}

#[test]
fn a_flipped_bit_in_the_database_costs_what_it_hits_and_is_told() {
    check(true, 0.7);
}
