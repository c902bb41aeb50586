//! The samples of a bucket inside its document: rows or columns.

use std::collections::HashMap;

use mongodb::bson::raw::RawArrayBuf;
use mongodb::bson::{RawBson, RawDocumentBuf};

use super::write::{Builder, date, length, value};
use crate::model::{FieldName, SealedBucket, Timestamp};
use crate::upstream::{Layout, Shape, Times};

/// Milliseconds of a minute.
const MINUTE: i64 = 60_000;

/// The samples as the shape wants them.
pub(super) fn samples(bucket: &SealedBucket, shape: &Shape, main: Option<&FieldName>) -> RawBson {
    match shape.layout {
        Layout::Rows => RawBson::Array(rows(bucket, shape, main)),
        Layout::Columns => RawBson::Document(columns(bucket, shape, main)),
    }
}

/// One sub-document for each sample.
pub(super) fn rows(bucket: &SealedBucket, shape: &Shape, main: Option<&FieldName>) -> RawArrayBuf {
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
