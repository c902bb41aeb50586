//! The forwarder's manners: first contact, fleets, uploads at times of one's own, pauses.

use super::*;
use crate::upstream::Config;

#[tokio::test(start_paused = true)]
async fn whether_the_database_can_be_reached_is_known_before_there_is_anything_to_send() {
    let world = Shared::default();
    world.with(|w| w.greetings.extend((0..3).map(|_| trouble(TroubleKind::Transient, vec![]))));
    let running = start(&world);
    world.until(|w| w.greeted == 1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(running.stats.upstream().condition.get().up, Some(false));
    world.until(|w| w.greeted == 4).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(running.stats.upstream().condition.get().up, Some(true));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.with(|w| (w.greeted, w.sent.len())), (4, 0), "once it was reached it is left alone");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_fleet_is_given_time_to_connect() {
    let config = Config { fleet_size: Some(1000), ..Config::default() };
    let manners = Manners::new(&config, &SiteName::new("greenhouse-7").unwrap());
    let first = manners.first_connection();
    assert!(first > Duration::from_secs(10) && first < Duration::from_secs(600), "{first:?}");
    let world = Shared::default();
    world.with(|w| w.manners = Some(manners));
    let lost = Trouble { kind: TroubleKind::Transient, text: "no".into(), wait: None, reconnects: true };
    world.with(|w| w.greetings.push_back(Report { trouble: Some(lost), ..Report::default() }));
    let (started, running) = (Instant::now(), start(&world));
    world.until(|w| w.greeted == 1).await;
    assert!(started.elapsed() >= first);
    world.until(|w| w.greeted == 2).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn uploads_come_at_their_times_and_take_all_that_waits() {
    let config = Config { upload_every: Some(Duration::from_secs(3600)), ..Config::default() };
    let world = Shared::default();
    world.with(|w| w.manners = Some(Manners::new(&config, &SiteName::new("greenhouse-7").unwrap())));
    let running = start(&world);
    let mut times = Vec::new();
    for id in 1..=24 {
        world.segment(id, &["a", "b"]);
        tokio::time::sleep(Duration::from_secs(600)).await;
        times.push(world.with(|w| w.settled.len()));
    }
    times.dedup();
    assert!(times.len() <= 6 && times.last() >= Some(&18), "four hours, four uploads: {times:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pauses_stay_long_until_all_was_well_for_a_while() {
    let world = Shared::default();
    let no = || trouble(TroubleKind::Transient, vec![Fate::Unsent]);
    let yes = || Report { fates: vec![Fate::Delivered], ..Report::default() };
    world.with(|w| w.reports.extend((0..40).flat_map(|_| [no(), yes()])));
    let (started, running) = (Instant::now(), start(&world));
    for id in 1..=40 {
        world.segment(id, &["a"]);
        world.until(|w| w.settled.len() as u64 == id).await;
    }
    assert!(
        started.elapsed() > Duration::from_secs(1200),
        "a database that flaps is not hammered: {:?}",
        started.elapsed()
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_store_hears_whether_the_upstream_takes_what_it_is_sent() {
    let world = Shared::default();
    world.segment(1, &["a"]);
    world.with(|w| w.reports.push_back(trouble(TroubleKind::Transient, vec![Fate::Unsent])));
    let running = start(&world);
    world.until(|w| w.settled.len() == 1).await;
    world.with(|w| assert!(w.takes.ends_with(&[false, true]), "{:?}", w.takes));
    running.stop().await;
}
