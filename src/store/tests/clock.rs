//! The store's task on a machine whose clock is not set: with paused time, through both ends.

use super::*;
use crate::clock::Script;

/// A store whose clock is governed as the site file would have it, and the machine's script.
async fn on_a_machine(folder: &Path, wall: Timestamp) -> (Site, Script, Clock) {
    let script = Script::boot_at("a", wall);
    let clock = Clock::scripted(&script, crate::clock::Config::default());
    let arrivals = clock.for_arrivals(Some(SourceName::new("gps").unwrap()));
    (site(folder, clock).await, script, arrivals)
}

fn stamped(sensor: &str, at: Timestamp, value: i64) -> Delivery {
    let fields = [(FieldName::new("temp").unwrap(), Value::I64(value))].into_iter().collect();
    let reading = Reading::new(SensorName::new(sensor).unwrap(), at, fields).unwrap();
    Delivery { stamped: true, ..Delivery::of(vec![reading]) }
}

async fn seconds(n: u64) {
    tokio::time::sleep(Duration::from_secs(n)).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_released_by_itself_when_the_clock_is_trusted_though_nothing_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let (mut site, script, arrivals) = on_a_machine(folder.path(), Timestamp::EPOCH).await;
    for value in 0..3 {
        site.commit(stamped("s", arrivals.now(), value)).await;
        seconds(99).await;
    }
    let stats = site.stats.store();
    assert_eq!((stats.held.get(), stats.backlog_buckets.get()), (3, 0));
    let all = Question { buckets: 100, samples: 1000, ..Question::default() };
    assert!(site.outlet.look(all).await.growing.is_empty(), "their times are not known");
    let told = stats.clock_condition.get();
    assert_eq!(told.up, Some(false));
    assert!(told.detail.contains("not synchronised"), "{}", told.detail);
    // Each commit took the second that it waits for others.
    script.synchronise(Timestamp::clamped(START + 300_000));
    let (buckets, _) = site.buckets(3).await;
    assert_eq!(buckets.iter().flat_map(values).collect::<Vec<_>>(), [0, 100, 200].map(|s| (s, Value::I64(s / 100))));
    assert!(buckets.iter().all(|bucket| bucket.clock == crate::model::ClockState::Restamped));
    let stats = site.stats.store();
    assert_eq!((stats.held.get(), stats.restamped.get(), stats.clock_condition.get().up), (0, 3, Some(true)));
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_waited_long_enough_is_released_though_nothing_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let (mut site, _, arrivals) = on_a_machine(folder.path(), Timestamp::clamped(START)).await;
    site.commit(stamped("s", arrivals.now(), 7)).await;
    let before = site.clock.now();
    let (buckets, _) = site.buckets_within(1, Duration::from_secs(8 * 3600)).await;
    assert_eq!(values(&buckets[0]), [(0, Value::I64(7))]);
    assert_eq!(buckets[0].clock, crate::model::ClockState::Unsynced);
    assert!((6..7).contains(&(site.clock.now().since(before).as_secs() / 3600)));
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_trusted_clock_that_is_set_back_does_not_hold_the_writer_up() {
    let folder = tempfile::tempdir().unwrap();
    let (mut site, script, arrivals) = on_a_machine(folder.path(), Timestamp::clamped(START)).await;
    script.synchronise(Timestamp::clamped(START));
    seconds(2).await;
    site.commit(stamped("s", arrivals.now(), 1)).await;
    script.step(-3_600_000);
    let started = tokio::time::Instant::now();
    site.commit(stamped("s", arrivals.now(), 2)).await;
    let (buckets, _) = site.buckets(2).await;
    assert!(started.elapsed() < Duration::from_secs(120), "neither waits for the hour to come again");
    assert_eq!(buckets.iter().map(|bucket| bucket.samples.len()).collect::<Vec<_>>(), [1, 1]);
    site.stop().await;
}
