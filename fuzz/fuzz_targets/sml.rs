//! SML files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::sml::Sml;

#[path = "../stream.rs"]
mod stream;

fuzz_target!(|input: &[u8]| {
    stream::through(Sml::default, input);
});
