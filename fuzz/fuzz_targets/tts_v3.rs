//! Messages of the preset `tts-v3`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(Preset::TtsV3, &["v3/a/devices/d/up"], payload));
