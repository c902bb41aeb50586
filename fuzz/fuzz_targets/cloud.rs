//! Messages of the preset `cloud`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(Preset::Cloud, &["$aws/things/t/shadow/update/accepted"], payload));
