//! The dictionary: numbers for sensor and field names. A number is given once and never changes.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rusqlite::{Connection, params};

use super::StoreError;
use super::error::Doing;
use crate::model::codec::Row;
use crate::model::{FieldName, Fields, Reading, Sample, SensorName};

/// Most field names of one site: a flood of invented keys in payloads must not fill memory.
const MAX_FIELD_NAMES: usize = 32_768;
/// Length of a name that is not known, about.
const UNKNOWN_NAME_BYTES: usize = 16;

/// No number is as large: a bound on what damaged bytes can ask for.
const MAX_NUMBER: usize = 16 << 20;

type Map<K> = HashMap<K, u32, foldhash::fast::RandomState>;

/// All names of a site, as the writer sees them: those not yet committed included.
#[derive(Debug, Default)]
pub(super) struct Names {
    sensors: Map<SensorName>,
    fields: Map<FieldName>,
    max_sensors: usize,
    shared: Arc<RwLock<Known>>,
    committed_sensors: usize,
    committed_fields: usize,
    /// The fields of the last reading: most have the same as the one before.
    recent: Vec<(FieldName, u32)>,
}

/// Names by number, shared with readers.
#[derive(Debug, Default)]
pub(super) struct Known {
    sensors: Vec<SensorName>,
    fields: Vec<FieldName>,
}

/// Names by number, for those who read what the writer wrote.
#[derive(Clone, Debug, Default)]
pub(super) struct NameReader(Arc<RwLock<Known>>);

impl Names {
    /// Reads every name. Numbers begin at 0 and have no gaps; where there is one, or a name does not check, what it
    /// measured is kept under a name that says so, and the name itself gets a new number when it next comes.
    pub(super) fn load(db: &Connection, max_sensors: usize, shared: &NameReader) -> Result<Self, StoreError> {
        let known = Known {
            sensors: table(db, "sensor", |name| SensorName::new(name).ok())?,
            fields: table(db, "field", |name| FieldName::new(name).ok())?,
        };
        let names = Self {
            max_sensors,
            shared: Arc::clone(&shared.0),
            sensors: numbered(&known.sensors),
            fields: numbered(&known.fields),
            committed_sensors: known.sensors.len(),
            committed_fields: known.fields.len(),
            recent: Vec::new(),
        };
        *shared.0.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(names)
    }

    /// An empty dictionary.
    pub(super) fn with_room_for(max_sensors: usize) -> Self {
        Self { max_sensors, ..Self::default() }
    }

    /// The number of a sensor; a new one unless the site has as many as it may.
    pub(super) fn sensor(&mut self, name: &SensorName) -> Option<u32> {
        if let Some(&id) = self.sensors.get(name) {
            return Some(id);
        }
        if self.sensors.len() >= self.max_sensors {
            return None;
        }
        let id = self.sensors.len() as u32;
        self.sensors.insert(name.clone(), id);
        self.shared.write().unwrap_or_else(PoisonError::into_inner).sensors.push(name.clone());
        Some(id)
    }

    /// Makes `row` the reading's; `false` if a field name is one too many.
    pub(super) fn fill(&mut self, row: &mut Row, reading: &Reading, decimals: Option<u8>) -> bool {
        row.at = reading.at;
        row.fields.clear();
        for (place, (name, value)) in reading.fields.iter().enumerate() {
            let number = match self.recent.get(place) {
                Some((recent, number)) if recent == name => *number,
                _ => {
                    let Some(number) = self.field(name) else { return false };
                    self.recent.truncate(place);
                    self.recent.push((name.clone(), number));
                    number
                }
            };
            row.push(number, value, decimals);
        }
        row.sort();
        true
    }

    /// The number of a sensor that has one.
    pub(super) fn known_sensor(&self, name: &SensorName) -> Option<u32> {
        self.sensors.get(name).copied()
    }

    /// The number of a field that has one.
    pub(super) fn known_field(&self, name: &FieldName) -> Option<u32> {
        self.fields.get(name).copied()
    }

    fn field(&mut self, name: &FieldName) -> Option<u32> {
        if let Some(&id) = self.fields.get(name) {
            return Some(id);
        }
        if self.fields.len() >= MAX_FIELD_NAMES {
            return None;
        }
        let id = self.fields.len() as u32;
        self.fields.insert(name.clone(), id);
        self.shared.write().unwrap_or_else(PoisonError::into_inner).fields.push(name.clone());
        Some(id)
    }

    /// Writes the names that are not yet in the database.
    pub(super) fn save(&self, db: &Connection) -> Result<(), StoreError> {
        if self.committed_sensors == self.sensors.len() && self.committed_fields == self.fields.len() {
            return Ok(());
        }
        let known = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let mut insert =
            db.prepare_cached("INSERT INTO sensor (id, name, sum) VALUES (?1, ?2, ?3)").doing("store a sensor")?;
        for (id, name) in known.sensors.iter().enumerate().skip(self.committed_sensors) {
            insert.execute(params![id, name.as_str(), sum(id as u64, name.as_str())]).doing("store a sensor")?;
        }
        let mut insert =
            db.prepare_cached("INSERT INTO field (id, name, sum) VALUES (?1, ?2, ?3)").doing("store a field")?;
        for (id, name) in known.fields.iter().enumerate().skip(self.committed_fields) {
            insert.execute(params![id, name.as_str(), sum(id as u64, name.as_str())]).doing("store a field")?;
        }
        Ok(())
    }

    /// What [`Self::save`] wrote is committed.
    pub(super) fn saved(&mut self) {
        (self.committed_sensors, self.committed_fields) = (self.sensors.len(), self.fields.len());
    }

    /// How many sensors there are.
    pub(super) fn sensor_count(&self) -> usize {
        self.sensors.len()
    }

    /// The same names, for readers.
    pub(super) fn reader(&self) -> NameReader {
        NameReader(Arc::clone(&self.shared))
    }
}

impl NameReader {
    pub(super) fn sensor(&self, id: u32) -> Option<SensorName> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).sensors.get(id as usize).cloned()
    }

    /// All sensors; the first has number 0.
    pub(super) fn sensors(&self) -> Vec<SensorName> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).sensors.clone()
    }

    pub(super) fn field(&self, id: u32) -> Option<FieldName> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).fields.get(id as usize).cloned()
    }

    /// Rows as samples; `None` if one has a field without a name.
    pub(super) fn samples(&self, rows: Vec<Row>) -> Option<Vec<Sample>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut samples = Vec::with_capacity(rows.len());
        for row in rows {
            let mut fields = Fields::new();
            for (id, value) in row.fields {
                fields.push((known.fields.get(id as usize)?.clone(), value));
            }
            samples.push(Sample { at: row.at, fields });
        }
        Some(samples)
    }

    /// Bytes that a row adds to its document; about as many, should it have a field without a name.
    pub(super) fn weight(&self, row: &Row) -> u32 {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let length = |id: u32| known.fields.get(id as usize).map_or(UNKNOWN_NAME_BYTES, |name| name.as_str().len());
        Sample::bytes_with(row.fields.iter().map(|(id, value)| (length(*id), value)))
    }
}

/// Reads one table of names.
fn table<T>(db: &Connection, table: &str, name: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, StoreError> {
    let doing = "read names";
    let mut known = Vec::new();
    let lost = |id: usize| {
        tracing::error!("the name of {table} {id} is damaged: what it measured is kept as lost-{table}-{id}");
        name(&format!("lost-{table}-{id}"))
    };
    // A reader meets files that the writer has not brought to the present version yet.
    let with_sums = db.prepare(&format!("SELECT id, name, sum FROM {table} ORDER BY id"));
    let select = with_sums.or_else(|_| db.prepare(&format!("SELECT id, name, NULL FROM {table} ORDER BY id")));
    let mut select = select.doing(doing)?;
    let mut rows = select.query([]).doing(doing)?;
    while let Some(row) = rows.next().doing(doing)? {
        let id: i64 = row.get(0).doing(doing)?;
        let Some(id) = usize::try_from(id).ok().filter(|id| (known.len()..MAX_NUMBER).contains(id)) else {
            tracing::error!("a name of {table} bears the number {id}, which is not one of ours; it is left out");
            continue;
        };
        while known.len() < id {
            known.extend(lost(known.len()));
        }
        let text = row.get_ref(1).doing(doing)?.as_str().unwrap_or_default();
        // Without a checksum: written by the first release.
        let sums: Option<u32> = row.get(2).unwrap_or(Some(0));
        let sound = sums.is_none_or(|sums| sums == sum(id as u64, text));
        known.extend(name(text).filter(|_| sound).or_else(|| lost(id)));
    }
    Ok(known)
}

/// Names that do not match their checksums, as (table, number).
pub(super) fn damaged(db: &Connection) -> Result<Vec<(&'static str, i64)>, StoreError> {
    let doing = "check names";
    let mut damaged = Vec::new();
    for table in ["sensor", "field"] {
        let mut select = db.prepare(&format!("SELECT id, name, sum FROM {table} ORDER BY id")).doing(doing)?;
        let mut rows = select.query([]).doing(doing)?;
        while let Some(row) = rows.next().doing(doing)? {
            let id: i64 = row.get(0).doing(doing)?;
            let text = row.get_ref(1).doing(doing)?.as_str().unwrap_or_default();
            let known: Option<u32> = row.get(2).unwrap_or(Some(0));
            if known.is_some_and(|known| known != sum(id.unsigned_abs(), text)) {
                damaged.push((table, id));
            }
        }
    }
    Ok(damaged)
}

/// Gives names without a checksum one.
pub(super) fn fill_sums(db: &Connection) -> Result<(), StoreError> {
    let doing = "check names";
    let tx = db.unchecked_transaction().doing(doing)?;
    for table in ["sensor", "field"] {
        let mut select = tx.prepare(&format!("SELECT id, name FROM {table} WHERE sum IS NULL")).doing(doing)?;
        let text = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get_ref(1)?.as_str().unwrap_or_default().to_owned()));
        let rows = select.query_map([], text).doing(doing)?.collect::<rusqlite::Result<Vec<(i64, String)>>>();
        let mut update = tx.prepare(&format!("UPDATE {table} SET sum = ?2 WHERE id = ?1")).doing(doing)?;
        for (id, name) in rows.doing(doing)? {
            update.execute(params![id, sum(id.unsigned_abs(), &name)]).doing(doing)?;
        }
    }
    tx.commit().doing(doing)
}

fn sum(id: u64, name: &str) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&id.to_le_bytes());
    sum.update(name.as_bytes());
    sum.finalize()
}

fn numbered<K: Clone + std::hash::Hash + Eq>(names: &[K]) -> Map<K> {
    names.iter().enumerate().map(|(id, name)| (name.clone(), id as u32)).collect()
}
