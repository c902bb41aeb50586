//! Reports, gaps and orders.

use super::*;

/// A running forwarder with these orders.
fn ordered(world: &Shared, orders: Orders) -> Running {
    world.with(|w| w.orders = Some(orders));
    start(world)
}

#[tokio::test(start_paused = true)]
async fn a_gateway_reports_at_the_first_contact_and_then_once_in_its_time() {
    let world = Shared::default();
    let running = ordered(&world, Orders::default());
    world.segment(1, &["a", "b"]);
    world.until(|w| !w.settled.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let reports = world.with(|w| w.vitals.clone());
    assert!((6..=8).contains(&reports.len()), "{} in an hour", reports.len());
    assert_eq!((reports[0].delivered, reports[1].delivered, &*reports[1].store), ((0, 0), (2, 4), "0badcafe"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_kept_and_ends_when_it_is_lifted() {
    let world = Shared::default();
    let start = Timestamp::EPOCH.plus(Duration::from_secs(1_796_043_600));
    let until = Some(start.plus(Duration::from_secs(7200)));
    let running = ordered(&world, Orders { pause_until: until, ..Orders::default() });
    world.until(|w| w.vitals.len() == 1).await;
    world.segment(1, &["a"]);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.with(|w| w.sent.len()), 0);
    let state = running.stats.upstream().condition.get();
    assert!(state.up == Some(false) && state.detail.contains("_control"), "{state:?}");
    world.with(|w| w.orders = Some(Orders::default()));
    let lifted = Instant::now();
    world.until(|w| !w.settled.is_empty()).await;
    assert!(lifted.elapsed() < Duration::from_secs(700), "it is asked after as often as it reports");
    assert_eq!(running.stats.upstream().condition.get().up, Some(true));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_ordered_rate_is_kept() {
    let world = Shared::default();
    let running = ordered(&world, Orders { max_rate: Some(100), ..Orders::default() });
    world.until(|w| w.vitals.len() == 1).await;
    let started = Instant::now();
    (1..=10).for_each(|id| world.segment(id, &["a", "b", "c"]));
    world.until(|w| w.settled.len() == 10).await;
    let (bytes, seconds) = (running.stats.upstream().bytes.get(), started.elapsed().as_secs_f64());
    let rate = bytes as f64 / seconds;
    assert!(rate < 115.0 && rate > 50.0, "{bytes} bytes in {seconds} s");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_is_told_once() {
    let world = Shared::default();
    let lost = |id| Lost {
        id,
        at: Timestamp::EPOCH,
        sensor: Some("a".into()),
        first: Timestamp::EPOCH,
        last: Timestamp::EPOCH,
        samples: 3,
        reason: "evicted".into(),
    };
    world.with(|w| w.lost = (1..=150).map(lost).collect());
    let running = ordered(&world, Orders::default());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    world.with(|w| w.lost.push(lost(151)));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let ids: Vec<i64> = world.with(|w| w.gaps.iter().map(|gap| gap.id).collect());
    assert_eq!(ids, (1..=151).collect::<Vec<_>>());
    running.stop().await;
}
