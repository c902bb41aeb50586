//! A sealed bucket as the document that goes upstream. Pure: the same bucket, context and time give the same bytes.
//!
//! Fields stand in the order of `docs/DOCUMENTS.md`, whatever the shape calls them.

mod append;
mod body;
mod gain;
mod live;
mod rollups;
mod samples;
mod series;
#[cfg(test)]
mod shape_tests;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::raw::RawBsonRef;
use mongodb::bson::{RawDocument, RawDocumentBuf};

use super::collection::Collections;
use super::mongo::Hangups;
use super::{Rollups, Shape, identity};
use crate::model::{
    ClockState, FieldName, FieldStats, SealReason, SealedBucket, SensorName, SiteName, Timestamp, Window,
};
pub(crate) use body::Again;
use body::Body;
pub use live::{Known, LiveUpdate, can_grow, live_update};
use write::{Builder, date, whole};

/// Version of the document's form, in its field `schema`.
const SCHEMA: i32 = 1;
/// Largest document that is sent: half of MongoDB's 16 MiB, so that a batch always fits one command.
pub const MAX_DOCUMENT_BYTES: usize = 8 << 20;

/// Hex digits of a content hash that a document says: 96 bits tell apart whatever may meet under one `_id`, and every digit
/// costs half a byte on the wire.
const HASH_DIGITS: usize = 24;

/// What a document says besides its bucket.
#[derive(Clone, Debug)]
pub struct Context {
    /// The installation.
    pub site: SiteName,
    /// The random id that was born with the database file.
    pub store: String,
    /// How long the database keeps a bucket; `None` is for ever.
    pub retention: Option<Retention>,
    /// What the fields are called, and how they stand.
    pub shape: Shape,
    /// What is known about sensors.
    pub meta: HashMap<SensorName, Meta>,
    /// Which collection takes which document.
    pub collections: Collections,
    /// What becomes of a bucket.
    pub form: Form,
}

/// What becomes of a bucket in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A document, inserted once.
    #[default]
    Buckets,
    /// The same, in place of the live document of its open bucket.
    Live,
    /// Measurements of a time series collection.
    Series,
    /// Samples in documents that others write too, each holding so many at most.
    Append(u32),
}

/// How long the database keeps a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// So long after the end of its window,
    pub after_window: Duration,
    /// but at least so long after it was sent: what waited for weeks must not be deleted as soon as it arrives.
    pub after_sending: Duration,
}

/// What is known about a sensor besides its readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Units of its fields.
    pub units: Vec<(FieldName, String)>,
    /// Free labels.
    pub tags: Vec<(String, String)>,
}

/// A document on its way.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its `_id`.
    pub id: String,
    /// The first digits of its content hash.
    pub hash: String,
    /// How many samples it holds.
    pub samples: u32,
    /// The window of its bucket.
    pub window: Window,
    /// The collection it belongs to.
    pub collection: Arc<str>,
    /// When it was first sent.
    pub first_sent: Option<Timestamp>,
    /// How often its `_id` was found taken by other content: 0, 1 or 2.
    pub rekeyed: u8,
    /// How often it was sent.
    pub tries: u32,
    /// How often it was answered with an error that this program does not know.
    pub(crate) riddles: u32,
    /// How often the server closed the connection instead of answering it.
    pub(crate) hangups: Hangups,
    /// Since when it is not certain whether its measurements are stored.
    pub(crate) suspect: Option<tokio::time::Instant>,
    /// Its measurements, where they go one by one; or an update for each sample.
    pub rows: Vec<RawDocumentBuf>,
    /// How many of the updates are certainly done.
    pub(crate) done: usize,
    /// It takes the place of a live document of ours.
    pub(crate) replaces: bool,
    body: Body,
}

impl Document {
    /// The document of a bucket, as if it were sent when its window ends.
    pub fn of(bucket: &SealedBucket, context: &Context) -> Self {
        Self::sent_at(bucket, context, bucket.window.end())
    }

    /// The document of a bucket that is sent now.
    pub fn sent_at(bucket: &SealedBucket, context: &Context, now: Timestamp) -> Self {
        let id = identity::id(&context.site, bucket);
        let mut hash = bucket.hash(&context.site);
        hash.truncate(HASH_DIGITS);
        let bson = build(bucket, context, &id, &Ending::Sealed(&hash), now);
        let collection = context.collections.of(&context.site, &bucket.sensor, bucket.part);
        let (samples, window) = (bucket.count(), bucket.window);
        let rows = match context.form {
            Form::Buckets | Form::Live => Vec::new(),
            Form::Series => series::measurements(bucket, &hash, context),
            Form::Append(most) => append::updates(bucket, context, most, now),
        };
        let suspect = None;
        Self {
            id,
            hash,
            samples,
            window,
            rows,
            suspect,
            done: 0,
            replaces: context.form == Form::Live,
            collection,
            first_sent: None,
            rekeyed: 0,
            tries: 0,
            riddles: 0,
            hangups: Hangups::default(),
            body: Body::new(bson),
        }
    }

    /// The same, whose bytes may be given away when it is sent: `again` makes them, of the same bucket.
    pub(crate) fn made_again_by(mut self, again: Again) -> Self {
        self.body = self.body.with(again);
        self
    }

    /// The exact bytes.
    pub fn bson(&self) -> &RawDocumentBuf {
        self.body.get()
    }

    /// The exact bytes, to be sent: they are gone, and made again if they are asked for.
    pub(crate) fn give(&mut self) -> RawDocumentBuf {
        self.body.give()
    }

    /// The exact bytes, to be put aside.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.body.into_bytes()
    }

    /// Bytes that go upstream.
    pub fn bytes(&self) -> usize {
        let rows: usize = self.rows.iter().map(|row| row.as_bytes().len()).sum();
        if rows > 0 { rows } else { self.body.size() }
    }

    /// The same content under the next `_id`; `false` if there is none left.
    pub(crate) fn rekey(&mut self, store: &str) -> bool {
        if self.rekeyed >= 2 {
            return false;
        }
        let taken = if self.rekeyed == 0 { "".to_owned() } else { format!("~{store}") };
        let original = self.id.strip_suffix(taken.as_str()).unwrap_or(&self.id).to_owned();
        self.rekeyed += 1;
        self.id = identity::rekeyed(&original, store, &self.hash, self.rekeyed);
        let mut next = RawDocumentBuf::new();
        for (key, value) in self.bson().iter().flatten() {
            match key.as_str() {
                "_id" => next.append(key, self.id.as_str()),
                _ => next.append(key, value),
            }
        }
        // What would be made again has the `_id` that is taken.
        self.body = Body::new(next);
        true
    }
}

/// How a document ends: that of a sealed bucket is told by its hash, that of an open one by how many samples it holds.
pub(super) enum Ending<'a> {
    Sealed(&'a str),
    Open(u32),
}

pub(super) fn build(
    bucket: &SealedBucket,
    context: &Context,
    id: &str,
    ending: &Ending<'_>,
    now: Timestamp,
) -> RawDocumentBuf {
    let is_sealed = matches!(ending, Ending::Sealed(_));
    let (shape, names) = (&context.shape, &context.shape.names);
    let mut doc = Builder::new();
    doc.put("_id", id);
    doc.put(&names.site, context.site.as_str());
    doc.put(&names.sensor, bucket.sensor.as_str());
    doc.put(&names.part, whole(bucket.part));
    doc.put(&names.start, date(bucket.window.start()));
    doc.put(&names.end, date(bucket.window.end()));
    if let Some((first, last)) = bucket.span() {
        doc.put(&names.first, date(first));
        doc.put(&names.last, date(last));
    }
    doc.put(&names.count, whole(bucket.count()));
    let stats = bucket.stats();
    let main = shape.field.as_ref().or_else(|| stats.first().map(|(field, _)| field));
    match shape.rollups {
        Rollups::Nested => doc.put(&names.stats, rollups::nested(&stats, names)),
        Rollups::Flat => rollups::flat(&mut doc, &stats, names, main, bucket.count()),
        Rollups::None => {}
    }
    if let Some(every) = shape.summary {
        doc.put(&names.summary, rollups::summary(bucket, every, names, main));
    }
    samples::put(&mut doc, bucket, shape, main);
    if is_sealed {
        doc.put(&names.sealed, bucket.sealed.as_str());
    }
    if bucket.late {
        doc.put(&names.late, true);
    }
    if is_sealed && matches!(bucket.sealed, SealReason::Samples | SealReason::Bytes) {
        doc.put(&names.overflow, true);
    }
    if let Some(meta) = context.meta.get(&bucket.sensor).and_then(|meta| about(meta, &stats, names)) {
        doc.put(&names.meta, meta);
    }
    if bucket.rollup.is_some() {
        doc.put(&names.thinned, true);
    }
    doc.put(&names.clock, bucket.clock.as_str());
    match ending {
        Ending::Sealed(hash) => doc.put(&names.hash, *hash),
        Ending::Open(n) => doc.put(&names.last_seq, i64::from(*n)),
    }
    doc.put(&names.store, context.store.as_str());
    doc.put(&names.schema, SCHEMA);
    if let Some(expires) = expires(bucket, context, now) {
        doc.put(&names.expire_at, date(expires));
    }
    doc.finish()
}

/// When the database may delete a bucket. Times that are not believed may lie in 1970: such a bucket would be gone before
/// anybody saw it.
fn expires(bucket: &SealedBucket, context: &Context, now: Timestamp) -> Option<Timestamp> {
    let kept = context.retention.filter(|_| bucket.clock < ClockState::Unsynced)?;
    Some(bucket.window.end().plus(kept.after_window).max(now.plus(kept.after_sending)))
}

/// Units of the fields that occur, and tags; `None` if there is neither.
fn about(meta: &Meta, stats: &[(FieldName, FieldStats)], names: &super::Names) -> Option<RawDocumentBuf> {
    let mut about = Builder::new();
    let mut units = Builder::new();
    for (field, unit) in meta.units.iter().filter(|(field, _)| stats.iter().any(|(known, _)| known == field)) {
        units.put(&names.field(field.as_str()), unit.as_str());
    }
    let mut tags = Builder::new();
    for (tag, text) in &meta.tags {
        tags.put(&tag.replace(['.', '$', '\0'], "_"), text.as_str());
    }
    for (key, part) in [("units", units), ("tags", tags)] {
        if !part.0.is_empty() {
            about.put(key, part.0);
        }
    }
    (!about.0.is_empty()).then_some(about.0)
}

/// Whether a stored document is what we wrote of an open bucket, and may be replaced.
pub(crate) fn is_live(stored: &RawDocument, ours: &Document, shape: &Shape) -> bool {
    let names = &shape.names;
    let store = |document: &RawDocument| document.get_str(&names.store).ok().map(ToOwned::to_owned);
    let is_named = !names.last_seq.is_empty() && !names.store.is_empty();
    is_named
        && matches!(stored.get(&names.last_seq), Ok(Some(_)))
        && store(stored).is_some_and(|id| Some(id) == store(ours.bson()))
}

/// Whether a stored document holds the content of ours: by its hash, or, where hashes are left out, by everything but
/// what may differ without the content being another.
pub(crate) fn is_same(stored: &RawDocument, ours: &Document, shape: &Shape) -> bool {
    let names = &shape.names;
    if !names.hash.is_empty() {
        return matches!(stored.get(&names.hash), Ok(Some(RawBsonRef::String(hash))) if hash == ours.hash);
    }
    let passed_over = ["_id", &names.store, &names.expire_at, &names.meta, &names.schema];
    let content = |document: &RawDocument| -> Option<RawDocumentBuf> {
        let mut kept = RawDocumentBuf::new();
        for entry in document {
            let (key, value) = entry.ok()?;
            if !passed_over.contains(&key.as_str()) {
                kept.append(key, value);
            }
        }
        Some(kept)
    };
    let stored = content(stored);
    stored.is_some() && stored == content(ours.bson())
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
