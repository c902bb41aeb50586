//! `[store]` of the site file.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// Where and how readings are kept until they are delivered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The database file; its folder must exist and be writable.
    pub path: PathBuf,
    /// Everything we own on disk: database, write-ahead log, dead letters, and what lies beside them.
    pub max_bytes: ByteSize,
    /// Bytes of it that are kept free for small files beside the database. Not a key of the site file: whoever knows those
    /// files says it, as the sum of their bounds.
    #[serde(skip)]
    pub beside: ByteSize,
    /// Longest time an accepted reading waits for its commit; also the loss window for sources that cannot resend.
    #[serde(with = "humantime_serde")]
    pub commit_every: Duration,
    /// The same for batches of nothing but what its sender keeps until we have it; never shorter than `commit_every`.
    #[serde(with = "humantime_serde")]
    pub commit_every_resendable: Duration,
    /// How long a sealed bucket may wait for its delivery before it is written, while the upstream takes what it is
    /// sent; zero: every bucket is written when it is sealed.
    #[serde(with = "humantime_serde")]
    pub write_behind: Duration,
    /// How long whole buckets stay here after their delivery, for `tipbucket query`; zero: not at all.
    #[serde(with = "humantime_serde")]
    pub keep_raw: Duration,
    /// How long their rollups stay.
    #[serde(with = "humantime_serde")]
    pub keep_rollups: Duration,
    /// What to do when `max_bytes` is reached.
    pub when_full: WhenFull,
}

/// What to do when the disk budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Replace the oldest buckets' samples by their rollups, then evict.
    Thin,
    /// Delete the oldest buckets.
    Evict,
    /// Take nothing more until there is room; MQTT messages stay unacknowledged at the broker.
    Refuse,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: "/var/lib/tipbucket/tipbucket.db".into(),
            max_bytes: ByteSize::gib(2),
            beside: ByteSize::b(0),
            commit_every: Duration::from_secs(1),
            commit_every_resendable: Duration::from_secs(1),
            write_behind: Duration::from_secs(30),
            keep_raw: Duration::ZERO,
            keep_rollups: Duration::from_secs(30 * 24 * 3600),
            when_full: WhenFull::Thin,
        }
    }
}
