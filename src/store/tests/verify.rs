//! Looking a store over, salvaging a damaged one, and what is ordered about dead letters.

use std::fs;
use std::os::unix::fs::FileExt;

use rusqlite::Connection;

use super::*;
use crate::model::{DeadLetter, LetterKind, LossReason};

/// A store with a bit of everything; the daemon is gone. How many sealed buckets wait.
async fn filled(folder: &Path, time: &Clock) -> u64 {
    let mut site = site_with(folder, time.clone(), |_| {}, 100, 3).await;
    for n in 0..20 {
        site.commit(Delivery { urgent: true, ..noise(n, 130) }).await;
    }
    for name in ["a", "b", "c", "one-too-many"] {
        site.commit(Delivery::of(vec![reading(name, 5, Value::I64(1))])).await;
    }
    let first = site.outlet.next().await.unwrap().unwrap();
    let letter = DeadLetter {
        at: time.now(),
        kind: LetterKind::Bucket,
        source: None,
        place: "site/noise".to_owned(),
        reason: "too large".to_owned(),
        payload: vec![5, 0, 0, 0, 0],
        lost: Some(first.buckets[0].lost(first.id, LossReason::RefusedUpstream)),
    };
    site.outlet.settle(Settled { segments: vec![first.id], dead_letters: vec![letter] }).await.unwrap();
    let waiting = site.stats.store().backlog_buckets.get() as u64;
    assert!(waiting > 10);
    site.kill().await;
    waiting
}

fn db(folder: &Path) -> Connection {
    let db = Connection::open(folder.join("t.db")).unwrap();
    db.pragma_update(None, "journal_size_limit", -1).unwrap();
    db
}

/// Flips a bit in a row's data.
fn flip(folder: &Path, table: &str, id: i64, place: usize) {
    let db = db(folder);
    let sql = format!("SELECT data FROM {table} WHERE id = ?1");
    let mut data: Vec<u8> = db.query_row(&sql, [id], |row| row.get(0)).unwrap();
    data[place] ^= 4;
    db.execute(&format!("UPDATE {table} SET data = ?2 WHERE id = ?1"), rusqlite::params![id, data]).unwrap();
}

/// Damages a store with SQL; what must be found, as beginnings of faults.
async fn check(damage: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), &clock()).await;
    db(folder.path()).execute_batch(damage).unwrap();
    let verdict = verify(&folder.path().join("t.db"), Depth::Whole).unwrap();
    let found: Vec<_> = verdict.faults.iter().map(|fault| format!("{}: {}", fault.what, fault.why)).collect();
    assert_eq!(found.len(), expected.len(), "{damage}: {found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{damage}: {found} instead of {expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sound_store_is_sound_beside_its_daemon_and_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    filled(folder.path(), &time).await;
    let path = folder.path().join("t.db");
    let alone = verify(&path, Depth::Whole).unwrap();
    assert_eq!(alone.faults, []);
    assert_eq!(alone.accounts.accepted, 20 * 130 + 4);
    assert!(alone.segments > 0 && alone.samples > 1000 && alone.ledger > 100, "{alone:?}");
    let site = site_with(folder.path(), time, |_| {}, 100, 3).await;
    site.commit(Delivery::of(vec![reading("a", 6, Value::I64(2))])).await;
    let beside = verify(&path, Depth::Whole).unwrap();
    assert_eq!((beside.faults, beside.accounts.accepted), (vec![], alone.accounts.accepted + 1));
    assert_eq!(verify(&path, Depth::Quick).unwrap().faults, []);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_damage_is_found_and_named() {
    let flip = "SELECT min(id) FROM segment";
    check(
        &format!("UPDATE segment SET buckets = buckets + 1 WHERE id = ({flip})"),
        &["the backlog", "the row tells of"],
    )
    .await;
    check(&format!("DELETE FROM segment WHERE id = ({flip})"), &["the backlog", "are missing"]).await;
    check("UPDATE sensor SET name = 'another' WHERE id = 1", &["sensor 1: its name"]).await;
    check("DELETE FROM ledger WHERE reason = 'refused-upstream'", &["are missing"]).await;
    check("UPDATE ledger SET samples = samples + 7 WHERE reason = 'refused-upstream'", &["7 too many"]).await;
    check("UPDATE meta SET data = zeroblob(50) WHERE id = 2", &["the snapshot is damaged"]).await;
    check("UPDATE dead_letter SET packed = zeroblob(90)", &["dead_letter 1"]).await;
    check("INSERT INTO spill (id, data) VALUES (77, zeroblob(40))", &["spilled bucket 77"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_in_a_slot_or_a_segment_is_found() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), &clock()).await;
    let path = folder.path().join("t.db");
    let id = db(folder.path()).query_row("SELECT min(id) FROM segment", [], |row| row.get(0)).unwrap();
    flip(folder.path(), "segment", id, 60);
    let found = |words: &str| {
        let faults = verify(&path, Depth::Whole).unwrap().faults;
        assert!(faults.iter().any(|fault| fault.why.contains(words)), "{words}: {faults:?}");
    };
    found("checksum does not match");
    // Not the newest record, which holds the accounts.
    flip(folder.path(), "slot", 4, 40);
    found("journal record");
}

#[tokio::test(start_paused = true)]
async fn damaged_pages_are_found_and_told_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), &clock()).await;
    let db = db(folder.path());
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let page: u64 =
        db.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'segment'", [], |row| row.get(0)).unwrap();
    drop(db);
    let file = fs::OpenOptions::new().write(true).open(folder.path().join("t.db")).unwrap();
    file.write_all_at(&[0xA5; 1024], (page - 1) * 1024).unwrap();
    let verdict = verify(&folder.path().join("t.db"), Depth::Whole).unwrap();
    assert!(!verdict.faults.is_empty());
    assert!(verdict.faults.iter().all(|fault| fault.remedy.contains("card")), "{:?}", verdict.faults);
    fs::write(folder.path().join("t.db"), vec![7; 5000]).unwrap();
    assert_eq!(verify(&folder.path().join("t.db"), Depth::Quick).unwrap().faults.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_salvage_brings_back_what_can_be_read_and_puts_the_rest_on_record() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), &clock()).await;
    let (damaged, into) = (folder.path().join("t.db"), folder.path().join("new.db"));
    let before = verify(&damaged, Depth::Whole).unwrap();
    let db = db(folder.path());
    db.execute_batch("UPDATE segment SET data = x'00' WHERE id = (SELECT min(id) FROM segment)").unwrap();
    drop(db);
    let salvaged = salvage(&damaged, &into, Timestamp::clamped(START)).unwrap();
    assert!(salvaged.rows > 10 && salvaged.skipped == 0, "{salvaged:?}");
    let after = verify(&into, Depth::Whole).unwrap();
    assert_eq!(after.accounts.accepted, before.accounts.accepted);
    assert_eq!(after.faults.len(), 1, "the damaged segment came along, and is told: {:?}", after.faults);
    assert!(salvage(&damaged, &into, Timestamp::clamped(START)).unwrap_err().to_string().contains("is there already"));
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_cannot_be_read_is_put_aside_once_and_stands_in_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let waiting = filled(folder.path(), &time).await;
    let db = db(folder.path());
    let lost: i64 = db.query_row("SELECT samples FROM segment ORDER BY id LIMIT 1", [], |row| row.get(0)).unwrap();
    db.execute_batch("UPDATE segment SET data = x'0102030405060708' WHERE id = (SELECT min(id) FROM segment)").unwrap();
    drop(db);
    let mut site = site_with(folder.path(), time, |_| {}, 100, 3).await;
    let mut drawn = 0;
    for _ in 0..3 {
        site.outlet.rewind();
        drawn = 0;
        while let Ok(parcel) = tokio::time::timeout(Duration::from_millis(200), site.outlet.next()).await {
            drawn += parcel.unwrap().unwrap().buckets.len() as u64;
        }
    }
    assert!(drawn > 0 && drawn < waiting);
    assert_eq!(site.stats.store().lost[LossReason::Damaged as usize].get(), lost);
    assert_eq!(letters(&folder.path().join("t.db"), Some(LetterKind::Segment), 10).unwrap().len(), 1);
    site.stop().await;
    assert_eq!(verify(&folder.path().join("t.db"), Depth::Whole).unwrap().faults, []);
}

#[tokio::test(start_paused = true)]
async fn a_refused_bucket_is_sent_again_or_dropped_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    filled(folder.path(), &time).await;
    let path = folder.path().join("t.db");
    let settings = Config { path: path.clone(), max_bytes: ByteSize::mib(48), ..Config::default() };
    let give = |orders: &[Order]| order(&settings, site_name(), policies(100), 3, orders, time.now()).unwrap();
    let [letter] = letters(&path, None, 10).unwrap().try_into().unwrap();
    assert!(letter.is_retryable && letter.samples > 0);
    let before = verify(&path, Depth::Whole).unwrap();
    give(&[Order::Retry(letter.id), Order::Drop(letter.id), Order::Drop(99)]);
    assert_eq!(letters(&path, None, 10).unwrap(), []);
    let after = verify(&path, Depth::Whole).unwrap();
    assert_eq!(after.faults, []);
    assert_eq!(after.accounts.accepted, before.accounts.accepted + letter.samples, "accepted anew");
    let mut site = site_with(folder.path(), time.clone(), |_| {}, 100, 3).await;
    let (mut found, mut sealed) = (0, 0);
    while let Ok(parcel) = tokio::time::timeout(Duration::from_millis(200), site.outlet.next()).await {
        for bucket in parcel.unwrap().unwrap().buckets {
            let bucket = bucket.unpack().unwrap();
            found += usize::from(bucket.sensor.as_str() == "noise" && bucket.part == 0 && values(&bucket)[0].0 == 0);
            sealed += 1;
        }
    }
    assert_eq!(found, 1, "of {sealed}, the refused one waits once");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_daemon_carries_orders_out() {
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    filled(folder.path(), &time).await;
    let path = folder.path().join("t.db");
    let site = site_with(folder.path(), time, |_| {}, 100, 3).await;
    let [letter] = letters(&path, None, 10).unwrap().try_into().unwrap();
    fs::write(orders::place(&path), format!("drop {}\nend\n", letter.id)).unwrap();
    for _ in 0..100 {
        if !orders::place(&path).exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!orders::place(&path).exists());
    assert_eq!(letters(&path, None, 10).unwrap(), []);
    site.stop().await;
}
