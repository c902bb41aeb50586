//! Looks a store over, beside its daemon or without it: every checksum, every bucket, every name, and whether the accounts
//! add up. Changes nothing.
//!
//! What belongs together (journal, snapshot, counts) is read in one transaction; the rows of the large tables one at a
//! time, so that no checkpoint is held back for long. A row that was delivered meanwhile is no fault.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::accounts::Accounts;
use super::error::Doing;
use super::held::Held;
use super::names::NameReader;
use super::pack;
use super::rollups::RowRollup;
use super::schema::META_SALVAGE;
use super::{SegmentId, StoreError, database, frame, recovery, schema, segment, view};
use crate::model::varint::{Damaged, Reader};

/// Most faults that are told one by one: a file without sense has as many as pages.
const MAX_FAULTS: usize = 1000;
/// Remedies, in words.
const RESTART: &str =
    "restart the daemon: it sets the file aside and brings back what can be read; replace the card soon";
const PUT_ASIDE: &str = "nothing: the daemon puts it aside as a dead letter when it comes to it; replace the card soon";
const GONE: &str = "nothing can be done: what it held is lost; replace the card soon";
const REPORT: &str =
    "restart the daemon, which counts anew and puts what is missing on record; if it happens again, report it";

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which part of the store.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    /// What to do.
    pub remedy: &'static str,
}

/// How much to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The journal and the counts: milliseconds.
    Quick,
    /// Everything.
    Whole,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What is wrong, at most some hundreds.
    pub faults: Vec<Fault>,
    /// Segments that were looked at.
    pub segments: u64,
    /// Buckets in them, and in rows that are held or kept.
    pub buckets: u64,
    /// Samples in those.
    pub samples: u64,
    /// The accounts, counted from what is there.
    pub accounts: Accounts,
    /// Readings in the loss ledger.
    pub ledger: u64,
    /// Damaged files are still being read: the accounts add up when that is done.
    pub is_salvaging: bool,
}

impl Verdict {
    fn fault(&mut self, what: impl Into<String>, why: impl Into<String>, remedy: &'static str) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(Fault { what: what.into(), why: why.into(), remedy });
        }
    }
}

/// Looks over the store at `path`.
pub fn verify(path: &Path, depth: Depth) -> Result<Verdict, StoreError> {
    let mut verdict = Verdict::default();
    let db = match database::open_reader(path)
        .and_then(|db| schema::readable(&db, &path.display().to_string()).map(|()| db))
    {
        Ok(db) => db,
        Err(error) if error.is_damage() => {
            verdict.fault(path.display().to_string(), error.to_string(), RESTART);
            return Ok(verdict);
        }
        Err(error) => return Err(error),
    };
    let names = NameReader::default();
    for look in [pages, accounts, rows] {
        match look(&db, path, depth, &names, &mut verdict) {
            Err(error) if error.is_damage() => verdict.fault(path.display().to_string(), error.to_string(), RESTART),
            done => done?,
        }
    }
    Ok(verdict)
}

/// SQLite's own check: of the journal's table, or of the whole file.
fn pages(db: &Connection, _: &Path, depth: Depth, _: &NameReader, verdict: &mut Verdict) -> Result<(), StoreError> {
    let sql = match depth {
        Depth::Quick => "PRAGMA quick_check('slot')",
        Depth::Whole => "PRAGMA quick_check(100)",
    };
    let mut check = db.prepare(sql).doing("check the pages")?;
    let found = check.query_map([], |row| row.get::<_, String>(0)).doing("check the pages")?;
    for why in found {
        let why = why.doing("check the pages")?;
        if why != "ok" {
            verdict.fault("the database's pages", why, RESTART);
        }
    }
    Ok(())
}

/// Journal, snapshot, spilled buckets and names, and whether everything accepted is somewhere.
fn accounts(
    db: &Connection,
    path: &Path,
    _: Depth,
    names: &NameReader,
    verdict: &mut Verdict,
) -> Result<(), StoreError> {
    let tx = db.unchecked_transaction().doing("begin to read")?;
    let mut state = recovery::rebuild(&tx, view::setup(path)?, database::Budget::of(0), names)?;
    for damage in std::mem::take(&mut state.damage) {
        verdict.fault("the journal", damage, GONE);
    }
    for (table, id) in super::names::damaged(&tx)? {
        verdict.fault(format!("{table} {id}"), "its name does not match its checksum", RESTART);
    }
    let told = state.backlog;
    state.backlog = segment::count(&tx)?;
    state.held = Held::load(&tx)?.0;
    state.count_stored();
    verdict.is_salvaging = tx
        .query_row("SELECT EXISTS (SELECT 1 FROM meta WHERE id = ?1)", [META_SALVAGE], |row| row.get(0))
        .doing("read what was brought back")?;
    (verdict.accounts, verdict.ledger) = (state.accounts, state.ledger.samples());
    if verdict.is_salvaging || !state.has_accounts {
        return Ok(());
    }
    if told != state.backlog {
        let why = format!("the journal tells of {told:?}, there are {:?}", state.backlog);
        verdict.fault("the backlog", why, REPORT);
    }
    let missing = state.accounts.missing(verdict.ledger);
    if missing != 0 {
        let Accounts { accepted, delivered, stored } = state.accounts;
        let ledger = verdict.ledger;
        let why = format!(
            "{accepted} accepted are not {delivered} delivered + {stored} stored + {ledger} in the ledger: {} {}",
            missing.unsigned_abs(),
            if missing > 0 { "are missing" } else { "too many" }
        );
        verdict.fault("the accounts", why, REPORT);
    }
    Ok(())
}

/// Every row of the large tables.
fn rows(db: &Connection, _: &Path, depth: Depth, names: &NameReader, verdict: &mut Verdict) -> Result<(), StoreError> {
    if depth == Depth::Quick {
        return Ok(());
    }
    each(db, "segment", "buckets, samples", verdict, |id, row, data, verdict| {
        verdict.segments += 1;
        let (buckets, samples) = pack_of(id, data, names, verdict)?;
        let (told, held): (u64, u64) = (row.0, row.1);
        if told != buckets || held > samples {
            return Err(format!("{buckets} buckets with {samples} samples, the row tells of {told} with {held}"));
        }
        Ok(())
    })?;
    for table in ["held", "kept_segment"] {
        each(db, table, "0, 0", verdict, |id, _, data, verdict| pack_of(id, data, names, verdict).map(|_| ()))?;
    }
    each(db, "kept_rollup", "0, 0", verdict, |_, _, data, verdict| {
        let listed = frame::open(data).and_then(|payload| pack::listed(&payload)).map_err(|why| why.to_string())?;
        listed.iter().try_for_each(|listed| listed.rollup().map(|_| ())).map_err(|why| why.to_string())?;
        verdict.buckets += listed.len() as u64;
        Ok(())
    })?;
    let letters = "(SELECT id, 0, 0, packed AS data FROM dead_letter WHERE packed IS NOT NULL)";
    each(db, letters, "0, 0", verdict, |id, _, data, verdict| pack_of(id, data, names, verdict).map(|_| ()))
}

/// Looks at each row's `data`; what is wrong with one is a fault, and the next one follows.
fn each(
    db: &Connection,
    table: &str,
    columns: &str,
    verdict: &mut Verdict,
    look: impl Fn(u64, (u64, u64), &[u8], &mut Verdict) -> Result<(), String>,
) -> Result<(), StoreError> {
    let name = if table.starts_with('(') { "dead_letter" } else { table };
    let sql = format!("SELECT id, {columns}, data FROM {table} WHERE id > ?1 ORDER BY id LIMIT 1");
    let mut select = db.prepare(&sql).doing("read a row")?;
    let mut after = 0u64;
    loop {
        let row = select.query_row([after], |row| {
            Ok((row.get::<_, u64>(0)?, (row.get(1)?, row.get(2)?), row.get::<_, Vec<u8>>(3)?))
        });
        match row.optional().doing("read a row") {
            Ok(None) => return Ok(()),
            Ok(Some((id, told, data))) => {
                after = id;
                if let Err(why) = look(id, told, &data, verdict) {
                    verdict.fault(format!("{name} {id}"), why, PUT_ASIDE);
                }
            }
            Err(error) if error.is_damage() => {
                verdict.fault(format!("{name} after {after}"), error.to_string(), RESTART);
                // As in a salvage: past what cannot be read, but not for ever.
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Unpacks every bucket of a pack; how many, and how many samples they have as samples.
fn pack_of(id: u64, data: &[u8], names: &NameReader, verdict: &mut Verdict) -> Result<(u64, u64), String> {
    let parcel = pack::open(SegmentId(id), data.to_vec(), names).map_err(|why| why.to_string())?;
    let listed = pack::list(id, data).map_err(|why| why.to_string())?;
    let mut samples = 0;
    for (place, (bucket, listed)) in parcel.buckets.iter().zip(&listed).enumerate() {
        let wrong = |why: String| format!("bucket {}: {why}", place + 1);
        if !bucket.0.key.is_held() {
            bucket.unpack().map_err(|why| wrong(why.to_string()))?;
        }
        if bucket.0.is_thinned() {
            continue;
        }
        let (_, rows) = bucket.0.rows().map_err(|why| wrong(why.to_string()))?;
        samples += rows.len() as u64;
        let rollup = listed.rollup().map_err(|why| wrong(why.to_string()))?;
        if rollup.is_some()
            && rollup != roundtrip(RowRollup::of(&rows), listed).map_err(|why| wrong(why.to_string()))?
        {
            return Err(wrong("its rollup is not that of its samples".to_owned()));
        }
    }
    verdict.buckets += parcel.buckets.len() as u64;
    verdict.samples += samples;
    Ok((parcel.buckets.len() as u64, samples))
}

/// A rollup as it would be read back.
fn roundtrip(rollup: Option<RowRollup>, listed: &pack::Listed) -> Result<Option<RowRollup>, Damaged> {
    let Some(rollup) = rollup else { return Ok(None) };
    let (base, mut bytes) = (listed.key.window.start(), Vec::new());
    rollup.encode(base, &mut bytes);
    RowRollup::decode(&mut Reader::new(&bytes), base).map(Some)
}
