//! The forwarder in virtual time, between a backlog and an upstream that are plain lists.

mod ahead;
mod chaos;
mod lanes;
mod live;
mod manners;
mod reports;
mod world;

use std::collections::HashMap;

use super::*;
use crate::model::Value;
use crate::model::samples;
use crate::model::{SiteName, Timestamp};
use crate::store::{Lost, PackedBucket, SegmentId};
use crate::upstream::{Collections, Fate, MAX_DOCUMENT_BYTES, Manners, Orders, Shape};
use world::{FakeBacklog, FakeWay, Shared};

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
        form: Default::default(),
        meta: HashMap::new(),
    }
}

fn start(world: &Shared) -> Running {
    let (stats, shutdown) = (Stats::default(), CancellationToken::new());
    let forwarder = Forwarder::new(
        FakeBacklog::new(world),
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
async fn what_is_done_is_settled_while_the_next_command_is_under_way() {
    for two_lanes in [false, true] {
        let world = Shared::default();
        let config = crate::upstream::Config { spread: Duration::ZERO, ..Default::default() };
        world.with(|w| w.manners = two_lanes.then(|| Manners::new(&config, &context().site)));
        for id in 1..=10 {
            world.segment(id, &["a", "b", "c"]);
        }
        let running = start(&world);
        world.until(|w| w.settled.len() == 10).await;
        // The last one has no next, and with two lanes the first is what the others are put behind of.
        world.with(|w| assert!(w.settled_meanwhile >= 8, "{} of 10, two lanes: {two_lanes}", w.settled_meanwhile));
        running.stop().await;
    }
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
