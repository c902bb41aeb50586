//! NMEA 0183 sentences, with and without checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::nmea::{Nmea, Time};

#[path = "../stream.rs"]
mod stream;

fuzz_target!(|input: &[u8]| {
    stream::through(|| Nmea::new(Time::Gps, true), input);
    stream::through(|| Nmea::new(Time::Arrival, false), input);
});
