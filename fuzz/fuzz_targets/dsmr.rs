//! DSMR P1 telegrams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::readout::{Readout, dsmr};

#[path = "../stream.rs"]
mod stream;

fuzz_target!(|input: &[u8]| {
    stream::through(|| Readout::new(dsmr::READ), input);
});
