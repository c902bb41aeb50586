//! A look into a store beside its daemon, or without it: what is open, sealed, kept, and the rollups of it all.
//!
//! Changes nothing. One short transaction replays the journal and notes which rows there are; the rows are read one at
//! a time later, so that no reader holds a checkpoint back. A row that was delivered meanwhile is looked for among what
//! is kept, and is passed over if it is not there.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use super::database::{self, Budget};
use super::engine::Setup;
use super::error::Doing;
use super::lazy::Pool;
use super::names::NameReader;
use super::pack::{self, Listed, Packed, Packer};
use super::{Parcel, SegmentId, StoreError, WhenFull, frame, recovery, schema};
use crate::model::bucketer::{BucketKey, SealedRows};
use crate::model::varint::Damaged;
use crate::model::{
    BucketPolicy, FieldName, FieldStats, Policies, SealReason, SealedBucket, SensorName, SiteName, Timestamp, Window,
    WindowLength,
};

/// A view of a store.
#[derive(Debug)]
pub struct View {
    db: Connection,
    names: NameReader,
    sensors: HashMap<SensorName, u32>,
    packs: Vec<Pack>,
    rollup_rows: Vec<Span>,
    unwritten: Vec<Packed>,
    /// The pack looked at last.
    cache: Option<(Place, Parcel)>,
    /// Rows that were delivered, and not kept, while we looked.
    pub vanished: u64,
}

/// Many buckets that lie together.
#[derive(Clone, Copy, Debug)]
pub struct Pack {
    place: Place,
    span: Span,
    /// Whether these buckets may still grow.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not in a row of its own: open, or sealed and not yet written.
    Unwritten(usize),
    Segment(u64),
    Rollups(i64),
}

#[derive(Clone, Copy, Debug)]
struct Span {
    id: i64,
    first: Timestamp,
    last: Timestamp,
}

impl Span {
    fn meets(&self, from: Timestamp, to: Timestamp) -> bool {
        self.first < to && self.last >= from
    }
}

/// Where one bucket of a sensor is.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its window.
    pub window: Window,
    /// Its part of the window.
    pub part: u32,
    /// Whether it may still grow.
    pub open: bool,
    place: Place,
    index: usize,
}

/// A bucket without its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its window.
    pub window: Window,
    /// Its part of the window.
    pub part: u32,
    /// Whether it may still grow.
    pub open: bool,
    /// How many samples.
    pub count: u32,
    /// The earliest.
    pub first: Timestamp,
    /// The latest.
    pub last: Timestamp,
    /// Per field.
    pub stats: Vec<(FieldName, FieldStats)>,
}

impl View {
    /// Opens the store at `path`; changes nothing there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            let path = path.display();
            return Err(StoreError::Unusable(format!(
                "there is no store at {path} (has the daemon run? see store.path)"
            )));
        }
        let db = database::open_reader(path)?;
        schema::identify(&db, &path.display().to_string())?;
        let names = NameReader::default();
        let tx = db.unchecked_transaction().doing("begin to read")?;
        let unwritten = unwritten(&tx, path, &names)?;
        let mut packs = spans(&tx, "kept_segment")?;
        packs.extend(spans(&tx, "segment")?);
        let rollup_rows = spans(&tx, "kept_rollup")?;
        drop(tx);
        packs.sort_by_key(|span| span.id);
        let written = |span: Span| Pack { place: Place::Segment(span.id.unsigned_abs()), span, open: false };
        let mut packs: Vec<Pack> = packs.into_iter().map(written).collect();
        for (i, (packed, open)) in unwritten.iter().enumerate() {
            let span = Span { id: 0, first: packed.first, last: packed.last };
            packs.push(Pack { place: Place::Unwritten(i), span, open: *open });
        }
        let unwritten = unwritten.into_iter().map(|(packed, _)| packed).collect();
        let sensors = names.sensors().into_iter().zip(0..).collect();
        Ok(Self { db, names, sensors, packs, rollup_rows, unwritten, cache: None, vanished: 0 })
    }

    /// Every sensor that ever sent something.
    pub fn sensors(&self) -> impl Iterator<Item = &SensorName> {
        self.sensors.keys()
    }

    /// All that may hold samples from `from` to before `to`, oldest first.
    pub fn packs(&self, from: Timestamp, to: Timestamp) -> Vec<Pack> {
        self.packs.iter().filter(|pack| pack.span.meets(from, to)).copied().collect()
    }

    /// The buckets of a pack; with an error in place of one that is damaged.
    pub fn buckets(&mut self, pack: &Pack) -> Result<Vec<Result<SealedBucket, StoreError>>, StoreError> {
        let parcel = self.parcel(pack.place)?;
        Ok(parcel.map_or(Vec::new(), |parcel| parcel.buckets.iter().map(super::PackedBucket::unpack).collect()))
    }

    /// The buckets of a sensor that may hold samples from `from` to before `to`, in the order of their windows.
    pub fn find(&mut self, sensor: &SensorName, from: Timestamp, to: Timestamp) -> Result<Vec<Found>, StoreError> {
        let Some(&sensor) = self.sensors.get(sensor) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for pack in self.packs(from, to) {
            let listed = self.list(pack.place)?;
            found.extend(of_sensor(&listed, sensor, pack.place, pack.open, from, to));
        }
        found.sort_by_key(|found| (found.window.start(), found.window.length(), found.part));
        Ok(found)
    }

    /// One bucket; `None` if it was delivered meanwhile.
    pub fn bucket(&mut self, found: &Found) -> Result<Option<SealedBucket>, StoreError> {
        let parcel = self.parcel(found.place)?;
        parcel.and_then(|parcel| parcel.buckets.get(found.index)).map(super::PackedBucket::unpack).transpose()
    }

    /// The fields of these buckets, in the order in which they first appear.
    pub fn fields(&mut self, found: &[Found]) -> Result<Vec<FieldName>, StoreError> {
        let mut fields: Vec<FieldName> = Vec::new();
        for found in found {
            for (field, _) in self.summary(found)?.into_iter().flat_map(|summary| summary.stats) {
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
        Ok(fields)
    }

    /// Rollups of a sensor whose windows meet the time from `from` to before `to`, each bucket once, in order.
    pub fn summaries(&mut self, sensor: &SensorName, from: Timestamp, to: Timestamp) -> Result<Vec<Found>, StoreError> {
        let mut buckets = BTreeMap::new();
        let by_identity = |found: Found| ((found.window.start(), found.window.length(), found.part), found);
        if let Some(&sensor) = self.sensors.get(sensor) {
            for row in self.rollup_rows.clone().iter().filter(|row| row.meets(from, to)) {
                let place = Place::Rollups(row.id);
                let listed = self.list(place)?;
                buckets.extend(of_sensor(&listed, sensor, place, false, from, to).map(by_identity));
            }
        }
        // What is here whole takes the place of what was kept of it.
        buckets.extend(self.find(sensor, from, to)?.into_iter().map(by_identity));
        Ok(buckets.into_values().collect())
    }

    /// One bucket without its samples, which are not unpacked for it; `None` if it is gone meanwhile.
    pub fn summary(&mut self, found: &Found) -> Result<Option<Summary>, StoreError> {
        let (window, part, open) = (found.window, found.part, found.open);
        let damaged = |why| StoreError::damaged(format!("rollup of the window from {}", window.start()))(why);
        let listed = self.list(found.place)?;
        let Some(listed) = listed.get(found.index) else { return Ok(None) };
        if let Some(rollup) = listed.rollup().map_err(damaged)? {
            let stats = rollup.named(&self.names).ok_or(Damaged("field without a name")).map_err(damaged)?;
            let (count, first, last) = (rollup.count, rollup.first, rollup.last);
            return Ok(Some(Summary { window, part, open, count, first, last, stats }));
        }
        // It was thinned, or is from a file of the first release.
        let Some(bucket) = self.bucket(found)? else { return Ok(None) };
        let Some((first, last)) = bucket.span() else { return Ok(None) };
        Ok(Some(Summary { window, part, open, count: bucket.count(), first, last, stats: bucket.stats() }))
    }

    fn list(&mut self, place: Place) -> Result<Vec<Listed>, StoreError> {
        match place {
            Place::Unwritten(i) => self.unwritten[i].listed().map_err(StoreError::damaged("open bucket")),
            Place::Segment(id) => self.data(id)?.map_or(Ok(Vec::new()), |data| pack::list(id, &data)),
            Place::Rollups(id) => {
                let sql = "SELECT data FROM kept_rollup WHERE id = ?1";
                let Some(data) = blob(&self.db, sql, id)? else { return Ok(Vec::new()) };
                let read = frame::open(&data).and_then(|head| pack::listed(&head));
                read.map_err(StoreError::damaged(format!("kept rollups {id}")))
            }
        }
    }

    fn parcel(&mut self, place: Place) -> Result<Option<&Parcel>, StoreError> {
        if self.cache.as_ref().is_none_or(|(cached, _)| *cached != place) {
            self.cache = None;
            let parcel = match place {
                Place::Unwritten(i) => Some(self.unwritten[i].parcel(SegmentId(0), &self.names)?),
                Place::Segment(id) => match self.data(id)? {
                    Some(data) => Some(pack::open(SegmentId(id), data, &self.names)?),
                    None => None,
                },
                Place::Rollups(_) => None,
            };
            self.cache = parcel.map(|parcel| (place, parcel));
        }
        Ok(self.cache.as_ref().map(|(_, parcel)| parcel))
    }

    /// A segment that waits for delivery or was kept after it.
    fn data(&mut self, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let id = id.cast_signed();
        let mut data = blob(&self.db, "SELECT data FROM segment WHERE id = ?1", id)?;
        if data.is_none() && schema::has(&self.db, "kept_segment")? {
            data = blob(&self.db, "SELECT data FROM kept_segment WHERE id = ?1", id)?;
        }
        self.vanished += u64::from(data.is_none());
        Ok(data)
    }
}

fn of_sensor(
    listed: &[Listed],
    sensor: u32,
    place: Place,
    open: bool,
    from: Timestamp,
    to: Timestamp,
) -> impl Iterator<Item = Found> {
    let wanted = move |key: &BucketKey| key.sensor == sensor && key.window.start() < to && key.window.end() > from;
    let found = move |(index, listed): (usize, &Listed)| {
        let key = listed.key;
        wanted(&key).then_some(Found { window: key.window, part: key.part, open, place, index })
    };
    listed.iter().enumerate().filter_map(found)
}

/// For who only reads: nothing is put into a bucket then, so the rules for that do not matter.
pub(super) fn setup(path: &Path) -> Result<Setup, StoreError> {
    let window = WindowLength::from_seconds(60).map_err(|e| StoreError::Unusable(e.to_string()))?;
    let site = SiteName::new("view").map_err(|e| StoreError::Unusable(e.to_string()))?;
    let default = BucketPolicy { window, max_samples: 1, max_bytes: 1, grace: Duration::ZERO, decimals: None };
    Ok(Setup {
        site,
        path: path.to_owned(),
        max_bytes: 0,
        beside: 0,
        when_full: WhenFull::Refuse,
        max_sensors: usize::MAX,
        clock: Default::default(),
        blocks: Default::default(),
        policies: Policies { default, by_sensor: HashMap::new() },
        write_behind: Duration::ZERO,
        keep: (Duration::ZERO, Duration::ZERO),
        pool: Pool::default(),
    })
}

/// What is in the journal: open buckets (`true`), and sealed ones that are not written.
fn unwritten(db: &Connection, path: &Path, names: &NameReader) -> Result<Vec<(Packed, bool)>, StoreError> {
    let state = recovery::rebuild(db, setup(path)?, Budget::of(0), names)?;
    // Whose time is not known yet is in no window that could be asked for.
    let mut open: Vec<_> = state.bucketer.open_iter().filter(|open| !open.key.is_held()).collect();
    open.sort_by_key(|open| open.key);
    let mut packer = Packer::default();
    let mut packs = Vec::new();
    for bucket in open {
        let mut rows = state.bucketer.rows(bucket).map_err(StoreError::damaged("open bucket"))?;
        rows.sort_by_key(|row| row.at);
        let rows =
            SealedRows { key: bucket.key, reason: SealReason::Window, late: bucket.late, clock: bucket.clock, rows };
        packs.extend(packer.add(&rows).map(|packed| (packed, true)));
    }
    packs.extend(packer.finish().map(|packed| (packed, true)));
    let mut all: Vec<(Packed, bool)> = state.lazy.into_packs().map(|packed| (packed, false)).collect();
    all.append(&mut packs);
    Ok(all)
}

/// The rows of a table that need not be there: an older release made the file.
fn spans(db: &Connection, table: &str) -> Result<Vec<Span>, StoreError> {
    if !schema::has(db, table)? {
        return Ok(Vec::new());
    }
    let mut select = db.prepare(&format!("SELECT id, first, last FROM {table} ORDER BY id")).doing("list rows")?;
    let span = |row: &rusqlite::Row<'_>| {
        let time = |i| Ok::<_, rusqlite::Error>(Timestamp::clamped(row.get(i)?));
        Ok(Span { id: row.get(0)?, first: time(1)?, last: time(2)? })
    };
    let rows = select.query_map([], span).doing("list rows")?;
    rows.collect::<rusqlite::Result<_>>().doing("list rows")
}

fn blob(db: &Connection, sql: &str, id: i64) -> Result<Option<Vec<u8>>, StoreError> {
    let mut select = db.prepare_cached(sql).doing("read a row")?;
    select.query_row([id], |row| row.get(0)).optional().doing("read a row")
}
