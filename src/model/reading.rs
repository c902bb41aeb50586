//! One sensor at one instant.

use smallvec::SmallVec;

use super::{FieldName, SensorName, Timestamp, Value};

/// Most fields in one reading; a three-phase meter has about 40.
pub const MAX_FIELDS: usize = 256;

/// The fields of a reading, in the order of their source. Two or fewer, the usual case, need no allocation.
pub type Fields = SmallVec<[(FieldName, Value); 2]>;

/// `{sensor, at, fields → value}`. Holds at least one field, every name once, every value sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What was measured.
    pub sensor: SensorName,
    /// When.
    pub at: Timestamp,
    /// What it showed.
    pub fields: Fields,
}

/// Why fields do not make a reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadingError {
    /// No field at all.
    #[error("reading holds no field")]
    NoFields,
    /// More than [`MAX_FIELDS`].
    #[error("reading holds {0} fields, at most {MAX_FIELDS} are allowed")]
    TooManyFields(usize),
    /// One name twice (perhaps only after reserved characters were replaced).
    #[error("two fields bear the name `{0}`")]
    FieldTwice(FieldName),
    /// Not finite, or too long a text.
    #[error("field `{0}` is not a finite number or a text of at most 256 bytes")]
    Unsound(FieldName),
}

impl Reading {
    /// Checks and makes a reading.
    pub fn new(sensor: SensorName, at: Timestamp, fields: Fields) -> Result<Self, ReadingError> {
        if fields.is_empty() {
            return Err(ReadingError::NoFields);
        }
        if fields.len() > MAX_FIELDS {
            return Err(ReadingError::TooManyFields(fields.len()));
        }
        for (i, (name, value)) in fields.iter().enumerate() {
            if !value.is_sound() {
                return Err(ReadingError::Unsound(name.clone()));
            }
            if fields[..i].iter().any(|(earlier, _)| earlier == name) {
                return Err(ReadingError::FieldTwice(name.clone()));
            }
        }
        Ok(Self { sensor, at, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &[(&str, Value)], expected: &Option<ReadingError>) {
        let fields = fields.iter().map(|(n, v)| (FieldName::new(n).unwrap(), v.clone())).collect();
        let reading = Reading::new(SensorName::new("s").unwrap(), Timestamp::EPOCH, fields);
        assert_eq!(&reading.err(), expected);
    }

    #[test]
    fn a_reading_holds_sound_values_under_distinct_names() {
        check(&[("a", Value::I64(1)), ("b", Value::Bool(true))], &None);
        check(&[], &Some(ReadingError::NoFields));
        check(&[("a", Value::F64(f64::NAN))], &Some(ReadingError::Unsound(FieldName::new("a").unwrap())));
        check(
            &[("a.b", Value::I64(1)), ("a_b", Value::I64(2))],
            &Some(ReadingError::FieldTwice(FieldName::new("a_b").unwrap())),
        );
    }
}
