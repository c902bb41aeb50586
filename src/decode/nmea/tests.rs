//! Sentences: the recorded samples, and what no sample has.

use proptest::prelude::*;

use super::*;
use crate::decode::telegram::sample_tests::{NOON, check_family, decode};

fn nmea() -> Nmea {
    Nmea::new(Time::Gps, true)
}

fn sentence(body: &str) -> String {
    format!("${body}*{:02X}\r\n", body.bytes().fold(0, |sum, b| sum ^ b))
}

/// `name=value unit @time` for every measure, `name: why` for every refusal.
fn told(decoder: Nmea, bytes: &[u8]) -> Vec<String> {
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

fn check(bodies: &[&str], expected: &[&str]) {
    let text: String = bodies.iter().map(|body| sentence(body)).collect();
    assert_eq!(told(nmea(), text.as_bytes()), expected, "{bodies:?}");
}

#[test]
fn every_sample_gives_what_it_should() {
    check_family("nmea0183", nmea);
}

#[test]
fn a_date_and_time_of_the_receiver_are_believed_unless_they_cannot_be() {
    let speed = "GPRMC,115958.50,A,,,,,5.5,,010326,,";
    check(&[speed], &["speed=F64(5.5) kn @2026-03-01T11:59:58.500Z"]);
    let altitude = "GPGGA,115958.70,1029.045,S,02010.506,E,1,,,100.0,M,,M,,";
    let text = told(nmea(), [sentence(speed), sentence(altitude)].concat().as_bytes());
    assert!(text.contains(&"alt=F64(100.0) m @2026-03-01T11:59:58.700Z".to_owned()), "{text:?}");
    check(&["GPRMC,115958,A,,,,,5.5,,160706,,"], &["speed=F64(5.5) kn"]);
    check(&["GPRMC,115958,A,,,,,5.5,,010327,,"], &["speed=F64(5.5) kn"]);
    let arrival = Nmea::new(Time::Arrival, true);
    assert_eq!(told(arrival, sentence(speed).as_bytes()), ["speed=F64(5.5) kn"]);
}

#[test]
fn the_time_of_day_belongs_to_the_nearest_day() {
    let zda = "GPZDA,235959.9,28,02,2026,00,00";
    let gll = "GPGLL,1029.045,S,02010.506,E,000000.10,A";
    let text = told(nmea(), [sentence(zda), sentence(gll)].concat().as_bytes());
    assert!(text[0].ends_with("@2026-03-01T00:00:00.100Z"), "{text:?}");
}

#[test]
fn a_receiver_that_warns_says_nothing() {
    check(&["GPRMC,115958,V,,,,,5.5,,010326,,", "GPGGA,1,,,,,0,00,,,M,,M,,", "WIMWV,1.0,R,2.0,N,V"], &[]);
    check(&["GPVTG,,T,,M,0.0,N,0.0,K,N", "GPGLL,,,,,,V"], &[]);
}

#[test]
fn what_is_wrong_in_a_sentence_costs_only_itself() {
    check(
        &["GPRMC,1,A,9129.045,N,02010.506,E,x,54.7,,,"],
        &["lon=F64(20.1751) °", "course=F64(54.7) °", "lat: `9129.045,N` is no angle", "speed: `x` is no number"],
    );
    check(&["WIMWV,1.0,R,2.0,X,A"], &["wind: `X` is no unit of speed"]);
    check(&["YXMTW,17.75,F"], &["water_temp: unit `F` is not C"]);
}

#[test]
fn checksums_must_fit() {
    let refused = |text: &str, words: &str| {
        let told = told(nmea(), text.as_bytes());
        assert!(told.len() == 1 && told[0].contains(words), "{text}: {told:?}");
    };
    refused("$YXMTW,17.75,C*27\r\n", "checksum is 26 and not 27");
    refused("$YXMTW,17.75,C\r\n", "has no checksum");
    refused("$YXMTW,17.75,C*2\r\n", "is no checksum");
    refused("$YXMTW,17.75\u{b0},C*26\r\n", "is no text");
    let lenient = Nmea::new(Time::Gps, false);
    assert_eq!(told(lenient, b"$YXMTW,17.75,C\r\n"), ["water_temp=F64(17.75) °C"]);
}

#[test]
fn an_endless_sentence_is_told_once_and_left_at_its_end() {
    let text = [b"$GPRMC,".as_slice(), &[b'1'; 5000], b"\r\n", sentence("YXMTW,1,C").as_bytes()].concat();
    let told = told(nmea(), &text);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("no end within 256 bytes") && told[1].starts_with("water_temp=F64(1.0)"));
}

#[test]
fn noise_is_told_except_at_the_beginning() {
    let good = sentence("YXMTW,1,C");
    let telegrams = decode(nmea(), format!("12,C*00\r\n{good}noise\r\n{good}").as_bytes(), 5, NOON);
    assert_eq!(telegrams.iter().filter(|t| t.is_fragment).count(), 1);
    assert_eq!(telegrams.iter().filter(|t| !t.refused.is_empty()).count(), 2);
    assert_eq!(telegrams.iter().filter(|t| !t.measures.is_empty()).count(), 2);
}

proptest! {
    #[test]
    fn no_stream_makes_it_panic_or_depends_on_its_pieces(
        bytes in proptest::collection::vec(prop_oneof![Just(b'$'), Just(b'*'), Just(b'\n'), Just(b','), Just(b'1'), any::<u8>()], 0..300),
        size in 1usize..40,
    ) {
        prop_assert_eq!(decode(nmea(), &bytes, size, NOON), decode(nmea(), &bytes, usize::MAX, NOON));
    }

    #[test]
    fn no_sentence_makes_it_panic(
        kind in "(GGA|GNS|RMC|GLL|XDR|MWV|VTG|DBT|DPT|MTW|MWD|MDA|GSA|ZDA|VHW|HDG)",
        cells in "[0-9A-Z.,\u{b0}-]{0,80}",
    ) {
        let _ = told(nmea(), sentence(&format!("GP{kind},{cells}")).as_bytes());
    }
}
