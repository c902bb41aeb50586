//! A real ext4 that becomes read-only under the store: by itself, after an error, or because somebody mounts it so.

use std::path::Path;
use std::time::Duration;

use fault_vfs::Ext4;
use tipbucket::clock::Clock;
use tipbucket::model::{Timestamp, Value};
use tipbucket::store::{Delivery, StoreError};
use tokio::sync::mpsc;

use crate::site::{START, Site, reading, runtime};
use crate::told::tell;

const MEBIBYTES: u64 = 64;
/// What distributions set for the root file system.
const OPTIONS: &str = "noatime,errors=remount-ro";
/// Long enough for several attempts, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a person is told to do.
const REMEDY: [&str; 3] = ["read-only", "stop tipbucket", "mount it again"];

/// `None`, and that is said loudly, where none can be mounted.
fn card(folder: &Path) -> Option<Ext4> {
    match Ext4::new(folder, MEBIBYTES, OPTIONS) {
        Ok(card) => Some(card),
        Err(why) => {
            eprintln!("NOT TESTED: no ext4 can be mounted here (that takes root and a loop device): {why}");
            None
        }
    }
}

fn delivery(n: i64) -> Delivery {
    Delivery::of(vec![reading("s", n, &[("n", Value::I64(n))])])
}

async fn open(card: &Ext4) -> Result<Site, StoreError> {
    Site::open(&card.path(), Clock::virtual_from(Timestamp::clamped(START))).await
}

/// Commits one after the other, as fast as the disk does.
async fn commit(site: &Site, numbers: std::ops::Range<i64>) {
    for n in numbers {
        site.commit(delivery(n)).await;
    }
}

#[track_caller]
fn assert_remedy(said: &str) {
    for words in REMEDY {
        assert!(said.contains(words), "`{said}` lacks `{words}`");
    }
}

/// The numbers that are there, each as often as it is.
fn numbers(card: &Ext4) -> Vec<i64> {
    let told = runtime().block_on(tell(&card.path())).unwrap();
    told.samples.iter().flat_map(|((_, at), samples)| samples.iter().map(|_| *at)).collect()
}

#[test]
fn ext4_that_finds_an_error_stops_the_receipts_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut card) = card(folder.path()) else { return };
    if !card.can_find_error() {
        eprintln!("NOT TESTED: no file system error can be set off here");
        return;
    }
    let mut next = 0;
    for round in 0..3 {
        let acknowledged = runtime().block_on(async {
            let site = open(&card).await.unwrap();
            commit(&site, next..next + 50).await;
            // Work is under way while it happens.
            let mut waiting: Vec<(i64, mpsc::Receiver<u64>)> = Vec::new();
            for n in next + 50..next + 60 {
                waiting.push((n, site.receipt(delivery(n)).await));
            }
            card.find_error().unwrap();
            // What was committed before is told now at the latest; then nothing more.
            tokio::time::sleep(PATIENCE).await;
            let told: Vec<i64> =
                waiting.iter_mut().filter_map(|(n, receipt)| receipt.try_recv().ok().map(|_| *n)).collect();
            let condition = site.stats.store().condition.get();
            assert_eq!(condition.up, Some(false), "round {round}");
            assert_remedy(&condition.detail);
            let mut late = site.receipt(delivery(next + 60)).await;
            tokio::time::sleep(PATIENCE).await;
            assert!(late.try_recv().is_err(), "round {round}: nothing can be written, and this is said to be");
            waiting.retain(|(n, _)| !told.contains(n));
            assert!(waiting.iter_mut().all(|(_, receipt)| receipt.try_recv().is_err()), "round {round}");
            assert!(site.stats.store().condition.get().failures > 2);
            site.kill().await;
            (next..next + 50).chain(told).collect::<Vec<_>>()
        });
        // The kernel gives such a file system up for good: mounted anew, it begins again.
        card.mount_again().unwrap();
        let found = numbers(&card);
        for n in &acknowledged {
            assert_eq!(found.iter().filter(|found| *found == n).count(), 1, "round {round}: {n}");
        }
        assert!(!card.path().join("quarantine").exists(), "round {round}");
        next += 100;
    }
    runtime().block_on(async {
        let site = open(&card).await.unwrap();
        commit(&site, next..next + 10).await;
        assert_eq!(site.stats.store().condition.get().up, Some(true));
        site.stop().await.unwrap();
    });
}

#[test]
fn a_file_system_that_is_read_only_at_the_start_is_told_in_words_and_opened_when_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let Some(card) = card(folder.path()) else { return };
    let refused = |card: &Ext4| runtime().block_on(open(card)).map(|_| ()).unwrap_err();
    card.remount("ro").unwrap();
    assert!(matches!(refused(&card), StoreError::ReadOnly { .. }), "without a store");
    card.remount("rw").unwrap();
    runtime().block_on(async {
        let site = open(&card).await.unwrap();
        commit(&site, 0..10).await;
        card.remount("ro").expect_err("nobody can mount it so while the store is open");
        commit(&site, 10..20).await;
        site.kill().await;
    });
    card.remount("ro").unwrap();
    assert_remedy(&refused(&card).to_string());
    card.remount("rw").unwrap();
    assert_eq!(numbers(&card), (0..20).collect::<Vec<_>>());
}
