//! The samples of a bucket inside its document: rows or columns.

use std::borrow::Cow;
use std::collections::HashMap;

use mongodb::bson::raw::RawArrayBuf;
use mongodb::bson::{RawBson, RawDocumentBuf};

use super::write::{
    ARRAY, Builder, Counter, DOCUMENT, close, date, element, length, open_inside, value, value_element,
};
use crate::model::{FieldName, SealedBucket, Timestamp};
use crate::upstream::{Layout, Shape, Times};

/// About what a row of one field takes.
const ROW_BYTES: usize = 40;
/// About what stands behind the samples.
const AFTER_BYTES: usize = 256;
/// Milliseconds of a minute.
const MINUTE: i64 = 60_000;

/// Appends the samples as the shape wants them.
pub(super) fn put(doc: &mut Builder, bucket: &SealedBucket, shape: &Shape, main: Option<&FieldName>) {
    let name = shape.names.samples.as_str();
    match shape.layout {
        Layout::Rows if name.is_empty() => {}
        Layout::Rows => doc.append_bytes(|bytes| {
            // What follows the samples is short: nothing is moved again.
            bytes.reserve(ROW_BYTES * (bucket.samples.len() + 1) + AFTER_BYTES);
            put_rows(bytes, name, bucket, shape, main);
        }),
        Layout::Columns => doc.put(name, columns(bucket, shape, main)),
    }
}

/// The samples as rows in an array.
pub(super) fn rows(bucket: &SealedBucket, shape: &Shape, main: Option<&FieldName>) -> RawArrayBuf {
    let mut document = Builder::new();
    document.append_bytes(|bytes| put_rows(bytes, "rows", bucket, shape, main));
    document.0.get_array("rows").expect("it was just written").to_owned()
}

/// Most of a document, and most of the work: written as bytes, with each field's name made once.
fn put_rows(bytes: &mut Vec<u8>, name: &str, bucket: &SealedBucket, shape: &Shape, main: Option<&FieldName>) {
    let mut names: Vec<(&FieldName, Cow<'_, str>)> = Vec::new();
    let array = open_inside(bytes, ARRAY, name);
    let mut index = Counter::new();
    for sample in &bucket.samples {
        let row = open_inside(bytes, DOCUMENT, index.next());
        element(bytes, &shape.names.samples_t, &time(sample.at, bucket, shape));
        for (place, (field, v)) in sample.fields.iter().enumerate() {
            // Mostly every sample has the same fields in the same order.
            let is_here = names.get(place).is_some_and(|(known, _)| known.is_same_allocation(field));
            let known = if is_here { Some(place) } else { names.iter().position(|(known, _)| *known == field) };
            let known = known.unwrap_or_else(|| {
                names.push((field, shape.names.value(field.as_str(), Some(field) == main)));
                names.len() - 1
            });
            value_element(bytes, &names[known].1, v);
        }
        close(bytes, row);
    }
    close(bytes, array);
}

/// `{t: […], temp: […], hum: […]}`, all arrays of one length; fields in the order in which they first appear.
fn columns(bucket: &SealedBucket, shape: &Shape, main: Option<&FieldName>) -> RawDocumentBuf {
    let mut times = RawArrayBuf::new();
    let mut places: HashMap<&FieldName, usize> = HashMap::new();
    let mut columns: Vec<(&FieldName, Vec<RawBson>)> = Vec::new();
    for (row, sample) in bucket.samples.iter().enumerate() {
        times.push(time(sample.at, bucket, shape));
        for (field, v) in &sample.fields {
            let place = *places.entry(field).or_insert_with(|| {
                columns.push((field, Vec::with_capacity(bucket.samples.len())));
                columns.len() - 1
            });
            columns[place].1.resize(row, RawBson::Null);
            columns[place].1.push(value(v));
        }
    }
    let mut all = Builder::new();
    all.put(&shape.names.samples_t, times);
    for (field, mut column) in columns {
        column.resize(bucket.samples.len(), RawBson::Null);
        let array: RawArrayBuf = column.into_iter().collect();
        all.put(&shape.names.value(field.as_str(), Some(field) == main), array);
    }
    all.0
}

fn time(at: Timestamp, bucket: &SealedBucket, shape: &Shape) -> RawBson {
    let since = at.as_millis() - bucket.window.start().as_millis();
    match shape.times {
        Times::Auto | Times::Date => RawBson::DateTime(date(at)),
        Times::Offset => length(since),
        Times::Minute => length(since / MINUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Sample, Value, samples};

    /// The same by the library, value by value.
    fn by_the_library(bucket: &SealedBucket, shape: &Shape, main: Option<&FieldName>) -> RawArrayBuf {
        let mut rows = RawArrayBuf::new();
        for sample in &bucket.samples {
            let mut row = Builder::new();
            row.put(&shape.names.samples_t, time(sample.at, bucket, shape));
            for (field, v) in &sample.fields {
                row.put(&shape.names.value(field.as_str(), Some(field) == main), value(v));
            }
            rows.push(row.0);
        }
        rows
    }

    #[test]
    fn rows_are_what_the_library_would_write() {
        let mut random = fastrand::Rng::with_seed(3);
        let names =
            ["temp", "hum", "on", "a-rather-long-name-of-a-field", "état"].map(|name| FieldName::new(name).unwrap());
        for round in 0..200 {
            let mut bucket = samples::bucket("a", 1_796_043_600, 0, &[]);
            for i in 0..random.i64(0..130) {
                let mut fields = crate::model::Fields::new();
                for name in &names {
                    let value = match random.u8(0..8) {
                        0 => Value::F64(random.f64() * 1e6 - 5e5),
                        1 => Value::I64(random.i64(..)),
                        2 => Value::U64(u64::MAX - random.u64(..9)),
                        3 => Value::Bool(random.bool()),
                        4 => Value::text(&"é\0z".repeat(random.usize(0..40))).unwrap(),
                        5 => Value::F64(-0.0),
                        _ => continue,
                    };
                    fields.push((name.clone(), value));
                }
                random.shuffle(&mut fields);
                let at = Timestamp::clamped(bucket.window.start().as_millis() + i * 1000);
                bucket.samples.push(Sample { at, fields });
            }
            let times = *random.choice(&[Times::Auto, Times::Offset, Times::Minute]).unwrap();
            let mut shape = Shape { times, ..Shape::default() };
            if round % 3 == 0 {
                shape.names.samples_t = String::new();
                shape.names.samples_value = "v".to_owned();
            }
            let main = Some(&names[0]).filter(|_| random.bool());
            assert_eq!(rows(&bucket, &shape, main), by_the_library(&bucket, &shape, main), "round {round}");
        }
    }
}
