//! What a decoder finds in a payload: readings whose names and times are not yet believed, and what was refused.
//!
//! What is good is kept and what is not is named, so that one bad field costs one field. Nothing here grows without bound:
//! readings, fields and reasons are counted.

use std::collections::HashMap;
use std::fmt;

use smallvec::SmallVec;

use super::quoted;
use crate::model::{FieldName, Fields, MAX_FIELDS, NameError, Timestamp, Value};

/// Most readings in one payload; a logger that was offline for a day at 10 s intervals sends 8,640.
pub const MAX_BATCH: usize = 10_000;
/// Most distinct field names remembered, so that a known one costs no allocation.
const MAX_REMEMBERED: usize = 10_000;
/// Most reasons spelled out for one payload; the others are counted.
const MAX_REASONS: usize = 8;

/// What a payload held. With neither readings nor reasons it is of a kind that holds no reading by design.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// What was measured.
    pub readings: SmallVec<[Measured; 1]>,
    /// What could not be taken.
    pub refused: Refused,
    /// What an operator should know although nothing was refused.
    pub notes: Vec<String>,
    /// There were more than [`MAX_BATCH`].
    is_full: bool,
}

/// One reading, before it is known whether its name and time are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Where it stands in a batch.
    pub index: Option<usize>,
    /// The sensor's name, if the payload or the kind of topic tells it.
    pub sensor: Option<String>,
    /// Which of several quantities that bear one name this is (SenML tells them by their units).
    pub part: Option<String>,
    /// Its own time, if it has one.
    pub at: Option<Timestamp>,
    /// The format itself says that so old a time is meant (SenML): it is believed although it is before 2000.
    pub is_meant: bool,
    /// At least one field, every name once.
    pub fields: Fields,
}

/// Reasons why parts of a payload were refused: the first few in words, the others counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    reasons: Vec<String>,
    more: usize,
}

impl Refused {
    /// Adds one. `place` is put before it, if it says anything.
    pub fn add(&mut self, place: Option<usize>, reason: impl fmt::Display) {
        if self.reasons.len() < MAX_REASONS {
            self.reasons.push(place.map_or_else(|| reason.to_string(), |i| format!("[{i}]: {reason}")));
        } else {
            self.more += 1;
        }
    }

    /// Whether nothing was refused.
    pub fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    /// How many reasons there are.
    pub fn len(&self) -> usize {
        self.reasons.len() + self.more
    }

    /// Those that are spelled out.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("; "))?;
        if self.more > 0 { write!(f, "; and {} more", self.more) } else { Ok(()) }
    }
}

impl Decoded {
    /// Adds a reading. False if there are too many already: the excess is one reason.
    pub(super) fn push(&mut self, measured: Measured) -> bool {
        let has_room = self.readings.len() < MAX_BATCH;
        if has_room {
            self.readings.push(measured);
        } else if !std::mem::replace(&mut self.is_full, true) {
            self.refused
                .add(None, format_args!("more than {MAX_BATCH} readings in one payload: the others are not taken"));
        }
        has_room
    }

    /// The same, or its reasons if nothing was taken although something was there.
    pub(super) fn or_reasons(self) -> Result<Self, String> {
        if self.readings.is_empty() && !self.refused.is_empty() { Err(self.refused.to_string()) } else { Ok(self) }
    }
}

/// Field names that were made before.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<Box<str>, FieldName, foldhash::fast::RandomState>);

impl Names {
    /// The name for this text.
    pub(super) fn get(&mut self, text: &str) -> Result<FieldName, NameError> {
        if let Some(name) = self.0.get(text) {
            return Ok(name.clone());
        }
        let name = FieldName::new(text)?;
        if self.0.len() < MAX_REMEMBERED {
            self.0.insert(text.into(), name.clone());
        }
        Ok(name)
    }
}

/// The fields of one reading, as they are found.
pub(super) struct Taken<'r> {
    pub(super) fields: Fields,
    pub(super) index: Option<usize>,
    pub(super) refused: &'r mut Refused,
}

impl<'r> Taken<'r> {
    /// None yet.
    pub(super) fn new(index: Option<usize>, refused: &'r mut Refused) -> Self {
        Self { fields: Fields::new(), index, refused }
    }

    /// Adds a field whose name is still a text.
    pub(super) fn named(&mut self, names: &mut Names, name: &str, value: Value) {
        match names.get(name) {
            Ok(name) => self.push(name, value),
            Err(reason) => self.refuse(format_args!("field {}: {reason}", quoted(name))),
        }
    }

    /// Adds a field; of two values under one name the first is kept.
    pub(super) fn push(&mut self, name: FieldName, value: Value) {
        if self.fields.iter().any(|(earlier, _)| earlier.is_same_allocation(&name) || *earlier == name) {
            self.refuse(format_args!("two values for one field `{name}`: the first is kept"));
        } else if self.fields.len() < MAX_FIELDS {
            self.fields.push((name, value));
        } else {
            self.refuse(format_args!("field {} is one of more than {MAX_FIELDS}", quoted(name.as_str())));
        }
    }

    /// Notes why a field is not taken.
    pub(super) fn refuse(&mut self, reason: impl fmt::Display) {
        self.refused.add(self.index, reason);
    }
}
