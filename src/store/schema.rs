//! The database schema: one list of steps, each taking the file one version forward.
//!
//! `user_version` counts the steps taken, `application_id` says whose file it is. A step that was released never
//! changes; a file with more steps than this program knows is refused, never guessed at.

use rusqlite::Connection;

use super::StoreError;
use super::error::Doing;

/// "tipb": tells our files from other SQLite files (`file` shows it).
const APPLICATION_ID: i32 = 0x7469_7062;

/// The steps from an empty file to the present version.
const MIGRATIONS: &[&str] = &[
    // 1: the first release.
    "CREATE TABLE meta    (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
     -- Names are numbered once and for ever; everything else refers to the numbers.
     CREATE TABLE sensor  (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
     CREATE TABLE field   (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
     -- The journal: pieces of redo records, each row exactly one leaf page, overwritten in place.
     CREATE TABLE slot    (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
     -- Open buckets that the journal would have to hold too long.
     CREATE TABLE spill   (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
     -- Sealed buckets, many to a row; deleted when delivered. Times in milliseconds.
     CREATE TABLE segment (id INTEGER PRIMARY KEY, buckets INTEGER NOT NULL, samples INTEGER NOT NULL,
                           first INTEGER NOT NULL, last INTEGER NOT NULL, thinned INTEGER NOT NULL,
                           data BLOB NOT NULL) STRICT;
     CREATE TABLE dead_letter (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, source TEXT,
                           place TEXT NOT NULL, reason TEXT NOT NULL, payload BLOB NOT NULL) STRICT;
     -- Everything accepted that will not be delivered: which samples (first and last in milliseconds), how many, why.
     CREATE TABLE ledger  (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, sensor TEXT, first INTEGER NOT NULL,
                           last INTEGER NOT NULL, samples INTEGER NOT NULL, reason TEXT NOT NULL) STRICT;",
    // 2
    "-- Names get checksums of number and name; NULL is one from before.
     ALTER TABLE sensor ADD COLUMN sum INTEGER;
     ALTER TABLE field ADD COLUMN sum INTEGER;
     -- Delivered segments that are kept for local queries, under their numbers. Times in milliseconds.
     CREATE TABLE kept_segment (id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
                           data BLOB NOT NULL) STRICT;
     -- Rollups of delivered buckets, many to a row.
     CREATE TABLE kept_rollup (id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
                           data BLOB NOT NULL) STRICT;
     -- Closed buckets whose samples wait until the clock is trusted; `boot` counts the boots of the machine.
     CREATE TABLE held    (id INTEGER PRIMARY KEY, boot INTEGER NOT NULL, buckets INTEGER NOT NULL,
                           samples INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
                           data BLOB NOT NULL) STRICT;
     -- The ledger: a row for each sensor (its number), reason (a fixed word) and stretch of time.
     ALTER TABLE ledger RENAME TO ledger_1;
     CREATE TABLE ledger  (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, sensor INTEGER, reason TEXT NOT NULL,
                           first INTEGER NOT NULL, last INTEGER NOT NULL, samples INTEGER NOT NULL) STRICT;
     INSERT INTO ledger (id, at, reason, first, last, samples)
         SELECT id, at, CASE reason WHEN 'too many sensors' THEN 'too-many-sensors' WHEN 'thinned' THEN reason
                        WHEN 'evicted' THEN reason ELSE 'refused-upstream' END,
                first, last, samples FROM ledger_1;
     DROP TABLE ledger_1;
     -- `segment.samples` counts those that are still there as samples.
     UPDATE segment SET samples = 0 WHERE thinned = 1;
     -- Pages that are given up when the file cannot grow.
     CREATE TABLE reserve (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
     -- Refused buckets in the store's own form, so that they can be sent again, and their samples.
     ALTER TABLE dead_letter ADD COLUMN packed BLOB;
     ALTER TABLE dead_letter ADD COLUMN samples INTEGER NOT NULL DEFAULT 0;",
];

/// Rows of `meta`.
pub(super) const META_STORE_ID: i64 = 1;
pub(super) const META_SNAPSHOT: i64 = 2;
/// There while segments come back from a damaged file: counters in records are not to be believed then.
pub(super) const META_SALVAGE: i64 = 3;
pub(super) const META_CLOCK: i64 = 4;

/// The file's version; refuses what is not ours or is newer. Changes nothing.
pub(super) fn identify(db: &Connection, path: &str) -> Result<usize, StoreError> {
    let version: usize = db.query_row("PRAGMA user_version", [], |row| row.get(0)).doing("read the schema version")?;
    let id: i32 = db.query_row("PRAGMA application_id", [], |row| row.get(0)).doing("read the application id")?;
    let tables: i64 =
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).doing("read the schema")?;
    if id != APPLICATION_ID && (tables > 0 || version > 0) {
        return Err(StoreError::Unusable(format!("{path} is a SQLite database of another program; name another file")));
    }
    if version > MIGRATIONS.len() {
        return Err(StoreError::Unusable(format!(
            "{path} has schema version {version}, this program knows {} at most; run the newer release that wrote it",
            MIGRATIONS.len()
        )));
    }
    Ok(version)
}

/// Refuses a file that this program cannot read without changing it.
pub(super) fn readable(db: &Connection, path: &str) -> Result<(), StoreError> {
    let version = identify(db, path)?;
    if version < MIGRATIONS.len() {
        return Err(StoreError::Unusable(format!(
            "{path} has schema version {version}, and this needs {}; start the daemon once, it brings the file forward",
            MIGRATIONS.len()
        )));
    }
    Ok(())
}

/// Whether the file has a table: a reader meets files that the writer has not brought to the present version yet.
pub(super) fn has(db: &Connection, table: &str) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
    db.prepare_cached(sql).and_then(|mut select| select.query_row([table], |row| row.get(0))).doing("read the schema")
}

/// Brings the file to the present version.
pub(super) fn migrate(db: &mut Connection, path: &str) -> Result<(), StoreError> {
    let version = identify(db, path)?;
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(version) {
        let doing = format!("migrate {path} to schema version {}", step + 1);
        let tx = db.transaction().doing(&doing)?;
        tx.execute_batch(sql).doing(&doing)?;
        tx.pragma_update(None, "user_version", step + 1).doing(&doing)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).doing(&doing)?;
        tx.commit().doing(&doing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prepare: &str, expected: Result<(), &str>) {
        let mut db = Connection::open_in_memory().unwrap();
        db.execute_batch(prepare).unwrap();
        match (migrate(&mut db, "x.db"), expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn files_of_other_programs_and_newer_releases_are_refused() {
        check("", Ok(()));
        check("CREATE TABLE mine (a)", Err("another program"));
        check(&format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 999"), Err("newer release"));
    }

    #[test]
    fn migrating_twice_changes_nothing() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate(&mut db, "x.db").unwrap();
        migrate(&mut db, "x.db").unwrap();
    }
}
