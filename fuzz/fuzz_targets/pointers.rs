//! JSON pointers with `*`, and what they find.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::pointer::Pointer;
use tipbucket::decode::tree::{Decoder, Shape};
use tipbucket::model::FieldName;

fuzz_target!(|payload: &[u8]| {
    // The first line is a pointer, the rest the payload.
    let split = payload.iter().position(|b| *b == b'\n').unwrap_or(0);
    let Ok(text) = std::str::from_utf8(&payload[..split]) else { return };
    let (Ok(pointer), Ok(name)) = (Pointer::new(text), FieldName::new("*")) else { return };
    let each = Some(pointer.clone());
    let shape = Shape { fields: vec![(name, pointer.clone())], each, time: Some(pointer), ..Shape::default() };
    let _ = Decoder::new(shape).json(&payload[split..], arrival());
});

fn arrival() -> tipbucket::model::Timestamp {
    tipbucket::model::Timestamp::clamped(1_772_366_400_000)
}
