//! A payload that is one plain number, or a switch state.
//!
//! Taken: `21.5`, ` 21.5\n`, `+7`, `.5`, `5.`, `1e3`, `007` (decimal), `"21.5"` (a JSON string), a byte order mark before it,
//! `ON`/`OFF` and `true`/`false` in any case. Whole numbers stay exact up to 64 bits; nothing is ever rounded to fit.
//! Refused with a reason: `nan`, `inf`, `unavailable`, units, decimal commas, hexadecimal, blanks.

use super::{quoted, text_of};
use crate::model::Value;

/// What people and their firmware send instead of a number.
const NO_VALUE: [&str; 9] = ["nan", "-nan", "inf", "-inf", "infinity", "-infinity", "unknown", "unavailable", "none"];

/// The value, or why the payload is not one.
pub fn decode(payload: &[u8]) -> Result<Value, String> {
    let text = text_of(payload)?;
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    if let Some(value) = parse(text) {
        return value.map_err(|unfit| format!("{} {unfit}", quoted(text)));
    }
    let says = |word: &str| text.eq_ignore_ascii_case(word);
    if says("on") || says("true") {
        Ok(Value::Bool(true))
    } else if says("off") || says("false") {
        Ok(Value::Bool(false))
    } else if text.is_empty() {
        Err("payload is blank".to_owned())
    } else if NO_VALUE.iter().any(|word| says(word)) || says("null") {
        Err(format!("{} says that there is no value", quoted(text)))
    } else if text.starts_with(['{', '[']) {
        Err("payload is not a plain number (JSON? then decode = \"json\")".to_owned())
    } else {
        Err(format!("{} is not a plain number", quoted(text)))
    }
}

/// Why a well-formed number is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A whole number of more than 64 bits.
    #[error("is a whole number beyond 64 bits")]
    Whole,
    /// A decimal beyond the range of a double.
    #[error("is beyond the range of a double")]
    Decimal,
}

/// `[+-]digits[.digits][e[+-]digits]` with at least one digit before the exponent; `None` for anything else.
pub(super) fn parse(text: &str) -> Option<Result<Value, Unfit>> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    if whole == digits.len() {
        return (whole > 0).then(|| integer(text));
    }
    let mut rest = &digits[whole..];
    let mut fraction = 0;
    if let Some(after) = rest.strip_prefix('.') {
        fraction = after.bytes().take_while(u8::is_ascii_digit).count();
        rest = &after[fraction..];
    }
    if whole + fraction == 0 {
        return None;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if exponent.is_empty() || !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
    } else if !rest.is_empty() {
        return None;
    }
    Some(decimal(text))
}

/// A whole number, already known to be digits with an optional sign.
pub(super) fn integer(text: &str) -> Result<Value, Unfit> {
    if let Ok(v) = text.parse::<i64>() {
        return Ok(Value::I64(v));
    }
    text.parse::<u64>().map(Value::unsigned).map_err(|_| Unfit::Whole)
}

/// A decimal, already known to be well formed.
pub(super) fn decimal(text: &str) -> Result<Value, Unfit> {
    text.parse::<f64>().ok().and_then(Value::float).ok_or(Unfit::Decimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(payload: &str, expected: Result<Value, &str>) {
        let got = decode(payload.as_bytes());
        match expected {
            Ok(value) => assert_eq!(got, Ok(value), "{payload:?}"),
            Err(words) => assert!(got.clone().is_err_and(|e| e.contains(words)), "{payload:?}: {got:?}"),
        }
    }

    #[test]
    fn plain_numbers_stay_exact() {
        check("21.5", Ok(Value::F64(21.5)));
        check(" 21.5 \r\n", Ok(Value::F64(21.5)));
        check("+7", Ok(Value::I64(7)));
        check("-0.0", Ok(Value::F64(-0.0)));
        check("9007199254740993", Ok(Value::I64(9_007_199_254_740_993)));
        check("18446744073709551615", Ok(Value::U64(u64::MAX)));
        check("1E-3", Ok(Value::F64(0.001)));
        check("\"21.5\"", Ok(Value::F64(21.5)));
    }

    #[test]
    fn switches_are_booleans() {
        check("ON", Ok(Value::Bool(true)));
        check("off", Ok(Value::Bool(false)));
        check("True", Ok(Value::Bool(true)));
    }

    #[test]
    fn what_is_not_a_number_is_refused_by_name() {
        check("nan", Err("no value"));
        check("unavailable", Err("no value"));
        check("", Err("blank"));
        check("21,5", Err("`21,5` is not a plain number"));
        check("1e400", Err("beyond the range"));
        check("18446744073709551616", Err("beyond 64 bits"));
        check("0x1F", Err("not a plain number"));
        check("{\"t\":1}", Err("decode = \"json\""));
        check("1e", Err("not a plain number"));
        check(".", Err("not a plain number"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(payload: Vec<u8>) {
            let _ = decode(&payload);
        }

        #[test]
        fn whatever_a_number_prints_is_read_back(v: f64, w: i64, u: u64) {
            proptest::prop_assume!(v.is_finite());
            proptest::prop_assert_eq!(decode(format!("{v:e}").as_bytes()), Ok(Value::F64(v)));
            proptest::prop_assert_eq!(decode(w.to_string().as_bytes()), Ok(Value::I64(w)));
            proptest::prop_assert_eq!(decode(u.to_string().as_bytes()), Ok(Value::unsigned(u)));
        }
    }
}
