//! Blocks of the disk for every page of the database, before the page is written.
//!
//! What is committed lies in the log first; copying it into the file must never need blocks that the disk does not have,
//! or nothing could be written any more, not even that buckets are delivered. So the file gets its blocks ahead of its
//! pages (`fallocate`, without changing its size), and SQLite is held to what has blocks.
//!
//! What must stay true: the descriptor is opened before SQLite opens the file and stays open, since closing any descriptor
//! of a file drops all of a process's POSIX locks on it, SQLite's too. (Blocks beyond the last page are no lasting reserve:
//! SQLite cuts them off whenever all of the log was copied. See `reserve.rs` for that.)

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// So far ahead of the pages blocks are allocated: more than one commit brings.
const AHEAD_BYTES: u64 = 16 << 20;
/// With less than this ahead, more are allocated: not at every commit.
const LEAST_AHEAD_BYTES: u64 = 8 << 20;
/// What the file system itself needs of a file's blocks, to find the others.
const OVERHEAD_BYTES: u64 = 128 << 10;
/// Files that were set aside as damaged keep their descriptor while the process lives; so many at most.
const MAX_FILES: usize = 8;

/// Allocates blocks for the store's file.
#[derive(Debug, Default)]
pub(super) struct Blocks(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The present file last.
    files: Vec<File>,
    /// The file system cannot do it, and that was told.
    unable: bool,
}

impl Blocks {
    /// Takes up the file at `path`, before SQLite opens it.
    pub(super) fn take(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let there = std::fs::metadata(path)?;
        let identity = |file: &File| file.metadata().map(|known| (known.dev(), known.ino()));
        if inner.files.last().is_some_and(|file| identity(file).is_ok_and(|known| known == (there.dev(), there.ino())))
        {
            return Ok(());
        }
        if inner.files.len() >= MAX_FILES {
            inner.files.remove(0);
        }
        inner.files.push(OpenOptions::new().read(true).write(true).open(path)?);
        Ok(())
    }

    /// Sees to it that a file which needs `bytes` has blocks for more, up to `most`, taking no more than `free` bytes from the
    /// disk; for how many bytes it has blocks then. `None` if that cannot be told: not every file system can do it.
    pub(super) fn ahead(&self, bytes: u64, most: u64, free: u64) -> Option<u64> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.unable {
            return None;
        }
        let file = inner.files.last()?;
        let allocated = || Some((file.metadata().ok()?.blocks() * 512).saturating_sub(OVERHEAD_BYTES));
        let there = allocated()?;
        let most = most.min(there.saturating_add(free));
        if there >= (bytes + LEAST_AHEAD_BYTES).min(most) {
            return Some(there);
        }
        let mut ahead = AHEAD_BYTES;
        loop {
            match fallocate(file, FallocateFlags::KEEP_SIZE, 0, (bytes + ahead).min(most) + OVERHEAD_BYTES) {
                Ok(()) => break,
                // As much as there is.
                Err(Errno::NOSPC | Errno::DQUOT) if ahead > 0 => {
                    ahead = if ahead > OVERHEAD_BYTES { ahead / 2 } else { 0 }
                }
                Err(Errno::NOSPC | Errno::DQUOT) => break,
                Err(error) => {
                    tracing::info!(
                        "this file system cannot allocate blocks in advance ({error}): if others fill it, nothing can be stored until it has room"
                    );
                    inner.unable = true;
                    return None;
                }
            }
        }
        allocated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_there_before_the_pages_and_the_size_stays_true() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [1; 5000]).unwrap();
        let blocks = Blocks::default();
        assert_eq!(blocks.ahead(5000, 1 << 30, u64::MAX), None, "no file yet");
        blocks.take(&path).unwrap();
        let Some(there) = blocks.ahead(5000, 1 << 30, u64::MAX) else {
            eprintln!("NOT TESTED: the file system of {} has no fallocate", folder.path().display());
            return;
        };
        assert!((AHEAD_BYTES..AHEAD_BYTES + (1 << 20)).contains(&there), "{there}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 5000);
        assert_eq!(blocks.ahead(LEAST_AHEAD_BYTES, 1 << 30, u64::MAX), Some(there), "still enough");
        let there = blocks.ahead(LEAST_AHEAD_BYTES + 9000, 1 << 30, u64::MAX).unwrap();
        assert!(there >= LEAST_AHEAD_BYTES + AHEAD_BYTES, "{there}");
        blocks.take(&path).unwrap();
        assert_eq!(blocks.0.lock().unwrap().files.len(), 1);
        std::fs::write(folder.path().join("g"), []).unwrap();
        blocks.take(&folder.path().join("g")).unwrap();
        let there = blocks.ahead(0, 1 << 20, u64::MAX).unwrap();
        assert!(((1 << 20)..(2 << 20)).contains(&there), "not beyond the budget: {there}");
    }
}
