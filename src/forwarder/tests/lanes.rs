//! Draining after an outage: new buckets first, the backlog with its share, all of it in order and none of it lost.

use super::*;
use crate::upstream::Config;

fn share(backlog_share: u32) -> Option<Manners> {
    let config = Config { backlog_share, spread: Duration::ZERO, ..Config::default() };
    Some(Manners::new(&config, &SiteName::new("s").unwrap()))
}

/// One segment that fills one command.
fn command(world: &Shared, id: u64, name: &str) {
    let names = [0, 1, 2].map(|i| format!("{name}{id}-{i}"));
    world.segment(id, &names.each_ref().map(String::as_str));
}

/// What was sent, one word for each command.
fn commands(world: &Shared) -> Vec<String> {
    world.with(|w| w.sent.iter().map(|sensors| sensors[0].split('-').next().unwrap().to_owned()).collect())
}

#[tokio::test(start_paused = true)]
async fn new_buckets_go_first_and_the_backlog_has_its_share() {
    for backlog_share in [1, 4] {
        let world = Shared::default();
        world.with(|w| w.manners = share(backlog_share));
        (1..=40).for_each(|id| command(&world, id, "old"));
        let running = start(&world);
        world.until(|w| w.sent.len() >= 5).await;
        (101..=104).for_each(|id| command(&world, id, "new"));
        world.until(|w| w.settled.len() == 44).await;
        let sent = commands(&world);
        let places: Vec<usize> = (0..sent.len()).filter(|i| sent[*i].starts_with("new")).collect();
        assert!(places[0] <= 6, "at once: {sent:?}");
        let step = backlog_share as usize + 1;
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] == step), "{backlog_share}: {sent:?}");
        let of = |lane: &str| sent.iter().filter(|word| word.starts_with(lane)).cloned().collect::<Vec<_>>();
        assert_eq!(of("old"), (1..=40).map(|id| format!("old{id}")).collect::<Vec<_>>(), "in order");
        assert_eq!(of("new"), (101..=104).map(|id| format!("new{id}")).collect::<Vec<_>>(), "in order");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_through_trouble_is_put_behind_too() {
    let world = Shared::default();
    world.with(|w| w.manners = share(4));
    command(&world, 1, "first");
    let running = start(&world);
    world.until(|w| w.settled.len() == 1).await;
    world.with(|w| w.reports.push_back(trouble(TroubleKind::Stopped, vec![Fate::Unsent; 3])));
    command(&world, 2, "stuck");
    world.until(|w| w.sent.len() == 2).await;
    (3..=20).for_each(|id| command(&world, id, "old"));
    world.until(|w| w.sent.len() == 6).await;
    command(&world, 21, "new");
    world.until(|w| w.settled.len() == 21).await;
    let sent = commands(&world);
    assert_eq!(sent[..4], ["first1", "stuck2", "stuck2", "old3"], "what was drawn already goes on");
    assert!(sent.iter().position(|word| word == "new21").unwrap() <= 9, "{sent:?}");
    assert_eq!(sent.last().unwrap(), "old20");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_drawn_goes_before_what_is_put_behind() {
    let world = Shared::default();
    world.with(|w| w.manners = share(4));
    command(&world, 10, "b");
    let running = start(&world);
    world.until(|w| w.settled.len() == 1).await;
    world.with(|w| w.reports.push_back(trouble(TroubleKind::Transient, vec![Fate::Unsent; 3])));
    // More than a command in each, so that some of the last one drawn is left.
    for id in 11..=30 {
        let names = [0, 1, 2, 3, 4].map(|i| format!("b{id}-{i}"));
        world.segment(id, &names.each_ref().map(String::as_str));
    }
    world.until(|w| w.settled.len() == 21).await;
    let mut first_sent: Vec<String> = Vec::new();
    for name in world.with(|w| w.sent.concat()) {
        if !first_sent.contains(&name) {
            first_sent.push(name);
        }
    }
    assert_eq!(first_sent.len(), 103);
    assert!(first_sent.is_sorted(), "{first_sent:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn how_long_draining_takes_is_told_while_it_lasts() {
    let world = Shared::default();
    world.with(|w| w.manners = share(4));
    (1..=2000).for_each(|id| command(&world, id, "old"));
    let running = start(&world);
    let left = |running: &Running| running.stats.upstream().drained_in_s.get();
    running.stats.store().backlog_buckets.set(6000);
    world.until(|w| w.settled.len() == 1000).await;
    running.stats.store().backlog_buckets.set(3000);
    world.until(|w| w.settled.len() == 1002).await;
    assert!((4..=8).contains(&left(&running)), "half of it took some five seconds: {}", left(&running));
    world.until(|w| w.settled.len() == 2000).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    command(&world, 2001, "new");
    world.until(|w| w.settled.len() == 2001).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(left(&running), -1);
    running.stop().await;
}
