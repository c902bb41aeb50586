//! What can be decided without touching the world: no I/O, no clock, no async, no knowledge of SQLite, MQTT or MongoDB.
//!
//! A crate of its own, so that it alone is compiled for speed: every reading passes through it, and the rest, which is
//! far larger, is compiled for size. The rest knows it as `tipbucket::model`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod backoff;
mod bucket;
pub mod bucketer;
pub mod codec;
mod content;
mod letter;
mod loss;
mod name;
mod policy;
mod reading;
mod rollup;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod time;
mod used;
mod value;
pub mod varint;
mod window;

pub use bucket::{ClockState, Rollup, Sample, SealReason, SealedBucket};
pub use letter::{DeadLetter, LetterKind};
pub use loss::{LossReason, LostBucket, TurnedAway};
pub use name::{FieldName, NameError, SensorName, SiteName, SourceName};
pub use policy::{Admission, BucketPolicy, Implausible, Policies};
pub use reading::{Fields, MAX_FIELDS, Reading, ReadingError};
pub use rollup::{FieldStats, Number, rollups, row_rollups};
pub use time::Timestamp;
pub use used::Used;
pub use value::{MAX_TEXT_BYTES, Value};
pub use window::{Window, WindowError, WindowLength};
