//! A stream through a decoder: in one piece, and cut as the first byte says. What comes out must be the same, be values that
//! may be stored, and bear witness to no more bytes than went in.

use tipbucket::decode::telegram::{Context, Decoder, Telegram};
use tipbucket::decode::times::Local;
use tipbucket::model::{Admission, Timestamp};

/// Feeds decoders that `make` makes.
pub fn through<D: Decoder>(make: impl Fn() -> D, input: &[u8]) {
    let Some((first, stream)) = input.split_first() else { return };
    let whole = decode(make(), stream, stream.len().max(1));
    assert_eq!(decode(make(), stream, usize::from(*first).max(1)), whole);
    let kept: usize = whole.iter().map(|telegram| telegram.bytes.len()).sum();
    assert!(kept <= stream.len(), "{kept} bytes out of {}", stream.len());
    assert!(whole.iter().flat_map(|telegram| &telegram.measures).all(|measure| measure.value.is_sound()));
}

fn decode(mut decoder: impl Decoder, stream: &[u8], size: usize) -> Vec<Telegram> {
    let local = Local { zone: None, arrival: Timestamp::clamped(1_772_366_400_000) };
    let context = Context { local, admission: Admission::default() };
    let mut telegrams = Vec::new();
    for piece in stream.chunks(size) {
        decoder.push(piece, &context, &mut telegrams);
    }
    decoder.finish(&context, &mut telegrams);
    telegrams
}
