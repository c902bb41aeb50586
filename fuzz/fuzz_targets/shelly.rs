//! Messages of the preset `shelly`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(
    Preset::Shelly,
    &["shellies/s/relay/0", "home/events/rpc", "home/status/switch:0"],
    payload
));
