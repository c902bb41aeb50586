//! The cells of one sentence between its commas.

use crate::decode::{number, quoted};
use crate::model::Value;

/// A sentence taken apart.
#[derive(Clone, Debug)]
pub(super) struct Cells<'a> {
    cells: Vec<&'a str>,
    next: usize,
}

impl<'a> Cells<'a> {
    /// The cells; the first is the address.
    pub(super) fn new(body: &'a str) -> Self {
        Self { cells: body.split(',').map(str::trim).collect(), next: 0 }
    }

    /// The next one; empty after the last.
    pub(super) fn text(&mut self) -> &'a str {
        let cell = self.at(self.next);
        self.next += 1;
        cell
    }

    /// The one with this number, the address being 0; empty if there is none.
    pub(super) fn at(&self, index: usize) -> &'a str {
        self.cells.get(index).copied().unwrap_or_default()
    }

    /// How many there are, the address included.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }
}

/// A decimal number, always a double; `None` for an empty cell.
pub(super) fn decimal(cell: &str) -> Option<Result<Value, String>> {
    if cell.is_empty() {
        return None;
    }
    let parsed = match number::parse(cell) {
        Some(Ok(Value::F64(v))) => Value::float(v),
        Some(Ok(Value::I64(v))) => Value::float(v as f64),
        Some(Ok(Value::U64(v))) => Value::float(v as f64),
        _ => None,
    };
    Some(parsed.ok_or_else(|| format!("{} is no number", quoted(cell))))
}

/// A small whole number; `None` for an empty cell.
pub(super) fn whole(cell: &str) -> Option<Result<Value, String>> {
    if cell.is_empty() {
        return None;
    }
    let parsed = cell.parse::<u32>().ok().map(|v| Value::I64(i64::from(v)));
    Some(parsed.ok_or_else(|| format!("{} is no whole number", quoted(cell))))
}

/// Degrees from `dddmm.mmm` and its hemisphere; `None` for empty cells.
pub(super) fn angle(cell: &str, hemisphere: &str, most: f64) -> Option<Result<Value, String>> {
    if cell.is_empty() {
        return None;
    }
    let wrong = || format!("{} is no angle", quoted(&format!("{cell},{hemisphere}")));
    let read = || {
        let point = cell.find('.').unwrap_or(cell.len());
        let split = point.checked_sub(2)?;
        let digits_only = |t: &str| t.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if !digits_only(cell) {
            return None;
        }
        let degrees: f64 = cell[..split].parse().ok().or(cell[..split].is_empty().then_some(0.0))?;
        let minutes: f64 = cell[split..].parse().ok().filter(|m| *m < 60.0)?;
        let angle = degrees + minutes / 60.0;
        let sign = match hemisphere {
            "N" | "E" => 1.0,
            "S" | "W" => -1.0,
            _ => return None,
        };
        Some(angle).filter(|a| *a <= most).and_then(|a| Value::float(a * sign))
    };
    Some(read().ok_or_else(wrong))
}
