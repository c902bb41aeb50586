//! Plain numbers, states and texts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::{number, text};

fuzz_target!(|payload: &[u8]| {
    if let Ok(value) = number::decode_either(payload) {
        assert!(value.is_sound());
    }
    let _ = (number::decode(payload), number::decode_state(payload), text::decode(payload));
});
