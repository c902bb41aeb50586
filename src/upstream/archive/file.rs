//! One archive file, from its temporary name to its final one. Everything here blocks.
//!
//! Format `bson`: `<folder>/<stamp>-<seq>/<database>/<collection>.bson` beside `<collection>.metadata.json`, the layout of
//! mongodump, so that `mongorestore <folder>/<stamp>-<seq>` works and `bsondump` reads the inner file.
//! Format `ndjson`: `<folder>/<database>.<collection>-<stamp>-<seq>.ndjson` for `mongoimport`.
//! Until it is finished its name is `.<name>.tmp`; finishing is: data on disk, rename, folder on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::super::Format;
use crate::model::Timestamp;

/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 64 << 10;
/// Depth to which the archive folder is searched: dump folder, database, file.
const DEPTH: u32 = 3;

/// What the files of one archive have in common.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) folder: PathBuf,
    pub(super) format: Format,
    pub(super) database: String,
    pub(super) collection: String,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Unfinished {
    form: Form,
    temporary: PathBuf,
    end: PathBuf,
    data: BufWriter<File>,
    bytes: u64,
}

impl Unfinished {
    /// Begins a file under a name that no other has.
    pub(super) fn begin(form: &Form, now: Timestamp) -> io::Result<Self> {
        for seq in 0..1000 {
            let stamp = format!("{}-{seq:03}", now.basic());
            let name = match form.format {
                Format::Bson => stamp,
                Format::Ndjson => format!("{}.{}-{stamp}.ndjson", form.database, escaped(&form.collection)),
            };
            let temporary = form.folder.join(format!(".{name}.tmp"));
            let end = form.folder.join(name);
            if end.exists() || temporary.exists() {
                continue;
            }
            let path = match form.format {
                Format::Bson => {
                    let inner = temporary.join(&form.database);
                    // Never the archive folder itself: it is missing when its disk is not mounted.
                    fs::create_dir(&temporary)?;
                    fs::create_dir(&inner)?;
                    inner.join(format!("{}.bson", escaped(&form.collection)))
                }
                Format::Ndjson => temporary.clone(),
            };
            let file = OpenOptions::new().write(true).create_new(true).open(path)?;
            let data = BufWriter::with_capacity(BUFFER_BYTES, file);
            return Ok(Self { form: form.clone(), temporary, end, data, bytes: 0 });
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "a thousand files bear this instant's name"))
    }

    /// Adds documents that are encoded already.
    pub(super) fn write(&mut self, encoded: &[u8]) -> io::Result<()> {
        self.data.write_all(encoded)?;
        self.bytes += encoded.len() as u64;
        Ok(())
    }

    /// Bytes written so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the file its final name; when this returns it is there for good. Gives its size on disk.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        let result = self.finish_inner();
        if result.is_err() {
            discard(&self.temporary);
        }
        result
    }

    fn finish_inner(&mut self) -> io::Result<u64> {
        self.data.flush()?;
        self.data.get_ref().sync_all()?;
        let mut bytes = self.bytes;
        if self.form.format == Format::Bson {
            let inner = self.temporary.join(&self.form.database);
            let metadata = metadata(&self.form.collection);
            let mut file = File::create(inner.join(format!("{}.metadata.json", escaped(&self.form.collection))))?;
            file.write_all(metadata.as_bytes())?;
            file.sync_all()?;
            sync_folder(&inner)?;
            sync_folder(&self.temporary)?;
            bytes += metadata.len() as u64;
        }
        fs::rename(&self.temporary, &self.end)?;
        sync_folder(&self.form.folder)?;
        Ok(bytes)
    }

    /// Removes the unfinished file.
    pub(super) fn abandon(self) {
        drop(self.data);
        discard(&self.temporary);
    }
}

/// Removes what an earlier run left unfinished and tells how many bytes the finished files hold.
pub(super) fn tidy(folder: &Path) -> io::Result<u64> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.ends_with(".tmp") {
            tracing::info!(
                "removing unfinished archive file {}: its buckets are written again",
                entry.path().display()
            );
            discard(&entry.path());
        }
    }
    usage(folder)
}

/// Bytes that the finished files hold.
pub(super) fn usage(folder: &Path) -> io::Result<u64> {
    fn sum(folder: &Path, depth: u32) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            // Somebody may be moving files away at this moment.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_file() && !hidden {
                bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            } else if kind.is_dir() && !hidden && depth > 1 {
                bytes += sum(&entry.path(), depth - 1).unwrap_or(0);
            }
        }
        Ok(bytes)
    }
    sum(folder, DEPTH)
}

fn discard(path: &Path) {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("cannot remove unfinished archive file {}: {error}", path.display());
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// What mongorestore wants to know about a collection: no options, the one index that every collection has.
fn metadata(collection: &str) -> String {
    let name = serde_json::Value::from(collection);
    format!(
        "{{\"options\":{{}},\"indexes\":[{{\"v\":{{\"$numberInt\":\"2\"}},\"key\":{{\"_id\":{{\"$numberInt\":\"1\"}}}},\"name\":\"_id_\"}}],\"uuid\":\"\",\"collectionName\":{name},\"type\":\"collection\"}}"
    )
}

/// A collection's name as a file name, encoded as mongodump does.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'&' | b'+' | b'=' | b':' | b'@' => {
                text.push(byte as char);
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(folder: &Path, format: Format) -> Form {
        Form { folder: folder.to_owned(), format, database: "plant".into(), collection: "été.x".into() }
    }

    fn visible(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_is_visible_before_it_is_finished() {
        for format in [Format::Bson, Format::Ndjson] {
            let folder = tempfile::tempdir().unwrap();
            let form = form(folder.path(), format);
            let mut file = Unfinished::begin(&form, Timestamp::EPOCH).unwrap();
            file.write(b"0123456789").unwrap();
            assert_eq!(visible(folder.path()), [""; 0]);
            assert_eq!(usage(folder.path()).unwrap(), 0);
            let bytes = file.finish().unwrap();
            let name = match format {
                Format::Bson => "19700101T000000.000Z-000",
                Format::Ndjson => "plant.%C3%A9t%C3%A9.x-19700101T000000.000Z-000.ndjson",
            };
            assert_eq!(visible(folder.path()), [name]);
            assert_eq!(usage(folder.path()).unwrap(), bytes);
            Unfinished::begin(&form, Timestamp::EPOCH).unwrap().finish().unwrap();
            assert_eq!(visible(folder.path()).len(), 2, "the same instant, another name");
        }
    }

    #[test]
    fn what_was_left_unfinished_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let form = form(folder.path(), Format::Bson);
        Unfinished::begin(&form, Timestamp::EPOCH).unwrap().finish().unwrap();
        let _dies = Unfinished::begin(&form, Timestamp::EPOCH).unwrap();
        fs::write(folder.path().join(".x.ndjson.tmp"), "half").unwrap();
        fs::write(folder.path().join(".hidden"), "not ours").unwrap();
        tidy(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(folder.path().join(".hidden").exists());
    }

    #[test]
    fn the_metadata_is_json() {
        let metadata: serde_json::Value = serde_json::from_str(&metadata("a\"b")).unwrap();
        assert_eq!(metadata["collectionName"], "a\"b");
        assert_eq!(metadata["indexes"][0]["name"], "_id_");
    }
}
