//! The text of one value into a value: numbers as the text writes them, words for switches.

use crate::model::Value;

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Decimal {
    /// `21.5`
    #[default]
    Point,
    /// `21,5`
    Comma,
}

/// A number (whole if it is written so), or `on`, `off`, `true`, `false` in any case; otherwise why not.
pub(super) fn value(text: &str, decimal: Decimal) -> Result<Value, String> {
    let text = text.trim();
    // Scales put blanks between sign and digits: `+   1.250`.
    let joined = text.strip_prefix(['+', '-']).filter(|rest| rest.starts_with(' '));
    let joined = joined.map(|rest| format!("{}{}", &text[..1], rest.trim_start()));
    let text = joined.as_deref().unwrap_or(text);
    let refuse = |why: &str| Err(format!("`{}` {why}", shortened(text)));
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    match switch(text) {
        Some(on) => return Ok(Value::Bool(on)),
        None if !looks_like_a_number(text, decimal) => return refuse("is not a number"),
        None => {}
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(Value::I64(whole));
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Ok(Value::unsigned(whole));
    }
    let parsed = match decimal {
        Decimal::Point => text.parse::<f64>(),
        Decimal::Comma => text.replace(',', ".").parse::<f64>(),
    };
    match parsed.ok().and_then(Value::float) {
        Some(value) => Ok(value),
        None => refuse("is not a finite number"),
    }
}

fn switch(text: &str) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    match text {
        _ if is("on") || is("true") => Some(true),
        _ if is("off") || is("false") => Some(false),
        _ => None,
    }
}

/// Digits with a sign, one decimal mark and an exponent; no `inf`, no `nan`, no grouping, nothing around.
fn looks_like_a_number(text: &str, decimal: Decimal) -> bool {
    let mark = match decimal {
        Decimal::Point => b'.',
        Decimal::Comma => b',',
    };
    let digits = text.bytes().any(|b| b.is_ascii_digit());
    digits && text.bytes().all(|b| b.is_ascii_digit() || b == mark || matches!(b, b'+' | b'-' | b'e' | b'E'))
}

/// At most 40 characters of a text, for a message.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_their_text_says() {
        let check = |text: &str, decimal, expected: Option<Value>| {
            assert_eq!(value(text, decimal).ok(), expected, "{text}");
        };
        let (point, comma) = (Decimal::Point, Decimal::Comma);
        check("44", point, Some(Value::I64(44)));
        check(" +021.50 ", point, Some(Value::F64(21.5)));
        check("-0.5", point, Some(Value::F64(-0.5)));
        check("+   1.250", point, Some(Value::F64(1.25)));
        check("+     ", point, None);
        check("1e3", point, Some(Value::F64(1000.0)));
        check("18446744073709551615", point, Some(Value::U64(u64::MAX)));
        check("OFF", point, Some(Value::Bool(false)));
        check("true", point, Some(Value::Bool(true)));
        for text in ["", " ", "nan", "inf", "-", "---.-", "1e999", "21.5C", "0x1A", "1,5", "1.2.3", "1_0", "٣"] {
            check(text, point, None);
        }
        check("1013,2", comma, Some(Value::F64(1013.2)));
        check("7", comma, Some(Value::I64(7)));
        check("1.013,2", comma, None);
        check("1.5", comma, None);
    }
}
