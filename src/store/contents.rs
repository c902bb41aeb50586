//! What a store holds, read without its daemon.

use std::path::Path;

use super::error::Doing;
use super::{StoreError, database, schema};
use crate::model::Timestamp;

/// What is in the file of a store. Looks at every row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Sensors known.
    pub sensors: u64,
    /// Sealed buckets not yet delivered.
    pub buckets: u64,
    /// Samples in them.
    pub samples: u64,
    /// Samples in closed buckets that wait for a trusted clock.
    pub held: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// The earliest sample in a sealed bucket.
    pub first: Option<Timestamp>,
    /// The latest.
    pub last: Option<Timestamp>,
}

/// Reads what the file holds; changes nothing.
pub fn contents(path: &Path) -> Result<Contents, StoreError> {
    let db = database::open_reader(path)?;
    // The file may be one of an earlier release, which nobody has brought forward yet.
    let version = schema::identify(&db, &path.display().to_string())?;
    let doing = format!("read {}", path.display());
    let count = |table: &str| {
        db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, u64>(0)).doing(&doing)
    };
    let sql = "SELECT coalesce(sum(buckets), 0), coalesce(sum(samples), 0), min(first), max(last) FROM segment";
    let segments = db.query_row(sql, [], |row| {
        let time = |i| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(i)?.map(Timestamp::clamped));
        Ok(Contents {
            buckets: row.get(0)?,
            samples: row.get(1)?,
            first: time(2)?,
            last: time(3)?,
            ..Contents::default()
        })
    });
    let held = match version {
        0 | 1 => 0,
        _ => {
            let sql = "SELECT coalesce(sum(samples), 0) FROM held";
            db.query_row(sql, [], |row| row.get(0)).doing(&doing)?
        }
    };
    Ok(Contents { held, sensors: count("sensor")?, dead_letters: count("dead_letter")?, ..segments.doing(&doing)? })
}
