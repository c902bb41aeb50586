//! One measured value. Not a number and the infinities are not values: they cannot be made.

use std::sync::Arc;

/// Longest text value in bytes; a reading is a measurement, not a document.
pub const MAX_TEXT_BYTES: usize = 256;

/// What a field held at one instant. Equality is exact: bit for bit, and type for type.
#[derive(Clone, Debug)]
pub enum Value {
    /// A finite double.
    F64(f64),
    /// A signed whole number, exact over its whole range.
    I64(i64),
    /// A whole number that needs the 64th bit; smaller ones are `I64`.
    U64(u64),
    /// On or off.
    Bool(bool),
    /// A short text, at most [`MAX_TEXT_BYTES`].
    Text(Arc<str>),
}

impl Value {
    /// A double, or `None` if it is not finite.
    pub fn float(v: f64) -> Option<Self> {
        v.is_finite().then_some(Self::F64(v))
    }

    /// A whole number of either sign; `I64` whenever it fits, so that equal numbers are equal values.
    pub fn unsigned(v: u64) -> Self {
        i64::try_from(v).map_or(Self::U64(v), Self::I64)
    }

    /// A text, or `None` if it is too long.
    pub fn text(v: &str) -> Option<Self> {
        (v.len() <= MAX_TEXT_BYTES).then(|| Self::Text(v.into()))
    }

    /// Whether this may stand in a reading: finite, and short enough.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::F64(v) => v.is_finite(),
            Self::Text(v) => v.len() <= MAX_TEXT_BYTES,
            Self::I64(_) | Self::U64(_) | Self::Bool(_) => true,
        }
    }

    /// Rounds a double to `decimals` places; every other value stays.
    pub fn rounded(self, decimals: u8) -> Self {
        match self {
            Self::F64(v) => {
                let scale = 10f64.powi(i32::from(decimals));
                let rounded = (v * scale).round() / scale;
                Self::F64(if rounded.is_finite() { rounded } else { v })
            }
            other => other,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::F64(a), Self::F64(b)) => a.to_bits() == b.to_bits(),
            (Self::I64(a), Self::I64(b)) => a == b,
            (Self::U64(a), Self::U64(b)) => a == b,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_is_not_a_value() {
        assert_eq!(Value::float(f64::NAN), None);
        assert_eq!(Value::float(f64::INFINITY), None);
        assert_eq!(Value::float(0.5), Some(Value::F64(0.5)));
    }

    #[test]
    fn equality_is_bit_for_bit() {
        assert_ne!(Value::F64(0.0), Value::F64(-0.0));
        assert_ne!(Value::F64(1.0), Value::I64(1));
        assert_eq!(Value::unsigned(7), Value::I64(7));
        assert_eq!(Value::unsigned(u64::MAX), Value::U64(u64::MAX));
    }

    #[test]
    fn rounding_touches_doubles_only() {
        assert_eq!(Value::F64(21.450_000_1).rounded(2), Value::F64(21.45));
        assert_eq!(Value::F64(1e300).rounded(15), Value::F64(1e300));
        assert_eq!(Value::I64(7).rounded(0), Value::I64(7));
    }
}
