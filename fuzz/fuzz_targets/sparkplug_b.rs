//! Messages of the preset `sparkplug-b`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::preset::Preset;

#[path = "../message.rs"]
mod message;

fuzz_target!(|payload: &[u8]| message::through(
    Preset::SparkplugB,
    &["spBv1.0/g/NBIRTH/e", "spBv1.0/g/DDATA/e/d", "spBv1.0/g/NDATA/e", "spBv1.0/g/NDEATH/e"],
    payload
));
