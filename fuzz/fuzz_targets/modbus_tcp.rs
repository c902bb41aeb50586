//! Modbus TCP: a reply is looked for among frames of any kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::modbus::{Found, tcp};

#[path = "../modbus.rs"]
mod request;

fuzz_target!(|input: &[u8]| {
    let Some((asked, stream)) = request::of(input) else { return };
    let number = u16::from(asked.unit);
    match tcp::find(&asked, number, stream) {
        Found::Data { data, end, .. } => {
            assert!(data.len() == asked.data_bytes() && end <= stream.len());
            request::values(&asked, data);
        }
        Found::Exception { end, .. } => assert!(end <= stream.len()),
        Found::Nothing { keep } => assert!(keep <= stream.len()),
    }
    let _ = tcp::explain(&asked, stream);
});
