//! A sealed bucket: the samples of one sensor in one window, closed for good.

use super::rollup::rollups;
use super::{FieldName, FieldStats, Fields, SensorName, Timestamp, Value, Window};

/// A reading inside a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// What it showed; a field that is missing is absent.
    pub fields: Fields,
}

impl Sample {
    /// Bytes this sample adds to its document in the rows layout: `{t: Date, name: value, …}` as an array element,
    /// counting five digits of array index. Exact for BSON up to that index.
    pub fn document_bytes(&self) -> u32 {
        Self::bytes_of(&self.fields)
    }

    pub(crate) fn bytes_of(fields: &Fields) -> u32 {
        // Element type and index, sub-document length and end, `t` as a date.
        const FRAME: usize = 1 + 6 + 4 + 1 + 1 + 2 + 8;
        let fields: usize = fields
            .iter()
            .map(|(name, value)| {
                let value = match value {
                    Value::F64(_) | Value::I64(_) => 8,
                    Value::U64(_) => 16,
                    Value::Bool(_) => 1,
                    Value::Text(text) => 4 + text.len() + 1,
                };
                1 + name.as_str().len() + 1 + value
            })
            .sum();
        (FRAME + fields) as u32
    }
}

/// Why a bucket was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealReason {
    /// Its window ended and the grace passed.
    Window,
    /// It held as many samples as allowed.
    Samples,
    /// It held as many bytes as allowed.
    Bytes,
    /// It was opened for late readings and its time is over.
    Late,
}

impl SealReason {
    /// The word in the document: `window`, `samples`, `bytes` or `late`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Samples => "samples",
            Self::Bytes => "bytes",
            Self::Late => "late",
        }
    }
}

/// A bucket that never changes again. Samples are in time order; equal times keep their order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct SealedBucket {
    /// Whose samples.
    pub sensor: SensorName,
    /// Of which window.
    pub window: Window,
    /// 0 for the window's first bucket, then 1, 2 …
    pub part: u32,
    /// Why it was closed.
    pub sealed: SealReason,
    /// Whether it was opened after its window's earlier bucket was sealed.
    pub late: bool,
    /// At least one.
    pub samples: Vec<Sample>,
}

impl SealedBucket {
    /// Per field, in the order in which fields first appear.
    pub fn stats(&self) -> Vec<(FieldName, FieldStats)> {
        rollups(&self.samples)
    }
}
