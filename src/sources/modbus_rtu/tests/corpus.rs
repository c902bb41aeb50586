//! The samples in `tests/corpus/serial/modbus`: dialogues with devices, replayed byte for byte.

use std::path::Path;

use super::*;
use crate::sources::modbus_rtu::config::RegisterConfig;
use crate::sources::modbus_rtu::plan::{Wanted, block};

enum Step {
    Expect(Vec<u8>),
    Send(Vec<u8>),
    Wait(u64),
}

fn steps(text: &str) -> Vec<Step> {
    let bytes = |hex: &str| hex.split_whitespace().map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    let step = |line: &str| match line.split_at_checked(2)? {
        ("> ", hex) => Some(Step::Expect(bytes(hex))),
        ("< ", hex) => Some(Step::Send(bytes(hex))),
        ("@+", ms) => Some(Step::Wait(ms.split_whitespace().next()?.parse().unwrap())),
        _ => None,
    };
    text.lines().filter_map(step).collect()
}

/// A device that is asked exactly what the sample asks, with the fields of the sample's map.
fn device(expect: &serde_json::Value, steps: &[Step]) -> Device {
    let names: Vec<String> =
        expect["map"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap().to_owned()).collect();
    let wanted: Vec<Wanted> = expect["map"].as_array().unwrap().iter().map(wanted).collect();
    let mut asked: Vec<&Vec<u8>> = Vec::new();
    for step in steps {
        if let Step::Expect(request) = step
            && !asked.contains(&request)
        {
            asked.push(request);
        }
    }
    let blocks = asked.iter().map(|request| {
        let table = [Table::Coil, Table::Discrete, Table::Holding, Table::Input][usize::from(request[1]) - 1];
        let first = u32::from(request[2]) << 8 | u32::from(request[3]);
        let after = first + (u32::from(request[4]) << 8 | u32::from(request[5]));
        let inside = |w: &Wanted| w.table == table && w.span().0 >= first && w.span().1 <= after;
        let members = (0..wanted.len()).filter(|&i| inside(&wanted[i])).collect();
        block(request[0], &wanted, table, (first, after), members)
    });
    let fields = names.iter().map(|name| crate::model::FieldName::new(name).unwrap()).collect();
    let sensor = crate::model::SensorName::new("sample").unwrap();
    Device::new(sensor, asked[0][0], Duration::from_secs(2), Duration::from_millis(300), fields, blocks.collect())
}

fn wanted(map: &serde_json::Value) -> Wanted {
    let mut register = map.clone();
    let members = register.as_object_mut().unwrap();
    members.remove("slave");
    for (theirs, ours) in [("name", "field"), ("sf", "scale_register")] {
        if let Some(value) = members.remove(theirs) {
            members.insert(ours.to_owned(), value);
        }
    }
    serde_json::from_value::<RegisterConfig>(register).unwrap().checked(125).unwrap()
}

async fn replay(mut stream: DuplexStream, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Expect(request) => {
                let mut got = vec![0; request.len()];
                stream.read_exact(&mut got).await.unwrap();
                assert_eq!(got, request);
            }
            Step::Send(bytes) => stream.write_all(&bytes).await.unwrap(),
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }
    // What was sent last is looked at before the line hangs up.
    tokio::time::sleep(Duration::from_millis(1500)).await;
}

fn is_same(got: &Value, expected: &serde_json::Value) -> bool {
    match (got, expected["type"].as_str().unwrap()) {
        (Value::F64(v), "f64") => (v - expected["value"].as_f64().unwrap()).abs() <= 1e-9 * v.abs(),
        (Value::I64(v), "i64") => Some(*v) == expected["value"].as_i64(),
        (Value::Bool(v), "bool") => Some(*v) == expected["value"].as_bool(),
        _ => false,
    }
}

async fn check(path: &Path) {
    let id = path.file_stem().unwrap().to_str().unwrap();
    let expect = std::fs::read_to_string(path.with_file_name(format!("{id}.expect.json"))).unwrap();
    let expect: serde_json::Value = serde_json::from_str(&expect).unwrap();
    let steps = steps(&std::fs::read_to_string(path).unwrap());
    let pace = Pace {
        timeout: Duration::from_millis(300),
        gap: Duration::from_millis(20),
        character: Duration::from_micros(1042),
        framing: bus::Framing::Rtu,
    };
    let mut master = Master { pace, retries: 0, devices: vec![device(&expect, &steps)] };
    let (ours, theirs) = tokio::io::duplex(4096);
    let (intake, mut deliveries) = intake();
    let (end, ()) = tokio::join!(master.serve(ours, id, &intake), replay(theirs, steps));
    assert!(matches!(end, End::Line(_)), "{id}: {end:?}");
    let (readings, letters) = drain(&mut deliveries);
    let mut got: Vec<_> = readings.iter().flat_map(|r| &r.fields).collect();
    for expected in expect["readings"].as_array().unwrap() {
        let field = expected["field"].as_str().unwrap();
        let position = got.iter().position(|(name, value)| name.as_str() == field && is_same(value, expected));
        got.remove(position.unwrap_or_else(|| panic!("{id}: {expected} is not among {got:?}")));
    }
    assert!(got.is_empty(), "{id}: {got:?} should not be there");
    match expect["outcome"].as_str().unwrap() {
        "accept" => assert!(letters.is_empty(), "{id}: {letters:?}"),
        // Contents that are declared invalid are absent, and a timeout leaves no bytes to keep.
        _ if ["SE-MOD-10", "SE-MOD-16", "SE-MOD-16b", "SE-MOD-24"].contains(&id) => assert!(letters.is_empty(), "{id}"),
        _ => assert!(!letters.is_empty(), "{id}"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_sample_dialogue_gives_what_it_should() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/serial/modbus");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "hex") {
            check(&path).await;
            count += 1;
        }
    }
    assert!(count >= 22, "only {count} samples");
}
