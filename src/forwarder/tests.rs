//! The forwarder in virtual time, between a backlog and an upstream that are plain lists.

mod chaos;
mod manners;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::*;
use crate::model::Value;
use crate::model::samples;
use crate::model::{DeadLetter, SiteName, Timestamp};
use crate::store::{PackedBucket, Parcel, SegmentId};
use crate::upstream::{Collections, Document, Fate, MAX_DOCUMENT_BYTES, Manners, Shape};

#[derive(Default)]
struct World {
    segments: BTreeMap<SegmentId, Vec<PackedBucket>>,
    settled: Vec<SegmentId>,
    letters: Vec<DeadLetter>,
    ended: bool,
    settle_fails: usize,
    sent: Vec<Vec<String>>,
    reports: VecDeque<Report>,
    hold: bool,
    held: usize,
    hang: bool,
    closed: bool,
    greetings: VecDeque<Report>,
    greeted: usize,
    manners: Option<Manners>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<World>>, Arc<Notify>);

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let result = act(&mut self.0.lock().unwrap());
        self.1.notify_waiters();
        result
    }

    fn segment(&self, id: u64, sensors: &[&str]) {
        let pack = |name: &&str| PackedBucket::pack(&samples::bucket(name, 1_796_043_600, 0, &[(0, 1.0), (1, 2.0)]));
        self.with(|world| world.segments.insert(SegmentId(id), sensors.iter().map(pack).collect()));
    }

    async fn until(&self, done: impl Fn(&World) -> bool) {
        let wait = async {
            loop {
                let notified = self.1.notified();
                if done(&self.0.lock().unwrap()) {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(100_000), wait).await.expect("it happens in the end");
    }
}

struct FakeBacklog(Shared, SegmentId);

impl Backlog for FakeBacklog {
    async fn next(&mut self) -> Result<Option<Parcel>, StoreError> {
        loop {
            let notified = self.0.1.notified();
            {
                let world = self.0.0.lock().unwrap();
                if let Some((&id, buckets)) = world.segments.range(SegmentId(self.1.0 + 1)..).next() {
                    self.1 = id;
                    return Ok(Some(Parcel { id, buckets: buckets.clone() }));
                }
                if world.ended {
                    return Ok(None);
                }
            }
            notified.await;
        }
    }

    fn rewind(&mut self) {
        self.1 = SegmentId(0);
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), StoreError> {
        self.0.with(|world| {
            if world.settle_fails > 0 {
                world.settle_fails -= 1;
                return Err(StoreError::Damaged { what: "disk".into(), why: "full".into() });
            }
            for id in &settled.segments {
                assert!(world.segments.remove(id).is_some(), "settled once");
            }
            world.settled.extend(settled.segments);
            world.letters.extend(settled.dead_letters);
            Ok(())
        })
    }

    fn store_id(&self) -> &str {
        "0badcafe"
    }
}

struct FakeWay(Shared);

impl Way for FakeWay {
    fn manners(&self) -> Manners {
        self.0.with(|world| world.manners.clone()).unwrap_or_else(Manners::none)
    }

    async fn greet(&mut self) -> Report {
        self.0.with(|world| {
            world.greeted += 1;
            world.greetings.pop_front().unwrap_or(Report { reached: true, ..Report::default() })
        })
    }

    fn limits(&self) -> (usize, usize) {
        (3, 1 << 20)
    }

    async fn deliver(&mut self, documents: &mut [Document], _: &str) -> Report {
        let sensor = |document: &Document| document.id.split(['/', '|']).nth(1).unwrap_or_default().to_owned();
        let (report, hang) = self.0.with(|world| {
            world.sent.push(documents.iter().map(sensor).collect());
            let fate = if world.hold { Fate::Held } else { Fate::Delivered };
            let all = Report { fates: vec![fate; documents.len()], ..Report::default() };
            let report = world.reports.pop_front().unwrap_or(all);
            world.held += report.fates.iter().filter(|fate| **fate == Fate::Held).count();
            (report, world.hang)
        });
        if hang {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        report
    }

    fn due(&self) -> Option<Instant> {
        self.0.with(|world| (world.held > 0).then(|| Instant::now() + Duration::from_secs(600)))
    }

    async fn attend(&mut self) -> Report {
        let flushed = self.0.with(|world| std::mem::take(&mut world.held) > 0);
        Report { flushed, ..Report::default() }
    }

    async fn close(&mut self) -> Report {
        self.0.with(|world| world.closed = true);
        self.attend().await
    }
}

struct Running {
    world: Shared,
    stats: Stats,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

fn context() -> Context {
    Context {
        site: SiteName::new("s").unwrap(),
        store: "0badcafe".into(),
        retention: None,
        shape: Shape::default(),
        collections: Collections::new("telemetry", "buckets", None),
        meta: HashMap::new(),
    }
}

fn start(world: &Shared) -> Running {
    let (stats, shutdown) = (Stats::default(), CancellationToken::new());
    let forwarder = Forwarder::new(
        FakeBacklog(world.clone(), SegmentId(0)),
        FakeWay(world.clone()),
        context(),
        &Tuning::default(),
        "delivering to a list".into(),
        Clock::virtual_from(Timestamp::EPOCH.plus(Duration::from_secs(1_796_043_600))),
        stats.clone(),
        shutdown.clone(),
    );
    Running { world: world.clone(), stats, shutdown, task: tokio::spawn(forwarder.run()) }
}

impl Running {
    async fn stop(self) -> Stats {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
        self.stats
    }
}

fn trouble(kind: TroubleKind, fates: Vec<Fate>) -> Report {
    Report {
        fates,
        trouble: Some(Trouble { kind, text: "no".into(), wait: None, reconnects: false }),
        ..Report::default()
    }
}

#[tokio::test(start_paused = true)]
async fn buckets_go_oldest_first_and_segments_are_settled_when_all_of_theirs_are_stored() {
    let world = Shared::default();
    world.segment(2, &["d", "e"]);
    world.segment(1, &["a", "b", "c", "x"]);
    let running = start(&world);
    running.world.until(|w| w.settled.len() == 2).await;
    world.with(|w| {
        assert_eq!(w.sent, [vec!["a", "b", "c"], vec!["x", "d", "e"]]);
        assert_eq!(w.settled, [SegmentId(1), SegmentId(2)]);
    });
    let stats = running.stop().await;
    let up = stats.upstream();
    assert_eq!((up.buckets.get(), up.readings.get(), up.failures.get()), (6, 12, 0));
    assert!(up.bytes.get() > 1000 && up.last_delivery_ms.get() > 0);
    assert_eq!(up.condition.get().up, Some(true));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_stored_is_sent_again_after_a_pause() {
    let world = Shared::default();
    world.segment(1, &["a", "b", "c"]);
    world.with(|w| {
        w.reports.push_back(trouble(TroubleKind::Transient, vec![Fate::Unsent, Fate::Delivered, Fate::Unsent]));
    });
    let running = start(&world);
    let started = Instant::now();
    world.until(|w| !w.settled.is_empty()).await;
    assert!(started.elapsed() >= Duration::from_millis(100), "full jitter, never zero");
    assert!(started.elapsed() < Duration::from_secs(2));
    world.with(|w| assert_eq!(w.sent, [vec!["a", "b", "c"], vec!["a", "c"]]));
    let stats = running.stop().await;
    assert_eq!((stats.upstream().buckets.get(), stats.upstream().failures.get()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_never_reached_is_a_condition_and_pauses_grow() {
    let world = Shared::default();
    world.segment(1, &["a"]);
    world.with(|w| {
        w.reports.extend((0..1000).map(|_| trouble(TroubleKind::Transient, vec![Fate::Unsent])));
    });
    let running = start(&world);
    tokio::time::sleep(Duration::from_secs(12 * 3600)).await;
    let tries = world.with(|w| w.sent.len());
    assert!((200..=350).contains(&tries), "{tries} tries in twelve hours: about one in 2.5 minutes");
    let state = running.stats.upstream().condition.get();
    assert_eq!((state.up, state.detail.as_str()), (Some(false), "no"));
    assert_eq!(world.with(|w| w.settled.len()), 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_line_is_probed_rarely_and_recovers() {
    let world = Shared::default();
    world.segment(1, &["a"]);
    world.with(|w| w.reports.extend((0..6).map(|_| trouble(TroubleKind::Stopped, vec![Fate::Unsent]))));
    let running = start(&world);
    let started = Instant::now();
    world.until(|w| !w.settled.is_empty()).await;
    let minutes = started.elapsed().as_secs() / 60;
    assert!((15..=47).contains(&minutes), "three short pauses, then three of 5 to 15 minutes: {minutes}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_bucket_becomes_a_dead_letter_in_the_same_commit() {
    let world = Shared::default();
    world.segment(1, &["a", "b"]);
    let fates = vec![Fate::Refused("121: no".into()), Fate::Delivered];
    world.with(|w| w.reports.push_back(Report { fates, ..Report::default() }));
    let running = start(&world);
    world.until(|w| !w.settled.is_empty()).await;
    world.with(|w| {
        let letter = &w.letters[0];
        assert_eq!(w.letters.len(), 1);
        assert!(letter.reason.starts_with("121: no; first sent 2026-11-30T13:00:00"), "{}", letter.reason);
        assert_eq!(letter.place, "s/a|20261130T130000.000Z|600|0");
        let document = mongodb::bson::RawDocument::from_bytes(&letter.payload).unwrap();
        assert_eq!(document.get_str("_id").unwrap(), letter.place);
    });
    assert_eq!(running.stop().await.upstream().refused.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_document_beyond_the_bound_is_refused_and_stops_nothing() {
    let world = Shared::default();
    let samples: Vec<(i64, f64)> = (0..60_000).map(|i| (i, 1.0)).collect();
    let mut huge = samples::bucket("huge", 1_796_043_600, 0, &samples);
    let text = Value::text(&"x".repeat(200)).unwrap();
    huge.samples.iter_mut().for_each(|sample| sample.fields[0].1 = text.clone());
    world.with(|w| w.segments.insert(SegmentId(1), vec![PackedBucket::pack(&huge)]));
    world.segment(2, &["b"]);
    let running = start(&world);
    world.until(|w| w.settled.len() == 2).await;
    world.with(|w| {
        assert_eq!(w.sent, [vec!["b"]]);
        assert!(w.letters[0].payload.len() > MAX_DOCUMENT_BYTES && w.letters[0].reason.contains("max_samples"));
    });
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn held_documents_settle_nothing_before_their_file_is_finished() {
    let world = Shared::default();
    world.with(|w| w.hold = true);
    world.segment(1, &["a", "b"]);
    let running = start(&world);
    world.until(|w| w.held == 2).await;
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert_eq!((world.with(|w| w.settled.len()), running.stats.upstream().buckets.get()), (0, 0));
    world.until(|w| w.settled.len() == 1).await;
    world.segment(2, &["c"]);
    world.until(|w| w.held == 1).await;
    let stats = running.stop().await;
    assert_eq!(world.with(|w| w.settled.clone()), [SegmentId(1), SegmentId(2)], "stopping finishes the file");
    assert_eq!(stats.upstream().buckets.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_file_held_is_drawn_again() {
    let world = Shared::default();
    world.with(|w| w.hold = true);
    world.segment(1, &["a", "b"]);
    let running = start(&world);
    world.until(|w| w.held == 2).await;
    world.with(|w| {
        w.hold = false;
        w.held = 0;
        let lost = trouble(TroubleKind::Transient, vec![Fate::Unsent]);
        w.reports.push_back(Report { dropped: true, ..lost });
    });
    world.segment(2, &["c"]);
    world.until(|w| w.settled.len() == 2).await;
    world.with(|w| assert_eq!(w.sent, [vec!["a", "b"], vec!["c"], vec!["a", "b", "c"]]));
    assert_eq!(running.stop().await.upstream().buckets.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn settling_is_repeated_until_it_is_on_disk() {
    let world = Shared::default();
    world.with(|w| w.settle_fails = 3);
    world.segment(1, &["a"]);
    let running = start(&world);
    world.until(|w| !w.settled.is_empty()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_the_delivery_in_flight_but_not_for_ever() {
    let world = Shared::default();
    world.segment(1, &["a"]);
    let running = start(&world);
    world.until(|w| w.sent.len() == 1).await;
    running.stop().await;
    assert_eq!(world.with(|w| (w.settled.len(), w.closed)), (1, true), "it ended in time and is settled");

    let world = Shared::default();
    world.with(|w| w.hang = true);
    world.segment(1, &["a"]);
    let running = start(&world);
    world.until(|w| w.sent.len() == 1).await;
    let started = Instant::now();
    running.stop().await;
    assert!(started.elapsed() <= Duration::from_secs(6), "{:?}", started.elapsed());
    assert_eq!(world.with(|w| w.settled.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn stopping_cuts_a_pause_short() {
    let world = Shared::default();
    world.segment(1, &["a"]);
    world.with(|w| w.reports.push_back(trouble(TroubleKind::Stopped, vec![Fate::Unsent])));
    let running = start(&world);
    world.until(|w| w.sent.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let started = Instant::now();
    running.stop().await;
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn when_the_store_ends_the_rest_is_delivered_first() {
    let world = Shared::default();
    world.segment(1, &["a", "b", "c", "d", "e"]);
    world.with(|w| w.ended = true);
    let running = start(&world);
    running.task.await.unwrap().unwrap();
    world.with(|w| assert_eq!((w.settled.len(), w.sent.len(), w.closed), (1, 2, true)));
}
