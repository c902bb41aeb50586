//! Decimal arithmetic on values: what devices write as decimals stays the decimal that was meant.

use crate::model::Value;

/// The number a value is, if it is one.
pub fn double(value: &Value) -> Option<f64> {
    match *value {
        Value::F64(v) => Some(v),
        Value::I64(v) => Some(v as f64),
        Value::U64(v) => Some(v as f64),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

/// `v * scale`. A power of ten moves the decimal point; a scale like 0.5 or 0.05 divides by 2 or 20, which gives the decimal
/// number meant.
pub fn multiply(v: f64, scale: f64) -> f64 {
    let power = scale.abs().log10().round();
    if v.fract() != 0.0 && power.abs() <= MAX_POWER && ten_to(power as i32) == scale {
        return shifted(v, power as i32);
    }
    let inverse = (1.0 / scale).round();
    if inverse.abs() > 1.0 && 1.0 / inverse == scale { v / inverse } else { v * scale }
}

/// Largest power of ten that is moved in notation.
const MAX_POWER: f64 = 15.0;

fn ten_to(power: i32) -> f64 {
    if power >= 0 { 10f64.powi(power) } else { 1.0 / 10f64.powi(-power) }
}

/// `v * 10^power`, rounded once: the decimal point of the shortest notation of `v` is moved.
pub fn shifted(v: f64, power: i32) -> f64 {
    match power {
        0 => v,
        _ if v.fract() == 0.0 && power < 0 => v / 10f64.powi(-power),
        _ if v.is_finite() => format!("{v}e{power}").parse().unwrap_or(v * ten_to(power)),
        _ => v,
    }
}

/// A whole number with a whole offset added, if both are and the sum is.
pub fn whole_sum(value: &Value, offset: f64) -> Option<Value> {
    /// Whole numbers below are exact as doubles.
    const EXACT_BELOW: f64 = 9e15;
    match value {
        Value::I64(v) if offset.fract() == 0.0 && offset.abs() < EXACT_BELOW => {
            v.checked_add(offset as i64).map(Value::I64)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_stay_what_was_meant() {
        assert_eq!(multiply(2302.0, 0.1), 230.2);
        assert_eq!(multiply(12345.6, 0.001), 12.3456);
        assert_eq!(multiply(-0.35, 100.0), -35.0);
        assert_eq!(multiply(3.0, 0.05), 0.15);
        assert_eq!(multiply(2.0, 2.5), 5.0);
        assert_eq!(multiply(2.0, -0.01), -0.02);
        assert_eq!(shifted(1e300, 5), 1e305);
        assert_eq!(shifted(1e300, 15), f64::INFINITY);
        assert_eq!(whole_sum(&Value::I64(71), -40.0), Some(Value::I64(31)));
        assert_eq!(whole_sum(&Value::I64(71), 0.5), None);
        assert_eq!(whole_sum(&Value::I64(i64::MAX), 1.0), None);
    }

    proptest::proptest! {
        #[test]
        fn no_number_makes_it_panic(v: f64, scale: f64, power in -400..400) {
            let _ = (multiply(v, scale), shifted(v, power), whole_sum(&Value::I64(1), v));
        }
    }
}
