//! What is printed and saved, byte for byte.

use super::*;
use crate::cli::capture::Printer;
use crate::model::{FieldName, Fields, Reading, SensorName, Value};
use crate::stats::Seen;

/// A writer whose text can be looked at.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<u8>>>);

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn check(format: Format, expected: &str) {
    let shown = Shown::default();
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.hex");
    let mut printer = Printer::new(Box::new(shown.clone()), format, Some(&saved)).unwrap();
    printer.seen(Seen::Sent(&[1, 4]));
    tokio::time::advance(Duration::from_millis(300)).await;
    printer.seen(Seen::Received(b"ok\r\n"));
    printer.seen(Seen::Refused { what: "field", why: "no \"value\"" });
    let fields = Fields::from_iter([
        (FieldName::new("temp").unwrap(), Value::F64(21.0)),
        (FieldName::new("count").unwrap(), Value::U64(u64::MAX)),
    ]);
    let at = instant("2026-11-30T13:00:00Z").unwrap();
    printer.delivery(&[Reading::new(SensorName::new("s").unwrap(), at, fields).unwrap()], &[]).unwrap();
    assert_eq!(String::from_utf8(shown.0.lock().unwrap().clone()).unwrap(), expected);
    assert_eq!(std::fs::read_to_string(saved).unwrap(), "> 01 04\n@+300\n< 6F 6B 0D 0A\n");
}

#[tokio::test(start_paused = true)]
async fn programs_get_a_json_object_a_line() {
    let expected = "{\"refused\":{\"what\":\"field\",\"why\":\"no \\\"value\\\"\"}}\n\
        {\"reading\":{\"at\":\"2026-11-30T13:00:00.000Z\",\"fields\":{\"count\":18446744073709551615,\"temp\":21.0},\"sensor\":\"s\"}}\n";
    check(Format::Json, expected).await;
}

#[tokio::test(start_paused = true)]
async fn people_see_bytes_and_what_they_become() {
    let blank = " ".repeat(72 - 5);
    let expected = format!(
        "> 01 04{blank} ..\n< 6F 6B 0D 0A{} ok..\n  refused field: no \"value\"\n  2026-11-30T13:00:00.000Z s  temp=21.0 count=18446744073709551615\n",
        " ".repeat(72 - 11)
    );
    check(Format::Table, &expected).await;
}
