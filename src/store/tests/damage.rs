//! Damaged files: the store goes on, and brings back what can be read.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use rusqlite::Connection;

use super::*;

/// Fills a store with sealed buckets and one that is open, and kills it. How many samples each sensor has, sealed.
async fn filled(folder: &Path, time: &Clock) -> usize {
    let mut site = site(folder, time.clone()).await;
    for n in 0..60 {
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
    }
    let (buckets, _) = site.buckets(30).await;
    site.commit(Delivery::of(vec![reading("open", 100_000, Value::I64(1))])).await;
    site.kill().await;
    buckets.len()
}

/// Overwrites pages as a dying card does.
fn overwrite(folder: &Path, pages: impl Iterator<Item = u64>) {
    let file = OpenOptions::new().write(true).open(folder.join("t.db")).unwrap();
    for page in pages {
        file.write_all_at(&[0xA5; 1024], page * 1024).unwrap();
    }
}

/// Copies the log into the file, so that damage to the file is seen.
fn checkpoint(folder: &Path) -> u64 {
    let db = Connection::open(folder.join("t.db")).unwrap();
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_garbage_is_set_aside_and_a_fresh_one_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    filled(folder.path(), &time).await;
    fs::write(folder.path().join("t.db"), vec![0x5A; 100_000]).unwrap();
    fs::remove_file(folder.path().join("t.db-wal")).unwrap();
    let mut site = site(folder.path(), time).await;
    site.commit(Delivery::of(vec![reading("s", 10, Value::I64(2))])).await;
    let (buckets, _) = site.buckets(1).await;
    assert_eq!(values(&buckets[0]), [(10, Value::I64(2))]);
    let sets: Vec<_> = fs::read_dir(folder.path().join("quarantine")).unwrap().collect();
    assert_eq!(sets.len(), 1);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_strangers_file_is_never_moved() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("t.db"),
        "somebody's notes, longer than a header of a database needs to be. ".repeat(20),
    )
    .unwrap();
    let settings = Config { path: folder.path().join("t.db"), ..Config::default() };
    // Twice: a service manager starts a service again that ended.
    for _ in 0..2 {
        let error = open(&settings, site_name(), policies(10), 10, clock(), Stats::default()).await.unwrap_err();
        assert!(error.to_string().contains("is not a tipbucket database"), "{error}");
    }
    assert!(!folder.path().join("quarantine").exists());
    assert!(fs::read_to_string(folder.path().join("t.db")).unwrap().starts_with("somebody's notes"));
}

#[tokio::test(start_paused = true)]
async fn damaged_pages_cost_what_lies_on_them_and_the_rest_comes_back() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let time = clock();
        let sealed = filled(folder.path(), &time).await;
        let pages = checkpoint(folder.path());
        let mut random = fastrand::Rng::with_seed(seed);
        overwrite(folder.path(), (0..4).map(|_| random.u64(pages / 4..pages)));

        let mut site = site(folder.path(), time).await;
        let mut back: BTreeMap<(String, i64, u32), usize> = BTreeMap::new();
        let mut open_is_back = false;
        // Damaged segments are told, and drawn past; segments that were brought back come again from the oldest on.
        for _ in 0..200 {
            match tokio::time::timeout(Duration::from_secs(30), site.outlet.next()).await {
                Ok(Ok(Some(parcel))) => {
                    for bucket in parcel.buckets.iter().filter_map(|bucket| bucket.unpack().ok()) {
                        let key = (bucket.sensor.to_string(), bucket.window.index(), bucket.part);
                        back.insert(key, bucket.samples.len());
                        open_is_back |= bucket.sensor.as_str() == "open" && bucket.samples.len() == 1;
                    }
                }
                Ok(Ok(None)) => panic!("the store ended"),
                Ok(Err(error)) => assert!(error.is_damage(), "{error}"),
                Err(_) if site.clock.now() > Timestamp::clamped(START + 100_200_000) => break,
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        let noise = back.keys().filter(|(sensor, ..)| sensor == "noise").count();
        assert!(noise * 10 >= sealed * 5, "seed {seed}: {noise} of {sealed} buckets came back");
        assert!(open_is_back || seed > 0, "seed {seed}: the open bucket is gone");
        site.stop().await;
    }
}

#[tokio::test]
async fn a_large_damaged_store_serves_within_a_second_and_is_read_out_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let large = |config: &mut Config| config.max_bytes = ByteSize::mib(256);
    let site = site_with(folder.path(), time.clone(), large, 50, 100).await;
    for n in 0..5 {
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
    }
    site.stop().await;
    let db = Connection::open(folder.path().join("t.db")).unwrap();
    // A hundred thousand buckets, without having to measure them.
    db.execute_batch(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
         INSERT INTO segment SELECT 1000 + i, buckets, samples, first, last, thinned, data FROM n, (SELECT * FROM segment LIMIT 1);",
    )
    .unwrap();
    let buckets: u64 = db.query_row("SELECT sum(buckets) FROM segment", [], |row| row.get(0)).unwrap();
    assert!(buckets >= 100_000, "{buckets}");
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let page: u64 =
        db.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'slot'", [], |row| row.get(0)).unwrap();
    drop(db);
    overwrite(folder.path(), std::iter::once(page - 1));
    let started = std::time::Instant::now();
    let site = site_with(folder.path(), time.clone(), large, 50, 100).await;
    site.commit(Delivery { urgent: true, ..noise(100, 10) }).await;
    let took = started.elapsed();
    eprintln!("{buckets} buckets: the first reading after {took:?}");
    assert!(took < Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 }), "{took:?}");
    // As a kill in the middle: it goes on where it was.
    site.kill().await;
    let site = site_with(folder.path(), time, large, 50, 100).await;
    for _ in 0..600 {
        if site.stats.store().backlog_buckets.get() as u64 >= buckets {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(site.stats.store().backlog_buckets.get() as u64 >= buckets, "all of it is back");
    site.stop().await;
    let verdict = verify(&folder.path().join("t.db"), Depth::Quick).unwrap();
    assert_eq!(verdict.faults, []);
}
