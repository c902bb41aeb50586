//! The examples of docs/INPUTS.md for serial lines: each is loaded and fed with a recording, and gives what it promises.

use std::path::Path;

use serde_json::json;

use super::sniff::sniff;

/// Source of the example, recording, and a field with its value.
const EXAMPLES: [(&str, &str, &str, f64); 13] = [
    ("bus", "modbus/SE-MOD-08.hex", "temperature", -10.1),
    ("meters", "modbus/SE-MOD-02.hex", "voltage_l2", 231.5),
    ("p1", "dsmr/SE-DSM-01.txt", "import_1", 4.426),
    ("p1", "dsmr/SE-DSM-01.txt", "gas", 0.107),
    ("cellar", "sml/SE-SML-02.hex", "power", -105.5),
    ("pushed", "iec62056-21/SE-IEC-06.hex", "import", 52_185.782_530_9),
    ("gps", "nmea0183/SE-NME-01.txt", "alt", 100.0),
    ("co2", "co2/SE-CO2-03.hex", "co2", 608.0),
    ("dust", "pms/SE-PMS-05.hex", "pm25_atm", 14.0),
    ("gas", "co2/SE-CO2-03.hex", "temp", 31.0),
    ("attic", "lines/SE-LIN-03.txt", "hum", 47.0),
    ("station", "lines/SE-LIN-02.txt", "c", 1013.2),
    ("columns", "lines/SE-LIN-07.txt", "h", 100.0),
];

/// All examples as one site file.
fn site(folder: &Path) -> std::path::PathBuf {
    let page = std::fs::read_to_string("docs/INPUTS.md").unwrap();
    let part = page.split("\n## ").find(|part| part.starts_with("Serial lines")).expect("a part on serial lines");
    let mut site = "site.name = \"x\"\nsite.timezone = \"Europe/Amsterdam\"\n".to_owned();
    let blocks = part.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.for_each(|block| site.push_str(block));
    let path = folder.join("site.toml");
    std::fs::write(&path, site).unwrap();
    path
}

#[test]
fn every_serial_example_gives_what_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let site = site(folder.path());
    for (source, recording, field, expected) in EXAMPLES {
        let path = Path::new("tests/corpus/serial").join(recording);
        let got = sniff(&site, source, &["--replay", path.to_str().unwrap()]);
        let value = got.fields.iter().find(|(_, _, name, value)| name == field && value.as_f64() == Some(expected));
        assert!(value.is_some(), "{source}: {field} = {expected} is not among {got:#?}");
    }
    let probes = sniff(&site, "probes", &["--replay", "tests/corpus/serial/lines/SE-LIN-08.txt"]);
    assert_eq!(probes.fields[1].0, "28FF000000000001", "{probes:?}");
    let dialogue = folder.path().join("optical.hex");
    let block = b"\x021.8.1(022108.7*kWh)\r\n!\r\n\x03u";
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!(" {b:02X}")).collect::<String>();
    let text =
        format!(">{}\n<{}\n>{}\n<{}\n", hex(b"/?!\r\n"), hex(b"/ITR5EM214\r\n"), hex(b"\x06050\r\n"), hex(block));
    std::fs::write(&dialogue, text).unwrap();
    let optical = sniff(&site, "optical", &["--replay", dialogue.to_str().unwrap()]);
    assert_eq!(optical.fields[0].3, json!(22_108.7), "{optical:?}");
}
