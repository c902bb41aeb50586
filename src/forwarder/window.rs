//! What the forwarder holds: the documents to be sent next, and how far each drawn segment is.
//!
//! Plain state, no I/O: filled from parcels, changed by reports, emptied of segments that are done.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::{self, DeadLetter, LetterKind, LossReason, LostBucket, Timestamp};
use crate::stats::UpstreamStats;
use crate::store::{PackedBucket, Parcel, SegmentId, Settled, StoreError};
use crate::upstream::{Context, Document, Fate, MAX_DOCUMENT_BYTES, Report};

/// Dead letters beyond this many bytes are stored at once, not only together with their segment.
const MAX_LETTER_BYTES: usize = 1 << 20;

/// Bytes of documents that are made at a time: a small processor needs some milliseconds for them.
const SLICE: usize = 32 << 10;

/// Most segments that are done and not settled.
const MAX_DONE: usize = 1000;

/// Documents on their way, and their segments.
pub(super) struct Window {
    context: Arc<Context>,
    documents: Vec<Document>,
    /// The segment of each document, and the bucket that it was made of.
    owners: Vec<(SegmentId, Arc<PackedBucket>)>,
    segments: VecDeque<Segment>,
    /// Dead letters not yet stored.
    letters: Vec<DeadLetter>,
    held: Tally,
}

struct Segment {
    id: SegmentId,
    packed: VecDeque<PackedBucket>,
    drawn: usize,
    /// Documents in the window.
    waiting: usize,
    /// Documents in an unfinished archive file.
    held: usize,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    buckets: u64,
    readings: u64,
    bytes: u64,
}

impl Window {
    pub(super) fn new(context: Context) -> Self {
        Self {
            context: Arc::new(context),
            documents: Vec::new(),
            owners: Vec::new(),
            segments: VecDeque::new(),
            letters: Vec::new(),
            held: Tally { buckets: 0, readings: 0, bytes: 0 },
        }
    }

    /// Takes a segment in, after those that are there.
    pub(super) fn add(&mut self, parcel: Parcel) {
        let packed = parcel.buckets.into();
        self.segments.push_back(Segment { id: parcel.id, packed, drawn: 0, waiting: 0, held: 0 });
    }

    /// Unpacks buckets, oldest first, until the window holds this many documents or bytes.
    #[cfg(test)]
    fn fill(&mut self, limits: (usize, usize), now: Timestamp, stats: &UpstreamStats) {
        while self.fill_slice(limits, now, stats) {}
    }

    /// Unpacks buckets, oldest first, until the window holds this many documents or bytes, or a slice of them is made: then
    /// it gives `true`, and is to be called again when others have had their turn.
    pub(super) fn fill_slice(&mut self, (most, bytes): (usize, usize), now: Timestamp, stats: &UpstreamStats) -> bool {
        let mut filled: usize = self.documents.iter().map(Document::bytes).sum();
        let mut made = 0;
        for index in 0..self.segments.len() {
            while self.documents.len() < most && filled < bytes {
                if made >= SLICE {
                    return true;
                }
                let Some(packed) = self.segments[index].packed.pop_front() else { break };
                self.segments[index].drawn += 1;
                let size = self.unpack(index, packed, now, stats);
                filled += size.0;
                made += size.1;
            }
        }
        false
    }

    /// Makes the document of a bucket. Gives the bytes that wait now, and those that were worked on.
    fn unpack(&mut self, index: usize, packed: PackedBucket, now: Timestamp, stats: &UpstreamStats) -> (usize, usize) {
        let (id, packed) = (self.segments[index].id, Arc::new(packed));
        match self.document(&packed, now) {
            Ok(document) if document.bytes() > MAX_DOCUMENT_BYTES => {
                let bytes = document.bytes();
                let text = format!(
                    "the document has {bytes} bytes, more than the {MAX_DOCUMENT_BYTES} that are sent: lower bucket.max_samples or bucket.max_bytes"
                );
                self.refuse(&(id, packed), document, &text, now, stats);
                (0, bytes)
            }
            Ok(document) => {
                let bytes = document.bytes();
                self.segments[index].waiting += 1;
                self.documents.push(document);
                self.owners.push((id, packed));
                (bytes, bytes)
            }
            Err(error) => {
                let place = format!("segment {}, bucket {}", id.0, self.segments[index].drawn);
                let reason = format!("cannot be unpacked: {error}");
                let (lost, payload) = (packed.lost(id, LossReason::Damaged), packed.bytes().to_vec());
                let bytes = payload.len();
                self.letter(letter_of(place, reason, payload, lost, now), stats);
                (0, bytes)
            }
        }
    }

    fn document(&self, packed: &Arc<PackedBucket>, now: Timestamp) -> Result<Document, StoreError> {
        let bucket = packed.unpack()?;
        let document = Document::sent_at(&bucket, &self.context, now);
        let (packed, context, sensor) = (Arc::clone(packed), Arc::clone(&self.context), bucket.sensor);
        Ok(document.made_again_by(Arc::new(move || {
            // Only if the file was replaced meanwhile and its names were damaged is it another: a restart draws anew.
            let same = packed.unpack().ok().filter(|bucket| bucket.sensor == sensor);
            Document::sent_at(&same.expect("a bucket keeps its names"), &context, now)
        })))
    }

    /// How many documents from the front make the next command: within the limits, but at least one.
    pub(super) fn batch(&self, (most, bytes): (usize, usize)) -> usize {
        let mut sum = 0;
        let within = self.documents.iter().take(most).take_while(|document| {
            sum += document.bytes();
            sum <= bytes
        });
        within.count().max(1).min(self.documents.len())
    }

    /// Takes out the first documents, about to be sent: [`Self::put_back`] is to be called before anything is applied.
    pub(super) fn take(&mut self, count: usize, now: Timestamp) -> Vec<Document> {
        let rest = self.documents.split_off(count);
        let mut documents = std::mem::replace(&mut self.documents, rest);
        for document in &mut documents {
            document.first_sent.get_or_insert(now);
        }
        documents
    }

    /// Puts them back, before those that came meanwhile.
    pub(super) fn put_back(&mut self, mut documents: Vec<Document>) {
        documents.append(&mut self.documents);
        self.documents = documents;
    }

    /// The id that was born with the store.
    pub(super) fn store(&self) -> &str {
        &self.context.store
    }

    /// The window that ended last of those whose buckets wait.
    pub(super) fn latest_window(&self) -> Option<model::Window> {
        self.documents.iter().map(|document| document.window).max_by_key(|window| window.end())
    }

    /// Takes in what became of the first `count` documents. What is not sent stays, in its order.
    pub(super) fn apply(&mut self, report: &Report, count: usize, now: Timestamp, stats: &UpstreamStats) {
        if report.flushed {
            std::mem::take(&mut self.held).count(now, stats);
            self.segments.iter_mut().for_each(|segment| segment.held = 0);
        }
        let rest = (self.documents.split_off(count), self.owners.split_off(count));
        let sent = std::mem::replace(&mut self.documents, Vec::with_capacity(rest.0.len()));
        let owners = std::mem::take(&mut self.owners);
        for (i, (document, owner)) in sent.into_iter().zip(owners).enumerate() {
            let fate = report.fates.get(i).unwrap_or(&Fate::Unsent);
            if *fate == Fate::Unsent {
                self.documents.push(document);
                self.owners.push(owner);
                continue;
            }
            // Drawn in the order of their numbers.
            if let Ok(place) = self.segments.binary_search_by_key(&owner.0, |segment| segment.id) {
                self.segments[place].waiting -= 1;
                self.segments[place].held += usize::from(*fate == Fate::Held);
            }
            match fate {
                Fate::Delivered => Tally::of(&document).count(now, stats),
                Fate::Held => self.held.add(Tally::of(&document)),
                Fate::Refused(text) => self.refuse(&owner, document, text, now, stats),
                Fate::Unsent => {}
            }
        }
        self.documents.extend(rest.0);
        self.owners.extend(rest.1);
    }

    /// Forgets every segment that is not done: they are drawn again.
    pub(super) fn clear(&mut self) {
        self.documents.clear();
        self.owners.clear();
        self.segments.retain(Segment::is_done);
        let done = &self.segments;
        // The others' refused buckets are drawn, and refused, again.
        self.letters.retain(|letter| {
            let from = letter.lost.as_ref().map(|lost| SegmentId(lost.segment));
            from.is_none_or(|from| done.binary_search_by_key(&from, |segment| segment.id).is_ok())
        });
        self.held = Tally::default();
    }

    /// Segments that are done, and dead letters, to be told to the store.
    pub(super) fn take_settled(&mut self) -> Settled {
        let mut settled = Settled::default();
        settled.segments.extend(self.segments.iter().filter(|segment| segment.is_done()).map(|segment| segment.id));
        if self.has_many_letters() || !settled.segments.is_empty() {
            self.segments.retain(|segment| !segment.is_done());
            settled.dead_letters = std::mem::take(&mut self.letters);
        }
        settled
    }

    /// Whether a segment is done and not settled yet.
    pub(super) fn has_done(&self) -> bool {
        self.segments.iter().any(Segment::is_done)
    }

    /// Whether so much is done, perhaps because it was refused here, that it must be settled before more is drawn.
    pub(super) fn must_settle(&self) -> bool {
        self.has_many_letters() || self.segments.iter().filter(|segment| segment.is_done()).count() >= MAX_DONE
    }

    fn has_many_letters(&self) -> bool {
        self.letters.iter().map(|letter| letter.payload.len()).sum::<usize>() > MAX_LETTER_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Where the window of the oldest document begins that waits.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.documents.iter().map(|document| document.window.start()).min()
    }

    /// Documents that wait.
    pub(super) const fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether it holds so many documents or bytes.
    pub(super) fn is_full(&self, (most, bytes): (usize, usize)) -> bool {
        self.documents.len() >= most || self.documents.iter().map(Document::bytes).sum::<usize>() >= bytes
    }

    /// The last segment that was drawn, if it is not settled.
    pub(super) fn last_drawn(&self) -> Option<SegmentId> {
        self.segments.back().map(|segment| segment.id)
    }

    /// Whether anything waits of the segments up to this one.
    pub(super) fn has_until(&self, last: SegmentId) -> bool {
        let mut segments = self.segments.iter().take_while(|segment| segment.id <= last);
        segments.any(|segment| segment.waiting > 0 || !segment.packed.is_empty())
    }

    pub(super) fn has_packed(&self) -> bool {
        self.segments.iter().any(|segment| !segment.packed.is_empty())
    }

    pub(super) fn open_segments(&self) -> usize {
        self.segments.len()
    }

    fn refuse(
        &mut self,
        (from, packed): &(SegmentId, Arc<PackedBucket>),
        document: Document,
        text: &str,
        now: Timestamp,
        stats: &UpstreamStats,
    ) {
        let reason = match document.first_sent {
            Some(first) => format!("{text}; first sent {first}, last {now}"),
            None => text.to_owned(),
        };
        let lost = packed.lost(*from, LossReason::RefusedUpstream);
        self.letter(letter_of(document.id.clone(), reason, document.into_bytes(), lost, now), stats);
    }

    /// Puts a bucket aside for a person to look at.
    fn letter(&mut self, letter: DeadLetter, stats: &UpstreamStats) {
        stats.refused.inc();
        tracing::error!("bucket `{}` is put aside as a dead letter: {}", letter.place, letter.reason);
        self.letters.push(letter);
    }
}

/// A dead letter of a bucket.
fn letter_of(place: String, reason: String, payload: Vec<u8>, lost: LostBucket, at: Timestamp) -> DeadLetter {
    DeadLetter { at, kind: LetterKind::Bucket, source: None, place, reason, payload, lost: Some(lost) }
}

impl Segment {
    fn is_done(&self) -> bool {
        self.packed.is_empty() && self.waiting == 0 && self.held == 0
    }
}

impl Tally {
    fn of(document: &Document) -> Self {
        Self { buckets: 1, readings: document.samples.into(), bytes: document.bytes() as u64 }
    }

    const fn add(&mut self, other: Self) {
        self.buckets += other.buckets;
        self.readings += other.readings;
        self.bytes += other.bytes;
    }

    fn count(self, now: Timestamp, stats: &UpstreamStats) {
        if self.buckets > 0 {
            stats.buckets.inc_by(self.buckets);
            stats.readings.inc_by(self.readings);
            stats.bytes.inc_by(self.bytes);
            stats.last_delivery_ms.set(now.as_millis());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SiteName;
    use crate::model::samples;
    use crate::stats::Stats;
    use crate::upstream::{Collections, Shape};

    fn window() -> Window {
        Window::new(Context {
            site: SiteName::new("s").unwrap(),
            store: String::new(),
            retention: None,
            shape: Shape::default(),
            collections: Collections::new("telemetry", "buckets", None),
            form: Default::default(),
            meta: std::collections::HashMap::new(),
        })
    }

    #[test]
    fn a_window_holds_one_command_whatever_the_backlog() {
        let bucket = PackedBucket::pack(&samples::bucket("a", 0, 0, &[(0, 1.0)]));
        let (mut window, stats) = (window(), Stats::default());
        for id in 1..=100 {
            window.add(Parcel { id: SegmentId(id), buckets: vec![bucket.clone(); 100] });
        }
        for (limits, expected) in [((100, 1 << 20), 100), ((1000, 1 << 20), 1000), ((1, 16 << 10), 1000)] {
            window.fill(limits, Timestamp::EPOCH, stats.upstream());
            assert_eq!(window.documents.len(), expected);
            assert_eq!(window.batch(limits), limits.0);
        }
        let one = window.documents[0].bytes();
        assert_eq!(window.batch((1000, one * 3 + 1)), 3);
        assert_eq!(window.batch((1000, 1)), 1, "one document may always be larger");
    }

    #[test]
    fn a_damaged_bucket_becomes_a_dead_letter() {
        let mut window = window();
        let stats = Stats::default();
        let letter =
            PackedBucket::pack(&samples::bucket("a", 0, 0, &[(0, 1.0)])).lost(SegmentId(1), LossReason::Damaged);
        let letter = letter_of("segment 1, bucket 1".into(), "bad".into(), vec![], letter, Timestamp::EPOCH);
        window.letter(letter, stats.upstream());
        assert_eq!(stats.upstream().refused.get(), 1);
        window.add(Parcel { id: SegmentId(1), buckets: vec![] });
        let settled = window.take_settled();
        assert_eq!((settled.segments, settled.dead_letters.len()), (vec![SegmentId(1)], 1));
    }
}
