//! Messages of the preset `victron`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(Preset::Victron, &["N/1/battery/0/Dc"], payload));
