//! Messages of the preset `ruuvi`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(Preset::Ruuvi, &["ruuvi/g/t"], payload));
