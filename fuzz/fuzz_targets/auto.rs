//! Which decoder a message is for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::auto;

fuzz_target!(|payload: &[u8]| {
    let _ = auto::pick("a/b", payload);
    if let Ok(topic) = std::str::from_utf8(payload) {
        let _ = auto::pick(topic, payload);
    }
});
