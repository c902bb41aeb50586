//! `[upstream]` of the site file.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use mongodb::options::ConnectionString;
use serde::{Deserialize, Serialize};

use super::{Names, Uri};

/// Longest database name in bytes (MongoDB's limit).
const MAX_DATABASE_BYTES: usize = 63;
/// Longest `database.collection` in bytes that every server generation takes.
const MAX_NAMESPACE_BYTES: usize = 120;
/// Smallest archive file worth making, and the largest that is still written comfortably.
const ARCHIVE_FILE_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 30);
/// Where a connection string is looked for when the site file names none.
const DEFAULT_URI: &str = "mongodb://127.0.0.1:27017";
/// Name of the systemd credential that may hold the connection string.
const CREDENTIAL: &str = "mongodb-uri";

/// Where complete buckets go, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A database, or files.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The database's connection string. Better kept out of the site file when it holds a password.
    pub uri: Uri,
    /// A file that holds the connection string; wins over `uri`. Without either, the systemd credential `mongodb-uri`
    /// is taken if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri_file: Option<PathBuf>,
    /// The database.
    pub database: String,
    /// The collection.
    pub collection: String,
    /// How buckets are written.
    pub mode: Mode,
    /// How samples stand in a document.
    pub layout: Layout,
    /// What the fields of a document are called.
    pub names: Names,
    /// How long after its window's end the database keeps a bucket (`expireAt`); for ever if absent.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub retention: Option<Duration>,
    /// Archive: the folder for finished files; it must exist.
    pub folder: PathBuf,
    /// Archive: the form of the files.
    pub format: Format,
    /// Archive: a file is finished when it holds this many bytes,
    pub max_file_bytes: ByteSize,
    /// or when its first document is this old.
    #[serde(with = "humantime_serde")]
    pub max_file_age: Duration,
    /// Archive: all finished files together; when reached, delivery stops until files are moved away.
    pub max_bytes: ByteSize,
}

/// What kind of upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A MongoDB server or cluster.
    Mongodb,
    /// Files in a folder.
    Archive,
}

/// How buckets are written to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Complete buckets, inserted once.
    Buckets,
    /// Readings as they come, replaced by the complete bucket.
    Live,
    /// A native time series collection.
    Timeseries,
}

/// How samples stand in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One sub-document per sample.
    Rows,
    /// One array per field.
    Columns,
}

/// The form of archive files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A dump folder per file, for `mongorestore` and `bsondump`.
    Bson,
    /// One document per line in Extended JSON, for `mongoimport`.
    Ndjson,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kind: Kind::Mongodb,
            uri: Uri::new(DEFAULT_URI),
            uri_file: None,
            database: "telemetry".to_owned(),
            collection: "buckets".to_owned(),
            mode: Mode::Buckets,
            layout: Layout::Rows,
            names: Names::default(),
            retention: None,
            folder: "/var/lib/tipbucket/archive".into(),
            format: Format::Bson,
            max_file_bytes: ByteSize::mib(16),
            max_file_age: Duration::from_secs(600),
            max_bytes: ByteSize::gib(1),
        }
    }
}

impl Config {
    /// What does not work now, but may later, each as (key path inside the table, words): a disk that is not mounted yet
    /// is no reason to lose readings.
    pub fn warnings(&self) -> Vec<(String, String)> {
        if self.kind == Kind::Archive && !self.folder.is_dir() {
            let folder = self.folder.display();
            let words =
                format!("archive folder {folder} does not exist now: make it, owned by the service, or mount its disk");
            return vec![("folder".to_owned(), words)];
        }
        if self.kind == Kind::Mongodb
            && let Err(error) = self.address()
        {
            let key = if self.uri_file.is_some() { "uri_file" } else { "uri" };
            let words = format!("{error:#} (nothing is delivered until it can be; readings are kept meanwhile)");
            return vec![(key.to_owned(), words)];
        }
        Vec::new()
    }

    /// Everything that cannot work, each as (key path inside the table, words). Reads the files it names.
    pub fn contradictions(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, words: String| found.push((key.to_owned(), words));
        if let Some(words) = bad_database(&self.database) {
            say("database", words);
        }
        if let Some(words) = bad_collection(&self.collection, self.database.len()) {
            say("collection", words);
        }
        if self.mode != Mode::Buckets {
            say("mode", "only `buckets` is built yet: use mode = \"buckets\"".to_owned());
        }
        if self.layout != Layout::Rows {
            say("layout", "only `rows` is built yet: use layout = \"rows\"".to_owned());
        }
        if self.retention.is_some_and(|r| r.is_zero()) {
            say("retention", "0s would delete every bucket at once: leave it out to keep buckets for ever".to_owned());
        }
        for (key, words) in self.names.contradictions() {
            say(&format!("names.{key}"), words);
        }
        match self.kind {
            Kind::Mongodb => self.bad_address().into_iter().for_each(|(key, words)| say(key, words)),
            Kind::Archive => self.bad_archive().into_iter().for_each(|(key, words)| say(key, words)),
        }
        found
    }

    /// The connection string, read anew from where it is kept: a password may have been changed.
    pub(crate) fn address(&self) -> anyhow::Result<Uri> {
        let credential = std::env::var_os("CREDENTIALS_DIRECTORY").map(|folder| PathBuf::from(folder).join(CREDENTIAL));
        self.address_or(credential)
    }

    fn address_or(&self, credential: Option<PathBuf>) -> anyhow::Result<Uri> {
        let file = match &self.uri_file {
            Some(file) => Some(file.clone()),
            None => credential.filter(|file| self.uri.expose() == DEFAULT_URI && file.exists()),
        };
        let Some(file) = file else { return Ok(self.uri.clone()) };
        let text = std::fs::read_to_string(&file)
            .map_err(|cause| anyhow::anyhow!("cannot read the connection string from {}: {cause}", file.display()))?;
        anyhow::ensure!(!text.trim().is_empty(), "{} holds no connection string", file.display());
        Ok(Uri::new(text.trim()))
    }

    fn bad_address(&self) -> Vec<(&'static str, String)> {
        if self.uri_file.is_some() && self.uri.expose() != DEFAULT_URI {
            return vec![("uri_file", "both uri and uri_file name the database: leave one of them out".to_owned())];
        }
        let key = if self.uri_file.is_some() { "uri_file" } else { "uri" };
        // A file that cannot be read now is read again at each connect: that is a warning.
        let Ok(uri) = self.address() else { return Vec::new() };
        match ConnectionString::parse(uri.expose()) {
            Ok(_) => Vec::new(),
            Err(error) => {
                // The driver's message may quote the part it does not understand.
                let why = uri.scrub(&super::mongo::plain(&error));
                vec![(key, format!("not a connection string: {why} (expected mongodb://user:password@host:27017)"))]
            }
        }
    }

    fn bad_archive(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let (smallest, largest) = (*ARCHIVE_FILE_BYTES.start(), *ARCHIVE_FILE_BYTES.end());
        if !ARCHIVE_FILE_BYTES.contains(&self.max_file_bytes.0) {
            let (smallest, largest) = (ByteSize(smallest), ByteSize(largest));
            found.push(("max_file_bytes", format!("must be from {smallest} to {largest}")));
        }
        if self.max_bytes < self.max_file_bytes {
            found.push((
                "max_bytes",
                format!("must hold at least one file of max_file_bytes = {}", self.max_file_bytes),
            ));
        }
        if self.max_file_age < Duration::from_secs(1) {
            found.push(("max_file_age", "must be at least 1s".to_owned()));
        }
        found
    }
}

fn bad_database(name: &str) -> Option<String> {
    let shown = name.escape_debug();
    if name.is_empty() {
        Some("is empty: name the database".to_owned())
    } else if name.len() > MAX_DATABASE_BYTES {
        Some(format!("`{shown}` has {} bytes, at most {MAX_DATABASE_BYTES} are allowed", name.len()))
    } else if let Some(c) = name.chars().find(|&c| c.is_control() || "/\\. \"$*<>:|?".contains(c)) {
        Some(format!("`{shown}` holds {c:?}, which cannot stand in a database name"))
    } else if matches!(name, "admin" | "local" | "config") {
        Some(format!("`{shown}` belongs to the server itself: choose another database"))
    } else {
        None
    }
}

fn bad_collection(name: &str, database_bytes: usize) -> Option<String> {
    let shown = name.escape_debug();
    if name.is_empty() {
        Some("is empty: name the collection".to_owned())
    } else if let Some(c) = name.chars().find(|&c| c.is_control() || "$/\\".contains(c)) {
        Some(format!("`{shown}` holds {c:?}, which cannot stand in a collection name"))
    } else if name.starts_with("system.") {
        Some(format!("`{shown}` begins with `system.`, which belongs to the server itself"))
    } else if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        Some(format!("`{shown}` has an empty part between dots"))
    } else if database_bytes + 1 + name.len() > MAX_NAMESPACE_BYTES {
        Some(format!("database and collection together have over {MAX_NAMESPACE_BYTES} bytes"))
    } else {
        None
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
