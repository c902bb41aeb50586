//! A world of plain lists: a backlog and an upstream for the forwarder.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::way::Way;
use crate::model::bucketer::BucketKey;
use crate::model::samples;
use crate::model::{DeadLetter, SealedBucket, Timestamp};
use crate::store::{Backlog, Growing, Growth, Lost, PackedBucket, Parcel, Question, SegmentId, Settled, StoreError};
use crate::upstream::{Document, Fate, Gap, LiveReport, LiveUpdate, Manners, Orders, Report, Shown, Vitals};

#[derive(Default)]
pub(super) struct World {
    pub(super) segments: BTreeMap<SegmentId, Vec<PackedBucket>>,
    pub(super) settled: Vec<SegmentId>,
    pub(super) letters: Vec<DeadLetter>,
    pub(super) ended: bool,
    pub(super) settle_fails: usize,
    pub(super) sent: Vec<Vec<String>>,
    pub(super) reports: VecDeque<Report>,
    pub(super) hold: bool,
    pub(super) held: usize,
    pub(super) hang: bool,
    pub(super) closed: bool,
    pub(super) greetings: VecDeque<Report>,
    pub(super) greeted: usize,
    pub(super) manners: Option<Manners>,
    pub(super) takes: Vec<bool>,
    pub(super) orders: Option<Orders>,
    pub(super) vitals: Vec<Vitals>,
    pub(super) lost: Vec<Lost>,
    pub(super) gaps: Vec<Gap>,
    pub(super) live_every: Option<Duration>,
    pub(super) open: BTreeMap<BucketKey, SealedBucket>,
    /// What the store was asked of open buckets.
    pub(super) looks: Vec<Question>,
    pub(super) shown: Vec<Vec<LiveUpdate>>,
    pub(super) live_reports: VecDeque<LiveReport>,
    /// A command is under way; and how many segments were settled meanwhile.
    pub(super) under_way: bool,
    pub(super) settled_meanwhile: usize,
}

#[derive(Clone, Default)]
pub(super) struct Shared(pub(super) Arc<Mutex<World>>, pub(super) Arc<Notify>);

impl Shared {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let result = act(&mut self.0.lock().unwrap());
        self.1.notify_waiters();
        result
    }

    pub(super) fn segment(&self, id: u64, sensors: &[&str]) {
        let pack = |name: &&str| PackedBucket::pack(&samples::bucket(name, 1_796_043_600, 0, &[(0, 1.0), (1, 2.0)]));
        self.with(|world| world.segments.insert(SegmentId(id), sensors.iter().map(pack).collect()));
    }

    /// An open bucket with so many samples.
    pub(super) fn open(&self, sensor: u32, samples: u32) {
        let values: Vec<(i64, f64)> = (0..samples).map(|i| (i.into(), f64::from(i))).collect();
        let bucket = samples::bucket(&format!("s{sensor}"), 1_796_043_600, 0, &values);
        let key = BucketKey { sensor, window: bucket.window, part: 0 };
        self.with(|world| world.open.insert(key, bucket));
    }

    pub(super) async fn until(&self, done: impl Fn(&World) -> bool) {
        let wait = async {
            loop {
                let notified = self.1.notified();
                if done(&self.0.lock().unwrap()) {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(100_000), wait).await.expect("it happens in the end");
    }
}

pub(super) struct FakeBacklog(Shared, SegmentId, VecDeque<(u64, u64)>);

impl FakeBacklog {
    pub(super) fn new(world: &Shared) -> Self {
        Self(world.clone(), SegmentId(0), VecDeque::new())
    }
}

impl Backlog for FakeBacklog {
    async fn next(&mut self) -> Result<Option<Parcel>, StoreError> {
        loop {
            let notified = self.0.1.notified();
            {
                let world = self.0.0.lock().unwrap();
                if let Some((&id, buckets)) = world.segments.range(SegmentId(self.1.0 + 1)..).next() {
                    self.1 = id;
                    return Ok(Some(Parcel { id, buckets: buckets.clone() }));
                }
                if world.ended {
                    return Ok(None);
                }
            }
            notified.await;
        }
    }

    fn rewind(&mut self) {
        self.1 = SegmentId(0);
        self.2.clear();
    }

    fn has_next(&self) -> bool {
        self.0.with(|world| world.segments.range(SegmentId(self.1.0 + 1)..).next().is_some())
    }

    fn split(&mut self) {
        let last = self.0.with(|world| world.segments.keys().last().map_or(0, |id| id.0));
        if last > self.1.0 {
            self.2.push_back((self.1.0, last));
            self.1 = SegmentId(last);
        }
    }

    async fn next_old(&mut self) -> Result<Option<Parcel>, StoreError> {
        while let Some((after, until)) = self.2.front().copied() {
            let stretch = (Bound::Excluded(SegmentId(after)), Bound::Included(SegmentId(until)));
            let next = self.0.with(|world| world.segments.range(stretch).next().map(|(id, b)| (*id, b.clone())));
            if let Some((id, buckets)) = next {
                self.2[0].0 = id.0;
                return Ok(Some(Parcel { id, buckets }));
            }
            self.2.pop_front();
        }
        Ok(None)
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), StoreError> {
        self.0.with(|world| {
            if world.settle_fails > 0 {
                world.settle_fails -= 1;
                return Err(StoreError::Damaged { what: "disk".into(), why: "full".into() });
            }
            for id in &settled.segments {
                assert!(world.segments.remove(id).is_some(), "settled once");
            }
            world.settled_meanwhile += if world.under_way { settled.segments.len() } else { 0 };
            world.settled.extend(settled.segments);
            world.letters.extend(settled.dead_letters);
            Ok(())
        })
    }

    async fn losses(&mut self, after: i64, _: Timestamp, most: usize) -> Result<Vec<Lost>, StoreError> {
        Ok(self.0.with(|w| w.lost.iter().filter(|lost| lost.id > after).take(most).cloned().collect()))
    }

    async fn look(&mut self, question: Question) -> Growth {
        self.0.with(|world| {
            let is_news = |(key, bucket): &(&BucketKey, &SealedBucket)| {
                question.after.is_none_or(|after| **key > after)
                    && bucket.count() > question.known.get(key).copied().unwrap_or(0)
            };
            let news: Vec<_> = world.open.iter().filter(is_news).collect();
            let growing = news.iter().take(question.buckets);
            let growing = growing.map(|(key, bucket)| Growing { key: **key, bucket: (*bucket).clone() }).collect();
            let closed = question.known.keys().filter(|key| !world.open.contains_key(key)).copied().collect();
            let more = news.len() > question.buckets;
            world.looks.push(question);
            Growth { growing, closed, more }
        })
    }

    fn upstream_takes(&mut self, takes: bool) {
        self.0.with(|world| world.takes.push(takes));
    }

    fn store_id(&self) -> &str {
        "0badcafe"
    }
}

pub(super) struct FakeWay(pub(super) Shared);

impl Way for FakeWay {
    fn manners(&self) -> Manners {
        self.0.with(|world| world.manners.clone()).unwrap_or_else(Manners::none)
    }

    async fn greet(&mut self) -> Report {
        self.0.with(|world| {
            world.greeted += 1;
            world.greetings.pop_front().unwrap_or(Report { reached: true, ..Report::default() })
        })
    }

    fn reports_every(&self) -> Option<Duration> {
        self.0.with(|world| world.orders).map(|_| Duration::from_secs(600))
    }

    fn is_open(&self) -> bool {
        true
    }

    async fn report(&mut self, vitals: &Vitals) -> Option<Orders> {
        self.0.with(|world| {
            world.vitals.push(vitals.clone());
            world.orders
        })
    }

    fn gaps_after(&self) -> i64 {
        self.0.with(|world| world.gaps.last().map_or(0, |gap| gap.id))
    }

    async fn gaps(&mut self, gaps: &[Gap], _: &str) -> bool {
        self.0.with(|world| world.gaps.extend_from_slice(gaps));
        true
    }

    fn live_every(&self) -> Option<Duration> {
        self.0.with(|world| world.live_every)
    }

    async fn live(&mut self, updates: &[LiveUpdate]) -> LiveReport {
        let report = self.0.with(|world| {
            world.shown.push(updates.to_vec());
            let all = LiveReport { fates: vec![Shown::Done; updates.len()], ..LiveReport::default() };
            world.live_reports.pop_front().unwrap_or(all)
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
        report
    }

    fn limits(&self) -> (usize, usize) {
        (3, 1 << 20)
    }

    async fn deliver(&mut self, documents: &mut [Document], _: &str) -> Report {
        let sensor = |document: &Document| document.id.split(['/', '|']).nth(1).unwrap_or_default().to_owned();
        let (report, hang) = self.0.with(|world| {
            world.sent.push(documents.iter().map(sensor).collect());
            let fate = if world.hold { Fate::Held } else { Fate::Delivered };
            let all = Report { fates: vec![fate; documents.len()], ..Report::default() };
            let report = world.reports.pop_front().unwrap_or(all);
            world.held += report.fates.iter().filter(|fate| **fate == Fate::Held).count();
            (report, world.hang)
        });
        if hang {
            std::future::pending::<()>().await;
        }
        self.0.with(|world| world.under_way = true);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.0.with(|world| world.under_way = false);
        report
    }

    fn due(&self) -> Option<Instant> {
        self.0.with(|world| (world.held > 0).then(|| Instant::now() + Duration::from_secs(600)))
    }

    async fn attend(&mut self) -> Report {
        let flushed = self.0.with(|world| std::mem::take(&mut world.held) > 0);
        Report { flushed, ..Report::default() }
    }

    async fn close(&mut self) -> Report {
        self.0.with(|world| world.closed = true);
        self.attend().await
    }
}
