//! Times in every form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::times::{Format, Local, of_text_as, of_value_as, zone};
use tipbucket::model::Value;

fuzz_target!(|payload: &[u8]| {
    let Ok(text) = std::str::from_utf8(payload) else { return };
    let zone = zone("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
    let local = Local { zone: Some(&zone), arrival: arrival() };
    for format in ["auto", "unix_s", "unix_ns", "rfc3339", "rfc2822", "%d.%m.%Y %H:%M:%S", "%s"] {
        let format = Format::new(format).expect("a form");
        let _ = of_text_as(text, &format, local);
        if let Some(bytes) = payload.first_chunk::<8>() {
            let _ = of_value_as(&Value::I64(i64::from_le_bytes(*bytes)), &format, local);
            let _ = Value::float(f64::from_le_bytes(*bytes)).map(|v| of_value_as(&v, &format, local));
        }
    }
    // As a pattern, too.
    let _ = Format::new(text).map(|format| of_text_as("2026-03-01 12:00", &format, local));
});

fn arrival() -> tipbucket::model::Timestamp {
    tipbucket::model::Timestamp::clamped(1_772_366_400_000)
}
