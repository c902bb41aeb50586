//! A payload that is one plain number, or a state such as `ON`.
//!
//! Taken as numbers: `21.5`, ` 21.5\n`, `+7`, `.5`, `5.`, `1e3`, `007` (decimal), `"21.5"` (a JSON string), a byte order mark
//! before it. Whole numbers stay exact up to 64 bits; nothing is ever rounded to fit. States are `ON`/`OFF` and
//! `true`/`false` in any case. Refused with a reason: `nan`, `inf`, `unavailable`, units, decimal commas, hexadecimal, blanks;
//! and states where a number is declared.

use super::shape::Decimal;
use super::{quoted, text_of};
use crate::model::Value;

/// What people and their firmware send instead of a number.
const NO_VALUE: [&str; 10] =
    ["nan", "-nan", "inf", "-inf", "infinity", "-infinity", "unknown", "unavailable", "none", "null"];

/// The number, or why the payload is not one.
pub fn decode(payload: &[u8]) -> Result<Value, String> {
    let text = bare(payload)?;
    match parse(text) {
        Some(value) => value.map_err(|unfit| format!("{} {unfit}", quoted(text))),
        None => Err(match state(text) {
            Some(_) => format!("{} is a state, not a number (decode = \"state\" takes it)", quoted(text)),
            None => not_a_number(text),
        }),
    }
}

/// The state as a boolean, or why the payload is not one.
pub fn decode_state(payload: &[u8]) -> Result<Value, String> {
    let text = bare(payload)?;
    state(text).map(Value::Bool).ok_or_else(|| match parse(text) {
        Some(_) => format!("{} is a number, not a state (decode = \"number\" takes it)", quoted(text)),
        None => format!("{} is neither ON nor OFF, true nor false", quoted(text)),
    })
}

/// A number or a state, whichever it is.
pub fn decode_either(payload: &[u8]) -> Result<Value, String> {
    either(bare(payload)?)
}

/// A number or a state in a text without white space around it.
pub(super) fn either(text: &str) -> Result<Value, String> {
    match (parse(text), state(text)) {
        (Some(value), _) => value.map_err(|unfit| format!("{} {unfit}", quoted(text))),
        (None, Some(on)) => Ok(Value::Bool(on)),
        (None, None) => Err(not_a_number(text)),
    }
}

/// The payload's text, without white space and quotation marks around it.
pub(super) fn bare(payload: &[u8]) -> Result<&str, String> {
    let text = text_of(payload)?.trim_matches(|c: char| c.is_ascii_whitespace());
    Ok(text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text))
}

/// Whether the text says that there is no value.
pub(super) fn says_none(text: &str) -> bool {
    NO_VALUE.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// What a state stands for, in any case.
pub(super) fn state(text: &str) -> Option<bool> {
    let says = |word: &str| text.eq_ignore_ascii_case(word);
    if says("on") || says("true") {
        Some(true)
    } else if says("off") || says("false") {
        Some(false)
    } else {
        None
    }
}

fn not_a_number(text: &str) -> String {
    if text.is_empty() {
        "payload is blank".to_owned()
    } else if says_none(text) {
        format!("{} says that there is no value", quoted(text))
    } else if text.starts_with(['{', '[']) {
        "payload is not a plain number (JSON? then decode = \"json\")".to_owned()
    } else {
        format!("{} is not a plain number", quoted(text))
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
    /// Not a number, or infinite (binary formats can say so).
    #[error("is not a finite number")]
    Special,
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

/// The same with the decimal mark that is declared; a point is none where a comma is.
pub(super) fn parse_marked(text: &str, decimal: Decimal) -> Option<Result<Value, Unfit>> {
    match decimal {
        Decimal::Point => parse(text),
        Decimal::Comma if text.contains('.') => None,
        Decimal::Comma => parse(&text.replacen(',', ".", 1)),
    }
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
    fn states_are_booleans_where_they_are_wanted() {
        check("ON", Err("is a state, not a number"));
        for (text, on) in [("ON", true), ("off", false), ("True", true), (" false\n", false), ("\"on\"", true)] {
            assert_eq!(decode_state(text.as_bytes()), Ok(Value::Bool(on)), "{text}");
            assert_eq!(decode_either(text.as_bytes()), Ok(Value::Bool(on)), "{text}");
        }
        assert_eq!(decode_either(b"21.5"), Ok(Value::F64(21.5)));
        assert!(decode_state(b"1").unwrap_err().contains("is a number"));
        assert!(decode_state(b"overpower").unwrap_err().contains("neither ON nor OFF"));
        assert!(decode_either(b"overpower").unwrap_err().contains("not a plain number"));
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
