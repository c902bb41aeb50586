//! Readings and rollups as text: exact, whatever the value.

use std::io::Write;

use clap::ValueEnum;
use serde_json::json;

use crate::model::{FieldName, FieldStats, Sample, SensorName, Timestamp, Value};
use crate::store::Summary;

/// How readings are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For people: a column for each field.
    #[default]
    Table,
    /// Comma-separated, with a first line of names.
    Csv,
    /// A JSON object on each line.
    Json,
}

/// Widths of a table's columns: a time, and anything else.
const TIME_WIDTH: usize = 24;
const WIDTH: usize = 14;

/// Lines of cells, as a table or comma-separated.
pub(super) struct Lines<W: Write> {
    form: Form,
    out: W,
}

impl<W: Write> Lines<W> {
    pub(super) const fn new(form: Form, out: W) -> Self {
        Self { form, out }
    }

    /// One line; a table's first column is a time, and the others are to the right.
    pub(super) fn line<'c>(&mut self, cells: impl IntoIterator<Item = &'c str>) -> anyhow::Result<()> {
        match self.form {
            Form::Table => {
                for (i, cell) in cells.into_iter().enumerate() {
                    // A device's text must not reach the terminal as an order to it.
                    let cell = cell.replace(char::is_control, "\u{fffd}");
                    match i {
                        0 => write!(self.out, "{cell:<TIME_WIDTH$}")?,
                        _ => write!(self.out, "  {cell:>WIDTH$}")?,
                    }
                }
                writeln!(self.out)?;
            }
            Form::Csv | Form::Json => {
                let mut line = csv::WriterBuilder::new().from_writer(Vec::new());
                line.write_record(cells)?;
                self.out.write_all(&line.into_inner()?)?;
            }
        }
        Ok(())
    }
}

/// A value as it was stored, digit for digit.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::F64(v) => serde_json::Number::from_f64(*v).map_or_else(|| v.to_string(), |number| number.to_string()),
        Value::I64(v) => v.to_string(),
        Value::U64(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
        Value::Text(v) => v.to_string(),
    }
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::F64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::Text(v) => json!(&**v),
    }
}

/// One reading on a line.
pub(super) fn reading_json(out: &mut impl Write, sensor: &SensorName, sample: &Sample) -> anyhow::Result<()> {
    let fields: serde_json::Map<String, serde_json::Value> =
        sample.fields.iter().map(|(name, value)| (name.as_str().to_owned(), json(value))).collect();
    let line = json!({ "sensor": sensor.as_str(), "time": sample.at.to_string(), "fields": fields });
    Ok(writeln!(out, "{line}")?)
}

/// One bucket's rollup on a line.
pub(super) fn rollup_json(out: &mut impl Write, sensor: &SensorName, summary: &Summary) -> anyhow::Result<()> {
    let stats = |(name, stats): &(FieldName, FieldStats)| {
        let mut object = json!({ "count": stats.count, "first": json(&stats.first), "last": json(&stats.last) });
        if let Some((sum, min, max)) = stats.numbers {
            for (key, number) in [("sum", sum), ("min", min), ("max", max)] {
                object[key] = json(&number.value());
            }
        }
        (name.as_str().to_owned(), object)
    };
    let stats: serde_json::Map<_, _> = summary.stats.iter().map(stats).collect();
    let time = |time: Timestamp| time.to_string();
    let line = json!({
        "sensor": sensor.as_str(), "start": time(summary.window.start()), "end": time(summary.window.end()),
        "part": summary.part, "open": summary.open, "count": summary.count,
        "first": time(summary.first), "last": time(summary.last), "stats": stats,
    });
    Ok(writeln!(out, "{line}")?)
}

/// The names of a rollup's columns, and its cells: a line for each field.
pub(super) const ROLLUP_COLUMNS: [&str; 11] =
    ["start", "seconds", "part", "open", "field", "count", "min", "max", "sum", "first", "last"];

pub(super) fn rollup_cells(summary: &Summary) -> impl Iterator<Item = [String; 11]> {
    summary.stats.iter().map(|(field, stats)| {
        let number = |pick: usize| {
            let numbers = stats.numbers.map(|(sum, min, max)| [min, max, sum]);
            numbers.map_or_else(String::new, |numbers| text(&numbers[pick].value()))
        };
        [
            summary.window.start().to_string(),
            summary.window.length().seconds().to_string(),
            summary.part.to_string(),
            summary.open.to_string(),
            field.as_str().to_owned(),
            stats.count.to_string(),
            number(0),
            number(1),
            number(2),
            text(&stats.first),
            text(&stats.last),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_exact() {
        let check = |value: Value, expected: &str| {
            assert_eq!(text(&value), expected);
            let json = json(&value);
            assert_eq!(json.as_str().map_or_else(|| json.to_string(), str::to_owned), expected);
        };
        check(Value::I64(9_007_199_254_740_993), "9007199254740993");
        check(Value::U64(u64::MAX), "18446744073709551615");
        check(Value::F64(0.1 + 0.2), "0.30000000000000004");
        check(Value::F64(-0.0), "-0.0");
        check(Value::F64(21.0), "21.0");
        check(Value::Bool(true), "true");
        check(Value::Text("a \"b\"".into()), "a \"b\"");
    }

    #[test]
    fn lines_are_quoted_for_programs_and_harmless_for_terminals() {
        let check = |form, expected: &str| {
            let mut out = Vec::new();
            Lines::new(form, &mut out).line(["t", "a,\"b\"\u{1b}[2J"]).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(Form::Csv, "t,\"a,\"\"b\"\"\u{1b}[2J\"\n");
        check(Form::Table, "t                              a,\"b\"\u{fffd}[2J\n");
    }
}
