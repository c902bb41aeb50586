//! Files of every version: what any release wrote, the present one reads to the last reading.
//!
//! `tests/stores/vN.db.zst` and `vN.db-wal.zst` are a store as [`crate::history`] leaves it, `vN.txt` what is in it. A
//! release with a new version of the schema adds a set by `make store-file`; a set that was released never changes.

use std::fs;
use std::path::{Path, PathBuf};

use tipbucket::clock::Clock;
use tipbucket::model::Timestamp;

use crate::history;
use crate::site::{START, Site, database, log, runtime};
use crate::told::tell;

/// Set to write the present version's set.
const WRITE: &str = "TIPBUCKET_WRITE_STORE";
const LEVEL: i32 = 19;

fn sets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores")
}

fn unpack(name: &str) -> Vec<u8> {
    let packed = fs::read(sets().join(name)).unwrap_or_else(|error| panic!("tests/stores/{name}: {error}"));
    zstd::decode_all(&packed[..]).unwrap()
}

/// A committed store: the database, its log, and the list of what is in it.
fn set(version: u32) -> (Vec<u8>, Vec<u8>, String) {
    let expected = fs::read_to_string(sets().join(format!("v{version}.txt")))
        .unwrap_or_else(|error| panic!("tests/stores/v{version}.txt: {error}"));
    (unpack(&format!("v{version}.db.zst")), unpack(&format!("v{version}.db-wal.zst")), expected)
}

/// Puts a set where a store would be.
fn unpack_set(folder: &Path, base: &[u8], wal: &[u8]) {
    fs::write(database(folder), base).unwrap();
    fs::write(log(folder), wal).unwrap();
}

fn version(path: &Path) -> u32 {
    let db = rusqlite::Connection::open(path).unwrap();
    db.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// The version that the present program writes.
fn present() -> u32 {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let clock = Clock::virtual_from(Timestamp::clamped(START));
        Site::open(folder.path(), clock).await.unwrap().kill().await;
    });
    version(&database(folder.path()))
}

fn write(version: u32) {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(history::live(folder.path(), &|_| {}));
    fs::create_dir_all(sets()).unwrap();
    for (path, suffix) in [(database(folder.path()), "db"), (log(folder.path()), "db-wal")] {
        let packed = zstd::encode_all(&fs::read(path).unwrap()[..], LEVEL).unwrap();
        fs::write(sets().join(format!("v{version}.{suffix}.zst")), packed).unwrap();
    }
    // Telling changes the file: it comes after packing.
    let told = runtime().block_on(tell(folder.path())).unwrap();
    fs::write(sets().join(format!("v{version}.txt")), told.lines()).unwrap();
}

/// Checks what is there; writes the present version's set first if that is asked for.
#[test]
fn a_file_of_every_version_is_read_to_the_last_reading() {
    let present = present();
    if std::env::var_os(WRITE).is_some() && !sets().join(format!("v{present}.txt")).exists() {
        write(present);
    }
    let sets: Vec<u32> = (1..=present).filter(|v| sets().join(format!("v{v}.txt")).exists()).collect();
    assert_eq!(sets.first(), Some(&1), "the first release's set is there");
    for v in sets {
        let (base, wal, expected) = set(v);
        let folder = tempfile::tempdir().unwrap();
        unpack_set(folder.path(), &base, &wal);
        let told = runtime().block_on(tell(folder.path())).unwrap().lines();
        // Since version 2 reasons are fixed words.
        let expected = expected.replace("too many sensors", "too-many-sensors");
        let missing: Vec<_> = expected.lines().filter(|line| !told.lines().any(|other| other == *line)).collect();
        assert!(missing.is_empty(), "version {v}: {} lines are missing, such as {:?}", missing.len(), missing[0]);
        assert_eq!(told.lines().count(), expected.lines().count(), "version {v}: nothing is there twice");
        assert_eq!(version(&database(folder.path())), present, "it is migrated");
        for kind in ["sample slow", "sample mixed", "sample late", "sample noise", "rollup noise", "ledger thinned"] {
            assert!(expected.lines().any(|line| line.starts_with(kind)), "version {v} holds no {kind}");
        }
    }
}

#[test]
fn a_file_of_a_newer_release_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = database(folder.path());
    let (base, wal, _) = set(1);
    unpack_set(folder.path(), &base, &wal);
    let newer = present() + 1;
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", newer).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let before = fs::read(&path).unwrap();
    let clock = Clock::virtual_from(Timestamp::clamped(START));
    let refused = runtime().block_on(async { Site::open(folder.path(), clock).await.err() });
    let words = refused.expect("it is refused").to_string();
    assert!(words.contains(&format!("schema version {newer}")) && words.contains("run the newer release"), "{words}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(!folder.path().join("quarantine").exists());
}
