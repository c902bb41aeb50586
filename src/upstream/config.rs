//! `[upstream]` of the site file.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::{Layout, Names, Preset, Rollups, Times, Uri};

/// Where a connection string is looked for when the site file names none.
pub(super) const DEFAULT_URI: &str = "mongodb://127.0.0.1:27017";
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
    /// Live: how often open buckets are brought up to date.
    #[serde(with = "humantime_serde")]
    pub live_every: Duration,
    /// Append: a document takes no more readings once it holds so many.
    pub append_up_to: u32,
    /// Time series: how far apart readings usually are; the server sizes its own buckets by it.
    pub granularity: Granularity,
    /// Time series: the longest span of the server's own buckets, in place of `granularity`.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub bucket_span: Option<Duration>,
    /// A shape found in practice, in place of the usual values of the keys below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// How samples stand in a document.
    pub layout: Layout,
    /// How their times are written.
    pub times: Times,
    /// Where rollups stand.
    pub rollups: Rollups,
    /// The main field, where a shape has one; a bucket's first one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Rollups of intervals of this length inside the window; none if absent.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub summary: Option<Duration>,
    /// A collection for a window's parts after the first; they go where the first goes if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow_collection: Option<String>,
    /// What the fields of a document are called.
    pub names: Names,
    /// How long after its window's end the database keeps a bucket (`expireAt`); for ever if absent.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub retention: Option<Duration>,
    /// It keeps it at least so long after it was sent, however old it is by then.
    #[serde(with = "humantime_serde")]
    pub retention_after_sending: Duration,
    /// Whether a connection is kept while there is nothing to send.
    pub connection: Connection,
    /// Sealed buckets are sent together once in such a time, at a moment of this gateway's own; at once if absent.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub upload_every: Option<Duration>,
    /// Buckets whose windows end together are sent so much later at most, a tenth of their window at most: each gateway
    /// at a moment of its own, so that a fleet does not upload in the same second.
    #[serde(with = "humantime_serde")]
    pub spread: Duration,
    /// How many gateways use this database; their connections are then spread over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_size: Option<u32>,
    /// How many connections a second the whole fleet may open.
    pub max_connects_per_second: u32,
    /// Most bytes sent in a day (UTC); no bound if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_day: Option<ByteSize>,
    /// While both wait: so many commands of the backlog for each one of new buckets.
    pub backlog_share: u32,
    /// How often this gateway's document in `_gateways` is updated, its gaps are stored in `_gaps` and `_control` is
    /// read; `0s`: never.
    #[serde(with = "humantime_serde")]
    pub reports: Duration,
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
    /// Reading by reading into documents that others write too.
    Append,
    /// A native time series collection.
    Timeseries,
}

/// How far apart readings of one sensor usually are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    /// Seconds: the server's buckets span an hour.
    Seconds,
    /// Minutes: a day.
    Minutes,
    /// Hours: thirty days.
    Hours,
}

impl Granularity {
    /// The server's word.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
        }
    }
}

/// Whether a connection is kept while there is nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    /// Kept while buckets are sent at least every ten minutes.
    Auto,
    /// Always.
    Held,
    /// Never: connect, send, hang up.
    DutyCycle,
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
            live_every: Duration::from_secs(5),
            append_up_to: 1000,
            granularity: Granularity::Seconds,
            bucket_span: None,
            preset: None,
            layout: Layout::default(),
            times: Times::default(),
            rollups: Rollups::default(),
            field: None,
            summary: None,
            overflow_collection: None,
            names: Names::default(),
            retention: None,
            retention_after_sending: Duration::from_secs(86_400),
            connection: Connection::Auto,
            upload_every: None,
            spread: Duration::from_secs(30),
            fleet_size: None,
            max_connects_per_second: 20,
            max_bytes_per_day: None,
            backlog_share: 4,
            reports: Duration::from_secs(600),
            folder: "/var/lib/tipbucket/archive".into(),
            format: Format::Bson,
            max_file_bytes: ByteSize::mib(16),
            max_file_age: Duration::from_secs(600),
            max_bytes: ByteSize::gib(1),
        }
    }
}

impl Config {
    /// The same with another file for the connection string.
    pub fn with_uri_file(self, uri_file: Option<PathBuf>) -> Self {
        Self { uri_file, ..self }
    }

    /// The connection string, read anew from where it is kept: a password may have been changed.
    pub(crate) fn address(&self) -> anyhow::Result<Uri> {
        let credential = std::env::var_os("CREDENTIALS_DIRECTORY").map(|folder| PathBuf::from(folder).join(CREDENTIAL));
        self.address_or(credential)
    }

    pub(super) fn address_or(&self, credential: Option<PathBuf>) -> anyhow::Result<Uri> {
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
}
