//! All integration tests, in one binary: it links once, and its tests run side by side.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, missing_docs, unreachable_pub)]

mod day;
mod drills;
mod main_job;
mod mqtt;
mod operations;
mod serial;
mod settings;
mod support;
mod upkeep;
mod upstream;
