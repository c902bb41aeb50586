//! Readouts by IEC 62056-21, and the identification that comes before one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::readout::{Readout, iec};

#[path = "../stream.rs"]
mod stream;

fuzz_target!(|input: &[u8]| {
    stream::through(|| Readout::new(iec::READ), input);
    if let Some(meter) = iec::Identification::new(input) {
        let _ = meter.acknowledgement(19_200);
    }
});
