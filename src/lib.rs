//! tipbucket: sensor readings from serial lines and MQTT into bounded buckets in SQLite, complete buckets into MongoDB.
//!
//! The layers, top to bottom (imports go strictly downwards, `tests/tidy.rs` enforces it):
//! `cli` · `daemon` · `settings`, `health`, `web` · `sources`, `forwarder` · `store`, `upstream` · `clock`, `stats` · `model`, `decode`.
//! `docs/ARCHITECTURE.md` tells why.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod cli;
pub mod clock;
pub mod daemon;
pub mod decode;
pub mod forwarder;
pub mod health;
pub mod settings;
pub mod sources;
pub mod stats;
pub mod store;
pub mod upstream;
pub mod web;

#[doc(inline)]
pub use tipbucket_model as model;
