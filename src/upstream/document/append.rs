//! A sealed bucket as updates, one for each sample, of documents that others write too.
//!
//! The classic form: `{sensor, start, count: {$lt: N}}` with `$push`, `$inc`, `$min`, `$max` and `$setOnInsert`. Nothing in
//! it tells a sample that came before from one that is new, so a repeated update stores a sample twice.

use mongodb::bson::RawDocumentBuf;

use super::gain::{Gain, statement};
use super::write::{Builder, date, whole};
use super::{Context, about, expires};
use crate::model::{SealedBucket, Timestamp, rollups};

/// An update for each sample, in time order; none of a bucket that was thinned.
pub(super) fn updates(bucket: &SealedBucket, context: &Context, most: u32, now: Timestamp) -> Vec<RawDocumentBuf> {
    let main = context.shape.field.clone();
    let first = || bucket.stats().first().map(|(field, _)| field.clone());
    let main = main.or_else(first);
    let (names, window) = (&context.shape.names, bucket.window);
    let mut below = Builder::new();
    below.put("$lt", whole(most));
    let mut filter = Builder::new();
    filter.put(&names.site, context.site.as_str());
    filter.put(&names.sensor, bucket.sensor.as_str());
    filter.put(&names.start, date(window.start()));
    filter.put(&names.count, below.0);
    let one = |sample: &crate::model::Sample| {
        let alone = SealedBucket { samples: vec![sample.clone()], ..bucket.without_samples() };
        let stats = rollups(&alone.samples);
        // Whether every sample of a document has a field cannot be known here, so each field is counted but the main one.
        let mut gain = Gain::of(&alone, context, &stats, main.as_ref(), |field| Some(field) != main.as_ref());
        gain.once.put(&names.end, date(window.end()));
        if let Some(meta) = context.meta.get(&bucket.sensor).and_then(|meta| about(meta, &stats, names)) {
            gain.once.put(&names.meta, meta);
        }
        if let Some(expires) = expires(bucket, context, now) {
            gain.max.put(&names.expire_at, date(expires));
        }
        statement(filter.0.clone(), gain.update())
    };
    bucket.samples.iter().map(one).collect()
}
