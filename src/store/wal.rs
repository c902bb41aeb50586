//! Damage inside the write-ahead log, which SQLite passes over in silence: at the first frame that does not check it takes
//! the log to end, as it must after a power cut, and everything committed behind that frame is gone.
//!
//! A cut can leave frames of one commit behind a bad frame: the one that was never synced. Two commits behind it were
//! both on disk once, so that is damage. What must stay true: a mere power cut is never called damage.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::database::PAGE_BYTES;

/// Of the log; see "WAL File Format" in SQLite's file format.
const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// Both byte orders of checksums.
const MAGIC: [u32; 2] = [0x377f_0682, 0x377f_0683];
/// Commits of this log behind its end that a power cut cannot leave.
const MIN_LOST_COMMITS: u64 = 2;

/// What is wrong with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogDamage {
    /// Its header does not check: nothing of it is read.
    Header,
    /// A frame does not check: so many commits behind it are lost.
    Frame {
        /// Frames before it.
        sound: u64,
        /// Commits from it on.
        lost: u64,
    },
}

impl std::fmt::Display for LogDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header => f.write_str("its header is damaged, so nothing of it can be read"),
            Self::Frame { sound, lost } => write!(f, "frame {} is damaged, so {lost} commits are lost", sound + 1),
        }
    }
}

/// Looks behind the frames that SQLite found sound, before anything is written.
pub(super) fn damage(log: &Path, sound: u64) -> io::Result<Option<LogDamage>> {
    let mut file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut header = [0; HEADER_BYTES];
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    if header == [0; HEADER_BYTES] {
        return Ok(None);
    }
    if !is_sound(&header) {
        return Ok(Some(LogDamage::Header));
    }
    let frame = FRAME_HEADER_BYTES as u64 + PAGE_BYTES;
    file.seek(SeekFrom::Start(HEADER_BYTES as u64 + sound * frame))?;
    let mut frames = BufReader::with_capacity(64 << 10, file);
    let mut lost = 0;
    let mut buffer = vec![0; frame as usize];
    while frames.read_exact(&mut buffer).is_ok() {
        let ours = buffer[8..16] == header[16..24];
        lost += u64::from(ours && word(&buffer, 4, u32::from_be_bytes) != 0);
    }
    Ok((lost >= MIN_LOST_COMMITS).then_some(LogDamage::Frame { sound, lost }))
}

fn is_sound(header: &[u8; HEADER_BYTES]) -> bool {
    let magic = word(header, 0, u32::from_be_bytes);
    let read = if magic & 1 == 1 { u32::from_be_bytes } else { u32::from_le_bytes };
    let (mut a, mut b) = (0u32, 0u32);
    for at in (0..24).step_by(8) {
        a = a.wrapping_add(word(header, at, read)).wrapping_add(b);
        b = b.wrapping_add(word(header, at + 4, read)).wrapping_add(a);
    }
    let sums = (word(header, 24, u32::from_be_bytes), word(header, 28, u32::from_be_bytes));
    MAGIC.contains(&magic) && sums == (a, b)
}

fn word(bytes: &[u8], at: usize, read: fn([u8; 4]) -> u32) -> u32 {
    read([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::database::{Budget, log_frames, open_reader, open_writer};

    /// Commits so often, changes the log's bytes, and looks.
    fn check(commits: usize, change: impl FnOnce(&mut Vec<u8>), expected: Option<LogDamage>) {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) = (folder.path().join("t.db"), folder.path().join("t.db-wal"));
        let db = open_writer(&path, Budget::of(16 << 20), &Default::default()).unwrap();
        db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        for _ in 0..commits {
            db.execute_batch("INSERT INTO slot (data) VALUES (zeroblob(985))").unwrap();
        }
        drop(db);
        let mut bytes = fs::read(&log).unwrap();
        change(&mut bytes);
        fs::write(&log, bytes).unwrap();
        let _ = fs::remove_file(folder.path().join("t.db-shm"));
        let (frames, _) = log_frames(&open_reader(&path).unwrap()).unwrap();
        assert_eq!(damage(&log, frames).unwrap(), expected);
    }

    fn frame(n: usize) -> usize {
        HEADER_BYTES + n * (FRAME_HEADER_BYTES + PAGE_BYTES as usize)
    }

    #[test]
    fn a_bit_in_the_middle_is_damage_and_a_torn_end_is_not() {
        check(10, |_| {}, None);
        check(0, |_| {}, None);
        check(10, |log| log[5] ^= 1, Some(LogDamage::Header));
        check(10, |log| log[17] ^= 1, Some(LogDamage::Header));
        check(10, |log| log[frame(0) + 500] ^= 1, Some(LogDamage::Frame { sound: 0, lost: 10 }));
        let last = |log: &[u8]| {
            let commit = |n: &usize| log[frame(*n) + 8..frame(*n) + 16] == log[16..24];
            (0..log.len() / frame(1)).filter(|n| frame(*n + 1) <= log.len()).rfind(commit).unwrap()
        };
        check(
            10,
            |log| {
                let at = frame(last(log)) + 500;
                log[at] ^= 1;
            },
            None,
        );
        check(
            10,
            |log| {
                let at = frame(last(log));
                log.truncate(at + 100);
            },
            None,
        );
        check(10, |log| log.truncate(20), None);
        check(10, |log| log.clear(), None);
    }
}
