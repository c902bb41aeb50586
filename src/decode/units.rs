//! Units of one quantity, and a value in another of them.
//!
//! Prefixes of ten are moved in decimal notation, so that 12345.6 Wh are 12.3456 kWh and not 12.345600000000001.

use super::arithmetic::{double, multiply, shifted};
use crate::model::Value;

/// Prefixes of units and their powers of ten.
const PREFIXES: [(&str, i32); 5] = [("G", 9), ("M", 6), ("k", 3), ("m", -3), ("", 0)];
/// Units that prefixes are put before.
const BASES: [&str; 12] = ["Wh", "W", "VAh", "VA", "varh", "var", "V", "A", "Hz", "bar", "g", "J"];
/// Other units: quantity, factor and offset to its first one.
const OTHERS: [(&str, &str, f64, f64); 19] = [
    ("m/s", "speed", 1.0, 0.0),
    ("kn", "speed", 1852.0 / 3600.0, 0.0),
    ("N", "speed", 1852.0 / 3600.0, 0.0),
    ("km/h", "speed", 1.0 / 3.6, 0.0),
    ("mph", "speed", 0.447_04, 0.0),
    ("°C", "temperature", 1.0, 0.0),
    ("C", "temperature", 1.0, 0.0),
    ("°F", "temperature", 5.0 / 9.0, -160.0 / 9.0),
    ("K", "temperature", 1.0, -273.15),
    ("Pa", "pressure", 1.0, 0.0),
    ("hPa", "pressure", 100.0, 0.0),
    ("kPa", "pressure", 1_000.0, 0.0),
    ("mbar", "pressure", 100.0, 0.0),
    ("bar", "pressure", 100_000.0, 0.0),
    ("inHg", "pressure", 3_386.389, 0.0),
    ("m", "length", 1.0, 0.0),
    ("km", "length", 1_000.0, 0.0),
    ("ft", "length", 0.3048, 0.0),
    ("nmi", "length", 1_852.0, 0.0),
];

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
    let not_finite = |v: f64| format!("{v} is not a finite number");
    let Some(power) = between(from, to) else {
        let other = |unit: &str| OTHERS.iter().find(|(name, ..)| *name == unit);
        return match (other(from), other(to), double(&value)) {
            (Some((_, a, factor, offset)), Some((_, b, divisor, other)), Some(number)) if a == b => {
                let ratio = factor / divisor;
                let v = multiply(number, ratio) + (offset - other) / divisor;
                Value::float(v).ok_or_else(|| not_finite(v))
            }
            _ => Err(format!("its unit is {from} and not {to}")),
        };
    };
    match (power, &value) {
        (0, _) => Ok(value),
        (1.., Value::I64(v)) if v.checked_mul(10i64.pow(power as u32)).is_some() => {
            Ok(Value::I64(v * 10i64.pow(power as u32)))
        }
        (power, value) => {
            let Some(number) = double(value) else { return Ok(value.clone()) };
            let v = shifted(number, power);
            Value::float(v).ok_or_else(|| not_finite(v))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_one_quantity_are_converted() {
        let check = |value: Value, from: &str, to: &str, expected: Option<Value>| {
            assert_eq!(convert(value, from, to).ok(), expected, "{from} {to}");
        };
        check(Value::I64(6_545_766), "Wh", "kWh", Some(Value::F64(6545.766)));
        check(Value::F64(12345.6), "Wh", "kWh", Some(Value::F64(12.3456)));
        check(Value::F64(0.244), "kW", "W", Some(Value::F64(244.0)));
        check(Value::I64(3), "kWh", "Wh", Some(Value::I64(3000)));
        check(Value::F64(1.5), "V", "V", Some(Value::F64(1.5)));
        check(Value::F64(1.5), "m3", "l", Some(Value::F64(1500.0)));
        check(Value::F64(36.0), "km/h", "m/s", Some(Value::F64(10.0)));
        check(Value::F64(1.013), "bar", "hPa", Some(Value::F64(1013.0)));
        check(Value::F64(50.0), "°F", "°C", Some(Value::F64(10.0)));
        check(Value::I64(1), "V", "A", None);
        check(Value::I64(1), "kWh", "kW", None);
        check(Value::F64(1.0), "kn", "°C", None);
    }
}
