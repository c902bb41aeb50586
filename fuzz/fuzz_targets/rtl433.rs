//! Messages of the preset `rtl433`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(Preset::Rtl433, &["rtl_433/h/events"], payload));
