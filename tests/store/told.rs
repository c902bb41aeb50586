//! Everything a store tells about its content, as a start finds it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use bytesize::ByteSize;
use tipbucket::clock::Clock;
use tipbucket::model::{Fields, SealedBucket, Timestamp, Value};
use tipbucket::store;

use crate::site::{START, Site, database};

/// Long after everything: every window is over.
const LATER_MS: i64 = 3 * 86_400_000;
/// Looking must not thin or evict. The log is as long as with the budget of [`crate::history`].
const ROOMY: ByteSize = ByteSize::mib(16);

/// What is in a store.
#[derive(Debug, Default)]
pub struct Told {
    /// Samples by sensor and time in milliseconds after the start, as often as they are there.
    pub samples: BTreeMap<(String, i64), Vec<String>>,
    /// Buckets of which only the rollup is left: sensor, first, last, count.
    pub rollups: Vec<(String, i64, i64, u32)>,
    pub letters: u64,
    /// Samples in the ledger, by reason.
    pub ledger: BTreeMap<String, u64>,
}

/// Opens the store in `folder`, lets every bucket end, and draws them all.
pub async fn tell(folder: &Path) -> Result<Told, String> {
    let clock = Clock::virtual_from(Timestamp::clamped(START + LATER_MS));
    let opened = Site::open_with(folder, clock, |config| config.max_bytes = ROOMY).await;
    let mut site = opened.map_err(|error| format!("does not open: {error}"))?;
    let mut told = Told::default();
    while let Some((_, buckets)) = site.draw().await {
        buckets.iter().for_each(|bucket| told.add(bucket));
    }
    if site.stats.store().open_buckets.get() != 0 {
        return Err("buckets stay open".to_owned());
    }
    site.kill().await;
    if folder.join("quarantine").exists() {
        return Err("the file was set aside".to_owned());
    }
    told.letters = store::contents(&database(folder)).map_err(|error| error.to_string())?.dead_letters;
    told.ledger = ledger(folder);
    Ok(told)
}

/// The ledger's samples, by reason.
pub fn ledger(folder: &Path) -> BTreeMap<String, u64> {
    let db = rusqlite::Connection::open(database(folder)).unwrap();
    let mut select = db.prepare("SELECT reason, sum(samples) FROM ledger GROUP BY reason").unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

impl Told {
    fn add(&mut self, bucket: &SealedBucket) {
        let sensor = bucket.sensor.to_string();
        for sample in &bucket.samples {
            let place = (sensor.clone(), sample.at.as_millis() - START);
            self.samples.entry(place).or_default().push(words(&sample.fields));
        }
        if let Some(rollup) = &bucket.rollup {
            let (first, last) = (rollup.first.as_millis() - START, rollup.last.as_millis() - START);
            self.rollups.push((sensor, first, last, rollup.count));
        }
    }

    /// One line for each thing told, in a fixed order.
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for ((sensor, at), samples) in &self.samples {
            for fields in samples {
                writeln!(lines, "sample {sensor} {at} {fields}").unwrap();
            }
        }
        let mut rollups = self.rollups.clone();
        rollups.sort();
        for (sensor, first, last, count) in rollups {
            writeln!(lines, "rollup {sensor} {first} to {last}: {count}").unwrap();
        }
        writeln!(lines, "dead letters {}", self.letters).unwrap();
        for (reason, samples) in &self.ledger {
            writeln!(lines, "ledger {reason}: {samples}").unwrap();
        }
        lines
    }
}

/// Fields with their types: a whole number is not a double of the same size.
pub fn words(fields: &Fields) -> String {
    let word = |value: &Value| match value {
        Value::F64(v) => format!("{v:?}"),
        Value::I64(v) => format!("{v}i"),
        Value::U64(v) => format!("{v}u"),
        Value::Bool(v) => v.to_string(),
        Value::Text(v) => format!("{v:?}"),
    };
    fields.iter().map(|(field, value)| format!("{field}={}", word(value))).collect::<Vec<_>>().join(" ")
}
