//! SML files: the recorded samples, and what no sample has.

use proptest::prelude::*;

use super::*;
use crate::decode::telegram::sample_tests::{NOON, check_family, decode, family};

fn sample(id: &str) -> Vec<u8> {
    family("sml").into_iter().find(|s| s.id == id).unwrap().bytes
}

fn check(bytes: &[u8], measures: usize, refusals: &[&str]) {
    let telegrams = decode(Sml::default(), bytes, 16, NOON);
    let refused: Vec<String> = telegrams.iter().flat_map(|t| &t.refused).map(ToString::to_string).collect();
    assert_eq!(refused.len(), refusals.len(), "{refused:?}");
    for (refused, words) in refused.iter().zip(refusals) {
        assert!(refused.contains(words), "{refused} lacks {words}");
    }
    assert_eq!(telegrams.iter().map(|t| t.measures.len()).sum::<usize>(), measures);
}

#[test]
fn every_sample_gives_what_it_should() {
    check_family("sml", Sml::default);
}

#[test]
fn a_cut_or_damaged_file_does_not_take_the_next_one_along() {
    let good = sample("SE-SML-02");
    check(&[&good[..100], &good[..]].concat(), 3, &["another begins before its end"]);
    check(&[&good[100..], &good[..]].concat(), 3, &[]);
    check(&[&good[..], &good[..100]].concat(), 3, &["the stream ends before it does"]);
    let mut damaged = good.clone();
    damaged[120] ^= 4;
    check(&[&damaged[..], &good[..]].concat(), 3, &["its CRC does not fit"]);
    let bad_escape = [&good[..100], &[0x1b, 0x1b, 0x1b, 0x1b, 7, 7, 7, 7], &good[..]].concat();
    check(&bad_escape, 3, &["means nothing"]);
    let endless = [&good[..100], &vec![5; MAX_FILE_BYTES], &good[..]].concat();
    check(&endless, 3, &["has no end"]);
}

#[test]
fn content_that_ends_with_the_escape_character_is_told_from_the_escape() {
    let mut wire = BEGIN.to_vec();
    wire.extend([0x1b, 0x1b, 0x1b, 0x1b, 0x1b, 0x1b, 0x1b, 0x1b, 2, 3, 4, 0x1b]);
    wire.extend([0x1b, 0x1b, 0x1b, 0x1b, 0x1a, 0]);
    wire.extend(crc::Crc::<u16>::new(&crc::CRC_16_IBM_SDLC).checksum(&wire).to_le_bytes());
    let mut sml = Sml { held: wire, ..Sml::default() };
    let mut out = Vec::new();
    sml.advance(&mut out);
    assert_eq!(out.len(), 1);
    assert!(out[0].refused[0].why.contains("malformed"), "{out:?}");
}

proptest! {
    #[test]
    fn no_stream_makes_it_panic_or_depends_on_its_pieces(
        bytes in proptest::collection::vec(prop_oneof![Just(0x1bu8), Just(1u8), Just(0x1au8), any::<u8>()], 0..300),
        size in 1usize..40,
    ) {
        let of = |size| decode(Sml::default(), &bytes, size, NOON);
        prop_assert_eq!(of(size), of(usize::MAX));
    }

    #[test]
    fn no_content_makes_it_panic(content in proptest::collection::vec(prop_oneof![Just(0x76u8), Just(0x77u8), 0x50u8..0x80, any::<u8>()], 0..300)) {
        let _ = list::read(&content, &mut Telegram::default());
        let _ = tree::Reader::new(&content).element();
    }

    #[test]
    fn a_file_with_a_flipped_bit_is_never_taken(at in 8usize..250, bit in 0u8..8) {
        let mut bytes = sample("SE-SML-02");
        bytes[at] ^= 1 << bit;
        let telegrams = decode(Sml::default(), &bytes, usize::MAX, NOON);
        prop_assert!(telegrams.iter().all(|t| t.measures.is_empty()));
    }
}
