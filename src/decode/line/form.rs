//! The four forms of a line: where in it which value stands. What the values are is decided elsewhere.

use regex::Regex;

/// What a line looks like.
#[derive(Clone, Debug)]
pub enum Form {
    /// The first expression that matches; its named groups are the values.
    Regex(Vec<Regex>),
    /// Values in columns; `None` is a column nobody wants.
    Csv {
        /// What each column is.
        columns: Vec<Option<String>>,
        /// What stands between two columns.
        separator: char,
    },
    /// `key=value` pairs in any order.
    KeyValue {
        /// Characters between pairs.
        pairs: Vec<char>,
        /// Characters between key and value.
        assign: Vec<char>,
        /// Which keys are wanted, as (name, key); all if empty.
        wanted: Vec<(String, String)>,
    },
    /// Values in fixed places.
    Fixed {
        /// What every such line begins with; may be empty.
        prefix: String,
        /// Where each value stands.
        columns: Vec<FixedColumn>,
    },
    /// A JSON object.
    Json {
        /// Which values are wanted, as (name, pointer); every number if empty.
        wanted: Vec<(String, String)>,
    },
}

/// A value that always stands in the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedColumn {
    /// Its name.
    pub name: String,
    /// Its first character, counted from zero.
    pub at: usize,
    /// How many characters it has.
    pub width: usize,
    /// Hexadecimal digits instead of a decimal number; the flag says whether they are a two's complement.
    pub hex: Option<bool>,
}

/// A value as it stands in a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw<'a> {
    Text(&'a str),
    Json(serde_json::Value),
    /// A whole number in another notation.
    Whole(i64),
    /// Its name stands there more than once.
    Twice,
}

/// Names and raw values of one line.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub(super) items: Vec<(String, Raw<'a>)>,
    /// Whether something stood there that is no part of the form.
    pub(super) has_remains: bool,
}

impl Form {
    /// Takes a line apart, or says why it has not this form.
    pub(super) fn take_apart<'a>(&self, line: &'a str, also: &[&str]) -> Result<Items<'a>, String> {
        match self {
            Self::Regex(patterns) => regex(patterns, line),
            Self::Csv { columns, separator } => csv(columns, *separator, line),
            Self::KeyValue { pairs, assign, wanted } => key_value(pairs, assign, wanted, also, line),
            Self::Fixed { prefix, columns } => fixed(prefix, columns, line),
            Self::Json { wanted } => json(wanted, also, line),
        }
    }
}

fn regex<'a>(patterns: &[Regex], line: &'a str) -> Result<Items<'a>, String> {
    for pattern in patterns {
        if let Some(captures) = pattern.captures(line) {
            let named = pattern.capture_names().flatten();
            let items = named.filter_map(|name| Some((name.to_owned(), Raw::Text(captures.name(name)?.as_str()))));
            let whole = captures.get(0).is_some_and(|m| m.len() == line.trim().len());
            return Ok(Items { items: items.collect(), has_remains: !whole });
        }
    }
    Err("line does not match the pattern".to_owned())
}

fn csv<'a>(columns: &[Option<String>], separator: char, line: &'a str) -> Result<Items<'a>, String> {
    let cells = cells(line, separator);
    let needed = columns.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    if cells.len() < needed || cells.len() > columns.len() {
        return Err(format!("line has {} columns instead of {}", cells.len(), columns.len()));
    }
    let named = columns.iter().zip(cells).filter_map(|(name, cell)| Some((name.clone()?, Raw::Text(cell))));
    Ok(Items { items: named.collect(), has_remains: false })
}

fn fixed<'a>(prefix: &str, columns: &[FixedColumn], line: &'a str) -> Result<Items<'a>, String> {
    if !line.starts_with(prefix) {
        return Err(format!("line does not begin with `{prefix}`"));
    }
    let place = |index: usize| line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(index);
    let mut items = Items::default();
    for column in columns {
        let Some((from, to)) = place(column.at).zip(place(column.at + column.width)) else {
            return Err(format!("line ends before column `{}`", column.name));
        };
        let text = &line[from..to];
        let raw = match column.hex {
            None => Raw::Text(text),
            Some(signed) => hex(text, signed).map_or(Raw::Text(text), Raw::Whole),
        };
        items.items.push((column.name.clone(), raw));
    }
    Ok(items)
}

/// Hexadecimal digits and nothing else.
fn hex(text: &str, signed: bool) -> Option<i64> {
    let digits = text.len();
    if digits > 8 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let value = i64::from_str_radix(text, 16).ok()?;
    let half = 1i64 << (digits * 4 - 1);
    Some(if signed && value >= half { value - 2 * half } else { value })
}

/// Cells between separators; a cell in double quotes may hold the separator.
fn cells(line: &str, separator: char) -> Vec<&str> {
    let mut quoted = false;
    let parts = line.split(|c| {
        quoted ^= c == '"';
        c == separator && !quoted
    });
    parts
        .map(|cell| {
            let cell = cell.trim();
            cell.strip_prefix('"').and_then(|c| c.strip_suffix('"')).unwrap_or(cell)
        })
        .collect()
}

fn key_value<'a>(
    pairs: &[char],
    assign: &[char],
    wanted: &[(String, String)],
    also: &[&str],
    line: &'a str,
) -> Result<Items<'a>, String> {
    let mut out = Items::default();
    let mut any = false;
    let mut tokens = line.split(pairs).map(str::trim).filter(|t| !t.is_empty()).peekable();
    while let Some(token) = tokens.next() {
        let is_assign_alone = |t: &str| t.chars().all(|c| assign.contains(&c));
        let (key, value) = match token.split_once(assign) {
            // `temp =21.5` and `temp = 21.5`
            None => match tokens.peek() {
                Some(next) if next.starts_with(assign) => {
                    let next = tokens.next().unwrap_or_default();
                    let value = if is_assign_alone(next) { tokens.next().unwrap_or_default() } else { &next[1..] };
                    (token, value)
                }
                _ => {
                    out.has_remains = true;
                    continue;
                }
            },
            // `temp: 21.5`
            Some((key, "")) if tokens.peek().is_some_and(|next| !next.contains(assign)) => {
                (key, tokens.next().unwrap_or_default())
            }
            Some(pair) => pair,
        };
        let (key, value) = (key.trim(), value.trim());
        any = true;
        let Some(name) = name_of(key, wanted, also) else { continue };
        match out.items.iter_mut().find(|(known, _)| *known == name) {
            Some((_, raw)) => *raw = Raw::Twice,
            None => out.items.push((name, Raw::Text(value))),
        }
    }
    match (any, out.items.is_empty()) {
        (false, _) => Err("line holds no pair of key and value".to_owned()),
        (true, true) => Err("line holds none of the wanted keys".to_owned()),
        _ => Ok(out),
    }
}

/// The name under which a key is wanted: its exact spelling first, then any case.
fn name_of(key: &str, wanted: &[(String, String)], also: &[&str]) -> Option<String> {
    if wanted.is_empty() || also.contains(&key) {
        return Some(key.to_owned());
    }
    let exact = wanted.iter().find(|(_, k)| k == key);
    let found = exact.or_else(|| wanted.iter().find(|(_, k)| k.eq_ignore_ascii_case(key)))?;
    Some(found.0.clone())
}

fn json(wanted: &[(String, String)], also: &[&str], line: &str) -> Result<Items<'static>, String> {
    let object: serde_json::Value = serde_json::from_str(line).map_err(|error| format!("no JSON: {error}"))?;
    if !object.is_object() {
        return Err("line is JSON, but no object".to_owned());
    }
    let mut out = Items::default();
    if wanted.is_empty() {
        numbers(&object, "", &mut out.items);
    }
    for (name, pointer) in wanted {
        if let Some(found) = object.pointer(pointer).filter(|v| !v.is_null()) {
            out.items.push((name.clone(), Raw::Json(found.clone())));
        }
    }
    for &name in also {
        let pointer = if name.starts_with('/') { name.to_owned() } else { format!("/{name}") };
        if let Some(found) = object.pointer(&pointer) {
            out.items.retain(|(known, _)| known != name && known.as_str() != &pointer[1..]);
            out.items.push((name.to_owned(), Raw::Json(found.clone())));
        }
    }
    if out.items.is_empty() {
        return Err("line holds none of the wanted values".to_owned());
    }
    Ok(out)
}

/// Every number, under its path joined with dots. serde_json bounds the depth.
fn numbers(value: &serde_json::Value, path: &str, out: &mut Vec<(String, Raw<'static>)>) {
    use serde_json::Value::{Array, Number, Object};
    let under = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Number(_) => out.push((path.to_owned(), Raw::Json(value.clone()))),
        Object(members) => members.iter().for_each(|(key, inner)| numbers(inner, &under(key), out)),
        Array(inner) => inner.iter().enumerate().for_each(|(i, inner)| numbers(inner, &under(&i.to_string()), out)),
        _ => {}
    }
}
