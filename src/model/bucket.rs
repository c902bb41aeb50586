//! A sealed bucket: the samples of one sensor in one window, closed for good.

use super::rollup::rollups;
use super::{FieldName, FieldStats, Fields, SensorName, SiteName, Timestamp, Value, Window, content};

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

    /// As [`Sample::document_bytes`], of fields that are not in a sample yet.
    pub fn bytes_of(fields: &Fields) -> u32 {
        Self::bytes_with(fields.iter().map(|(name, value)| (name.as_str().len(), value)))
    }

    /// As [`Sample::document_bytes`], of values and the lengths of their names.
    pub fn bytes_with<'a>(fields: impl Iterator<Item = (usize, &'a Value)>) -> u32 {
        // Element type and index, sub-document length and end, `t` as a date.
        const FRAME: usize = 1 + 6 + 4 + 1 + 1 + 2 + 8;
        let fields: usize = fields
            .map(|(name, value)| {
                let value = match value {
                    Value::F64(_) | Value::I64(_) => 8,
                    Value::U64(_) => 16,
                    Value::Bool(_) => 1,
                    Value::Text(text) => 4 + text.len() + 1,
                };
                1 + name + 1 + value
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

/// What is known of the clock that stamped a bucket's samples. The least certain sample decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClockState {
    /// The times are believed: the clock was trusted, or the readings brought their own.
    #[default]
    Synced,
    /// Some samples came before the clock was trusted; their times were put right when it was.
    Restamped,
    /// The clock was not trusted, and how wrong it was is not known: only order and distances count.
    Unsynced,
}

impl ClockState {
    /// The word in the document: `synced`, `restamped` or `unsynced`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Restamped => "restamped",
            Self::Unsynced => "unsynced",
        }
    }

    /// Two bits, for storing.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What [`Self::code`] stood for; codes that are not given yet count as the least certain.
    pub const fn of_code(code: u8) -> Self {
        match code & 3 {
            0 => Self::Synced,
            1 => Self::Restamped,
            _ => Self::Unsynced,
        }
    }

    /// Whether samples of these two may share a bucket: unsynced ones stay among themselves.
    pub fn shares_with(self, other: Self) -> bool {
        (self == Self::Unsynced) == (other == Self::Unsynced)
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
    /// What is known of its samples' times.
    pub clock: ClockState,
    /// At least one, unless they were replaced by a rollup.
    pub samples: Vec<Sample>,
    /// What is left when the samples were given up for want of room.
    pub rollup: Option<Rollup>,
}

/// What a thinned bucket still tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollup {
    /// How many samples there were.
    pub count: u32,
    /// The earliest.
    pub first: Timestamp,
    /// The latest.
    pub last: Timestamp,
    /// Per field, in the order in which fields first appeared.
    pub stats: Vec<(FieldName, FieldStats)>,
    /// The content hash of the whole bucket: if that was delivered before, both are the same bucket.
    pub hash: String,
}

impl SealedBucket {
    /// How many samples it holds, or held.
    pub fn count(&self) -> u32 {
        self.rollup.as_ref().map_or(self.samples.len() as u32, |rollup| rollup.count)
    }

    /// The earliest and the latest sample.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        match &self.rollup {
            Some(rollup) => Some((rollup.first, rollup.last)),
            None => Some((self.samples.first()?.at, self.samples.last()?.at)),
        }
    }

    /// Per field, in the order in which fields first appear.
    pub fn stats(&self) -> Vec<(FieldName, FieldStats)> {
        self.rollup.as_ref().map_or_else(|| rollups(&self.samples), |rollup| rollup.stats.clone())
    }

    /// The content hash: the same for ever, also after thinning.
    pub fn hash(&self, site: &SiteName) -> String {
        self.rollup.as_ref().map_or_else(|| content::hash(site, self), |rollup| rollup.hash.clone())
    }

    /// The same bucket with none of its samples.
    pub fn without_samples(&self) -> Self {
        Self { sensor: self.sensor.clone(), samples: Vec::new(), rollup: None, ..*self }
    }

    /// The same bucket with its samples replaced by their rollup.
    pub fn thinned(mut self, site: &SiteName) -> Self {
        if let Some((first, last)) = self.span() {
            let (count, stats, hash) = (self.count(), self.stats(), self.hash(site));
            self.rollup = Some(Rollup { count, first, last, stats, hash });
            self.samples = Vec::new();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::bucket;

    #[test]
    fn a_thinned_bucket_tells_the_same_but_its_samples() {
        let site = SiteName::new("s").unwrap();
        let whole = bucket("a", 1_796_043_600, 0, &[(0, 21.5), (5, 22.0)]);
        let thin = whole.clone().thinned(&site);
        assert!(thin.samples.is_empty());
        assert_eq!(
            (thin.count(), thin.span(), thin.stats(), thin.hash(&site)),
            (2, whole.span(), whole.stats(), whole.hash(&site))
        );
        assert_eq!(thin.clone().thinned(&site), thin);
    }
}
