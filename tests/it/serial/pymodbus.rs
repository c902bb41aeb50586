//! The Modbus master against a server of pymodbus, in a process of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tipbucket::model::Value;

use super::{Running, value};
use crate::support::pty::{Player, Pty};

/// A Python that has pymodbus: `TIPBUCKET_TEST_PYTHON`, or the virtual environment that `make test` makes.
fn python() -> Option<PathBuf> {
    let venv = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv/bin/python");
    let python = std::env::var_os("TIPBUCKET_TEST_PYTHON").map_or_else(venv, PathBuf::from);
    let has_it = Command::new(&python).args(["-c", "import pymodbus.simulator, serial"]).stderr(Stdio::null()).status();
    has_it.is_ok_and(|status| status.success()).then_some(python)
}

/// A process that ends with this one, however that ends: its shell waits for our end of a pipe to close.
struct Server(Child);

impl Server {
    fn start(python: &Path, port: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/modbus_server.py");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "\"$0\" \"$@\" </dev/null & p=$!; cat >/dev/null; kill $p"])
            .arg(python)
            .arg(script)
            .arg(port);
        Self(shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn every_table_is_read_from_a_server_of_pymodbus() {
    let Some(python) = python() else {
        // Written to the file itself: what goes through eprintln! is hidden while tests pass.
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: no Python with pymodbus and pyserial (`make test` installs them)");
        return;
    };
    let (ours, theirs) = (Pty::new(), Pty::new());
    let (port, server_port) = (ours.path().to_owned(), theirs.path().to_owned());
    let _cable = Player::cable(ours, theirs);
    let _server = Server::start(&python, &server_port);
    let registers = json!([
        { "field": "coil_7", "table": "coil", "address": 7 },
        { "field": "coil_1", "table": "coil", "address": 1 },
        { "field": "discrete_9", "table": "discrete", "address": 9 },
        { "field": "i32", "table": "holding", "address": 0, "type": "i32" },
        { "field": "f32", "table": "holding", "address": 2, "type": "f32" },
        { "field": "f64", "table": "holding", "address": 4, "type": "f64" },
        { "field": "i64", "table": "holding", "address": 8, "type": "i64" },
        { "field": "unit", "table": "input", "address": 100 },
        { "field": "volts", "table": "input", "address": 101, "scale": 0.1 },
    ]);
    let device = |unit: u8| json!({ "sensor": format!("unit-{unit}"), "unit_id": unit, "poll": "200ms", "registers": registers });
    let devices = [device(3), device(4)];
    let settings = json!({ "port": port, "baud": 19200, "devices": devices });
    let mut running = Running::start("modbus-rtu", settings);
    running.until_readings(6).await;
    for reading in running.readings.iter().filter(|reading| reading.fields.len() == 9) {
        let unit: i64 = reading.sensor.as_str().strip_prefix("unit-").unwrap().parse().unwrap();
        let expected = [
            ("coil_7", Value::Bool(true)),
            ("coil_1", Value::Bool(false)),
            ("discrete_9", Value::Bool(true)),
            ("i32", Value::I64(-123_456 - unit)),
            ("f32", Value::F64(230.25)),
            ("f64", Value::F64(0.1)),
            ("i64", Value::I64(-(1 << 40))),
            ("unit", Value::I64(unit)),
            ("volts", Value::F64(225.7)),
        ];
        for (field, expected) in expected {
            assert_eq!(value(reading, field), Some(expected), "{field} of {}", reading.sensor);
        }
    }
    let of = |name: &str| running.readings.iter().filter(|r| r.sensor.as_str() == name && r.fields.len() == 9).count();
    assert!(of("unit-3") > 0 && of("unit-4") > 0, "{:?}", running.readings);
    running.until("both are well", |r| r.state().up == Some(true)).await;
}
