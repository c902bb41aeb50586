//! Everything that needs the outside: one binary, so that it links once and its tests share the machine.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod serial;
mod support;
