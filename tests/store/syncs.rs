//! What a commit asks of the disk: one fdatasync, no fsync, no growth of its log. A checkpoint costs three more.

use std::path::Path;

use fault_vfs::{Part, Watch};
use tipbucket::clock::Clock;
use tipbucket::model::{Timestamp, Value};
use tipbucket::store::Delivery;

use crate::site::{START, Site, log, reading, runtime};

/// Commits of one small reading each.
async fn commit(site: &Site, commits: std::ops::Range<i64>) {
    for n in commits {
        site.commit(Delivery::of(vec![reading("s", n, &[("n", Value::I64(n))])])).await;
    }
}

fn check(commits: i64, expected: impl FnOnce(Counted)) {
    fault_vfs::install();
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::on(folder.path());
    watch.spare_the_disk();
    runtime().block_on(async {
        let site = Site::open(folder.path(), Clock::virtual_from(Timestamp::clamped(START))).await.unwrap();
        commit(&site, 0..10).await;
        let before = Counted::of(&watch, folder.path(), &site);
        commit(&site, 10..10 + commits).await;
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
}

impl Counted {
    fn of(watch: &Watch, folder: &Path, site: &Site) -> Self {
        let of = |part| watch.counts(part);
        Self {
            fsyncs: [Part::Database, Part::Log, Part::Other].map(|part| of(part).fsyncs).iter().sum(),
            log_fdatasyncs: of(Part::Log).fdatasyncs,
            database_fdatasyncs: of(Part::Database).fdatasyncs,
            commits: site.stats.store().commits.get(),
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
        }
    }
}

#[test]
fn a_commit_is_one_fdatasync_of_a_log_that_does_not_grow() {
    check(100, |counted| {
        let Counted { fsyncs, log_fdatasyncs, database_fdatasyncs, commits, log_length } = counted;
        assert_eq!((commits, log_fdatasyncs, database_fdatasyncs, fsyncs), (100, 100, 0, 0));
        assert_eq!(log_length, 0, "each growth would make the file system write its own journal");
    });
}

#[test]
fn a_checkpoint_costs_three_fdatasyncs_more() {
    check(1500, |counted| {
        let Counted { fsyncs, log_fdatasyncs, database_fdatasyncs: checkpoints, commits, .. } = counted;
        assert!(checkpoints >= 1, "{checkpoints}");
        assert_eq!((log_fdatasyncs, fsyncs), (commits + 2 * checkpoints, 0));
    });
}
