//! Open buckets: when they are sent, and when they had better not be.

use super::*;
use crate::upstream::{LiveReport, Shown};

const EVERY: Duration = Duration::from_secs(5);
const CALM: Duration = Duration::from_secs(60);

fn live() -> (Shared, Running) {
    let world = Shared::default();
    world.with(|w| w.live_every = Some(EVERY));
    let running = start(&world);
    (world, running)
}

/// What was sent of each bucket: sensor, samples then, `w` if as a whole.
fn shown(world: &Shared) -> Vec<String> {
    let word = |update: &crate::upstream::LiveUpdate| {
        let sensor = update.id.split(['/', '|']).nth(1).unwrap();
        format!("{sensor}:{}{}", update.then.samples, if update.whole { "w" } else { "" })
    };
    world.with(|w| w.shown.iter().flatten().map(word).collect())
}

fn state(running: &Running) -> (Option<bool>, String) {
    let state = running.stats.upstream().live.get();
    (state.up, state.detail)
}

fn fates(fates: &[Shown]) -> LiveReport {
    LiveReport { fates: fates.to_vec(), ..LiveReport::default() }
}

#[tokio::test(start_paused = true)]
async fn open_buckets_are_brought_up_to_date_once_in_their_time() {
    let (world, running) = live();
    world.open(1, 2);
    world.until(|w| w.shown.len() == 1).await;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(shown(&world), ["s1:2w"], "nothing new, nothing sent");
    world.open(1, 5);
    world.open(2, 1);
    world.until(|w| w.shown.len() == 2).await;
    for n in 6..=20 {
        world.open(1, n);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.until(|w| w.shown.last().unwrap()[0].then.samples == 20).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sent = shown(&world);
    assert_eq!(sent[..3], ["s1:2w", "s1:5", "s2:1w"]);
    assert!(sent.len() <= 7, "one update for five readings: {sent:?}");
    let looks = world.with(|w| w.looks.len()) as u64;
    assert!(looks <= began.elapsed().as_secs() / 5 + 2, "{looks} looks in {:?}", began.elapsed());
    assert_eq!(state(&running), (Some(true), "open buckets are sent every 5s".to_owned()));
    let stats = running.stop().await;
    assert_eq!((stats.upstream().live_readings.get(), stats.upstream().failures.get()), (21, 0));
}

#[tokio::test(start_paused = true)]
async fn other_modes_never_look() {
    let world = Shared::default();
    let running = start(&world);
    world.open(1, 2);
    world.segment(1, &["a"]);
    world.until(|w| w.settled.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((world.with(|w| w.looks.len()), state(&running).0), (0, None));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn trouble_switches_it_off_and_calm_on_again() {
    for kind in [TroubleKind::Overload, TroubleKind::Transient] {
        for in_delivery in [true, false] {
            let (world, running) = live();
            world.open(1, 2);
            world.until(|w| w.shown.len() == 1).await;
            if in_delivery {
                world.with(|w| w.reports.push_back(trouble(kind, vec![Fate::Unsent])));
                world.segment(1, &["a"]);
            } else {
                let why = trouble(kind, vec![]).trouble;
                let lost = LiveReport { fates: vec![Shown::Unknown], trouble: why, off: None };
                world.with(|w| w.live_reports.push_back(lost));
                world.open(1, 3);
            }
            while running.stats.upstream().failures.get() == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let (began, before) = (Instant::now(), world.with(|w| w.shown.len()));
            world.open(1, 9);
            while state(&running).0 != Some(false) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let told = state(&running).1;
            assert!(told.contains("not sent now: no (until nothing goes wrong for 1m)"), "{told}");
            world.until(|w| w.shown.len() > before).await;
            assert!(began.elapsed() >= CALM - Duration::from_millis(100), "{:?}", began.elapsed());
            assert_eq!(shown(&world).last().unwrap(), "s1:9w", "nobody knows what is there");
            assert_eq!(state(&running).0, Some(true));
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_goes_first() {
    let world = Shared::default();
    let config = crate::upstream::Config { spread: Duration::ZERO, ..Default::default() };
    world.with(|w| w.live_every = Some(EVERY));
    world.with(|w| w.manners = Some(Manners::new(&config, &SiteName::new("s").unwrap())));
    (1..=30).for_each(|id| world.segment(id, &["a", "b", "c"]));
    world.open(1, 2);
    let running = start(&world);
    world.until(|w| !w.sent.is_empty()).await;
    let told = state(&running).1;
    assert!(told.contains("what waited is sent first"), "{told}");
    world.until(|w| w.shown.len() == 1).await;
    assert_eq!(world.with(|w| w.settled.len()), 30);
    assert_eq!(state(&running).0, Some(true));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_owners_pause_is_kept() {
    let world = Shared::default();
    let start_at = Timestamp::EPOCH.plus(Duration::from_secs(1_796_043_600));
    let until = Some(start_at.plus(Duration::from_secs(3600)));
    world.with(|w| w.live_every = Some(EVERY));
    world.with(|w| w.orders = Some(Orders { pause_until: until, ..Orders::default() }));
    let running = start(&world);
    world.until(|w| w.vitals.len() == 1).await;
    world.open(1, 2);
    tokio::time::sleep(Duration::from_secs(3000)).await;
    let (up, told) = state(&running);
    assert!(up == Some(false) && told.contains("_control"), "{told}");
    assert_eq!(world.with(|w| w.shown.len()), 0);
    world.until(|w| w.shown.len() == 1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_concerns_open_buckets_only_does_not_stop_delivery() {
    let (world, running) = live();
    let off = Some((Duration::from_secs(300), "not authorized".to_owned()));
    world.with(|w| w.live_reports.push_back(LiveReport { fates: vec![Shown::Unknown], trouble: None, off }));
    world.open(1, 2);
    world.until(|w| w.shown.len() == 1).await;
    let began = Instant::now();
    world.segment(1, &["a"]);
    world.until(|w| w.settled.len() == 1).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(state(&running).1.contains("not authorized"), "{:?}", state(&running));
    world.until(|w| w.shown.len() == 2).await;
    assert!(began.elapsed() >= Duration::from_secs(299));
    assert_eq!(running.stop().await.upstream().failures.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_whose_id_is_taken_is_left_alone() {
    let (world, running) = live();
    world.open(1, 1);
    world.open(2, 1);
    world.with(|w| w.live_reports.extend((0..3).map(|_| fates(&[Shown::Taken, Shown::Done]))));
    for n in 1..=6 {
        world.open(1, n);
        world.open(2, n);
        let before = world.with(|w| w.shown.len());
        world.until(|w| w.shown.len() > before).await;
    }
    let sent = shown(&world);
    let of = |sensor: &str| sent.iter().filter(|word| word.starts_with(sensor)).cloned().collect::<Vec<_>>();
    assert_eq!(of("s1"), ["s1:1w", "s1:2", "s1:3w"], "as a whole, added to, as a whole");
    assert_eq!(of("s2").len(), 6);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_validator_that_refuses_open_buckets_is_told() {
    let (world, running) = live();
    world.with(|w| w.live_reports.push_back(fates(&[Shown::Refused("121: no hash".into())])));
    world.open(1, 2);
    world.until(|w| w.shown.len() == 1).await;
    let began = Instant::now();
    world.until(|w| w.shown.len() == 2).await;
    assert!(began.elapsed() >= Duration::from_secs(299));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_document_that_was_deleted_is_made_anew() {
    let (world, running) = live();
    world.with(|w| w.live_reports.extend([fates(&[Shown::Made]), fates(&[Shown::Made]), fates(&[Shown::Done])]));
    for n in 1..=3 {
        world.open(1, n);
        world.until(|w| w.shown.len() == n as usize).await;
    }
    assert_eq!(shown(&world), ["s1:1w", "s1:2", "s1:3w"], "what was added made a document of its own");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_open_buckets_take_turns_with_complete_ones() {
    let (world, running) = live();
    world.until(|w| !w.looks.is_empty()).await;
    (0..10).for_each(|sensor| world.open(sensor, 2));
    (1..=4).for_each(|id| world.segment(id, &["a", "b", "c"]));
    world.until(|w| w.settled.len() == 4 && w.shown.len() == 4).await;
    let all: std::collections::BTreeSet<String> = shown(&world).into_iter().collect();
    assert_eq!((all.len(), world.with(|w| w.shown.iter().map(Vec::len).max())), (10, Some(3)));
    // A bucket that is sealed is forgotten.
    world.with(|w| w.open.clear());
    world.until(|w| w.looks.last().is_some_and(|look| look.known.len() == 10)).await;
    world.until(|w| w.looks.last().is_some_and(|look| look.known.is_empty())).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sensor_that_reads_once_a_second_costs_one_update_in_five_readings() {
    let (world, running) = live();
    for n in 1..=600 {
        world.open(1, n);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let (updates, bytes) =
        world.with(|w| w.shown.iter().flatten().fold((0, 0), |(n, bytes), update| (n + 1, bytes + update.bytes())));
    assert!((119..=122).contains(&updates), "docs/UPSTREAM.md says 120: {updates}");
    assert!(bytes / 600 < 150, "{} bytes for each reading", bytes / 600);
    assert_eq!(running.stop().await.upstream().live_readings.get(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_line_is_probed_as_rarely_as_without() {
    let (world, running) = live();
    world.open(1, 2);
    world.until(|w| w.shown.len() == 1).await;
    world.with(|w| w.reports.extend((0..1000).map(|_| trouble(TroubleKind::Stopped, vec![Fate::Unsent]))));
    world.segment(1, &["a"]);
    for n in 3..3 + 8 * 360 {
        world.open(1, n);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let (tries, shown) = world.with(|w| (w.sent.len(), w.shown.len()));
    assert!((35..=100).contains(&tries), "one in 5 to 15 minutes for eight hours: {tries}");
    assert_eq!(shown, 1, "it is for complete buckets to find out that the trouble is over");
    assert_eq!(running.stats.upstream().condition.get().up, Some(false));
    running.stop().await;
}
