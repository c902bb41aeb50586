//! A damaged database is no reason to stop: its files are set aside, a fresh file is served at once, and what can be
//! read of the old one is brought back.
//!
//! Rows are copied as they are, numbers and all, stepping over those that cannot be read: each carries its own
//! checksum, so damage inside one is met later where it is used, and costs that one. The journal and the names come
//! first, since nothing can be opened without them; the segments follow in the background, a few at a time.
//! Buckets that were delivered already may come back this way; upstream they are recognised by their hash.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::engine::{Engine, Setup};
use super::error::Doing;
use super::names::NameReader;
use super::{StoreError, database, recovery, segment};
use crate::model::Timestamp;

/// Sets kept; an older one makes room, since each may be as large as the budget.
const MAX_SETS: usize = 1;
/// Segments brought back in one go.
const MAX_STEP: usize = 64;
/// A gap in row numbers longer than this is the end: numbers have no gaps of their own beyond evictions.
const MAX_GAP: i64 = 1 << 22;

/// No gateway seals so many segments in its life.
const UNKNOWN_LAST: u64 = 1 << 40;

/// Small tables, and their columns after the id. `slot` holds the journal.
const SMALL: &[(&str, &str)] = &[
    ("meta", "data"),
    ("sensor", "name"),
    ("field", "name"),
    ("slot", "data"),
    ("spill", "data"),
    ("dead_letter", "at, kind, source, place, reason, payload"),
    ("ledger", "at, sensor, first, last, samples, reason"),
];
const SEGMENT: (&str, &str) = ("segment", "buckets, samples, first, last, thinned, data");

/// Opens the store; if its file is damaged, sets it aside and opens a fresh one with what could be read.
/// `ours` says whether the path has been a store of ours before: a stranger's file is never moved.
pub(super) fn open(
    setup: &Setup,
    names: &NameReader,
    now: Timestamp,
    ours: bool,
) -> Result<(Engine, Option<Salvage>), StoreError> {
    match recovery::recover(setup.clone(), names) {
        Err(damage) if damage.is_damage() && !ours => {
            let path = setup.path.display();
            Err(StoreError::Unusable(format!(
                "{path} is not a tipbucket database ({damage}); name another file in store.path"
            )))
        }
        Err(damage) if damage.is_damage() => {
            tracing::error!("{damage}");
            replace(setup, names, now).map(|(engine, salvage)| (engine, Some(salvage)))
        }
        opened => {
            let mut engine = opened?;
            engine.state.settle_accounts();
            Ok((engine, None))
        }
    }
}

/// Sets the file aside and opens a fresh one with what could be read of it.
pub(super) fn replace(setup: &Setup, names: &NameReader, now: Timestamp) -> Result<(Engine, Salvage), StoreError> {
    let aside = set_aside(&setup.path, now).map_err(|cause| {
        StoreError::Unusable(format!("cannot set the damaged {} aside: {cause}", setup.path.display()))
    })?;
    tracing::error!(
        "the damaged store is set aside as {}; a fresh one is served, and what can be read is brought back",
        aside.display()
    );
    let old = database::open_reader(&aside).ok();
    let mut salvage = Salvage { path: aside, old, next: 0, rows: 0, skipped: 0 };
    let fresh = database::open_writer(&setup.path, database::Budget::at(&setup.path, setup.max_bytes))?;
    salvage.bring_small(&fresh)?;
    drop(fresh);
    let mut engine = recovery::recover(setup.clone(), names)?;
    engine.number_segments_from(salvage.last_segment() + 1);
    Ok((engine, salvage))
}

/// What is still to be brought back from a set of files that was set aside.
#[derive(Debug)]
pub(super) struct Salvage {
    path: PathBuf,
    /// `None`: not even SQLite can open it.
    old: Option<Connection>,
    next: i64,
    rows: u64,
    skipped: u64,
}

impl Salvage {
    /// Brings some segments back; `true` when all are.
    pub(super) fn step(&mut self, fresh: &Connection) -> Result<bool, StoreError> {
        let tx = fresh.unchecked_transaction().doing("begin a transaction")?;
        let mut done = false;
        for _ in 0..MAX_STEP {
            done = !self.bring_next(&tx, SEGMENT)?;
            if done {
                break;
            }
        }
        tx.commit().doing("commit")?;
        if done {
            tracing::warn!(
                "brought {} rows back from {} ({} steps over what cannot be read); the files stay there",
                self.rows,
                self.path.display(),
                self.skipped
            );
        }
        Ok(done)
    }

    /// The last segment of the old file; far above it if that cannot be told.
    fn last_segment(&self) -> u64 {
        let Some(old) = &self.old else { return 0 };
        segment::last(old).unwrap_or(UNKNOWN_LAST)
    }

    fn bring_small(&mut self, fresh: &Connection) -> Result<(), StoreError> {
        let tx = fresh.unchecked_transaction().doing("begin a transaction")?;
        for &table in SMALL {
            self.next = 0;
            while self.bring_next(&tx, table)? {}
        }
        self.next = 0;
        for table in ["sensor", "field"] {
            fill_gaps(&tx, table)?;
        }
        tx.commit().doing("commit")
    }

    /// Copies the next row that can be read; `false` when there is none.
    fn bring_next(&mut self, fresh: &Connection, (table, columns): (&str, &str)) -> Result<bool, StoreError> {
        let Some(old) = &self.old else { return Ok(false) };
        let width = columns.split(',').count() + 1;
        let read = format!("SELECT id, {columns} FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 1");
        let mut gap = 1;
        loop {
            let row = old.prepare_cached(&read).and_then(|mut select| {
                select.query_row([self.next], |row| {
                    (0..width).map(|i| row.get::<_, Value>(i)).collect::<rusqlite::Result<Vec<_>>>()
                })
            });
            match row.optional() {
                Ok(None) => return Ok(false),
                Ok(Some(values)) => {
                    if let Some(Value::Integer(id)) = values.first() {
                        self.next = id + 1;
                    }
                    let places = vec!["?"; width].join(", ");
                    let write = format!("INSERT OR IGNORE INTO {table} (id, {columns}) VALUES ({places})");
                    // A row whose types are damaged does not fit the table: it is one that cannot be read.
                    match fresh.prepare_cached(&write).and_then(|mut insert| insert.execute(params_from_iter(values))) {
                        Ok(inserted) => self.rows += inserted as u64,
                        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
                            self.skipped += 1;
                        }
                        Err(error) => return Err(error).doing("bring a row back"),
                    }
                    return Ok(true);
                }
                Err(_) => {
                    self.skipped += 1;
                    self.next += gap;
                    gap *= 2;
                    if gap > MAX_GAP {
                        return Ok(false);
                    }
                }
            }
        }
    }
}

/// A name that is lost leaves its number: what it measured is kept under a name that says so.
fn fill_gaps(db: &Connection, table: &str) -> Result<(), StoreError> {
    let sql = format!(
        "WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < (SELECT max(id) FROM {table}))
         INSERT OR IGNORE INTO {table} (id, name) SELECT id, 'lost-{table}-' || id FROM n WHERE EXISTS (SELECT 1 FROM {table})"
    );
    db.execute_batch(&sql).doing("fill gaps between names")
}

/// Moves the database, its log and its index into a folder of their own; the path of the database there.
fn set_aside(path: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let sets = path.with_file_name("quarantine");
    let set = (0..)
        .map(|n| sets.join(format!("{}-{n}", now.basic())))
        .find(|set| !set.exists())
        .ok_or(io::ErrorKind::AlreadyExists)?;
    fs::DirBuilder::new().recursive(true).mode(0o750).create(&set)?;
    // The database last: while it is in place a crash in between leads here again.
    for suffix in ["-wal", "-shm", ""] {
        let mut file = name.to_owned();
        file.push(suffix);
        match fs::rename(path.with_file_name(&file), set.join(&file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut old: Vec<PathBuf> = fs::read_dir(&sets)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    old.sort();
    for set in old.iter().rev().skip(MAX_SETS) {
        fs::remove_dir_all(set)?;
    }
    fs::File::open(&sets)?.sync_all()?;
    Ok(set.join(name))
}
