//! The document of a bucket that is still open, and how it is brought up to date. Pure.
//!
//! The document holds what the bucket's own will hold, but no hash, and `lastSeq`: how many samples it holds. An update is
//! for fewer than that (`lastSeq: {$lt: n}`) and sets it, so one that comes twice, or late, meets no document, tries to
//! make one, and finds the `_id` taken. The sealed bucket's document has no `lastSeq`: nothing live changes it any more.
//!
//! What goes on regularly is added (`$push`, `$inc`, `$min`, `$max`). What does not (nothing is known of the document, a
//! sample came out of order, a field is new, the shape has columns or means) replaces the document as a whole, under the
//! same guard: so it always says what the committed samples say.

use std::collections::HashSet;
use std::sync::Arc;

use mongodb::bson::RawDocumentBuf;

use super::gain::{Gain, path, statement};
use super::write::{Builder, date, value, whole};
use super::{Context, Ending, about, build, expires};
use crate::model::{ClockState, FieldName, FieldStats, SealedBucket, Timestamp, rollups};
use crate::upstream::names::rollup_name;
use crate::upstream::{Layout, Rollups, Shape, identity};

/// What the database's document is known to say of an open bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// It holds the first so many samples, in their order of arrival.
    pub samples: u32,
    /// And says this of their clock.
    pub clock: ClockState,
}

/// One statement that brings the document of an open bucket up to date.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveUpdate {
    /// The bucket's `_id`.
    pub id: String,
    /// The collection it belongs to.
    pub collection: Arc<str>,
    /// What the document says afterwards.
    pub then: Known,
    /// Samples that come with it for the first time.
    pub gained: u32,
    /// Whether the whole document is replaced.
    pub whole: bool,
    /// For an update command.
    pub statement: RawDocumentBuf,
}

impl LiveUpdate {
    /// Bytes that go upstream.
    pub fn bytes(&self) -> usize {
        self.statement.as_bytes().len()
    }
}

/// The update for an open bucket whose samples stand in their order of arrival.
pub fn live_update(bucket: &SealedBucket, known: Option<Known>, context: &Context, now: Timestamp) -> LiveUpdate {
    let id = identity::id(&context.site, bucket);
    let then = Known { samples: bucket.count(), clock: bucket.clock };
    let before = known.map_or(0, |known| known.samples.min(then.samples));
    let part = known.and_then(|known| part(bucket, known, context, now));
    let whole = part.is_none();
    let update = part.unwrap_or_else(|| {
        let mut ordered = bucket.clone();
        ordered.samples.sort_by_key(|sample| sample.at);
        build(&ordered, context, &id, &Ending::Open(then.samples), now)
    });
    let statement = statement(filter(bucket, context, &id, then.samples), update);
    let collection = context.collections.of(&context.site, &bucket.sensor, bucket.part);
    LiveUpdate { id, collection, then, gained: then.samples - before, whole, statement }
}

/// Which document: ours, of this bucket, if it holds fewer samples. Sensor and start are there for shard keys.
fn filter(bucket: &SealedBucket, context: &Context, id: &str, samples: u32) -> RawDocumentBuf {
    let names = &context.shape.names;
    let (mut filter, mut fewer) = (Builder::new(), Builder::new());
    fewer.put("$lt", i64::from(samples));
    filter.put("_id", id);
    filter.put(&names.sensor, bucket.sensor.as_str());
    filter.put(&names.start, date(bucket.window.start()));
    filter.put(&names.store, context.store.as_str());
    filter.put(&names.last_seq, fewer.0);
    filter.0
}

/// What the samples beyond the known ones add, if they go on regularly.
fn part(bucket: &SealedBucket, known: Known, context: &Context, now: Timestamp) -> Option<RawDocumentBuf> {
    let (shape, names) = (&context.shape, &context.shape.names);
    if !can_grow(shape) || known.clock != bucket.clock || known.samples == 0 {
        return None;
    }
    let (head, tail) = bucket.samples.split_at_checked(known.samples as usize)?;
    let (mut head, mut tail) = (head.to_vec(), tail.to_vec());
    head.sort_by_key(|sample| sample.at);
    tail.sort_by_key(|sample| sample.at);
    if tail.first()?.at < head.last()?.at {
        return None;
    }
    let (before, gained) = (rollups(&head), rollups(&tail));
    let main = shape.field.as_ref().or_else(|| before.first().map(|(field, _)| field));
    let all = head.len() as u32;
    let in_all = |stats: &[(FieldName, FieldStats)], field: &FieldName, count: u32| {
        stats.iter().any(|(known, stats)| known == field && stats.count == count)
    };
    let is_known = |field: &FieldName| before.iter().any(|(known, _)| known == field);
    let has_numbers = |stats: &[(FieldName, FieldStats)], field: &FieldName| {
        stats.iter().find(|(known, _)| known == field).map(|(_, stats)| stats.numbers.is_some())
    };
    // Flat rollups count a field apart that not every sample has, and leave out what has no numbers.
    let goes_on = |field: &FieldName| {
        (!in_all(&before, field, all) || in_all(&gained, field, tail.len() as u32))
            && has_numbers(&gained, field).is_none_or(|has| Some(has) == has_numbers(&before, field))
    };
    let is_flat = shape.rollups == Rollups::Flat;
    let fits_flat = || before.iter().all(|(field, _)| goes_on(field)) && are_apart(&before, main, shape);
    if !gained.iter().all(|(field, _)| is_known(field)) || (is_flat && !fits_flat()) {
        return None;
    }
    let tail = SealedBucket { samples: tail, ..bucket.without_samples() };
    let mut gain = Gain::of(&tail, context, &gained, main, |field| !in_all(&before, field, all));
    gain.set.put(&names.last_seq, i64::from(bucket.count()));
    if shape.rollups == Rollups::Nested {
        for (field, stats) in &gained {
            let last = path(&[&names.stats, &names.field(field.as_str()), &names.stats_last]);
            gain.set.put(&last, value(&stats.last));
        }
    }
    say_once(&mut gain.once, bucket, context, &before, now);
    Some(gain.update())
}

/// What a document says besides its samples, should it have been deleted meanwhile.
fn say_once(
    once: &mut Builder,
    bucket: &SealedBucket,
    context: &Context,
    stats: &[(FieldName, FieldStats)],
    now: Timestamp,
) {
    let names = &context.shape.names;
    once.put(&names.site, context.site.as_str());
    once.put(&names.part, whole(bucket.part));
    once.put(&names.end, date(bucket.window.end()));
    if bucket.late {
        once.put(&names.late, true);
    }
    if let Some(meta) = context.meta.get(&bucket.sensor).and_then(|meta| about(meta, stats, names)) {
        once.put(&names.meta, meta);
    }
    once.put(&names.clock, bucket.clock.as_str());
    once.put(&names.schema, super::SCHEMA);
    if let Some(expires) = expires(bucket, context, now) {
        once.put(&names.expire_at, date(expires));
    }
}

/// Whether documents of this shape can be added to: rows only, and nothing that has to be reckoned anew. Others are replaced.
pub fn can_grow(shape: &Shape) -> bool {
    let has_mean = !shape.names.stats_avg.is_empty() && shape.rollups != Rollups::None;
    shape.layout == Layout::Rows && shape.summary.is_none() && !has_mean
}

/// Whether all flat rollups have names of their own, so that none was given another one.
fn are_apart(stats: &[(FieldName, FieldStats)], main: Option<&FieldName>, shape: &Shape) -> bool {
    let names = &shape.names;
    let mut known = HashSet::new();
    stats.iter().all(|(field, _)| {
        let own = [&names.stats_sum, &names.stats_min, &names.stats_max];
        let own = own.into_iter().filter(|template| !template.is_empty());
        let own = own.map(|template| rollup_name(template, field.as_str(), Some(field) == main));
        let count = Some(&names.stats_count).filter(|template| !template.is_empty());
        let count = count.map(|template| rollup_name(template, field.as_str(), false));
        own.chain(count).all(|name| !names.is_top(&name) && known.insert(name))
    })
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
