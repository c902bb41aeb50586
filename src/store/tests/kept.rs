//! What stays after its delivery: raw buckets and rollups, for how long, and what goes first.

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn keep(raw: Duration, rollups: Duration) -> impl Fn(&mut Config) {
    move |config| (config.keep_raw, config.keep_rollups) = (raw, rollups)
}

fn kept(folder: &Path) -> (i64, i64) {
    let db = database::open_reader(&folder.join("t.db")).unwrap();
    let count = |sql: &str| -> i64 { db.query_row(sql, [], |row| row.get(0)).unwrap() };
    (count("SELECT count(*) FROM kept_segment"), count("SELECT count(*) FROM kept_rollup"))
}

/// Counts of the rollups that the view shows of sensor `s`.
fn counts(folder: &Path) -> Vec<u32> {
    let mut view = View::open(&folder.join("t.db")).unwrap();
    let found = view.summaries(&SensorName::new("s").unwrap(), Timestamp::EPOCH, Timestamp::LAST).unwrap();
    found.iter().map(|found| view.summary(found).unwrap().unwrap().count).collect()
}

/// Pushes one reading a second for two minutes and delivers the buckets; sent from memory or from rows.
async fn deliver(site: &mut Site, lazy: bool, from: i64) {
    site.outlet.upstream_takes(lazy);
    let readings = (from..from + 120).map(|i| reading("s", i, Value::I64(i))).collect();
    site.commit(Delivery::of(readings)).await;
    let (_, segments) = site.buckets(2).await;
    site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rollups_stay_after_delivery_and_samples_only_if_wanted() {
    for lazy in [true, false] {
        for (raw, rollups, expected) in
            [(DAY, DAY, (1, 1)), (Duration::ZERO, DAY, (0, 1)), (Duration::ZERO, Duration::ZERO, (0, 0))]
        {
            let folder = tempfile::tempdir().unwrap();
            let mut site = site_with(folder.path(), clock(), keep(raw, rollups), 1000, 10).await;
            deliver(&mut site, lazy, 0).await;
            site.stop().await;
            let (segments, rows) = kept(folder.path());
            assert_eq!((segments.min(1), rows), expected, "lazy: {lazy}");
            assert_eq!(counts(folder.path()).len(), if expected == (0, 0) { 0 } else { 2 });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_costs_rollups_of_the_last_minutes_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let mut site = site_with(folder.path(), time.clone(), keep(Duration::ZERO, DAY), 1000, 10).await;
    deliver(&mut site, false, 0).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    site.commit(Delivery::of(vec![reading("t", 800, Value::I64(1))])).await;
    let (_, segments) = site.buckets(1).await;
    site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
    assert_eq!(kept(folder.path()).1, 1, "after ten minutes they are written with the next commit");
    deliver(&mut site, false, 900).await;
    site.kill().await;
    assert_eq!(counts(folder.path()), [60, 60]);
    let site = site_with(folder.path(), time, keep(Duration::ZERO, DAY), 1000, 10).await;
    assert_eq!(site.stats.store().backlog_buckets.get(), 0);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_goes_when_its_time_is_over_and_when_the_site_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let mut site = site_with(folder.path(), time.clone(), keep(DAY, 2 * DAY), 1000, 10).await;
    deliver(&mut site, false, 0).await;
    site.stop().await;
    assert_eq!(kept(folder.path()), (2, 1));
    tokio::time::sleep(DAY).await;
    let site = site_with(folder.path(), time.clone(), keep(DAY, 2 * DAY), 1000, 10).await;
    site.commit(Delivery::of(vec![reading("t", 86_700, Value::I64(1))])).await;
    assert_eq!(kept(folder.path()), (0, 1));
    site.stop().await;
    let site = site_with(folder.path(), time, keep(Duration::ZERO, Duration::ZERO), 1000, 10).await;
    site.commit(Delivery::of(vec![reading("t", 86_701, Value::I64(1))])).await;
    assert_eq!(kept(folder.path()), (0, 0));
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kept_data_goes_before_anything_that_is_not_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let small = |config: &mut Config| {
        (config.max_bytes, config.keep_raw, config.when_full) = (ByteSize::mib(5), 100 * DAY, WhenFull::Evict);
    };
    let mut site = site_with(folder.path(), clock(), small, 500, 100).await;
    for n in 0..450 {
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
        let (_, segments) = site.buckets(1).await;
        site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
    }
    let (full, _) = kept(folder.path());
    assert!((100..450).contains(&full), "{full} of 450 are kept in a file that is not full");
    for n in 450..900 {
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
    }
    let evicted = site.stats.store().evicted.get();
    assert_eq!(kept(folder.path()).0, 0);
    let (buckets, _) = site.buckets(450 - evicted as usize).await;
    assert_eq!(buckets.len(), 450 - evicted as usize);
    site.stop().await;
}
