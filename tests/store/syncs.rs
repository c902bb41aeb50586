//! What a commit asks of the disk: one fdatasync, no fsync, no growth of its log. A checkpoint costs three more.

use std::path::Path;
use std::time::Duration;

use fault_vfs::{Part, Watch};
use tipbucket::clock::Clock;
use tipbucket::model::{Timestamp, Value};
use tipbucket::store::Delivery;

use crate::site::{START, Site, log, reading, runtime};

/// Commits after which the journal has all the slots it needs: it keeps at least 512 records, and as many as windows are long.
const JOURNAL: i64 = 1_200;

/// Commits of one small reading each.
async fn commit(site: &Site, commits: std::ops::Range<i64>, every: Duration) {
    for n in commits {
        tokio::time::sleep(every).await;
        let at = n * every.as_millis().max(1) as i64;
        site.commit(Delivery::of(vec![reading("s", at, &[("n", Value::I64(n))])])).await;
    }
}

fn check(warm: i64, commits: i64, every: Duration, expected: impl FnOnce(Counted)) {
    fault_vfs::install();
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::on(folder.path());
    watch.spare_the_disk();
    runtime().block_on(async {
        let site = Site::open(folder.path(), Clock::virtual_from(Timestamp::clamped(START))).await.unwrap();
        commit(&site, 0..warm, every).await;
        let before = Counted::of(&watch, folder.path(), &site);
        commit(&site, warm..warm + commits, every).await;
        let after = Counted::of(&watch, folder.path(), &site);
        site.stop().await.unwrap();
        expected(after.since(&before));
    });
}

/// Calls of each kind; commits; bytes by which the log grew.
#[derive(Debug)]
struct Counted {
    fsyncs: u64,
    log_fdatasyncs: u64,
    database_fdatasyncs: u64,
    commits: u64,
    log_length: u64,
    /// Bytes handed to the file system, and those that the store tells of.
    bytes: u64,
    told: u64,
}

impl Counted {
    fn of(watch: &Watch, folder: &Path, site: &Site) -> Self {
        let of = |part| watch.counts(part);
        Self {
            fsyncs: [Part::Database, Part::Log, Part::Other].map(|part| of(part).fsyncs).iter().sum(),
            log_fdatasyncs: of(Part::Log).fdatasyncs,
            database_fdatasyncs: of(Part::Database).fdatasyncs,
            commits: site.stats.store().commits.get(),
            bytes: of(Part::Log).bytes + of(Part::Database).bytes,
            told: site.stats.store().written.get(),
            log_length: std::fs::metadata(log(folder)).unwrap().len(),
        }
    }

    fn since(self, before: &Self) -> Self {
        Self {
            fsyncs: self.fsyncs - before.fsyncs,
            log_fdatasyncs: self.log_fdatasyncs - before.log_fdatasyncs,
            database_fdatasyncs: self.database_fdatasyncs - before.database_fdatasyncs,
            commits: self.commits - before.commits,
            log_length: self.log_length - before.log_length,
            bytes: self.bytes - before.bytes,
            told: self.told - before.told,
        }
    }
}

#[test]
fn a_commit_is_one_fdatasync_of_a_log_that_does_not_grow() {
    check(10, 100, Duration::ZERO, |counted| {
        let Counted { fsyncs, log_fdatasyncs, database_fdatasyncs, commits, log_length, bytes, told } = counted;
        assert_eq!((commits, log_fdatasyncs, database_fdatasyncs, fsyncs), (100, 100, 0, 0));
        assert!(told > bytes, "told of {told}, handed over {bytes}");
        assert_eq!(log_length, 0, "each growth would make the file system write its own journal");
    });
}

#[test]
fn a_checkpoint_costs_three_fdatasyncs_more() {
    check(10, 1500, Duration::ZERO, |counted| {
        let Counted { fsyncs, log_fdatasyncs, database_fdatasyncs: checkpoints, commits, bytes, told, .. } = counted;
        assert!(checkpoints >= 1, "{checkpoints}");
        assert_eq!((log_fdatasyncs, fsyncs), (commits + 2 * checkpoints, 0));
        assert!(told > bytes && told < 5 * bytes, "told of {told}, handed over {bytes}");
    });
}

#[test]
fn a_commit_of_a_second_overwrites_one_page_once_the_journal_has_its_slots() {
    check(JOURNAL, 300, Duration::from_secs(1), |counted| {
        let Counted { bytes, commits, told, .. } = counted;
        let frames = bytes as f64 / (1024.0 + 24.0) / commits as f64;
        assert!((1.0..1.5).contains(&frames), "{frames} frames a commit");
        let blocks = told as f64 / 4096.0 / commits as f64;
        assert!((1.0..1.8).contains(&blocks), "{blocks} blocks a commit");
    });
}
