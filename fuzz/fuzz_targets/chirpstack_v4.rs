//! Messages of the preset `chirpstack-v4`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(Preset::ChirpstackV4, &["application/a/device/d/event/up"], payload));
