//! Modbus RTU: a reply is looked for among any bytes, and its registers become values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::modbus::{self, Found, Request};

#[path = "../modbus.rs"]
mod request;

fuzz_target!(|input: &[u8]| {
    let Some((asked, stream)) = request::of(input) else { return };
    let sent = asked.encode();
    assert_eq!(Request::decode(&sent), Some(asked));
    assert_eq!(modbus::find(&asked, &sent), Found::Nothing { keep: sent.len() }, "the echo of a request is no reply");
    match modbus::find(&asked, stream) {
        Found::Data { data, frame, end } => {
            assert!(data.len() == asked.data_bytes() && frame.len() <= modbus::MAX_FRAME_BYTES && end <= stream.len());
            request::values(&asked, data);
        }
        Found::Exception { end, .. } => assert!(end <= stream.len()),
        Found::Nothing { keep } => {
            assert!(keep <= stream.len() && stream.len() - keep <= modbus::MAX_FRAME_BYTES);
            let _ = modbus::explain(&asked, stream);
        }
    }
    let _ = modbus::is_damaged_reply(&asked, stream);
    let _ = Request::decode(stream);
});
