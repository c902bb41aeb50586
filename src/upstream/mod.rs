//! Where complete buckets go: MongoDB, or archive files.

mod config;

pub use config::{Config, Names};
