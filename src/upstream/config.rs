//! `[upstream]` of the site file.

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
    pub names: Names,
    /// How long documents stay after their window.
    #[serde(with = "humantime_serde")]
    pub retention: Option<Duration>,
    /// Archive: the folder.
    pub folder: PathBuf,
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
            uri: Some(SecretString::from("mongodb://127.0.0.1:27017")),
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
    /// Contradictions inside the table, each as (key path inside it, words).
    pub fn contradictions(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, words: &str| found.push((key.to_owned(), words.to_owned()));
        if self.kind == Kind::Archive && self.max_bytes < self.max_file_bytes {
            say("max_bytes", "must hold at least one file of max_file_bytes");
        }
        for (key, name) in [("database", &self.database), ("collection", &self.collection)] {
            if name.is_empty() {
                say(key, &format!("is empty: name the {key}"));
            }
        }
        found
    }
}

macro_rules! names {
    ($($key:ident = $default:literal)*) => {
        /// What the fields of a document are called.
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[allow(missing_docs)]
        pub struct Names { $(pub $key: String,)* }

        impl Default for Names {
            fn default() -> Self {
                Self { $($key: $default.to_owned(),)* }
            }
        }
    };
}

names! {
    site = "site"
    sensor = "sensor"
    part = "part"
    start = "start"
    end = "end"
    first = "first"
    last = "last"
    count = "count"
    stats = "stats"
    stats_count = "count"
    stats_sum = "sum"
    stats_min = "min"
    stats_max = "max"
    stats_first = "first"
    stats_last = "last"
    samples = "samples"
    samples_t = "t"
    sealed = "sealed"
    late = "late"
    meta = "meta"
    clock = "clock"
    hash = "hash"
    store = "store"
    schema = "schema"
    expire_at = "expireAt"
}
