//! What is done to one field of a serial source after it was read: scaled, rounded, and held against its limits.
//!
//! A whole number stays whole as long as nothing but whole numbers is done to it.

use crate::model::Value;

/// How one field is treated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Multiplied with the value.
    pub scale: Option<f64>,
    /// Added after scaling.
    pub offset: Option<f64>,
    /// Decimal places kept.
    pub decimals: Option<u8>,
    /// Smallest plausible value.
    pub min: Option<f64>,
    /// Largest plausible value.
    pub max: Option<f64>,
}

impl Rule {
    /// What is wrong with it, as (key, words).
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.scale.is_some_and(|s| s == 0.0 || !s.is_finite()) || self.offset.is_some_and(|o| !o.is_finite()) {
            wrong.push(("scale", "and `offset` must be finite, and scale not zero".to_owned()));
        }
        if self.decimals.is_some_and(|d| d > 15) {
            wrong.push(("decimals", "is more than 15: a double holds no more".to_owned()));
        }
        if let (Some(min), Some(max)) = (self.min, self.max)
            && min > max
        {
            wrong.push(("min", format!("{min} is above max {max}")));
        }
        wrong
    }

    /// The value that counts; why not otherwise. What is no number is left alone.
    pub fn apply(&self, value: Value) -> Result<Value, String> {
        let Some(number) = number(&value) else { return Ok(value) };
        let scale = self.scale.filter(|s| *s != 1.0);
        let offset = self.offset.filter(|o| *o != 0.0);
        let value = match (scale, offset) {
            (None, None) => value,
            (None, Some(offset)) if offset.fract() == 0.0 => match (&value, offset.abs() < 9e15) {
                (Value::I64(v), true) => Value::I64(v.checked_add(offset as i64).ok_or("is too large")?),
                _ => finite(number + offset)?,
            },
            _ => finite(multiply(number, scale.unwrap_or(1.0)) + offset.unwrap_or(0.0))?,
        };
        let value = match self.decimals {
            Some(decimals) => value.rounded(decimals),
            None => value,
        };
        let number = self::number(&value).unwrap_or(number);
        match (self.min, self.max) {
            (Some(min), _) if number < min => Err(format!("{number} is below its min {min}")),
            (_, Some(max)) if number > max => Err(format!("{number} is above its max {max}")),
            _ => Ok(value),
        }
    }
}

/// `v * scale`; a scale like 0.1 or 0.001 divides by 10 or 1000 instead, which gives the decimal number meant.
pub fn multiply(v: f64, scale: f64) -> f64 {
    let inverse = (1.0 / scale).round();
    if inverse.abs() > 1.0 && 1.0 / inverse == scale { v / inverse } else { v * scale }
}

/// The number a value is, if it is one.
pub fn number(value: &Value) -> Option<f64> {
    match *value {
        Value::F64(v) => Some(v),
        Value::I64(v) => Some(v as f64),
        Value::U64(v) => Some(v as f64),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

fn finite(v: f64) -> Result<Value, String> {
    Value::float(v).ok_or_else(|| format!("{v} is not a finite number"))
}

/// Prefixes of units and their powers of ten.
const PREFIXES: [(&str, i32); 5] = [("G", 9), ("M", 6), ("k", 3), ("m", -3), ("", 0)];
/// Units that prefixes are put before.
const BASES: [&str; 12] = ["Wh", "W", "VAh", "VA", "varh", "var", "V", "A", "Hz", "bar", "g", "J"];

/// The power of ten between two units of one quantity, as kWh and Wh; `None` if they are not.
pub fn between(from: &str, to: &str) -> Option<i32> {
    let split = |unit: &str| {
        let found = PREFIXES.iter().find_map(|(prefix, power)| {
            let base = unit.strip_prefix(prefix)?;
            BASES.iter().find(|known| **known == base).map(|base| (*base, *power))
        });
        found.or(match unit {
            "m3" | "m³" => Some(("m3", 0)),
            "l" | "L" | "dm3" | "dm³" => Some(("m3", -3)),
            _ => None,
        })
    };
    if from == to {
        return Some(0);
    }
    let ((a, power), (b, other)) = (split(from)?, split(to)?);
    (a == b).then_some(power - other)
}

/// A value in another unit of its quantity; why not otherwise.
pub fn convert(value: Value, from: &str, to: &str) -> Result<Value, String> {
    let power = between(from, to).ok_or_else(|| format!("its unit is {from} and not {to}"))?;
    match (power, &value) {
        (0, _) => Ok(value),
        (1.., Value::I64(v)) if v.checked_mul(10i64.pow(power as u32)).is_some() => {
            Ok(Value::I64(v * 10i64.pow(power as u32)))
        }
        (power, value) => {
            let Some(number) = number(value) else { return Ok(value.clone()) };
            finite(if power > 0 { number * 10f64.powi(power) } else { number / 10f64.powi(-power) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_stay_whole() {
        let check = |rule: Rule, value: Value, expected: Result<Value, &str>| {
            assert_eq!(
                rule.apply(value).map_err(|why| expected.clone().err().filter(|e| why.contains(e)).unwrap_or("?")),
                expected
            );
        };
        check(Rule { offset: Some(-40.0), ..Rule::default() }, Value::I64(71), Ok(Value::I64(31)));
        check(Rule { scale: Some(0.1), ..Rule::default() }, Value::I64(2302), Ok(Value::F64(230.2)));
        check(Rule { scale: Some(0.1), offset: Some(-40.0), ..Rule::default() }, Value::I64(400), Ok(Value::F64(0.0)));
        check(Rule { max: Some(50.0), ..Rule::default() }, Value::I64(51), Err("above its max 50"));
        check(Rule { decimals: Some(1), ..Rule::default() }, Value::F64(1.26), Ok(Value::F64(1.3)));
        check(Rule { offset: Some(1.0), ..Rule::default() }, Value::I64(i64::MAX), Err("too large"));
        check(Rule { scale: Some(2.0), ..Rule::default() }, Value::Bool(true), Ok(Value::Bool(true)));
    }

    #[test]
    fn units_of_one_quantity_are_converted() {
        let check = |value: Value, from: &str, to: &str, expected: Option<Value>| {
            assert_eq!(convert(value, from, to).ok(), expected, "{from} {to}");
        };
        check(Value::I64(6_545_766), "Wh", "kWh", Some(Value::F64(6545.766)));
        check(Value::F64(0.244), "kW", "W", Some(Value::F64(244.0)));
        check(Value::I64(3), "kWh", "Wh", Some(Value::I64(3000)));
        check(Value::F64(1.5), "V", "V", Some(Value::F64(1.5)));
        check(Value::F64(1.5), "m3", "l", Some(Value::F64(1500.0)));
        check(Value::I64(1), "V", "A", None);
        check(Value::I64(1), "kWh", "kW", None);
    }
}
