//! What `sniff` prints and saves: bytes, readings and refusals, as they happen.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value as Json, json};
use tokio::time::Instant;

use super::Format;
use crate::model::{DeadLetter, Reading, Value};
use crate::stats::Seen;

/// Bytes shown on one line.
const ROW: usize = 24;

/// Prints, and saves if it is asked to.
pub(super) struct Printer {
    out: Box<dyn Write + Send>,
    format: Format,
    save: Option<BufWriter<File>>,
    /// When the last bytes passed.
    last: Option<Instant>,
    failed: Option<io::Error>,
}

impl Printer {
    pub(super) fn new(out: Box<dyn Write + Send>, format: Format, save: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: &Path| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let save = save.map(open).transpose()?.map(BufWriter::new);
        Ok(Self { out, format, save, last: None, failed: None })
    }

    /// Something passed that is no delivery.
    pub(super) fn seen(&mut self, seen: Seen<'_>) {
        let done = match seen {
            Seen::Received(bytes) => self.bytes('<', bytes),
            Seen::Sent(bytes) => self.bytes('>', bytes),
            Seen::Refused { what, why } => self.refused(what, why),
        };
        // Told with the next delivery, or at the end.
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }

    /// Readings and dead letters.
    pub(super) fn delivery(&mut self, readings: &[Reading], letters: &[DeadLetter]) -> io::Result<()> {
        for reading in readings {
            self.reading(reading)?;
        }
        for letter in letters {
            self.refused(&letter.place, &letter.reason)?;
        }
        self.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(save) = &mut self.save {
            save.flush()?;
        }
        self.out.flush()?;
        self.failed.take().map_or(Ok(()), Err)
    }

    fn bytes(&mut self, direction: char, bytes: &[u8]) -> io::Result<()> {
        let now = Instant::now();
        let pause = self.last.replace(now).map_or(0, |last| now.duration_since(last).as_millis());
        if let Some(save) = &mut self.save {
            if pause > 0 {
                writeln!(save, "@+{pause}")?;
            }
            for row in bytes.chunks(ROW) {
                writeln!(save, "{direction} {}", hex(row))?;
            }
        }
        if self.format == Format::Table {
            for row in bytes.chunks(ROW) {
                writeln!(self.out, "{direction} {:<width$} {}", hex(row), text(row), width = ROW * 3)?;
            }
        }
        Ok(())
    }

    fn reading(&mut self, reading: &Reading) -> io::Result<()> {
        match self.format {
            Format::Json => {
                let fields: Map<String, Json> =
                    reading.fields.iter().map(|(name, value)| (name.to_string(), as_json(value))).collect();
                let (sensor, at) = (reading.sensor.as_str(), reading.at.to_string());
                writeln!(self.out, "{}", json!({ "reading": { "sensor": sensor, "at": at, "fields": fields } }))
            }
            Format::Table => {
                let fields: Vec<String> =
                    reading.fields.iter().map(|(name, value)| format!("{name}={}", as_json(value))).collect();
                writeln!(self.out, "  {} {}  {}", reading.at, reading.sensor, fields.join(" "))
            }
        }
    }

    fn refused(&mut self, what: &str, why: &str) -> io::Result<()> {
        match self.format {
            Format::Json => writeln!(self.out, "{}", json!({ "refused": { "what": what, "why": why } })),
            Format::Table => writeln!(self.out, "  refused {what}: {why}"),
        }
    }
}

fn as_json(value: &Value) -> Json {
    match value {
        Value::F64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::Text(v) => json!(v.as_ref()),
    }
}

fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|b| format!("{b:02X}")).collect();
    bytes.join(" ")
}

/// The printable characters; a dot for the others.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' }).collect()
}
