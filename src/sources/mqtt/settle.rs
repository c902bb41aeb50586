//! What was found in a payload becomes readings: names and times are believed or not, options of fields applied, what is
//! said twice is kept once.
//!
//! Of readings with a time of their own, one sensor has one at each instant: the same again is left out, further fields are
//! added to it, and another value for a field it has is refused. Pure.

use std::collections::HashMap;

use super::packets::Properties;
use super::recipe::Recipe;
use super::route::Named;
use super::topic::BadTime;
use crate::decode::damp::Damper;
use crate::decode::found::{Decoded, Measured, Refused};
use crate::decode::{number, text};
use crate::model::{Admission, Fields, Implausible, MAX_FIELDS, Reading, SensorName, Timestamp, TurnedAway, Value};

/// A claimed time so far ahead is rather a counter.
const SURELY_NO_TIME: std::time::Duration = std::time::Duration::from_secs(366 * 24 * 3600);

/// What was taken from one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Taken {
    pub(super) readings: Vec<Reading>,
    /// Understood, and not taken because of their times.
    pub(super) turned_away: Vec<TurnedAway>,
    /// Whether all of them bear the time of their arrival.
    pub(super) stamped: bool,
    pub(super) refused: Refused,
    /// What an operator should know although nothing was refused.
    pub(super) notes: Vec<String>,
    /// Values left out by a declared deadband or minimum interval.
    pub(super) left_out: u64,
    /// Counters that fell.
    pub(super) rollovers: u64,
}

/// What decides about a message's readings.
pub(super) struct Judge<'j> {
    pub(super) recipe: &'j Recipe,
    pub(super) damper: &'j mut Damper,
    pub(super) named: &'j Named,
    pub(super) admission: Admission,
    pub(super) now: Timestamp,
    /// What came beside the payload.
    pub(super) properties: &'j Properties,
}

impl Judge<'_> {
    /// The readings among what was found.
    pub(super) fn settle(&mut self, decoded: Decoded) -> Taken {
        let mut taken = Taken { refused: decoded.refused, notes: decoded.notes, ..Taken::default() };
        taken.readings.reserve_exact(decoded.readings.len());
        taken.stamped = decoded.readings.iter().all(|measured| measured.at.is_none());
        let mut known = HashMap::new();
        let is_batch = decoded.readings.len() > 1 && !taken.stamped;
        for measured in decoded.readings {
            let (index, own) = (measured.index, measured.at.is_some());
            match self.reading(measured, &mut taken) {
                Ok(Some(reading)) if is_batch && own => merge(reading, index, &mut known, &mut taken),
                Ok(Some(reading)) => taken.readings.push(reading),
                Ok(None) => {}
                Err(reason) => taken.refused.add(index, reason),
            }
        }
        taken
    }

    fn reading(&mut self, measured: Measured, taken: &mut Taken) -> Result<Option<Reading>, String> {
        let sensor = self.named.sensor(measured.sensor.as_deref(), measured.part.as_deref(), self.properties)?;
        let at = match measured.at.map(|at| self.believed(at, measured.is_meant)).transpose() {
            Ok(at) => at,
            Err((_, reason)) if self.recipe.bad_time == BadTime::Arrival => {
                taken.notes.push(format!("time of arrival taken: {reason}"));
                None
            }
            Err((why, words)) => {
                if let (Some(at), false) = (measured.at, measured.fields.is_empty()) {
                    taken.turned_away.push(TurnedAway { sensor, at, reason: why.reason() });
                }
                return Err(words);
            }
        };
        if at.is_none() && self.properties.is_expired {
            return Err(
                "the message had expired when it came, and has no time of its own: when it was true is not known"
                    .to_owned(),
            );
        }
        let mut fields = measured.fields;
        self.add_properties(&mut fields, measured.index, taken);
        if !self.recipe.options.is_empty() {
            fields = self.shaped(fields, &sensor, at.unwrap_or(self.now), measured.index, taken);
            if fields.is_empty() {
                return Ok(None);
            }
        }
        if let (Some(name), Some(claimed)) = (&self.recipe.keep_time, measured.at)
            && fields.len() < MAX_FIELDS
            && let Some(text) = Value::text(&claimed.to_string())
        {
            fields.push((name.clone(), text));
        }
        Reading::new(sensor, at.unwrap_or(self.now), fields).map(Some).map_err(|e| e.to_string())
    }

    /// Adds the user properties that are wanted as fields; what the payload says itself counts first.
    fn add_properties(&self, fields: &mut Fields, index: Option<usize>, taken: &mut Taken) {
        for (name, property) in &self.recipe.properties {
            let Some(text) = self.properties.user(property) else { continue };
            if fields.len() >= MAX_FIELDS || fields.iter().any(|(known, _)| known == name) {
                continue;
            }
            match number::decode_either(text.as_bytes()).or_else(|_| text::decode(text.as_bytes())) {
                Ok(value) => fields.push((name.clone(), value)),
                Err(why) => taken.refused.add(index, format_args!("user property `{property}`: {why}")),
            }
        }
    }

    fn believed(&self, at: Timestamp, is_meant: bool) -> Result<Timestamp, (Implausible, String)> {
        match self.admission.check(at, self.now) {
            Ok(()) => Ok(at),
            Err(Implausible::Past(_)) if is_meant => Ok(at),
            Err(error) => {
                let words = match error {
                    Implausible::Past(at) if at > Timestamp::EPOCH => {
                        format!("{error} (or it counts from its own start; without a time the arrival counts)")
                    }
                    Implausible::Future { ahead, .. } if ahead > SURELY_NO_TIME => {
                        format!("{error} (is it a counter rather than a time?)")
                    }
                    _ => error.to_string(),
                };
                Err((error, words))
            }
        }
    }

    /// The fields under their options.
    fn shaped(
        &mut self,
        fields: Fields,
        sensor: &SensorName,
        at: Timestamp,
        index: Option<usize>,
        taken: &mut Taken,
    ) -> Fields {
        let mut kept = Fields::new();
        for (name, value) in fields {
            let shaped = match self.recipe.options.get(&name) {
                Some(options) => options.take(value),
                None => Ok(Some(value)),
            };
            match shaped {
                Ok(value) => kept.extend(value.map(|value| (name, value))),
                Err(reason) => taken.refused.add(index, format_args!("field `{name}`: {reason}")),
            }
        }
        let damped = self.damper.keep(kept, (sensor, at), |name| self.recipe.options.get(name));
        taken.left_out += damped.left_out.len() as u64;
        taken.rollovers += damped.fallen.len() as u64;
        for name in damped.fallen {
            taken.notes.push(format!("counter `{name}` of {sensor} fell: it was reset, or ran over"));
        }
        damped.fields
    }
}

/// Adds a reading to the one of the same sensor and instant, if there is one.
fn merge(
    reading: Reading,
    index: Option<usize>,
    known: &mut HashMap<(SensorName, Timestamp), usize>,
    taken: &mut Taken,
) {
    let slot = *known.entry((reading.sensor.clone(), reading.at)).or_insert(taken.readings.len());
    let Some(earlier) = taken.readings.get_mut(slot) else {
        taken.readings.push(reading);
        return;
    };
    for (name, value) in reading.fields {
        match earlier.fields.iter().find(|(known, _)| *known == name) {
            Some((_, same)) if *same == value => {}
            Some(_) => taken.refused.add(
                index,
                format_args!("field `{name}` has another value at {} already: the first is kept", reading.at),
            ),
            None if earlier.fields.len() < MAX_FIELDS => earlier.fields.push((name, value)),
            None => taken.refused.add(index, format_args!("field `{name}` is one of more than {MAX_FIELDS}")),
        }
    }
}

#[cfg(test)]
mod tests;
