//! Power cuts: the writes of a whole life are recorded, and replayed up to some moment with part of what was not synced
//! missing, torn or out of order. What is left must open, and hold every acknowledged reading exactly once.
//!
//! The drill also replays a store that would not wait for the disk (`synchronous=NORMAL`), and must find losses there.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastrand::Rng;
use fault_vfs::{Event, Image, Medium, Part, Style, Watch};

use crate::history::{History, Note, live};
use crate::site::{SENSORS, database, log, runtime};
use crate::told::{Told, tell};

/// Cuts in a run of the suite; `make cut-drill` sets more.
const CUTS: usize = 2_000;
const CUTS_VARIABLE: &str = "TIPBUCKET_CUTS";
const SEED: u64 = 21;
const THREADS: usize = 2;
/// Cuts of the store that does not wait.
const CARELESS_CUTS: usize = 60;

/// A recorded life.
struct Recording {
    events: Vec<Event>,
    history: History,
}

fn record() -> Recording {
    fault_vfs::install();
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::on(folder.path());
    watch.spare_the_disk();
    watch.record();
    let history = runtime().block_on(live(folder.path(), &|note| watch.mark(note)));
    Recording { events: watch.events(), history }
}

/// Takes away the syncs of the log that come after each commit, and leaves those before a checkpoint and after the log
/// began anew: what `synchronous=NORMAL` would have done.
fn careless(events: &[Event]) -> Vec<Event> {
    let is_write = |event: &&Event| matches!(event, Event::Write { .. });
    let in_order = |at: usize| {
        let begun =
            matches!(events[..at].iter().rev().find(is_write), Some(Event::Write { part: Part::Log, at: 0, .. }));
        let copied = matches!(events[at..].iter().find(is_write), Some(Event::Write { part: Part::Database, .. }));
        begun || copied
    };
    let kept = |(at, event): &(usize, &Event)| **event != Event::Sync { part: Part::Log } || in_order(*at);
    events.iter().enumerate().filter(kept).map(|(_, event)| event.clone()).collect()
}

/// Cuts the power so often; what went wrong.
fn drill(recording: &Recording, cuts: usize, seed: u64) -> Vec<String> {
    // A moment after a write is a moment at which something may be missing.
    let moments: Vec<usize> = (0..recording.events.len())
        .filter(|at| matches!(recording.events[*at], Event::Write { .. } | Event::Mark(_)))
        .map(|at| at + 1)
        .collect();
    let (failures, done) = (std::sync::Mutex::new(Vec::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (moments, failures, done) = (&moments, &failures, &done);
            scope.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                let watch = Watch::on(folder.path());
                watch.spare_the_disk();
                let (mut medium, mut applied) = (Medium::default(), 0);
                for cut in (thread..cuts).step_by(THREADS) {
                    let mut random = Rng::with_seed(seed.wrapping_mul(1_000_003) + cut as u64);
                    let (first, last) = (cut * moments.len() / cuts, (cut + 1) * moments.len() / cuts);
                    let moment = moments[random.usize(first..last.max(first + 1))];
                    recording.events[applied.min(moment)..moment].iter().for_each(|event| medium.apply(event));
                    applied = applied.max(moment);
                    let style = Style::ALL[cut % Style::ALL.len()];
                    let image = medium.cut(style, &mut random);
                    if let Err(why) = check(recording, moment, &image, folder.path()) {
                        let words = format!("cut {cut} at event {moment} ({style:?}, seed {seed}): {why}");
                        failures.lock().unwrap().push(words);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), cuts);
    failures.into_inner().unwrap()
}

/// Opens what is left of the medium, and compares it with what was certain at that moment.
fn check(recording: &Recording, moment: usize, image: &Image, folder: &Path) -> Result<(), String> {
    // Files are made anew: writing them shorter first would make the file system flush them.
    for path in [folder.join("quarantine"), folder.join("t.db-shm"), database(folder), log(folder)] {
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    // The path was a store of ours: damage would lead to a fresh file, and be seen.
    fs::write(folder.join("t.db.lock"), b"a tipbucket store lives here\n").unwrap();
    fs::write(database(folder), &image.database).unwrap();
    fs::write(log(folder), &image.log).unwrap();
    let told = runtime().block_on(tell(folder))?;
    Certain::at(recording, moment).compare(&told)
}

/// What is certain at one moment.
struct Certain<'a> {
    history: &'a History,
    /// Readings below are acknowledged.
    acknowledged: usize,
    letters: u64,
    /// Samples that were handed over to be deleted, and whether that is done.
    settled: HashMap<(&'a str, i64), bool>,
}

impl<'a> Certain<'a> {
    fn at(recording: &'a Recording, moment: usize) -> Self {
        let history = &recording.history;
        let mut certain = Self { history, acknowledged: 0, letters: 0, settled: HashMap::new() };
        for event in &recording.events[..moment] {
            let Event::Mark(note) = event else { continue };
            match &history.notes[*note as usize] {
                Note::Acknowledged(readings) => certain.acknowledged = *readings,
                Note::Letters(letters) => certain.letters = *letters,
                Note::Settling(samples) => {
                    certain.settled.extend(samples.iter().map(|(sensor, at)| ((sensor.as_str(), *at), false)));
                }
                Note::Settled(samples) => {
                    certain.settled.extend(samples.iter().map(|(sensor, at)| ((sensor.as_str(), *at), true)));
                }
            }
        }
        certain
    }

    fn compare(&self, told: &Told) -> Result<(), String> {
        let mut missing: HashMap<&str, Vec<i64>> = HashMap::new();
        let mut known = HashMap::new();
        for (n, (sensor, at, fields)) in self.history.readings.iter().enumerate() {
            known.insert((sensor.as_str(), *at), fields.as_str());
            let found = told.samples.get(&(sensor.clone(), *at)).map_or(0, Vec::len);
            match (self.settled.get(&(sensor.as_str(), *at)), found) {
                (Some(true), 1..) => return Err(format!("{sensor} at {at} is delivered, and there again")),
                (_, 2..) => return Err(format!("{sensor} at {at} is there {found} times")),
                (None, 0) if n < self.acknowledged => missing.entry(sensor).or_default().push(*at),
                _ => {}
            }
        }
        for ((sensor, at), fields) in &told.samples {
            match known.get(&(sensor.as_str(), *at)) {
                Some(pushed) if **pushed == fields[0] => {}
                other => return Err(format!("{sensor} at {at} is {}, pushed was {other:?}", fields[0])),
            }
        }
        // What has no sample left must stand in a rollup, and in the ledger.
        let thinned: u64 = told.rollups.iter().map(|rollup| u64::from(rollup.3)).sum();
        for (sensor, times) in &missing {
            let of = || told.rollups.iter().filter(|rollup| rollup.0 == *sensor);
            let lost = times.iter().find(|at| !of().any(|(_, first, last, _)| (first..=last).contains(at)));
            if let Some(at) = lost {
                return Err(format!("{sensor} at {at} is lost ({} of {sensor} have no sample)", times.len()));
            }
            let count: u32 = of().map(|rollup| rollup.3).sum();
            if (count as usize) < times.len() {
                return Err(format!("{} readings of {sensor} are missing, rollups tell of {count}", times.len()));
            }
        }
        let counted = told.ledger.get("thinned").copied().unwrap_or(0);
        if counted != thinned {
            return Err(format!("{thinned} samples are thinned, the ledger tells of {counted}"));
        }
        if told.letters < self.letters {
            return Err(format!("{} dead letters of {}", told.letters, self.letters));
        }
        Ok(())
    }
}

fn cuts() -> usize {
    std::env::var(CUTS_VARIABLE).map_or(CUTS, |cuts| cuts.parse().expect("TIPBUCKET_CUTS is a number"))
}

#[test]
fn no_power_cut_loses_or_doubles_an_acknowledged_reading() {
    let recording = record();
    assert!(recording.events.len() > 5_000 && SENSORS == 6, "{} events", recording.events.len());
    let started = std::time::Instant::now();
    let failures = drill(&recording, cuts(), SEED);
    eprintln!("{} cuts in {:.1} s", cuts(), started.elapsed().as_secs_f64());
    assert!(
        failures.is_empty(),
        "{} of {} cuts: {}",
        failures.len(),
        cuts(),
        failures[..failures.len().min(5)].join("\n")
    );
}

#[test]
fn the_drill_finds_the_losses_of_a_store_that_does_not_wait_for_the_disk() {
    let recording = record();
    let recording = Recording { events: careless(&recording.events), ..recording };
    let failures = drill(&recording, CARELESS_CUTS, SEED);
    assert!(failures.len() > CARELESS_CUTS / 2, "{} of {CARELESS_CUTS}", failures.len());
    assert!(failures.iter().any(|why| why.contains("is lost")), "{failures:?}");
    assert!(!failures.iter().any(|why| why.contains("set aside")), "NORMAL loses, and damages nothing: {failures:?}");
}
