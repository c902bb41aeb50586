//! The dictionary: numbers for sensor and field names. A number is given once and never changes.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rusqlite::{Connection, params};
use smallvec::SmallVec;

use super::StoreError;
use super::error::Doing;
use crate::model::codec::Row;
use crate::model::{FieldName, Fields, Reading, Sample, SensorName};

/// Most field names of one site: a flood of invented keys in payloads must not fill memory.
const MAX_FIELD_NAMES: usize = 32_768;

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
    /// Reads every name. Numbers begin at 0 and have no gaps.
    pub(super) fn load(db: &Connection, max_sensors: usize, shared: &NameReader) -> Result<Self, StoreError> {
        let mut known = Known::default();
        let mut names = Self { max_sensors, shared: Arc::clone(&shared.0), ..Self::default() };
        for name in texts(db, "SELECT name FROM sensor ORDER BY id")? {
            let name = SensorName::new(&name).map_err(|e| damaged("sensor name", &e))?;
            names.sensors.insert(name.clone(), known.sensors.len() as u32);
            known.sensors.push(name);
        }
        for name in texts(db, "SELECT name FROM field ORDER BY id")? {
            let name = FieldName::new(&name).map_err(|e| damaged("field name", &e))?;
            names.fields.insert(name.clone(), known.fields.len() as u32);
            known.fields.push(name);
        }
        (names.committed_sensors, names.committed_fields) = (known.sensors.len(), known.fields.len());
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

    /// A reading as a row; `None` if a field name is one too many.
    pub(super) fn row(&mut self, reading: &Reading, decimals: Option<u8>) -> Option<Row> {
        let mut fields = SmallVec::with_capacity(reading.fields.len());
        for (name, value) in &reading.fields {
            let number = self.field(name)?;
            fields.push((
                number,
                match decimals {
                    Some(decimals) => value.clone().rounded(decimals),
                    None => value.clone(),
                },
            ));
        }
        fields.sort_unstable_by_key(|(number, _)| *number);
        Some(Row { at: reading.at, fields })
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
        let mut insert = db.prepare_cached("INSERT INTO sensor (id, name) VALUES (?1, ?2)").doing("store a sensor")?;
        for (id, name) in known.sensors.iter().enumerate().skip(self.committed_sensors) {
            insert.execute(params![id, name.as_str()]).doing("store a sensor")?;
        }
        let mut insert = db.prepare_cached("INSERT INTO field (id, name) VALUES (?1, ?2)").doing("store a field")?;
        for (id, name) in known.fields.iter().enumerate().skip(self.committed_fields) {
            insert.execute(params![id, name.as_str()]).doing("store a field")?;
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

    pub(super) fn field(&self, id: u32) -> Option<FieldName> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).fields.get(id as usize).cloned()
    }

    /// A row as a sample; `None` if it has a field without a name.
    pub(super) fn sample(&self, row: &Row) -> Option<Sample> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let fields: Option<Fields> = row
            .fields
            .iter()
            .map(|(id, value)| Some((known.fields.get(*id as usize)?.clone(), value.clone())))
            .collect();
        Some(Sample { at: row.at, fields: fields? })
    }
}

fn texts(db: &Connection, sql: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = db.prepare(sql).doing("read names")?;
    let rows = statement.query_map([], |row| row.get(0)).doing("read names")?;
    rows.collect::<rusqlite::Result<_>>().doing("read names")
}

fn damaged(what: &str, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Damaged { what: what.to_owned(), why: why.to_string() }
}
