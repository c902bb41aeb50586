//! `[upstream]` of the site file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use secrecy::SecretString;
use serde::Deserialize;

/// Where complete buckets go.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A MongoDB-compatible server, or files.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The server's address.
    pub uri: Option<SecretString>,
    /// A file that holds the server's address.
    pub uri_file: Option<PathBuf>,
    /// The database.
    pub database: String,
    /// The collection.
    pub collection: String,
    /// What is written.
    pub mode: Mode,
    /// How samples are laid out in the document.
    pub layout: Layout,
    /// Other names for the document's fields.
    pub names: BTreeMap<String, String>,
    /// How long documents stay after their window.
    #[serde(with = "humantime_serde")]
    pub retention: Option<Duration>,
    /// Archive: the folder.
    pub folder: Option<PathBuf>,
    /// Archive: the form of the files.
    pub format: Format,
    /// Archive: a file is finished at this size.
    pub max_file_bytes: ByteSize,
    /// Archive: a file is finished at this age.
    #[serde(with = "humantime_serde")]
    pub max_file_age: Duration,
    /// Archive: all files together.
    pub max_bytes: ByteSize,
}

/// `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A MongoDB-compatible server.
    Mongodb,
    /// Files in a folder.
    Archive,
}

/// `mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Complete buckets.
    Buckets,
    /// Open buckets too.
    Live,
    /// A time series collection.
    Timeseries,
}

/// `layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One sub-document per sample.
    Rows,
    /// One array per field.
    Columns,
}

/// `format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// As mongodump writes.
    Bson,
    /// Extended JSON, one document per line.
    Ndjson,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kind: Kind::Mongodb,
            uri: None,
            uri_file: None,
            database: "telemetry".to_owned(),
            collection: "buckets".to_owned(),
            mode: Mode::Buckets,
            layout: Layout::Rows,
            names: BTreeMap::new(),
            retention: None,
            folder: None,
            format: Format::Bson,
            max_file_bytes: ByteSize::mib(64),
            max_file_age: Duration::from_secs(3600),
            max_bytes: ByteSize::gib(1),
        }
    }
}

impl Config {
    /// Contradictions inside the table, each as (key path inside it, words).
    pub fn contradictions(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, words: &str| found.push((key.to_owned(), words.to_owned()));
        if self.uri.is_some() && self.uri_file.is_some() {
            say("uri_file", "`uri` is set as well (keep one of the two)");
        }
        if self.kind == Kind::Archive && self.folder.is_none() {
            say("folder", "type `archive` needs a folder for its files");
        }
        for (key, name) in [("database", &self.database), ("collection", &self.collection)] {
            if name.is_empty() {
                say(key, "is empty");
            }
        }
        found
    }
}
