//! The loss ledger: everything that was accepted, or offered, and will not be delivered. Durable and itself bounded.
//!
//! A row stands for one sensor, one reason and a stretch of time. While losses go on they are added to the row that is
//! there, for up to [`SPAN`]; then a new one begins. When there are too many rows the older ones are joined, by sensor and
//! reason first, by reason alone if that is not enough: times become coarser then, and no count is ever lost.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::error::Doing;
use super::{Lost, StoreError, database, schema};
use crate::model::{LossReason, Timestamp};

/// Most entries, about half a megabyte; the older ones are joined then.
const MAX_ENTRIES: u64 = 10_000;
/// How long one entry takes in what is lost of its sensor for its reason: a commit per second of refusals must not write
/// a row per second. Whoever passes entries on takes those that are older, since they change no more.
pub(super) const SPAN: Duration = Duration::from_secs(3600);
/// How many reasons there are.
pub(super) const REASONS: usize = LossReason::ALL.len();

/// One loss: which samples, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    pub first: Timestamp,
    pub last: Timestamp,
    pub samples: u64,
}

/// Whose loss, and why. Sensors are numbers of the dictionary; `None`: it has no number, or it is not known whose.
type Key = (Option<u32>, LossReason);

/// What is lost in one commit, by sensor and reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses(BTreeMap<Key, Loss>);

impl Losses {
    /// Samples of one sensor.
    pub(super) fn add(&mut self, sensor: Option<u32>, reason: LossReason, loss: Loss) {
        let known = self.0.entry((sensor, reason)).or_insert(Loss { samples: 0, ..loss });
        known.first = known.first.min(loss.first);
        known.last = known.last.max(loss.last);
        known.samples += loss.samples;
    }

    /// One sample.
    pub(super) fn add_one(&mut self, sensor: Option<u32>, reason: LossReason, at: Timestamp) {
        self.add(sensor, reason, Loss { first: at, last: at, samples: 1 });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Samples by reason.
    pub(super) fn totals(&self) -> [u64; REASONS] {
        let mut totals = [0; REASONS];
        self.0.iter().for_each(|((_, reason), loss)| totals[*reason as usize] += loss.samples);
        totals
    }

    /// Samples in all.
    pub(super) fn samples(&self) -> u64 {
        self.totals().iter().sum()
    }
}

/// What the writer knows of the table.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Entries that still take in further losses, and since when they are there.
    growing: HashMap<Key, (i64, Timestamp)>,
    entries: u64,
    last: i64,
    totals: [u64; REASONS],
    /// The latest time seen; a clock that was set back must not change what may have been passed on.
    latest: Timestamp,
}

impl Ledger {
    /// Looks at every row.
    pub(super) fn load(db: &Connection) -> Result<Self, StoreError> {
        let mut ledger = Self::default();
        let mut select = db.prepare("SELECT id, reason, samples FROM ledger").doing("read the ledger")?;
        let mut rows = select.query([]).doing("read the ledger")?;
        while let Some(row) = rows.next().doing("read the ledger")? {
            let (id, word, samples): (i64, String, u64) =
                row.get(0).and_then(|id| Ok((id, row.get(1)?, row.get(2)?))).doing("read the ledger")?;
            ledger.entries += 1;
            ledger.last = ledger.last.max(id);
            ledger.totals[reason_of(&word) as usize] += samples;
        }
        Ok(ledger)
    }

    /// Samples by reason.
    pub(super) const fn totals(&self) -> &[u64; REASONS] {
        &self.totals
    }

    /// Samples in all.
    pub(super) fn samples(&self) -> u64 {
        self.totals.iter().sum()
    }

    /// Puts losses on record, in the transaction that makes them losses.
    pub(super) fn record(&mut self, db: &Connection, losses: &Losses, now: Timestamp) -> Result<(), StoreError> {
        if losses.is_empty() {
            return Ok(());
        }
        if now < self.latest {
            self.growing.clear();
        }
        self.latest = now;
        self.growing.retain(|_, (_, since)| since.plus(SPAN) > now);
        for (key, loss) in &losses.0 {
            self.put(db, *key, *loss, now)?;
            self.totals[key.1 as usize] += loss.samples;
        }
        if self.entries > MAX_ENTRIES { self.condense(db) } else { Ok(()) }
    }

    fn put(&mut self, db: &Connection, key: Key, loss: Loss, now: Timestamp) -> Result<(), StoreError> {
        let (first, last) = (loss.first.as_millis(), loss.last.as_millis());
        if let Some((id, _)) = self.growing.get(&key) {
            let sql =
                "UPDATE ledger SET first = min(first, ?2), last = max(last, ?3), samples = samples + ?4 WHERE id = ?1";
            let mut update = db.prepare_cached(sql).doing("put a loss on record")?;
            update.execute(params![id, first, last, loss.samples]).doing("put a loss on record")?;
            return Ok(());
        }
        self.last += 1;
        self.entries += 1;
        let sql =
            "INSERT INTO ledger (id, at, sensor, reason, first, last, samples) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let mut insert = db.prepare_cached(sql).doing("put a loss on record")?;
        let (sensor, reason) = key;
        let row = params![self.last, now.as_millis(), sensor, reason.word(), first, last, loss.samples];
        insert.execute(row).doing("put a loss on record")?;
        self.growing.insert(key, (self.last, now));
        Ok(())
    }

    /// Joins the older half of the entries: rows of one sensor and reason, and if too many are left, of one reason.
    /// The number of a joined row is the highest of its rows': what was passed on upstream is not passed on again.
    fn condense(&mut self, db: &Connection) -> Result<(), StoreError> {
        let sql = "SELECT id FROM ledger ORDER BY id LIMIT 1 OFFSET ?1";
        let middle: i64 = db.query_row(sql, [MAX_ENTRIES / 2], |row| row.get(0)).doing("condense the ledger")?;
        for sensor in ["sensor", "NULL"] {
            db.execute_batch(&format!(
                "CREATE TEMP TABLE joined AS
                     SELECT max(id) AS id, max(at) AS at, {sensor} AS sensor, reason, min(first) AS first, max(last) AS last,
                            sum(samples) AS samples FROM ledger WHERE id <= {middle} GROUP BY {sensor}, reason;
                 DELETE FROM ledger WHERE id <= {middle};
                 INSERT INTO ledger (id, at, sensor, reason, first, last, samples)
                     SELECT id, at, sensor, reason, first, last, samples FROM joined;
                 DROP TABLE joined;"
            ))
            .doing("condense the ledger")?;
            self.entries =
                db.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0)).doing("condense the ledger")?;
            if self.entries <= MAX_ENTRIES * 3 / 4 {
                break;
            }
        }
        self.growing.retain(|_, (id, _)| *id > middle);
        Ok(())
    }
}

/// A word that this program does not know, or that is damaged, still counts.
fn reason_of(word: &str) -> LossReason {
    LossReason::of_word(word).unwrap_or(LossReason::Damaged)
}

/// The entries after `after` that began at `until` or before, oldest first, at most `most`. Those that began [`SPAN`] ago
/// change no more.
pub(super) fn entries(db: &Connection, after: i64, until: Timestamp, most: usize) -> Result<Vec<Lost>, StoreError> {
    let sql = "SELECT ledger.id, at, sensor.name, reason, first, last, samples
               FROM ledger LEFT JOIN sensor ON sensor.id = ledger.sensor
               WHERE ledger.id > ?1 AND at <= ?2 ORDER BY ledger.id LIMIT ?3";
    let mut select = db.prepare_cached(sql).doing("read the ledger")?;
    let rows = select.query_map(params![after, until.as_millis(), most], |row| {
        let time = |i| Ok::<_, rusqlite::Error>(Timestamp::clamped(row.get(i)?));
        Ok(Lost {
            id: row.get(0)?,
            at: time(1)?,
            sensor: row.get(2)?,
            reason: row.get(3)?,
            first: time(4)?,
            last: time(5)?,
            samples: row.get(6)?,
        })
    });
    rows.and_then(Iterator::collect).doing("read the ledger")
}

/// Entries of the ledger in the store at `path`, read beside its daemon or without one; see the module's text.
pub fn losses(path: &Path, after: i64, until: Timestamp, most: usize) -> Result<Vec<Lost>, StoreError> {
    let db = database::open_reader(path)?;
    schema::readable(&db, &path.display().to_string())?;
    entries(&db, after, until, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        let mut db = Connection::open_in_memory().unwrap();
        schema::migrate(&mut db, "x.db").unwrap();
        db
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::clamped(1_796_043_600_000).plus(Duration::from_secs(seconds))
    }

    fn one(sensor: u32, reason: LossReason, time: Timestamp) -> Losses {
        let mut losses = Losses::default();
        losses.add_one(Some(sensor), reason, time);
        losses
    }

    #[test]
    fn losses_of_one_sensor_and_reason_share_an_entry_for_an_hour() {
        let db = database();
        let mut ledger = Ledger::default();
        for second in 0..5400 {
            ledger.record(&db, &one(1, LossReason::TooOld, at(second)), at(second)).unwrap();
        }
        ledger.record(&db, &one(2, LossReason::TooOld, at(9)), at(5400)).unwrap();
        let found = entries(&db, 0, Timestamp::LAST, 10).unwrap();
        let rows: Vec<_> = found.iter().map(|entry| (entry.id, entry.samples, entry.first, entry.last)).collect();
        assert_eq!(rows, [(1, 3600, at(0), at(3599)), (2, 1800, at(3600), at(5399)), (3, 1, at(9), at(9))]);
        assert_eq!(entries(&db, 1, at(3600), 10).unwrap().len(), 1, "what may still grow is not passed on");
        assert_eq!(Ledger::load(&db).unwrap().totals(), ledger.totals());
    }

    #[test]
    fn after_a_restart_and_after_a_clock_set_back_a_new_entry_begins() {
        let db = database();
        let mut ledger = Ledger::default();
        ledger.record(&db, &one(1, LossReason::TooOld, at(0)), at(100)).unwrap();
        ledger.record(&db, &one(1, LossReason::TooOld, at(0)), at(50)).unwrap();
        let mut ledger = Ledger::load(&db).unwrap();
        ledger.record(&db, &one(1, LossReason::TooOld, at(0)), at(60)).unwrap();
        assert_eq!(entries(&db, 0, Timestamp::LAST, 10).unwrap().iter().map(|e| e.id).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_full_ledger_is_condensed_and_never_loses_a_count() {
        for sensors in [100, 1_000_000] {
            let db = database();
            let mut ledger = Ledger::default();
            db.execute_batch("BEGIN").unwrap();
            for n in 0..25_000_u32 {
                let reason = LossReason::ALL[n as usize % 3];
                let time = at(u64::from(n) * 4000);
                ledger.record(&db, &one(n % sensors, reason, time), time).unwrap();
                assert!(ledger.entries <= MAX_ENTRIES);
            }
            let found = entries(&db, 0, Timestamp::LAST, 100_000).unwrap();
            assert_eq!(found.len() as u64, ledger.entries);
            assert_eq!(found.iter().map(|entry| entry.samples).sum::<u64>(), 25_000);
            let loaded = Ledger::load(&db).unwrap();
            assert_eq!((loaded.totals(), loaded.last), (ledger.totals(), ledger.last));
            assert_eq!(loaded.totals()[0], 8334);
            assert_eq!(found.iter().map(|entry| entry.first).min(), Some(at(0)));
            assert_eq!(found.iter().map(|entry| entry.last).max(), Some(at(24_999 * 4000)));
        }
    }
}
