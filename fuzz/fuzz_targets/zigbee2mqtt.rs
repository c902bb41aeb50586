//! Messages of the preset `zigbee2mqtt`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(Preset::Zigbee2mqtt, &["zigbee2mqtt/a/b"], payload));
