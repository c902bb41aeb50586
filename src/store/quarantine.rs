//! A damaged database is no reason to stop: its files are set aside, a fresh file is served at once, and what can be
//! read of the old one is brought back.
//!
//! Rows are copied as they are, numbers and all, stepping over those that cannot be read: each carries its own
//! checksum, so damage inside one is met later where it is used, and costs that one. The journal and the names come
//! first, since nothing can be opened without them; the segments follow in the background, a few at a time.
//! Buckets that were delivered already may come back this way; upstream they are recognised by their hash. How far it is
//! stands in `meta`, so a restart goes on where it was.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::engine::{Engine, Setup};
use super::error::Doing;
use super::names::NameReader;
use super::schema::META_SALVAGE;
use super::state::State;
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
    ("sensor", "name, sum"),
    ("field", "name, sum"),
    ("slot", "data"),
    ("spill", "data"),
    ("dead_letter", "at, kind, source, place, reason, payload, packed, samples"),
    ("ledger", "at, sensor, reason, first, last, samples"),
];
/// Tables that may be large, in the order in which they come back.
const LARGE: [(&str, &str); 2] = [SEGMENT, HELD];
const HELD: (&str, &str) = ("held", "boot, buckets, samples, first, last, data");
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
            let salvage = Salvage::resume(&engine.db, &setup.path)?;
            match &salvage {
                Some(salvage) => engine.await_salvage(salvage),
                None => engine.state.settle_accounts(),
            }
            Ok((engine, salvage))
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
    let mut salvage = Salvage::of(aside, 0, 0);
    let fresh = database::open_writer(&setup.path, database::Budget::at(&setup.path, setup.max_bytes), &setup.blocks)?;
    salvage.bring_small(&fresh)?;
    drop(fresh);
    let mut engine = recovery::recover(setup.clone(), names)?;
    engine.await_salvage(&salvage);
    Ok((engine, salvage))
}

/// The damaged files that were set aside beside a store: they count as ours.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// What they take of the disk.
    pub bytes: u64,
    /// Whether they are being read.
    pub is_busy: bool,
    /// Their folder.
    sets: PathBuf,
}

impl Aside {
    /// What is set aside beside the store at `path`.
    pub(super) fn beside(path: &Path) -> Self {
        let sets = path.with_file_name("quarantine");
        let files = sorted(&sets).into_iter().flat_map(|set| sorted(&set));
        Self { bytes: files.map(|file| database::allocated(&file)).sum(), is_busy: false, sets }
    }
}

/// Deletes the oldest set of damaged files to make room; `false` if there is none, or if it is being read.
pub(super) fn drop_oldest(state: &mut State) -> bool {
    if state.aside.is_busy {
        return false;
    }
    let Some(oldest) = sorted(&state.aside.sets).into_iter().next() else { return false };
    match fs::remove_dir_all(&oldest) {
        Ok(()) => tracing::warn!("{} is deleted to make room: what could be read of it is back", oldest.display()),
        Err(error) => tracing::warn!("cannot delete {} to make room: {error}", oldest.display()),
    }
    let (before, now) = (state.aside.bytes, Aside::beside(&state.setup.path));
    state.aside = now;
    state.aside.bytes < before
}

/// What lies in a folder, in the order of its names.
fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).map_or_else(|_| Vec::new(), |found| found.filter_map(|e| Some(e.ok()?.path())).collect());
    paths.sort();
    paths
}

/// What is still to be brought back from a set of files that was set aside.
#[derive(Debug)]
pub(super) struct Salvage {
    path: PathBuf,
    /// `None`: not even SQLite can open it.
    old: Option<Connection>,
    next: i64,
    /// Which of the large tables.
    table: usize,
    rows: u64,
    skipped: u64,
}

impl Salvage {
    /// Reads the database at `path` from this row of this table on.
    pub(super) fn of(path: PathBuf, table: usize, next: i64) -> Self {
        let old = database::open_reader(&path).ok();
        Self { path, old, next, table, rows: 0, skipped: 0 }
    }

    /// What was not finished when the process ended.
    fn resume(fresh: &Connection, path: &Path) -> Result<Option<Self>, StoreError> {
        let read = "SELECT data FROM meta WHERE id = ?1";
        let noted: Option<Vec<u8>> =
            fresh.query_row(read, [META_SALVAGE], |row| row.get(0)).optional().doing("read how far the salvage is")?;
        let noted = noted.and_then(|noted| String::from_utf8(noted).ok());
        let noted = noted.as_deref().and_then(|noted| {
            let mut words = noted.splitn(3, ' ');
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?))
        });
        let (Some((table, next, set)), Some(name)) = (noted, path.file_name()) else { return Ok(None) };
        let aside = path.with_file_name("quarantine").join(set).join(name);
        if !aside.exists() {
            tracing::warn!("{} is gone before all of it was brought back", aside.display());
            return forget_progress(fresh).map(|()| None);
        }
        Ok(Some(Self::of(aside, table, next)))
    }

    fn note_progress(&self, fresh: &Connection) -> Result<(), StoreError> {
        let set = self.path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let noted = format!("{} {} {set}", self.table, self.next);
        let write = "INSERT OR REPLACE INTO meta (id, data) VALUES (?1, ?2)";
        fresh.execute(write, params![META_SALVAGE, noted.as_bytes()]).doing("note how far the salvage is").map(|_| ())
    }

    /// Brings some segments back; `true` when all are.
    pub(super) fn step(&mut self, fresh: &Connection) -> Result<bool, StoreError> {
        let tx = fresh.unchecked_transaction().doing("begin a transaction")?;
        let mut done = false;
        for _ in 0..MAX_STEP {
            let Some(&table) = LARGE.get(self.table) else {
                done = true;
                break;
            };
            if !self.bring_next(&tx, table)? {
                (self.table, self.next) = (self.table + 1, 0);
            }
        }
        self.note_progress(&tx)?;
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
    pub(super) fn last_segment(&self) -> u64 {
        let Some(old) = &self.old else { return 0 };
        segment::last(old).unwrap_or(UNKNOWN_LAST)
    }

    pub(super) fn bring_small(&mut self, fresh: &Connection) -> Result<(), StoreError> {
        let tx = fresh.unchecked_transaction().doing("begin a transaction")?;
        for &table in SMALL {
            self.next = 0;
            while self.bring_next(&tx, table)? {}
        }
        self.next = 0;
        for table in ["sensor", "field"] {
            fill_gaps(&tx, table)?;
        }
        self.note_progress(&tx)?;
        tx.commit().doing("commit")
    }

    /// Copies the next row that can be read; `false` when there is none.
    fn bring_next(&mut self, fresh: &Connection, (table, columns): (&str, &str)) -> Result<bool, StoreError> {
        let Some(old) = &self.old else { return Ok(false) };
        // A file of an earlier release has fewer tables and columns.
        if old.table_exists(None, table).is_ok_and(|exists| !exists) {
            return Ok(false);
        }
        let Ok(there) = old.prepare_cached(&format!("SELECT * FROM {table} LIMIT 0")) else {
            self.skipped += 1;
            return Ok(false);
        };
        let there: Vec<_> = there.column_names().map(str::to_owned).collect();
        let columns: Vec<_> = columns.split(", ").filter(|column| there.iter().any(|name| name == column)).collect();
        let (width, columns) = (columns.len() + 1, columns.join(", "));
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

fn forget_progress(fresh: &Connection) -> Result<(), StoreError> {
    fresh.execute("DELETE FROM meta WHERE id = ?1", [META_SALVAGE]).doing("note that the salvage is done").map(|_| ())
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
    for set in sorted(&sets).iter().rev().skip(MAX_SETS) {
        fs::remove_dir_all(set)?;
    }
    fs::File::open(&sets)?.sync_all()?;
    Ok(set.join(name))
}
