//! Text from a terminal.

use serde_json::json;
use tipbucket::model::{Reading, Value};

use super::{Running, value};
use crate::support::pty::{ById, Pty};

fn temps(readings: &[Reading]) -> Vec<f64> {
    let temps = readings.iter().map(|reading| match value(reading, "temp") {
        Some(Value::F64(v)) => v,
        other => panic!("{other:?}"),
    });
    temps.collect()
}

async fn check(decode: serde_json::Value, text: &[u8], expected: &[f64]) {
    let mut pty = Pty::new();
    let mut settings = json!({ "port": pty.path(), "baud": 115200, "format": "7E1", "sensor": "attic" });
    settings.as_object_mut().unwrap().extend(decode.as_object().unwrap().clone());
    pty.send(text);
    let mut running = Running::start("line", settings);
    running.until_readings(expected.len()).await;
    assert_eq!(temps(&running.readings), expected);
    assert!(running.letters.is_empty(), "{:?}", running.letters);
}

#[tokio::test]
async fn each_decoder_reads_its_lines() {
    let pattern = json!({ "decode": "regex", "pattern": "^T=(?<temp>[-0-9.]+)C$", "skip": ["^#"] });
    check(pattern, b"T=21.5C\r\n# note\r\n\r\nT=-0.5C\r\n", &[21.5, -0.5]).await;
    check(json!({ "decode": "csv", "columns": ["_", "temp"] }), b"1,21.5\n2,21.75\n", &[21.5, 21.75]).await;
    check(json!({ "decode": "key-value" }), b"temp=21.5 hum=44\ntemp: 1.25; hum: 45\n", &[21.5, 1.25]).await;
    let json_lines = json!({ "decode": "json", "fields": { "temp": "/t" } });
    check(json_lines, b"{\"t\":21.5}\n{\"x\":{},\"t\":2.5}\n", &[21.5, 2.5]).await;
    let framed = json!({ "decode": "csv", "columns": ["temp"], "delimiter": "\u{3}", "strip": ["^\u{2}"] });
    check(framed, b"\x02 1.5\x03\x02 2.5\x03", &[1.5, 2.5]).await;
}

#[tokio::test]
async fn garbage_is_kept_and_the_next_line_is_read() {
    let mut pty = Pty::new();
    let settings =
        json!({ "port": pty.path(), "sensor": "attic", "decode": "csv", "columns": ["temp"], "max_line": 64 });
    let mut running = Running::start("line", settings);
    pty.send(b"21.5\n\xff\xfe\x00\n");
    pty.send(&[b'x'; 3000]);
    pty.send(b"\nnan\n22.5\r\n");
    running.until_readings(2).await;
    assert_eq!(temps(&running.readings), [21.5, 22.5]);
    let reasons: Vec<&str> = running.letters.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(reasons[0].contains("not UTF-8") && reasons[1].contains("max_line") && reasons[2].contains("not a number"));
    assert_eq!(running.letters[1].payload.len(), 64);
}

#[tokio::test]
async fn a_device_that_hangs_up_is_read_again_under_its_name() {
    let by_id = ById::new();
    let mut pty = Pty::new();
    by_id.plug(&pty);
    let settings = json!({ "port": by_id.path(), "sensor": "attic", "decode": "csv", "columns": ["temp"] });
    let mut running = Running::start("line", settings);
    pty.send(b"1.5\n2.5\n3.");
    running.until_readings(2).await;
    by_id.unplug();
    drop(pty);
    running.until("the port is lost", |r| r.state().up == Some(false)).await;
    let mut pty = Pty::new();
    by_id.plug(&pty);
    pty.send(b"4.5\n");
    running.until_readings(3).await;
    assert_eq!(temps(&running.readings), [1.5, 2.5, 4.5], "the line that was cut off is gone");
    assert!(running.letters.is_empty(), "{:?}", running.letters);
    assert_eq!(running.state().up, Some(true));
}
