//! BSON as JavaScript for mongosh: what is printed is exactly the command that would be run.

use std::fmt::Write;

use mongodb::bson::{Bson, Document};

/// One line that runs a command in a database.
pub(super) fn line(database: &str, command: &Document) -> String {
    format!("db.getSiblingDB({}).runCommand({})", quoted(database), document(command))
}

/// A document as an object literal.
pub(super) fn document(document: &Document) -> String {
    if document.is_empty() {
        return "{}".to_owned();
    }
    let fields: Vec<String> =
        document.iter().map(|(key, value)| format!("{}: {}", name(key), literal(value))).collect();
    format!("{{ {} }}", fields.join(", "))
}

fn literal(value: &Bson) -> String {
    match value {
        Bson::Document(inner) => document(inner),
        Bson::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Bson::String(text) => quoted(text),
        Bson::Boolean(on) => on.to_string(),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => format!("NumberLong(\"{number}\")"),
        Bson::Double(number) => number.to_string(),
        Bson::DateTime(at) => format!("ISODate({})", quoted(&at.try_to_rfc3339_string().unwrap_or_default())),
        Bson::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

/// A key: bare where JavaScript allows it.
fn name(key: &str) -> String {
    let mut letters = key.chars();
    let is_bare = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    if is_bare { key.to_owned() } else { quoted(key) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    #[test]
    fn commands_become_lines_that_mongosh_takes() {
        let command =
            doc! { "create": "a\"b\\c\n", "$x": [1, 2_i64, 1.5, true, Bson::Null], "a.b": {}, "_y": { "z": "é" } };
        assert_eq!(
            line("plant", &command),
            r#"db.getSiblingDB("plant").runCommand({ create: "a\"b\\c\u000a", $x: [1, NumberLong("2"), 1.5, true, null], "a.b": {}, _y: { z: "é" } })"#
        );
    }
}
