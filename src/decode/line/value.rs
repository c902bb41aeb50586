//! The text of one value into a value: numbers as the text writes them, words for switches.

use crate::decode::number;
use crate::decode::shape::Decimal;
use crate::model::Value;

/// A number (whole if it is written so), or `on`, `off`, `true`, `false` in any case; otherwise why not.
pub(super) fn value(text: &str, decimal: Decimal) -> Result<Value, String> {
    let text = text.trim();
    // Scales put blanks between sign and digits: `+   1.250`.
    let joined = text.strip_prefix(['+', '-']).filter(|rest| rest.starts_with(' '));
    let joined = joined.map(|rest| format!("{}{}", &text[..1], rest.trim_start()));
    let text = joined.as_deref().unwrap_or(text);
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    match (number::state(text), number::parse_marked(text, decimal)) {
        (Some(on), _) => Ok(Value::Bool(on)),
        (None, Some(Ok(value))) => Ok(value),
        (None, Some(Err(unfit))) => Err(format!("`{}` {unfit}", shortened(text))),
        (None, None) => Err(format!("`{}` is not a number", shortened(text))),
    }
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
        for text in [
            "",
            " ",
            "nan",
            "inf",
            "-",
            "---.-",
            "1e999",
            "21.5C",
            "0x1A",
            "1,5",
            "1.2.3",
            "1_0",
            "٣",
            "18446744073709551616",
            "1e",
        ] {
            check(text, point, None);
        }
        check("1013,2", comma, Some(Value::F64(1013.2)));
        check("7", comma, Some(Value::I64(7)));
        check("1.013,2", comma, None);
        check("1.5", comma, None);
    }
}
