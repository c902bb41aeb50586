//! Disks that fail, fill up, become read-only or take their time: what is not on disk is not acknowledged, what the page
//! says has words, and when the trouble is over everything goes on.

use std::fs;
use std::time::Duration;

use fault_vfs::{Event, Failure, Image, Medium, Op, Part, Watch};
use tipbucket::clock::Clock;
use tipbucket::model::{Timestamp, Value};
use tipbucket::store::Delivery;

use crate::site::{START, Site, database, log, reading, runtime};
use crate::told::{Told, tell};

/// Long enough for any pause between attempts, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);

fn delivery(n: i64) -> Delivery {
    Delivery::of(vec![reading("s", n, &[("n", Value::I64(n))])])
}

fn opened(image: &Image) -> Told {
    let folder = tempfile::tempdir().unwrap();
    fs::write(database(folder.path()), &image.database).unwrap();
    fs::write(log(folder.path()), &image.log).unwrap();
    runtime().block_on(tell(folder.path())).unwrap()
}

fn numbers(told: &Told) -> Vec<i64> {
    told.samples.iter().flat_map(|((_, at), samples)| samples.iter().map(|_| *at)).collect()
}

/// What is certainly on the medium after these events.
fn on_medium(events: &[Event]) -> Image {
    let mut medium = Medium::default();
    events.iter().for_each(|event| medium.apply(event));
    medium.synced()
}

/// Commits ten readings, lets `part` fail so often, commits ten more one after the other. At each receipt the reading must
/// be on the medium, also if a sync that failed has lost what came before it.
fn check(part: Part, op: Op, failure: Failure, times: u64, words: &str) {
    fault_vfs::install();
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::on(folder.path());
    watch.spare_the_disk();
    watch.record();
    let (mut failed, mut said) = (false, String::new());
    runtime().block_on(async {
        let site = Site::open(folder.path(), Clock::virtual_from(Timestamp::clamped(START))).await.unwrap();
        for n in 0..10 {
            site.commit(delivery(n)).await;
        }
        watch.fail(part, op, failure, times);
        for n in 10..20 {
            let mut receipt = site.receipt(delivery(n)).await;
            let mut looks = 0;
            while receipt.try_recv().is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let condition = site.stats.store().condition.get();
                if condition.up == Some(false) {
                    (failed, said) = (true, condition.detail);
                }
                looks += 1;
                assert!(looks < 20 * PATIENCE.as_secs(), "{n} is never acknowledged; the store says: {said}");
            }
            watch.mark(n as u64);
        }
        assert_eq!(site.stats.store().condition.get().up, Some(true), "it recovers");
        site.kill().await;
    });
    assert!(failed && said.contains(words), "{part:?}: it says `{said}`");
    let events = watch.events();
    for (at, event) in events.iter().enumerate() {
        let Event::Mark(n) = event else { continue };
        let found = numbers(&opened(&on_medium(&events[..at])));
        assert!((0..=*n as i64).all(|n| found.iter().filter(|m| **m == n).count() == 1), "receipt {n}: {found:?}");
    }
}

#[test]
fn a_failed_sync_is_not_tried_again_and_believed() {
    for times in [1, 2, 5] {
        check(Part::Log, Op::Sync, Failure::Device, times, "cannot commit");
    }
}

#[test]
fn a_log_that_cannot_be_written_holds_the_receipts_back_until_it_can() {
    check(Part::Log, Op::Write, Failure::Device, 4, "cannot");
    check(Part::Log, Op::Write, Failure::NoRoom, 4, "no room left");
}

/// Nothing can be written for a while: that is told in `words`, the receipts wait, and afterwards all is there.
fn nothing_can_be_written(failure: Failure, words: &str) {
    fault_vfs::install();
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::on(folder.path());
    watch.spare_the_disk();
    runtime().block_on(async {
        let site = Site::open(folder.path(), Clock::virtual_from(Timestamp::clamped(START))).await.unwrap();
        site.commit(delivery(0)).await;
        for part in [Part::Database, Part::Log] {
            watch.fail(part, Op::Write, failure, u64::MAX);
        }
        let mut waiting = site.receipt(delivery(1)).await;
        // Several attempts, each of which opens the file anew.
        tokio::time::sleep(PATIENCE).await;
        let condition = site.stats.store().condition.get();
        assert_eq!(condition.up, Some(false));
        assert!(condition.failures > 2 && condition.detail.contains(words), "{}", condition.detail);
        assert!(waiting.try_recv().is_err());
        // Others may still hand over: they wait together.
        let mut second = site.receipt(delivery(2)).await;
        watch.heal();
        assert!(waiting.recv().await.is_some() && second.recv().await.is_some());
        assert_eq!(site.stats.store().condition.get().up, Some(true));
        site.kill().await;
    });
    assert_eq!(numbers(&runtime().block_on(tell(folder.path())).unwrap()), [0, 1, 2]);
    assert!(!folder.path().join("quarantine").exists());
}

#[test]
fn a_file_system_that_became_read_only_is_told_in_words_and_ends() {
    nothing_can_be_written(Failure::ReadOnly, "read-only");
}

#[test]
fn a_disk_without_room_holds_the_receipts_back_and_sets_nothing_aside() {
    nothing_can_be_written(Failure::NoRoom, "no room left");
}

#[test]
fn checkpoints_that_fail_lose_nothing() {
    fault_vfs::install();
    for (op, failure) in [(Op::Sync, Failure::Device), (Op::Write, Failure::NoRoom), (Op::Write, Failure::Device)] {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::on(folder.path());
        watch.spare_the_disk();
        watch.record();
        runtime().block_on(async {
            let site = Site::open(folder.path(), Clock::virtual_from(Timestamp::clamped(START))).await.unwrap();
            let before = watch.counts(Part::Database).syncs;
            watch.fail(Part::Database, op, failure, 2);
            // More than two logs full.
            for n in 0..2_500 {
                site.commit(delivery(n)).await;
            }
            assert!(watch.counts(Part::Database).syncs > before, "there was a checkpoint after all");
            site.kill().await;
        });
        let found = numbers(&opened(&on_medium(&watch.events())));
        assert_eq!(found, (0..2_500).collect::<Vec<_>>(), "{op:?} {failure:?}");
    }
}

#[test]
fn a_slow_sync_holds_the_receipts_back_and_nothing_else() {
    fault_vfs::install();
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::on(folder.path());
    watch.spare_the_disk();
    runtime().block_on(async {
        let site = Site::open(folder.path(), Clock::virtual_from(Timestamp::clamped(START))).await.unwrap();
        site.commit(delivery(0)).await;
        watch.hold_syncs();
        let mut first = site.receipt(delivery(1)).await;
        while watch.held_syncs() == 0 {
            tokio::task::yield_now().await;
        }
        // The commit hangs; the runtime's one thread is free, and others hand over without waiting.
        let mut others = Vec::new();
        for n in 2..50 {
            others.push(site.receipt(delivery(n)).await);
        }
        assert!(first.try_recv().is_err() && others.iter_mut().all(|receipt| receipt.try_recv().is_err()));
        watch.release_syncs();
        assert!(first.recv().await.is_some());
        for receipt in &mut others {
            assert!(receipt.recv().await.is_some());
        }
        site.stop().await.unwrap();
    });
    assert_eq!(numbers(&runtime().block_on(tell(folder.path())).unwrap()), (0..50).collect::<Vec<_>>());
}

#[test]
fn sources_wait_while_a_sync_hangs_and_the_runtime_does_not() {
    /// More than may wait for a commit.
    const HEAVY: i64 = 40;
    fault_vfs::install();
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::on(folder.path());
    watch.spare_the_disk();
    // A quarter of a mebibyte each, in memory.
    let heavy =
        |n: i64| Delivery::of((0..2_500).map(|i| reading("s", n * 2_500 + i, &[("n", Value::I64(i))])).collect());
    runtime().block_on(async {
        let site = Site::open(folder.path(), Clock::virtual_from(Timestamp::clamped(START))).await.unwrap();
        site.commit(heavy(0)).await;
        watch.hold_syncs();
        let inlet = site.inlet.clone();
        let taken = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(0));
        let count = std::sync::Arc::clone(&taken);
        let source = tokio::spawn(async move {
            for n in 1..=HEAVY {
                inlet.push(Delivery { urgent: true, ..heavy(n) }).await.unwrap();
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        while watch.held_syncs() == 0 {
            tokio::task::yield_now().await;
        }
        // Far more turns than the source needs for what it can hand over; each is one that the runtime had for others.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        let taken = taken.load(std::sync::atomic::Ordering::Relaxed);
        assert!((4..HEAVY).contains(&taken) && !source.is_finished(), "the source handed over {taken} of {HEAVY}");
        watch.release_syncs();
        source.await.unwrap();
        site.stop().await.unwrap();
    });
    let stored = numbers(&runtime().block_on(tell(folder.path())).unwrap());
    assert_eq!(stored, (0..(HEAVY + 1) * 2_500).collect::<Vec<_>>());
}
