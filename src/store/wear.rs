//! How many bytes reach the card: what commits add to the log and what checkpoints copy, in the blocks that are written.
//!
//! Not counted is what the file system writes for itself: with `noatime` and a log that does not grow some 5 to 20 percent
//! (`docs/BENCHMARKS.md`). Measuring costs a subtraction in each commit, and one pass over the log in each checkpoint.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::database::{FRAME_BYTES, PAGE_BYTES};

/// What a file system writes at least.
const BLOCK_BYTES: u64 = 4096;
/// The log's own header.
const HEADER_BYTES: u64 = 32;

/// Follows the log of one connection.
#[derive(Debug)]
pub(super) struct Wear {
    /// Frames in the log when it was last looked at.
    frames: u64,
    /// Bytes written since they were last asked for.
    bytes: u64,
}

impl Wear {
    /// The log has so many frames now.
    pub(super) fn new(frames: u64) -> Self {
        Self { frames, bytes: 0 }
    }

    /// After a commit, synced, it has so many.
    pub(super) fn committed(&mut self, frames: u64) {
        // With fewer than before it has begun anew, with a header.
        let start = if frames < self.frames { 0 } else { self.frames };
        if frames != self.frames {
            let from = if start == 0 { 0 } else { HEADER_BYTES + start * FRAME_BYTES };
            self.bytes += blocks(from, HEADER_BYTES + frames * FRAME_BYTES) * BLOCK_BYTES;
        }
        self.frames = frames;
    }

    /// Bytes written since the last call.
    pub(super) fn take(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

/// Bytes that copying these frames into the database writes: each block once, however often its pages were changed.
pub(super) fn copied(log: &Path, frames: std::ops::Range<u64>) -> io::Result<u64> {
    let mut log = File::open(log)?;
    log.seek(SeekFrom::Start(HEADER_BYTES + frames.start * FRAME_BYTES))?;
    let mut log = BufReader::with_capacity(64 << 10, log);
    let mut touched = Vec::with_capacity((frames.end - frames.start) as usize);
    for _ in frames {
        let mut page = [0; 4];
        log.read_exact(&mut page)?;
        log.seek_relative(FRAME_BYTES as i64 - 4)?;
        let page = u64::from(u32::from_be_bytes(page)).saturating_sub(1);
        touched.push(page * PAGE_BYTES / BLOCK_BYTES);
    }
    touched.sort_unstable();
    touched.dedup();
    Ok(touched.len() as u64 * BLOCK_BYTES)
}

/// Blocks that a piece of a file touches.
fn blocks(from: u64, to: u64) -> u64 {
    to.div_ceil(BLOCK_BYTES) - from / BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: u64, after: u64, expected_blocks: u64) {
        let mut wear = Wear::new(before);
        wear.committed(after);
        assert_eq!(wear.take(), expected_blocks * BLOCK_BYTES, "{before} to {after}");
        assert_eq!(wear.take(), 0);
    }

    #[test]
    fn a_commit_writes_each_block_it_touches() {
        check(7, 7, 0);
        check(0, 1, 1);
        check(1, 2, 1);
        // The fourth frame crosses a block.
        check(3, 4, 2);
        check(0, 16, 5);
        // Begun anew: header and one frame.
        check(900, 1, 1);
    }

    #[test]
    fn a_checkpoint_writes_a_block_once() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut bytes = vec![0; HEADER_BYTES as usize];
        for page in [1u32, 2, 1, 4, 5, 9] {
            bytes.extend_from_slice(&page.to_be_bytes());
            bytes.resize(bytes.len() + FRAME_BYTES as usize - 4, 0);
        }
        std::fs::write(&log, bytes).unwrap();
        assert_eq!(copied(&log, 0..6).unwrap(), 3 * BLOCK_BYTES);
        assert_eq!(copied(&log, 4..5).unwrap(), BLOCK_BYTES);
        assert!(copied(&log, 0..7).is_err());
    }
}
