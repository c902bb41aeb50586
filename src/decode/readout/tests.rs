//! Readouts: the recorded samples, and what no sample has.

use proptest::prelude::*;

use super::*;
use crate::decode::telegram::sample_tests::{NOON, check_family, decode, family};

fn dsmr() -> Readout {
    Readout::new(dsmr::READ)
}

fn iec() -> Readout {
    Readout::new(iec::READ)
}

/// What the telegrams of a stream say: `name=value unit @time`, and refusals as `name: why`.
fn told(decoder: Readout, bytes: &[u8]) -> Vec<String> {
    let mut told = Vec::new();
    for telegram in decode(decoder, bytes, usize::MAX, NOON) {
        told.extend(telegram.measures.iter().map(|m| {
            let unit = m.unit.as_ref().map(|u| format!(" {u}")).unwrap_or_default();
            let at = m.at.map(|at| format!(" @{at}")).unwrap_or_default();
            format!("{}={:?}{unit}{at}", m.name, m.value)
        }));
        told.extend(telegram.refused.iter().map(ToString::to_string));
    }
    told
}

fn check(decoder: Readout, bytes: &[u8], expected: &[&str]) {
    let told = told(decoder, bytes);
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.contains(expected), "{told} lacks {expected}");
    }
}

#[test]
fn every_p1_sample_gives_what_it_should() {
    check_family("dsmr", dsmr);
}

#[test]
fn every_iec_sample_gives_what_it_should() {
    check_family("iec62056-21", iec);
}

#[test]
fn the_gas_meter_of_older_versions_stands_on_two_lines() {
    let telegram = b"/KMP5 ZABF001587315111\r\n\r\n1-0:1.8.1(00185.000*kWh)\r\n0-0:17.0.0(999*A)\r\n0-1:24.1.0(3)\r\n\
        0-1:24.3.0(260301110000)(00)(60)(1)(0-1:24.2.1)(m3)\r\n(00124.477)\r\n!\r\n";
    check(
        dsmr(),
        telegram,
        &["1-0:1.8.1=F64(185.0) kWh", "0-0:17.0.0=I64(999) A", "0-1:24.2.1=F64(124.477) m3 @2026-03-01T10:00:00.000Z"],
    );
}

#[test]
fn a_maximum_has_the_time_at_which_it_was_reached() {
    let telegram = b"/FLU5\\253769484_A\r\n\r\n0-0:1.0.0(260301130000W)\r\n1-0:1.6.0(260301114500W)(02.589*kW)\r\n\
        0-0:98.1.0(2)(1-0:1.6.0)(1-0:1.6.0)(260201000000W)(260104120000W)(04.329*kW)\r\n0-0:96.3.10(1)\r\n!\r\n";
    check(dsmr(), telegram, &["1-0:1.6.0=F64(2.589) kW @2026-03-01T10:45:00.000Z", "0-0:96.3.10=I64(1)"]);
}

#[test]
fn the_letter_tells_the_hour_that_stands_twice() {
    let at =
        |time: &str| told(dsmr(), format!("/A\r\n0-0:1.0.0({time})\r\n1-0:1.7.0(1*W)\r\n!\r\n").as_bytes())[0].clone();
    assert!(at("251026023000S").ends_with("@2025-10-26T00:30:00.000Z"));
    assert!(at("251026023000W").ends_with("@2025-10-26T01:30:00.000Z"));
    assert!(at("250701130000").ends_with("@2025-07-01T11:00:00.000Z"));
    assert!(!at("270701130000S").contains('@'), "ahead of the arrival");
    assert!(!at("259901130000S").contains('@'), "no date");
}

#[test]
fn a_wrong_crc_is_told_with_what_would_fit() {
    let sample = family("dsmr").into_iter().find(|s| s.id == "SE-DSM-14").unwrap();
    check(dsmr(), &sample.bytes, &["would fit with CR LF line ends"]);
    check(dsmr(), b"/A\r\n1-0:1.7.0(1*W)\r\n!0000\r\n", &["CRC is "]);
    check(dsmr(), b"/A\r\n1-0:1.7.0(1*W)\r\n!xyz\r\n", &["after `!` is no CRC"]);
}

#[test]
fn a_cut_telegram_does_not_take_the_next_one_along() {
    let good = b"/ABC5x\r\n1.8.1(1*kWh)\r\n!\r\n";
    let stream = |before: &[u8]| [before, good].concat();
    check(dsmr(), &stream(b"8.1(00*kWh)\r\n!\r\n"), &["began before we listened", "1.8.1=I64(1) kWh"]);
    check(dsmr(), &stream(b"/ABC5x\r\n1.8.1(00\r\n"), &["is cut off", "1.8.1=I64(1) kWh"]);
    check(dsmr(), &stream(b"/ABC5x\r\n1.8.1(00"), &["is cut off", "1.8.1=I64(1) kWh"]);
    check(iec(), &stream(b"/ABC5x\r\n\x021.8.1(00"), &["is cut off", "1.8.1=I64(1) kWh"]);
    check(iec(), b"/ABC5x\r\n0.9.2(11/03/14)\r\n1.8.1(2*kWh)\r\n!\r\n", &["1.8.1=I64(2) kWh"]);
    let endless =
        [b"/ABC5x\r\n".as_slice(), &b"1.8.1(1*kWh)\r\n".repeat(2000), b"!\r\n/ABC5x\r\n1.8.1(1*kWh)\r\n!\r\n"].concat();
    let told = told(dsmr(), &endless);
    assert!(told[0].contains("no end within") && told.last().unwrap().contains("1.8.1=I64(1)"), "{told:?}");
}

#[test]
fn parity_seen_through_8n1_is_recognised_and_told() {
    let sample = family("iec62056-21").into_iter().find(|s| s.id == "SE-IEC-05").unwrap();
    let telegrams = decode(iec(), &sample.bytes, 1, NOON);
    assert_eq!(telegrams[0].hint, Some(SEEN_THROUGH_8N1));
    let mut damaged = sample.bytes;
    damaged[16] ^= 0x80;
    check(iec(), &damaged, &["1 of its characters have a wrong parity (damaged on the way; and the meter sends 7E1"]);
    check(iec(), b"/ABC5x\r\n1.8.1(\xff\xfe\x81)\r\n!\r\n", &["are no characters"]);
}

#[test]
fn earlier_values_that_a_meter_keeps_are_not_new_ones() {
    check(iec(), b"/ABC5x\r\n1.8.1(2*kWh)\r\n1.8.1*01(1*kWh)\r\n1.8.1&12(1*kWh)\r\n!\r\n", &["1.8.1=I64(2) kWh"]);
}

proptest! {
    #[test]
    fn no_stream_makes_it_panic_or_depends_on_its_pieces(
        bytes in proptest::collection::vec(prop_oneof![Just(b'/'), Just(b'!'), Just(b'\n'), Just(b'('), Just(b')'), Just(2u8), any::<u8>()], 0..300),
        size in 1usize..40,
    ) {
        for make in [dsmr, iec] {
            prop_assert_eq!(decode(make(), &bytes, size, NOON), decode(make(), &bytes, usize::MAX, NOON));
        }
    }

    #[test]
    fn a_telegram_with_a_flipped_bit_is_never_taken(at in 10usize..400, bit in 0u8..8) {
        let sample = family("dsmr").into_iter().find(|s| s.id == "SE-DSM-01").unwrap();
        let mut bytes = sample.bytes;
        bytes[at] ^= 1 << bit;
        let telegrams = decode(dsmr(), &bytes, usize::MAX, NOON);
        prop_assert!(telegrams.iter().all(|t| t.measures.is_empty()));
    }
}
