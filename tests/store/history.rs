//! A life of a store in which everything happens once: windows that end, buckets that are delivered and deleted, messages
//! that come again, a sensor so slow that its bucket is spilled, checkpoints, a kill with a start in between, dead letters, a
//! budget that runs out so that buckets are thinned, late readings, refused sensors, buckets delivered before they are
//! written.
//!
//! What must stay true: all of it comes about by pushing and drawing, and each part checks that it did.

use std::path::Path;
use std::time::Duration;

use tipbucket::clock::Clock;
use tipbucket::model::{DeadLetter, LetterKind, Reading, SealedBucket, SourceName, Timestamp, Value};
use tipbucket::store::{Backlog, Delivery, Origin, OriginKind, SegmentId, Settled};

use crate::site::{START, Site, database, reading};
use crate::told::words;

/// What became certain, in order; the log of writes refers to it by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Readings below this number are acknowledged.
    Acknowledged(usize),
    /// So many dead letters are.
    Letters(u64),
    /// These samples are delivered: the store was asked to delete them.
    Settling(Vec<(String, i64)>),
    /// It has.
    Settled(Vec<(String, i64)>),
}

/// Everything that was pushed and must be found again, and what became certain when.
#[derive(Debug, Default)]
pub struct History {
    /// Sensor, time in milliseconds after the start, fields.
    pub readings: Vec<(String, i64, String)>,
    pub notes: Vec<Note>,
    letters: u64,
}

/// Calls `mark` with the number of each note when it becomes true.
pub struct Life<'a> {
    history: History,
    folder: &'a Path,
    clock: Clock,
    site: Site,
    mark: &'a dyn Fn(u64),
}

/// Commits so small that each takes a slot, more than the journal may keep.
const SMALL_COMMITS: i64 = 1_150;
const TEXTS: i64 = 1_600;

/// Lives it. The store is then as after a kill, with buckets open and commits in its log.
pub async fn live(folder: &Path, mark: &dyn Fn(u64)) -> History {
    let clock = Clock::virtual_from(Timestamp::clamped(START));
    let site = Site::open(folder, clock.clone()).await.unwrap();
    let mut life = Life { history: History::default(), folder, clock, site, mark };
    life.windows_end_and_some_are_delivered().await;
    life.small_commits_until_a_bucket_is_spilled().await;
    life.killed_and_started().await;
    life.texts_fill_segments().await;
    life.letters_use_the_room_up().await;
    life.kinds_of_values().await;
    life.late_and_strange().await;
    life.sealed_in_memory().await;
    life.something_stays_open().await;
    life.site.kill().await;
    life.history
}

impl Life<'_> {
    fn now(&self) -> i64 {
        self.clock.now().as_millis() - START
    }

    fn note(&mut self, note: Note) {
        (self.mark)(self.history.notes.len() as u64);
        self.history.notes.push(note);
    }

    async fn commit(&mut self, readings: Vec<Reading>) {
        self.deliver(Delivery::of(readings)).await;
    }

    async fn deliver(&mut self, delivery: Delivery) {
        for reading in &delivery.readings {
            let at = reading.at.as_millis() - START;
            self.history.readings.push((reading.sensor.to_string(), at, words(&reading.fields)));
        }
        self.history.letters += delivery.dead_letters.len() as u64;
        self.site.commit(delivery).await;
        self.note(Note::Acknowledged(self.history.readings.len()));
        self.note(Note::Letters(self.history.letters));
    }

    async fn kinds_of_values(&mut self) {
        let (now, text) = (self.now(), |text| Value::text(text).unwrap());
        for i in 0..40 {
            let i64s = [0, -1, i64::MIN, i64::MAX, i];
            let floats = [0.0, -0.0, 21.5, 1e300, 5e-324, 0.1 + 0.2, f64::MAX, -1.25e-7, i as f64 / 10.0];
            let fields = [
                ("whole", Value::I64(i64s[i as usize % i64s.len()])),
                ("float", Value::F64(floats[i as usize % floats.len()])),
                ("large", Value::U64(u64::MAX - i as u64)),
                ("on", Value::Bool(i % 3 == 0)),
                ("state", text(["idle", "running", "", "défaut"][i as usize % 4])),
            ];
            let some = if i % 7 == 0 { &fields[..2] } else { &fields[..] };
            self.commit(vec![reading("mixed", now + i * 50, some)]).await;
        }
    }

    async fn windows_end_and_some_are_delivered(&mut self) {
        self.commit(vec![reading("slow", 1, &[("level", Value::F64(0.1))])]).await;
        for round in 0..3 {
            tokio::time::sleep(Duration::from_secs(70)).await;
            let now = self.now();
            let tick = |i: i64| reading("tick", now + i * 10, &[("n", Value::I64(round * 100 + i))]);
            self.commit((0..20).map(tick).collect()).await;
        }
        tokio::time::sleep(Duration::from_secs(70)).await;
        let (id, buckets) = self.site.draw().await.expect("a window has ended");
        let samples: Vec<_> = buckets
            .iter()
            .flat_map(|b| b.samples.iter().map(|s| (b.sensor.to_string(), s.at.as_millis() - START)))
            .collect();
        assert!(!samples.is_empty());
        self.note(Note::Settling(samples.clone()));
        self.site.outlet.settle(Settled { segments: vec![id], ..Settled::default() }).await.unwrap();
        self.note(Note::Settled(samples));
        self.message(OriginKind::Fresh { packet_id: 9 }).await;
        self.known(OriginKind::Repeated { packet_id: 9 }).await;
    }

    async fn late_and_strange(&mut self) {
        let now = self.now();
        self.commit(vec![reading("late", now, &[("n", Value::I64(1))])]).await;
        tokio::time::sleep(Duration::from_secs(70)).await;
        self.commit(vec![reading("late", now + 1, &[("n", Value::I64(2))])]).await;
        let strangers = (0..10).map(|i| reading(&format!("stranger-{i}"), now, &[("n", Value::I64(i))])).collect();
        self.site.commit(Delivery::of(strangers)).await;
        assert_eq!(self.site.stats.store().sensor_limit.get(), 10);
        tokio::time::sleep(Duration::from_secs(70)).await;
    }

    fn origin(kind: OriginKind) -> Option<Origin> {
        Some(Origin { source: SourceName::new("broker").unwrap(), content: 5, topic: 1, kind })
    }

    async fn message(&mut self, kind: OriginKind) {
        let readings = vec![reading("message", self.now(), &[("n", Value::I64(9))])];
        self.deliver(Delivery { origin: Self::origin(kind), ..Delivery::of(readings) }).await;
    }

    /// A message that came before: its reading must not be found.
    async fn known(&mut self, kind: OriginKind) {
        let readings = vec![reading("message", self.now() + 1, &[("n", Value::I64(9))])];
        let before = self.site.stats.store().redelivered.get();
        self.site.commit(Delivery { origin: Self::origin(kind), ..Delivery::of(readings) }).await;
        assert_eq!(self.site.stats.store().redelivered.get(), before + 1);
    }

    async fn small_commits_until_a_bucket_is_spilled(&mut self) {
        let from = self.now();
        for i in 0..SMALL_COMMITS {
            self.commit(vec![reading("tick", from + i * 20, &[("n", Value::I64(i))])]).await;
        }
        let db = rusqlite::Connection::open(database(self.folder)).unwrap();
        let spilled: i64 = db.query_row("SELECT count(*) FROM spill", [], |row| row.get(0)).unwrap();
        assert!(spilled > 0, "the slow bucket is spilled");
    }

    async fn killed_and_started(&mut self) {
        // The lock is free only when the old one is gone: another store keeps its place meanwhile.
        let elsewhere = tempfile::tempdir().unwrap();
        let other = Site::open(elsewhere.path(), self.clock.clone()).await.unwrap();
        std::mem::replace(&mut self.site, other).kill().await;
        let started = Site::open(self.folder, self.clock.clone()).await.unwrap();
        std::mem::replace(&mut self.site, started).kill().await;
        let now = self.now();
        self.commit(vec![reading("slow", now, &[("level", Value::F64(0.2))])]).await;
        self.known(OriginKind::Repeated { packet_id: 9 }).await;
    }

    /// Texts that do not compress: segments of a size that is worth thinning.
    async fn texts_fill_segments(&mut self) {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..TEXTS / 100 {
            let now = self.now();
            let text: Vec<Reading> = (0..100)
                .map(|i| {
                    let text: String = std::iter::repeat_with(|| random.alphanumeric()).take(60).collect();
                    reading("noise", now + 1 + round % 2 * 2000 + i * 10, &[("text", Value::text(&text).unwrap())])
                })
                .collect();
            self.commit(text).await;
            if round % 2 == 1 {
                tokio::time::sleep(Duration::from_secs(70)).await;
            }
        }
    }

    async fn letters_use_the_room_up(&mut self) {
        for n in 0.. {
            assert!(n < 1000, "the budget is never met");
            // In small steps at the end: as much is thinned as must be, and nothing has to go.
            let near = self.site.stats.store().fill_percent.get() >= 92;
            let (letters, bytes) = if near { (1, 256) } else { (8, 4 << 10) };
            let letter = |i: u64| DeadLetter {
                at: self.clock.now(),
                kind: LetterKind::Payload,
                source: SourceName::new("broker").ok(),
                place: format!("topic/{n}/{i}"),
                reason: "not JSON".to_owned(),
                payload: vec![n as u8; bytes],
                lost: None,
            };
            let dead_letters = (0..letters).map(letter).collect();
            self.deliver(Delivery { dead_letters, ..Delivery::default() }).await;
            if self.site.stats.store().thinned.get() > 0 {
                break;
            }
        }
        assert_eq!(self.site.stats.store().evicted.get(), 0, "rollups are small: nothing had to go");
    }

    /// While the upstream takes what it is sent, a sealed bucket is drawn before it is written.
    async fn sealed_in_memory(&mut self) {
        self.site.outlet.upstream_takes(true);
        let delivered = self.drawn_from_memory().await;
        self.note(Note::Settling(delivered.1.clone()));
        self.site.outlet.settle(Settled { segments: vec![delivered.0], ..Settled::default() }).await.unwrap();
        // That it was delivered is certain with the next commit.
        let at = self.now();
        self.commit(vec![reading("slow", at, &[("level", Value::F64(0.3))])]).await;
        self.note(Note::Settled(delivered.1));
        self.drawn_from_memory().await;
    }

    /// Readings of a window of their own, drawn when it is over: the segment, and what is in it.
    async fn drawn_from_memory(&mut self) -> (SegmentId, Vec<(String, i64)>) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let from = self.now();
        self.commit((0..20).map(|i| reading("tick", from + i, &[("n", Value::I64(i))])).collect()).await;
        for _ in 0..200 {
            let Some((id, buckets)) = self.site.draw().await else { continue };
            let of = |bucket: &SealedBucket| {
                let sensor = bucket.sensor.to_string();
                bucket.samples.iter().map(move |s| (sensor.clone(), s.at.as_millis() - START)).collect::<Vec<_>>()
            };
            let samples: Vec<_> = buckets.iter().flat_map(of).collect();
            if samples.iter().any(|(sensor, at)| sensor == "tick" && *at == from) {
                let db = rusqlite::Connection::open(database(self.folder)).unwrap();
                let sql = "SELECT count(*) FROM segment WHERE id = ?1";
                let written: i64 = db.query_row(sql, [id.0], |row| row.get(0)).unwrap();
                assert_eq!(written, 0, "it is not written yet");
                return (id, samples);
            }
        }
        panic!("the bucket is never drawn");
    }

    async fn something_stays_open(&mut self) {
        let now = self.now();
        for i in 0..30 {
            self.commit(vec![
                reading("tick", now + i, &[("n", Value::I64(i)), ("m", Value::F64(i as f64 / 8.0))]),
                reading("mixed", now + i, &[("whole", Value::I64(-i))]),
            ])
            .await;
        }
        assert!(self.site.stats.store().open_buckets.get() > 2);
    }
}
