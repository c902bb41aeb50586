//! Complete buckets as files: for a gateway without a network, or as a second way out.
//!
//! The documents are byte for byte those that MongoDB delivery sends, with the same `_id`s, so a later upload finds
//! them. Documents are held until their file bears its final name and is on disk; a file is finished when it is full or
//! old, and when the daemon stops. If a file cannot be finished it is removed, and its documents are asked for again.

mod extjson;
mod file;

use std::io;
use std::time::Duration;

use bytesize::ByteSize;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::{Config, Document, Fate, Format, Report, Trouble, TroubleKind};
use crate::clock::Clock;
use file::{Form, Unfinished};

/// Most documents and bytes of one call.
pub(super) const LIMITS: (usize, usize) = (1000, 1 << 20);

/// A folder of archive files.
#[derive(Debug)]
pub(super) struct Archive {
    form: Form,
    max_file_bytes: u64,
    max_file_age: Duration,
    max_bytes: u64,
    clock: Clock,
    /// Bytes of finished files; `None` until the folder was looked at.
    used: Option<u64>,
    open: Option<(Unfinished, Instant)>,
}

impl Archive {
    pub(super) fn new(config: &Config, clock: Clock) -> Self {
        let form = Form {
            folder: config.folder.clone(),
            format: config.format,
            database: config.database.clone(),
            collection: config.collection.clone(),
        };
        Self {
            form,
            max_file_bytes: config.max_file_bytes.0,
            max_file_age: config.max_file_age,
            max_bytes: config.max_bytes.0,
            clock,
            used: None,
            open: None,
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.open.as_ref().map(|(_, since)| *since + self.max_file_age)
    }

    pub(super) async fn deliver(&mut self, documents: &[Document]) -> Report {
        let mut report = Report { fates: vec![Fate::Unsent; documents.len()], ..Report::default() };
        let mut done = 0;
        while done < documents.len() {
            match self.step(documents, done, &mut report).await {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(error) => {
                    self.failed(&error, &mut report);
                    break;
                }
            }
        }
        report
    }

    /// Finishes the open file, if there is one.
    pub(super) async fn finish(&mut self) -> Report {
        let mut report = Report::default();
        match self.close_file(&mut report).await {
            Ok(()) => {}
            Err(error) => self.failed(&error, &mut report),
        }
        report
    }

    /// Writes as many documents, from number `from`, as fit the open file; 0 if there is no room left at all.
    async fn step(&mut self, documents: &[Document], from: usize, report: &mut Report) -> io::Result<usize> {
        let (mut bytes, mut count) = (Vec::new(), 0);
        let filled = self.open.as_ref().map_or(0, |(file, _)| file.bytes());
        for document in &documents[from..] {
            let start = bytes.len();
            encode(self.form.format, document, &mut bytes)?;
            if filled + bytes.len() as u64 > self.max_file_bytes && (filled > 0 || count > 0) {
                bytes.truncate(start);
                break;
            }
            count += 1;
        }
        if count == 0 {
            self.close_file(report).await?;
            return Box::pin(self.step(documents, from, report)).await;
        }
        if !self.has_room(filled + bytes.len() as u64).await? {
            self.close_file(report).await?;
            report.trouble = Some(self.full());
            return Ok(0);
        }
        let (mut file, since) = self.take_file().await?;
        let (file, written) = blocking(move || {
            let written = file.write(&bytes);
            Ok((file, written))
        })
        .await?;
        if let Err(error) = written {
            file.abandon();
            return Err(error);
        }
        let full = file.bytes() >= self.max_file_bytes;
        self.open = Some((file, since));
        report.fates[from..from + count].fill(Fate::Held);
        if full {
            self.close_file(report).await?;
        }
        Ok(count)
    }

    async fn take_file(&mut self) -> io::Result<(Unfinished, Instant)> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let (form, now) = (self.form.clone(), self.clock.now());
        Ok((blocking(move || Unfinished::begin(&form, now)).await?, Instant::now()))
    }

    /// Whether the archive can hold another file of `bytes`. Looks anew when it seems full: files are moved away.
    async fn has_room(&mut self, bytes: u64) -> io::Result<bool> {
        if let Some(used) = self.used
            && used + bytes <= self.max_bytes
        {
            return Ok(true);
        }
        let folder = self.form.folder.clone();
        let first = self.used.is_none() && self.open.is_none();
        let used = blocking(move || if first { file::tidy(&folder) } else { file::usage(&folder) }).await?;
        self.used = Some(used);
        Ok(used + bytes <= self.max_bytes)
    }

    /// Finishes the open file: what was held is durable then.
    async fn close_file(&mut self, report: &mut Report) -> io::Result<()> {
        let Some((file, since)) = self.open.take() else { return Ok(()) };
        if file.bytes() == 0 {
            self.open = Some((file, since));
            return Ok(());
        }
        let bytes = blocking(move || file.finish()).await?;
        self.used = self.used.map(|used| used + bytes);
        report.flushed = true;
        for fate in &mut report.fates {
            if *fate == Fate::Held {
                *fate = Fate::Delivered;
            }
        }
        Ok(())
    }

    /// The open file is lost, and what was held in it.
    fn failed(&mut self, error: &io::Error, report: &mut Report) {
        if let Some((file, _)) = self.open.take() {
            file.abandon();
        }
        for fate in &mut report.fates {
            if *fate == Fate::Held {
                *fate = Fate::Unsent;
            }
        }
        report.dropped = !report.flushed;
        let folder = self.form.folder.display();
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space there: nothing is lost meanwhile",
            io::ErrorKind::NotFound => "does the folder exist, is its disk mounted?",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "may the service write there?",
            _ => "nothing is lost, it is tried again",
        };
        let text = format!("cannot write an archive file into {folder}: {error}: {hint}");
        report.trouble = Some(Trouble { kind: TroubleKind::Transient, text, wait: None, reconnects: false });
    }

    fn full(&self) -> Trouble {
        let (used, most) = (ByteSize(self.used.unwrap_or(0)), ByteSize(self.max_bytes));
        let folder = self.form.folder.display();
        let text = format!(
            "the archive in {folder} holds {used} of upstream.max_bytes = {most}: move files away or raise the bound; nothing is lost meanwhile"
        );
        Trouble { kind: TroubleKind::Stopped, text, wait: None, reconnects: false }
    }
}

fn encode(format: Format, document: &Document, to: &mut Vec<u8>) -> io::Result<()> {
    match format {
        Format::Bson => to.extend_from_slice(document.bson().as_bytes()),
        Format::Ndjson => {
            let mut line = String::with_capacity(document.bytes() * 2);
            extjson::line(document.bson(), &mut line).map_err(io::Error::other)?;
            to.extend_from_slice(line.as_bytes());
        }
    }
    Ok(())
}

/// File work off the runtime's thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

/// A document's bytes as one line of Extended JSON; `None` if they are no document of ours.
pub fn extended_json(bson: &[u8]) -> Option<String> {
    let document = mongodb::bson::raw::RawDocument::from_bytes(bson).ok()?;
    let mut line = String::new();
    extjson::line(document, &mut line).ok()?;
    Some(line)
}

#[cfg(test)]
mod tests;
