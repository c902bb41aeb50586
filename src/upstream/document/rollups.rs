//! The rollups of a bucket inside its document: nested, flat, and those of shorter intervals.

use std::time::Duration;

use mongodb::bson::raw::RawArrayBuf;
use mongodb::bson::{RawBson, RawDocumentBuf};

use super::write::{Builder, date, number, value, whole};
use crate::model::{FieldName, FieldStats, SealedBucket, Timestamp, rollups};
use crate::upstream::Names;
use crate::upstream::names::rollup_name;

type Stats = [(FieldName, FieldStats)];

/// `{temp: {count, sum, min, max, first, last}, …}`
pub(super) fn nested(stats: &Stats, names: &Names) -> RawDocumentBuf {
    let mut all = Builder::new();
    for (field, stats) in stats {
        let mut one = Builder::new();
        one.put(&names.stats_count, whole(stats.count));
        if let Some((sum, min, max)) = stats.numbers {
            one.put(&names.stats_sum, number(sum));
            one.put(&names.stats_min, number(min));
            one.put(&names.stats_max, number(max));
            one.put(&names.stats_avg, mean(stats));
        }
        one.put(&names.stats_first, value(&stats.first));
        one.put(&names.stats_last, value(&stats.last));
        all.put(&names.field(field.as_str()), one.0);
    }
    all.0
}

/// `sum, min, max` of the main field beside `count`, those of others beside them. A field that not every sample has
/// gets a count of its own. Of a field without numbers nothing is written: its samples tell all.
pub(super) fn flat(to: &mut Builder, stats: &Stats, names: &Names, main: Option<&FieldName>, samples: u32) {
    for (field, stats) in stats {
        let Some((sum, min, max)) = stats.numbers else { continue };
        let is_main = Some(field) == main;
        let mut put = |template: &str, value: RawBson| {
            if !template.is_empty() {
                to.put_beside(&rollup_name(template, field.as_str(), is_main), value);
            }
        };
        put(&names.stats_sum, number(sum));
        put(&names.stats_min, number(min));
        put(&names.stats_max, number(max));
        put(&names.stats_avg, mean(stats));
        if stats.count != samples && !names.stats_count.is_empty() {
            to.put_beside(&rollup_name(&names.stats_count, field.as_str(), false), whole(stats.count));
        }
    }
}

/// `[{start, count, sum, min, max, avg}, …]` for each interval of `every` in the window that holds a sample.
pub(super) fn summary(bucket: &SealedBucket, every: Duration, names: &Names, main: Option<&FieldName>) -> RawArrayBuf {
    let start = bucket.window.start();
    let interval = |at: Timestamp| at.since(start).as_millis() / every.as_millis().max(1);
    let mut all = RawArrayBuf::new();
    for part in bucket.samples.chunk_by(|a, b| interval(a.at) == interval(b.at)) {
        let begins = every.saturating_mul(u32::try_from(interval(part[0].at)).unwrap_or(u32::MAX));
        let mut one = Builder::new();
        one.put(&names.summary_start, date(start.plus(begins)));
        one.put(&names.stats_count, whole(part.len() as u32));
        flat(&mut one, &rollups(part), names, main, part.len() as u32);
        all.push(one.0);
    }
    all
}

fn mean(stats: &FieldStats) -> RawBson {
    let sum = stats.numbers.map_or(0.0, |(sum, ..)| sum.float());
    RawBson::Double(sum / f64::from(stats.count.max(1)))
}
