//! Edge nodes that are born, send, lose messages and die.

use prost::Message as _;

use super::wire::{Held, Payload};
use super::*;
use crate::model::Value;

const AT: u64 = 1_772_366_400_000;

fn named(name: &str, alias: u64, datatype: u32, held: Held) -> Metric {
    Metric {
        name: Some(name.to_owned()),
        alias: Some(alias),
        datatype: Some(datatype),
        held: Some(held),
        ..Metric::default()
    }
}

fn aliased(alias: u64, held: Held) -> Metric {
    Metric { alias: Some(alias), held: Some(held), ..Metric::default() }
}

fn payload(seq: Option<u64>, metrics: &[Metric]) -> Vec<u8> {
    let metrics = metrics.iter().map(|metric| metric.encode_to_vec().into()).collect();
    Payload { timestamp: Some(AT), seq, metrics }.encode_to_vec()
}

fn now() -> Timestamp {
    Timestamp::from_millis(AT as i64).unwrap()
}

/// A host and its names.
#[derive(Default)]
struct Bench {
    host: Host,
    names: Names,
}

impl Bench {
    /// One message; what came of it as `sensor field=value …`, `!reason`, `note`, `ask topic`.
    fn check(&mut self, kind: &str, seq: Option<u64>, metrics: &[Metric], expected: &[&str]) {
        let topic = format!("spBv1.0/site1/{kind}");
        let mut told = Vec::new();
        match self.host.decode(&topic, &payload(seq, metrics), &mut self.names, now()) {
            Err(reason) => told.push(format!("refused: {reason}")),
            Ok(decoded) => {
                for m in &decoded.readings {
                    let fields: Vec<_> = m.fields.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
                    told.push(format!("{} {}", m.sensor.clone().unwrap(), fields.join(" ")));
                }
                told.extend(decoded.notes.iter().map(|_| "note".to_owned()));
                told.extend(decoded.refused.reasons().iter().map(|reason| format!("! {reason}")));
            }
        }
        told.extend(self.host.requests().into_iter().map(|request| format!("ask {}", request.topic)));
        assert_eq!(told, expected, "{kind} {seq:?}");
    }

    fn born() -> Self {
        let mut bench = Self::default();
        let metrics = [
            named("bdSeq", 0, 8, Held::Long(3)),
            named("Node Control/Rebirth", 8, 11, Held::Boolean(false)),
            named("Temp", 1, 9, Held::Float(21.5)),
            named("Offset", 2, 2, Held::Int(4_294_967_291)),
        ];
        bench.check("NBIRTH/e1", Some(0), &metrics, &["site1/e1 Temp=F64(21.5) Offset=I64(-5)"]);
        bench
    }
}

#[test]
fn data_is_understood_by_its_birth() {
    let mut bench = Bench::born();
    let data = [aliased(1, Held::Float(22.25)), aliased(2, Held::Int(65_531)), aliased(8, Held::Boolean(true))];
    bench.check("NDATA/e1", Some(1), &data, &["site1/e1 Temp=F64(22.25) Offset=I64(-5)"]);
    bench.check("DBIRTH/e1/d", Some(2), &[named("Hum", 1, 9, Held::Float(44.0))], &["site1/e1/d Hum=F64(44.0)"]);
    bench.check("DDATA/e1/d", Some(3), &[aliased(1, Held::Float(45.0))], &["site1/e1/d Hum=F64(45.0)"]);
    bench.check("NDATA/e1", Some(4), &[aliased(1, Held::Float(20.0))], &["site1/e1 Temp=F64(20.0)"]);
    let untyped = Metric { name: Some("Offset".to_owned()), ..aliased(9, Held::Int(65_531)) };
    bench.check("NDATA/e1", Some(5), &[Metric { alias: None, ..untyped }], &["site1/e1 Offset=I64(-5)"]);
}

#[test]
fn what_has_no_birth_is_refused_and_a_birth_asked_for_once_a_minute() {
    let mut bench = Bench::default();
    let unknown = "refused: alias 1 is not known: its birth was not seen; a new one is asked for";
    bench.check("NDATA/e1", Some(7), &[aliased(1, Held::Float(1.0))], &[unknown, "ask spBv1.0/site1/NCMD/e1"]);
    bench.check("NDATA/e1", Some(8), &[aliased(1, Held::Float(1.0))], &[unknown]);
    bench.check("NDATA/e2", Some(8), &[aliased(1, Held::Float(1.0))], &[unknown, "ask spBv1.0/site1/NCMD/e2"]);
}

#[test]
fn a_gap_in_the_sequence_is_noted_and_its_data_taken() {
    let mut bench = Bench::born();
    let one = [aliased(1, Held::Float(1.0))];
    bench.check("NDATA/e1", Some(4), &one, &["site1/e1 Temp=F64(1.0)", "note", "ask spBv1.0/site1/NCMD/e1"]);
    bench.check("NDATA/e1", Some(5), &one, &["site1/e1 Temp=F64(1.0)"]);
    for seq in 6..=255 {
        bench.check("NDATA/e1", Some(seq), &one, &["site1/e1 Temp=F64(1.0)"]);
    }
    bench.check("NDATA/e1", Some(0), &one, &["site1/e1 Temp=F64(1.0)"]);
}

#[test]
fn only_the_death_of_the_last_birth_counts() {
    let mut bench = Bench::born();
    let one = [aliased(1, Held::Float(1.0))];
    bench.check("NDEATH/e1", None, &[named("bdSeq", 0, 8, Held::Long(2))], &[]);
    bench.check("NDATA/e1", Some(1), &one, &["site1/e1 Temp=F64(1.0)"]);
    bench.check("NDEATH/e1", None, &[named("bdSeq", 0, 8, Held::Long(3))], &[]);
    bench.check(
        "NDATA/e1",
        Some(2),
        &one,
        &["refused: alias 1 is not known: its birth was not seen; a new one is asked for", "ask spBv1.0/site1/NCMD/e1"],
    );
}

#[test]
fn what_is_no_measurement_is_ignored_or_refused_by_name() {
    let mut bench = Bench::born();
    bench.check("NCMD/e1", None, &[named("x", 1, 3, Held::Int(1))], &[]);
    let mixed = [
        named("raw", 3, 17, Held::Bytes(prost::bytes::Bytes::from_static(b"ab"))),
        named("Since", 4, 13, Held::Long(AT)),
        aliased(1, Held::Float(f32::NAN)),
        named("ok", 5, 3, Held::Int(1)),
    ];
    bench.check(
        "NDATA/e1",
        Some(1),
        &mixed,
        &[
            "site1/e1 ok=I64(1)",
            "! metric `raw` is 2 bytes, not a value",
            "! metric `Temp` is NaN, not a finite number",
        ],
    );
    let decoded = bench.host.decode("spBv1.0/STATE/h", b"{\"online\":true}", &mut bench.names, now()).unwrap();
    assert_eq!(decoded, Decoded::default());
    assert!(bench.host.decode("spBv1.0/g/XDATA/e", b"", &mut bench.names, now()).unwrap_err().contains("no kind"));
    assert!(bench.host.decode("a/b", b"", &mut bench.names, now()).is_err());
}

#[test]
fn metrics_of_different_instants_are_different_readings() {
    let mut bench = Bench::born();
    let early = Metric { timestamp: Some(AT - 250), ..aliased(1, Held::Float(1.0)) };
    let topic = "spBv1.0/site1/NDATA/e1";
    let bytes = payload(Some(1), &[early, aliased(2, Held::Int(5))]);
    let decoded = bench.host.decode(topic, &bytes, &mut bench.names, now()).unwrap();
    let told: Vec<_> =
        decoded.readings.iter().map(|m| (m.at.unwrap().as_millis() as u64, m.fields[0].1.clone())).collect();
    assert_eq!(told, [(AT - 250, Value::F64(1.0)), (AT, Value::I64(5))]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut bench = Bench::default();
    for i in 0..MAX_NODES + 5 {
        let topic = format!("spBv1.0/g/NBIRTH/e{i}");
        let bytes = payload(Some(0), &[named("t", 1, 3, Held::Int(1))]);
        bench.host.decode(&topic, &bytes, &mut bench.names, now()).unwrap();
        bench
            .host
            .decode(
                &format!("spBv1.0/g/NDATA/x{i}"),
                &payload(None, &[aliased(7, Held::Int(1))]),
                &mut bench.names,
                now(),
            )
            .unwrap_err();
    }
    assert!(bench.host.nodes.len() <= MAX_NODES && bench.host.asked.len() <= MAX_NODES);
    assert!(bench.host.requests().len() <= MAX_NODES);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let mut bench = Bench::born();
        for kind in ["NBIRTH", "DDATA", "NDEATH", "DDEATH"] {
            let _ = bench.host.decode(&format!("spBv1.0/g/{kind}/e1/d"), &bytes, &mut bench.names, now());
        }
    }
}
