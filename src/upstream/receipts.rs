//! Delivery receipts: which buckets the database has confirmed, for `tipbucket upstream audit`.
//!
//! Two files beside the database, the newer and the older, bounded together; zstd frames one after the other, so that
//! `zstdcat` reads them. A line is `_id`, number of samples, first digits of the hash, time of confirmation, separated by
//! tabs. Nothing depends on them: they are written rarely and not synced, and what a kill loses is only their lines.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::Document;
use crate::model::Timestamp;

/// Bytes of both files together: a week of a hundred sensors in ten-minute windows.
pub(super) const MAX_BYTES: u64 = 4 << 20;
/// Lines are written when there are so many bytes of them,
const BUFFER_BYTES: usize = 64 << 10;
/// or when the first of them is this old.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// Hex digits of a hash that are kept: 64 bits tell two buckets apart.
const HASH_DIGITS: usize = 16;

/// One bucket that was confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Samples in it.
    pub samples: u32,
    /// The first digits of its content hash.
    pub hash: String,
}

/// Receipts by `_id`.
pub type Receipts = BTreeMap<String, Receipt>;

/// The files, and lines that wait to be written.
#[derive(Debug)]
pub(super) struct ReceiptBook {
    file: PathBuf,
    lines: String,
    since: Option<Instant>,
}

impl ReceiptBook {
    /// Opens the book; a file whose end is damaged is put away as the older one.
    pub(super) fn open(file: PathBuf) -> Self {
        let mut ignored = Receipts::new();
        if file.exists() && read_file(&file, |_| true, &mut ignored).is_err() {
            let _ = fs::rename(&file, older(&file));
        }
        Self { file, lines: String::new(), since: None }
    }

    /// Notes that a document is stored.
    pub(super) fn add(&mut self, document: &Document, now: Timestamp) {
        let hash = document.hash.get(..HASH_DIGITS).unwrap_or(&document.hash);
        let line = format!("{}\t{}\t{hash}\t{}\n", document.id, document.samples, now.as_millis());
        self.lines.push_str(&line);
        self.since.get_or_insert_with(Instant::now);
    }

    /// Writes what waits if it is much, or old.
    pub(super) async fn tend(&mut self) {
        if self.lines.len() >= BUFFER_BYTES || self.since.is_some_and(|since| since.elapsed() >= MAX_AGE) {
            self.write().await;
        }
    }

    /// Writes what waits.
    pub(super) async fn write(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let (file, lines) = (self.file.clone(), std::mem::take(&mut self.lines));
        self.since = None;
        let written = tokio::task::spawn_blocking(move || append(&file, &lines)).await;
        if let Ok(Err(error)) = written {
            tracing::debug!("cannot write delivery receipts: {error}");
        }
    }
}

/// The receipts whose `_id` is `wanted`; `false`: some lines could not be read.
pub fn read_receipts(file: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<(Receipts, bool)> {
    let mut receipts = Receipts::new();
    let mut whole = true;
    for file in [older(file), file.to_owned()] {
        match read_file(&file, &wanted, &mut receipts) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            Err(_) => whole = false,
        }
    }
    Ok((receipts, whole))
}

fn read_file(file: &Path, wanted: impl Fn(&str) -> bool, into: &mut Receipts) -> io::Result<()> {
    let lines = BufReader::new(zstd::stream::read::Decoder::new(File::open(file)?)?);
    for line in lines.lines() {
        let line = line?;
        let mut parts = line.split('\t');
        let (id, samples, hash) = (parts.next(), parts.next().and_then(|n| n.parse().ok()), parts.next());
        let (Some(id), Some(samples), Some(hash)) = (id, samples, hash) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line that is no receipt"));
        };
        if wanted(id) {
            into.insert(id.to_owned(), Receipt { samples, hash: hash.to_owned() });
        }
    }
    Ok(())
}

fn append(file: &Path, lines: &str) -> io::Result<()> {
    let frame = zstd::bulk::compress(lines.as_bytes(), 0)?;
    if frame.len() as u64 > MAX_BYTES / 2 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    if fs::metadata(file).is_ok_and(|known| known.len() + frame.len() as u64 > MAX_BYTES / 2) {
        fs::rename(file, older(file))?;
    }
    OpenOptions::new().create(true).append(true).open(file)?.write_all(&frame)
}

fn older(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SiteName;
    use crate::model::samples::bucket;
    use crate::upstream::{Collections, Context, Shape};

    fn document(part: u32) -> Document {
        let context = Context {
            site: SiteName::new("s").unwrap(),
            store: String::new(),
            retention: None,
            shape: Shape::default(),
            meta: Default::default(),
            collections: Collections::new("telemetry", "buckets", None),
            form: Default::default(),
        };
        Document::of(&bucket("a", 1_796_043_600, part, &[(0, 1.0), (1, 2.0)]), &context)
    }

    #[tokio::test]
    async fn receipts_are_read_back_over_restarts_and_damage() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.db.receipts");
        for part in 0..3 {
            let mut book = ReceiptBook::open(file.clone());
            book.add(&document(part), Timestamp::EPOCH);
            book.write().await;
        }
        let (receipts, whole) = read_receipts(&file, |_| true).unwrap();
        let one = &receipts[&document(1).id];
        assert_eq!((receipts.len(), whole, one.samples), (3, true, 2));
        assert!(document(1).hash.starts_with(&one.hash));
        assert_eq!(read_receipts(&file, |id| id.ends_with("|2")).unwrap().0.len(), 1);

        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
        let (receipts, whole) = read_receipts(&file, |_| true).unwrap();
        assert_eq!((receipts.len(), whole), (2, false));
        let mut book = ReceiptBook::open(file.clone());
        book.add(&document(7), Timestamp::EPOCH);
        book.write().await;
        assert_eq!(read_receipts(&file, |_| true).unwrap().0.len(), 3, "what comes after damage can be read");
        assert_eq!(read_receipts(&folder.path().join("none"), |_| true).unwrap(), (Receipts::new(), true));
    }

    #[tokio::test]
    async fn the_files_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.db.receipts");
        let mut book = ReceiptBook::open(file.clone());
        let mut document = document(0);
        for i in 0..400_000 {
            document.hash = format!("{:016x}", fastrand::Rng::with_seed(i).u64(..));
            book.add(&document, Timestamp::EPOCH);
            book.tend().await;
        }
        let bytes: u64 = [&file, &older(&file)].iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes}");
    }
}
