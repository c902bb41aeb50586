//! The store under adverse conditions, through its public ends: files of earlier versions, power cuts, failing disks,
//! flipped bits. In one binary, since all of it runs on the layer of `fault-vfs`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, missing_docs, unreachable_pub)]

mod cuts;
mod faults;
mod files;
mod flips;
mod history;
mod readonly;
mod site;
mod syncs;
mod told;
