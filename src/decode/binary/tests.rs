//! Binary frames: what the forms of the common sensors make of damage.

use proptest::prelude::*;

use super::*;
use crate::decode::shape::Options;
use crate::decode::telegram::sample_tests::{NOON, decode};
use crate::model::Value;

fn column(name: &str, at: usize) -> Column {
    Column {
        name: name.to_owned(),
        at,
        width: 2,
        kind: Type::U16,
        little: false,
        bits: None,
        invalid: vec![0xffff],
        min_frame: 0,
        options: Options::default(),
    }
}

/// Frames of 4 to 64 bytes: `42 4D`, a length of what follows, words, and their sum.
fn form() -> Form {
    Form {
        start: vec![0x42, 0x4d],
        length: Length::Told { at: 2, bytes: 2, little: false, add: 4, bounds: (8, 64) },
        checksum: Some(Checksum { kind: Kind::Sum16, from: 0, behind: 0, little: false }),
        columns: vec![column("a", 4), Column { min_frame: 10, ..column("b", 6) }],
    }
}

fn frame(words: &[u16]) -> Vec<u8> {
    let mut frame = vec![0x42, 0x4d];
    frame.extend((words.len() as u16 * 2 + 2).to_be_bytes());
    frame.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    let sum = frame.iter().map(|b| u16::from(*b)).sum::<u16>();
    frame.extend(sum.to_be_bytes());
    frame
}

/// All values, and the reasons of all refusals.
fn check(bytes: &[u8], values: &[(&str, i64)], refusals: &[&str]) {
    for size in [1, 5, usize::MAX] {
        let telegrams = decode(Frames::new(form()), bytes, size, NOON);
        let got: Vec<_> =
            telegrams.iter().flat_map(|t| &t.measures).map(|m| (m.name.as_str(), m.value.clone())).collect();
        let expected: Vec<_> = values.iter().map(|(name, value)| (*name, Value::I64(*value))).collect();
        assert_eq!(got, expected);
        let refused: Vec<String> = telegrams.iter().flat_map(|t| &t.refused).map(ToString::to_string).collect();
        assert_eq!(refused.len(), refusals.len(), "{refused:?}");
        for (refused, words) in refused.iter().zip(refusals) {
            assert!(refused.contains(words), "{refused} lacks {words}");
        }
    }
}

#[test]
fn frames_of_any_length_are_found_between_noise() {
    let stream = [&[0, 0x42, 0][..], &frame(&[1, 2, 3]), &[0x42], &frame(&[4]), &frame(&[5, 6])].concat();
    check(&stream, &[("a", 1), ("b", 2), ("a", 4), ("a", 5), ("b", 6)], &[]);
}

#[test]
fn a_damaged_frame_does_not_take_the_next_one_along() {
    let good = frame(&[1, 2, 3, 4, 5, 6]);
    check(&[&good[..9], &good[..]].concat(), &[("a", 1), ("b", 2)], &["9 of 18 bytes, then a new start"]);
    let mut flipped = good.clone();
    flipped[5] ^= 1;
    check(&[&flipped[..], &good[..]].concat(), &[("a", 1), ("b", 2)], &["checksum is"]);
    check(&[&[0x42, 0x4d, 0xff, 0xff], &good[..]].concat(), &[("a", 1), ("b", 2)], &["a length that no frame has"]);
    check(&[&good[..], &good[..9]].concat(), &[("a", 1), ("b", 2)], &["9 of 18 bytes, then nothing"]);
}

#[test]
fn declared_contents_mean_no_value() {
    let telegrams = decode(Frames::new(form()), &frame(&[0xffff, 2, 3]), 1, NOON);
    assert_eq!((telegrams[0].measures.len(), telegrams[0].absent.len()), (1, 1));
}

#[test]
fn bytes_are_read_as_declared() {
    let value = |kind: Type, little: bool, bits: Option<(u8, u8)>, bytes: &[u8]| {
        let width = kind.width().unwrap_or(bytes.len());
        let column = Column { kind, little, bits, width, invalid: vec![], ..column("v", 0) };
        let mut telegram = Telegram::default();
        column.take(bytes, &mut telegram);
        telegram.measures.pop().map(|m| m.value)
    };
    assert_eq!(value(Type::I8, false, None, &[0xff]), Some(Value::I64(-1)));
    assert_eq!(value(Type::I16, true, None, &[0xfe, 0xff]), Some(Value::I64(-2)));
    assert_eq!(value(Type::I24, false, None, &[0x80, 0, 0]), Some(Value::I64(-8_388_608)));
    assert_eq!(value(Type::U64, false, None, &[0xff; 8]), Some(Value::U64(u64::MAX)));
    assert_eq!(value(Type::F32, false, None, &[0x43, 0x66, 0x40, 0]), Some(Value::F64(230.25)));
    assert_eq!(value(Type::F32, false, None, &[0x7f, 0xc0, 0, 0]), None);
    assert_eq!(value(Type::Ascii, false, None, b" 21.5 "), Some(Value::F64(21.5)));
    assert_eq!(value(Type::U8, false, Some((4, 7)), &[0xa5]), Some(Value::I64(10)));
    assert_eq!(value(Type::U64, false, Some((0, 63)), &[0xff; 8]), Some(Value::U64(u64::MAX)));
}

proptest! {
    #[test]
    fn no_stream_makes_it_panic_or_depends_on_its_pieces(
        bytes in proptest::collection::vec(prop_oneof![Just(0x42u8), Just(0x4du8), Just(0u8), any::<u8>()], 0..300),
        size in 1usize..40,
    ) {
        let of = |size| decode(Frames::new(form()), &bytes, size, NOON);
        prop_assert_eq!(of(size), of(usize::MAX));
    }
}
