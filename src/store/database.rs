//! Opening the SQLite file the way flash wants it. Every value here was measured; `docs/decisions/` says how.
//!
//! What must stay true: one connection writes and checkpoints; the write-ahead log is grown once and never shrinks (each
//! growth makes the file system write its own journal); a commit is durable when it returns (`synchronous=FULL`).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::blocks::Blocks;
use super::engine::Setup;
use super::error::Doing;
use super::{StoreError, schema, wal, wear};

/// Small pages: a commit dirties one page, and a small frame mostly touches one 4 KiB block.
pub(super) const PAGE_BYTES: u64 = 1024;
/// One page of the write-ahead log with its header.
pub(super) const FRAME_BYTES: u64 = PAGE_BYTES + 24;
/// The knee: pages rewritten many times between checkpoints are copied once, and start-up still reads it in no time.
const MAX_WAL_BYTES: u64 = 16 << 20;
/// A log smaller than this would be checkpointed all the time.
const MIN_WAL_BYTES: u64 = 1 << 20;
/// Most that one commit adds to the log, which may be nearly full then: readings that waited in memory, and sealed buckets
/// that are written together (measured: 3 MiB).
const LARGEST_COMMIT: u64 = 4 << 20;
/// What the log's index takes, and the file's blocks beyond its pages.
const OVERHEAD_BYTES: u64 = 256 << 10;
/// Page cache of the writer: what it writes it hardly ever reads again, and a larger cache only fills with it.
const CACHE_KIB: u64 = 512;
/// Bytes of the disk that the database leaves free when it is the disk that is full and not the budget: the log may
/// outgrow its size for a moment.
const SPARE_BYTES: u64 = 2 << 20;
/// First SQLite without the bug by which a write during a checkpoint could corrupt the file.
const MIN_SQLITE: i32 = 3_051_003;

/// How the disk budget is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Bytes at which the write-ahead log is checkpointed.
    pub wal_bytes: u64,
    /// Pages that the database file may have.
    pub max_pages: u64,
}

impl Budget {
    /// The log gets a sixteenth of the budget, up to 16 MiB. Twice that is set aside, since a reader may hold a checkpoint
    /// back for a moment, and at least what the largest commit adds to it. (A budget that is smaller than any site may
    /// have is for tests; they make do with less.)
    pub(super) fn of(max_bytes: u64) -> Self {
        let wal_bytes = (max_bytes / 16).clamp(MIN_WAL_BYTES, MAX_WAL_BYTES);
        let beyond = wal_bytes.max(LARGEST_COMMIT.min(max_bytes / 8)) + OVERHEAD_BYTES.min(max_bytes / 64);
        let most = max_bytes.saturating_sub(wal_bytes + beyond);
        Self { wal_bytes, max_pages: most.max(PAGE_BYTES * 1024) / PAGE_BYTES }
    }

    /// The budget of the store at `path`: of `max_bytes`, or of what the disk has room for. Without the latter a journal as
    /// long as a large budget allows could fill a small disk, and nothing would make room again.
    pub(super) fn at(path: &Path, max_bytes: u64) -> Self {
        Self::of(max_bytes.min(disk_room(path)))
    }

    /// What is left of it while the disk has only so many bytes free, for a file of so many pages. The file stops growing
    /// as long as a checkpoint still fits: if none did, nothing could be written any more, not even that buckets are
    /// delivered, which is what makes room.
    pub(super) fn on_disk(self, pages: u64, free: u64, setup: &Setup) -> Self {
        // The log may outgrow its size for a moment.
        let ours = free.saturating_sub(SPARE_BYTES);
        match setup.blocks.ahead(pages * PAGE_BYTES, self.max_pages * PAGE_BYTES, ours) {
            Some(there) => Self { max_pages: self.max_pages.min((there / PAGE_BYTES).max(pages)), ..self },
            None => self.within(free, allocated(&setup.path), pages),
        }
    }

    /// So many bytes are free beside a file that takes so many and that has, with what is in the log, so many pages.
    fn within(self, free: u64, file: u64, pages: u64) -> Self {
        let room = file.saturating_add(free.saturating_sub(SPARE_BYTES)) / PAGE_BYTES;
        Self { max_pages: self.max_pages.min(room.max(pages)), ..self }
    }

    /// Frames at which the log is checkpointed.
    pub(super) fn checkpoint_frames(self) -> u64 {
        self.wal_bytes / FRAME_BYTES
    }
}

/// Bytes that the disk has for the store at `path`: those that are free and those that the store has.
pub(super) fn disk_room(path: &Path) -> u64 {
    let Ok(disk) = rustix::fs::statvfs(folder(path)) else { return u64::MAX };
    let ours = allocated(path) + allocated(&path.with_file_name(log_name(path)));
    disk.f_bavail.saturating_mul(disk.f_frsize).saturating_add(ours)
}

/// Bytes of the disk that a file takes.
pub(super) fn allocated(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len().max(file.blocks() * 512))
}

/// Bytes that are free where `path` lies, for the likes of us.
pub(super) fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether the log could not outgrow its size: then it must be copied into the file before it is full.
pub(super) const fn is_disk_short(free: u64) -> bool {
    free < SPARE_BYTES
}

/// What the lock file says once a store of ours was open at its path.
const MARK: &[u8] = b"a tipbucket store lives here\n";

/// The lock on a store, held until it is dropped. Two writers would overwrite each other's journal.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// Whether the path has been a store of ours before.
    pub ours: bool,
}

impl Lock {
    /// Takes the store at `path` for this process.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let path = path.with_added_extension("lock");
        let name = path.display();
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o640).open(&path);
        let advice = " (the folder of store.path must exist and be writable for the service)";
        let mut file = open.map_err(|cause| StoreError::of_file(&format!("create {name}"), &cause, advice))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let words = format!("{name} is held by another process: is a second tipbucket running on this store?");
                return Err(StoreError::Held(words));
            }
            Err(TryLockError::Error(cause)) => {
                return Err(StoreError::Unusable(format!("cannot lock {name}: {cause}")));
            }
        }
        let mut said = Vec::new();
        let ours = file.read_to_end(&mut said).is_ok() && said == MARK;
        Ok(Self { file, ours })
    }

    /// A store is open at the path: from now on a file there is ours, also when it is damaged.
    pub(super) fn mark(&mut self) -> Result<(), StoreError> {
        if !self.ours {
            let written = self.file.write_all(MARK).and_then(|()| self.file.sync_all());
            written.map_err(|cause| StoreError::of_file("write the lock file", &cause, ""))?;
            self.ours = true;
        }
        Ok(())
    }
}

/// Opens the file for writing; makes it, with its log at full size, if it is not there.
pub(super) fn open_writer(path: &Path, budget: Budget, blocks: &Blocks) -> Result<Connection, StoreError> {
    let name = path.display().to_string();
    if rusqlite::version_number() < MIN_SQLITE {
        let version = rusqlite::version();
        return Err(StoreError::Unusable(format!(
            "SQLite {version} has a known corruption bug; build with 3.51.3 or later"
        )));
    }
    let advice = " (store.path must be in a writable folder)";
    let born = create(path).map_err(|cause| StoreError::of_file(&format!("create {name}"), &cause, advice))?;
    // Nothing of a file is touched, not even its mode, before it is known to be ours.
    schema::identify(&open_reader(path)?, &name)?;
    let doing = format!("open {name}");
    restrict(path).map_err(|cause| StoreError::of_file(&format!("make {name} private"), &cause, ""))?;
    blocks.take(path).map_err(|cause| StoreError::of_file(&doing, &cause, ""))?;
    let mut db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .doing(&doing)?;
    // The log stays when the last connection closes, so that it need not grow again.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).doing(&doing)?;
    db.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES};
         PRAGMA auto_vacuum = NONE;
         PRAGMA locking_mode = NORMAL;
         PRAGMA mmap_size = 0;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -{CACHE_KIB};"
    ))
    .doing(&doing)?;
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).doing(&doing)?;
    if mode != "wal" {
        return Err(StoreError::Unusable(format!(
            "{name}: the file system does not allow a write-ahead log (SQLite says `{mode}`)"
        )));
    }
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = -1;")
        .doing(&doing)?;
    let pages: u64 =
        db.query_row(&format!("PRAGMA max_page_count = {}", budget.max_pages), [], |row| row.get(0)).doing(&doing)?;
    if pages > budget.max_pages {
        tracing::warn!(
            "{name} has {pages} pages, more than store.max_bytes allows ({}); it will not grow",
            budget.max_pages
        );
    }
    tell_of_damaged_log(&db, path)?;
    schema::migrate(&mut db, &name)?;
    if log_bytes(path) < budget.wal_bytes * 3 / 4 {
        grow_log(&db, budget).doing(&format!("reserve the write-ahead log of {name}"))?;
    }
    if born {
        sync_folder(path)
            .map_err(|cause| StoreError::Unusable(format!("cannot sync the folder of {name}: {cause}")))?;
    }
    Ok(db)
}

/// Opens the file for reading beside the writer, in short transactions (a long one would hold checkpoints back), each row once.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let doing = format!("open {} for reading", path.display());
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .doing(&doing)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).doing(&doing)?;
    db.execute_batch("PRAGMA mmap_size = 0; PRAGMA cache_size = -64; PRAGMA query_only = 1;").doing(&doing)?;
    db.busy_timeout(std::time::Duration::from_secs(5)).doing(&doing)?;
    Ok(db)
}

/// Copies the log, and tells how many bytes that wrote.
pub(super) fn checkpoint_and_measure(db: &Connection, path: &Path) -> Result<u64, StoreError> {
    let (_, before) = log_frames(db)?;
    checkpoint(db)?;
    let (_, after) = log_frames(db)?;
    // Counting is not worth failing for.
    Ok(wear::copied(&path.with_file_name(log_name(path)), before..after.max(before)).unwrap_or(0))
}

/// Copies the log's pages into the file, without waiting for readers. Never truncates the log.
pub(super) fn checkpoint(db: &Connection) -> Result<(), StoreError> {
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).doing("checkpoint the database")
}

/// Frames in the log, and how many of them are copied into the file already. Copies nothing.
pub(super) fn log_frames(db: &Connection) -> Result<(u64, u64), StoreError> {
    let frames = db
        .prepare_cached("PRAGMA wal_checkpoint(NOOP)")
        .and_then(|mut measure| measure.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))));
    let (frames, copied) = frames.doing("measure the write-ahead log")?;
    Ok((u64::try_from(frames).unwrap_or(0), u64::try_from(copied).unwrap_or(0)))
}

/// Commits that SQLite passes over in silence are lost: that is said before anything is written.
fn tell_of_damaged_log(db: &Connection, path: &Path) -> Result<(), StoreError> {
    // Reading the schema makes SQLite go through the log.
    let (sound, _) = log_frames(db)?;
    let log = path.with_file_name(log_name(path));
    match wal::damage(&log, sound) {
        Ok(None) => {}
        Ok(Some(damage)) => tracing::error!(
            "the write-ahead log {} is damaged: {damage}; the store goes on as it was before them (is the card failing?)",
            log.display()
        ),
        Err(cause) => tracing::warn!("cannot look through {}: {cause}", log.display()),
    }
    Ok(())
}

/// Size of the log's file; a copied or restored database comes without one.
fn log_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    fs::metadata(log).map_or(0, |log| log.len())
}

/// Writes a large row and takes it back: the log keeps the size.
fn grow_log(db: &Connection, budget: Budget) -> rusqlite::Result<()> {
    let bytes = budget.wal_bytes.min(budget.max_pages * PAGE_BYTES / 2);
    // The cache must overflow for pages to reach the log before the rollback.
    db.execute_batch(&format!(
        "PRAGMA cache_size = 10;
         BEGIN; INSERT INTO reserve (data) VALUES (zeroblob({bytes})); ROLLBACK;
         PRAGMA cache_size = -{CACHE_KIB};"
    ))
}

/// Makes the file, readable by its owner alone; whether it had to be made.
fn create(path: &Path) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(true),
        // A file without a byte was made just before the power went: it needs its log, too.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(fs::metadata(path)?.len() == 0),
        Err(error) => Err(error),
    }
}

/// Makes a file that was copied here readable by its owner alone.
fn restrict(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn log_name(path: &Path) -> std::ffi::OsString {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push("-wal");
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_private_and_its_log_is_grown_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        let budget = Budget::of(64 << 20);
        let db = open_writer(&path, budget, &Blocks::default()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let log = || fs::metadata(folder.path().join("t.db-wal")).unwrap().len();
        let grown = log();
        assert!(grown >= budget.wal_bytes * 9 / 10, "{grown}");
        db.execute_batch("INSERT INTO slot (data) VALUES (zeroblob(985))").unwrap();
        checkpoint(&db).unwrap();
        drop(db);
        assert_eq!(log(), grown);
        drop(open_writer(&path, budget, &Blocks::default()).unwrap());
        assert_eq!(log(), grown);
        fs::remove_file(folder.path().join("t.db-wal")).unwrap();
        drop(open_writer(&path, budget, &Blocks::default()).unwrap());
        assert!(log() >= budget.wal_bytes * 9 / 10, "a copy without its log gets one");
    }

    #[test]
    fn a_file_of_another_program_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let before = fs::read(&path).unwrap();
        let error = open_writer(&path, Budget::of(64 << 20), &Blocks::default()).unwrap_err();
        assert!(error.to_string().contains("t.db is a SQLite database of another program"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_second_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        let mut first = Lock::take(&path).unwrap();
        assert!(Lock::take(&path).unwrap_err().to_string().contains("second tipbucket"));
        assert!(!first.ours);
        first.mark().unwrap();
        drop(first);
        assert!(Lock::take(&path).unwrap().ours);
    }

    #[test]
    fn a_file_stops_growing_before_the_disk_is_full() {
        let budget = Budget { wal_bytes: 1 << 20, max_pages: 10_000 };
        let pages =
            |free_kib: u64, file_kib: u64, pages| budget.within(free_kib << 10, file_kib << 10, pages).max_pages;
        assert_eq!(pages(1 << 20, 500, 600), 10_000, "the budget is less than the disk");
        assert_eq!(pages(3 << 10, 500, 600), 500 + 1024);
        assert_eq!(pages(0, 500, 600), 600, "what is in the log already stays");
    }

    #[test]
    fn the_budget_covers_the_file_and_its_log() {
        for max_bytes in [48 << 20, 256 << 20, 2 << 30] {
            let budget = Budget::of(max_bytes);
            assert!(budget.max_pages * PAGE_BYTES + 2 * budget.wal_bytes <= max_bytes);
        }
    }
}
