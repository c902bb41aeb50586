//! CBOR payloads, every number taken.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::tree::{Decoder, Shape};

fuzz_target!(|payload: &[u8]| {
    let mut decoder = Decoder::new(Shape::default());
    if let Ok(decoded) = decoder.cbor(payload, arrival()) {
        assert!(decoded.readings.iter().flat_map(|m| &m.fields).all(|(_, value)| value.is_sound()));
    }
});

fn arrival() -> tipbucket::model::Timestamp {
    tipbucket::model::Timestamp::clamped(1_772_366_400_000)
}
