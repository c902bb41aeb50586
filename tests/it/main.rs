//! Integration tests: the parts together, against real brokers, ports and databases on this machine.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod mqtt;
mod support;
