//! What is wrong with a configuration, told in the order in which it is read, one line each.

use std::fmt;

use super::place::{KeyPath, Place};

/// Keys whose values are never shown.
const SECRET_KEYS: [&str; 5] = ["password", "uri", "token", "secret", "passphrase"];
/// Most problems that are printed; the rest is counted.
const MAX_SHOWN: usize = 50;

/// One thing that is wrong, or worth a warning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    place: Option<Place>,
    text: String,
}

impl Problem {
    pub(super) fn new(place: Option<Place>, text: impl AsRef<str>) -> Self {
        Self { place, text: without_credentials(text.as_ref()) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Everything that is wrong with a configuration, at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.listed())]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Sorted by place; the same problem is told once. `None` when there is none.
    pub(super) fn collected(mut problems: Vec<Problem>) -> Option<Self> {
        problems.sort_by(|a, b| (a.place.is_none(), a).cmp(&(b.place.is_none(), b)));
        problems.dedup();
        (!problems.is_empty()).then_some(Self(problems))
    }

    /// As [`Self::collected`] for what is known not to be empty.
    pub(super) fn of(problems: Vec<Problem>) -> Self {
        Self::collected(problems).unwrap_or_else(|| Self(Vec::new()))
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// How many: at least one.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn listed(&self) -> String {
        let mut lines: Vec<_> = self.0.iter().take(MAX_SHOWN).map(Problem::to_string).collect();
        if let Some(more) = self.0.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
            lines.push(format!("and {more} more problems"));
        }
        lines.join("\n")
    }
}

/// Whether the value of the last key of `path` must not be shown.
pub(super) fn is_secret(path: &KeyPath) -> bool {
    path.last_key().is_some_and(is_secret_key)
}

/// Whether a line of a file may hold a secret.
pub(super) fn may_hold_secret(line: &str) -> bool {
    SECRET_KEYS.iter().any(|key| line.contains(key)) || without_credentials(line) != line
}

fn is_secret_key(key: &str) -> bool {
    SECRET_KEYS.contains(&key)
}

/// `mqtt://user:word@host` without `user:word`.
fn without_credentials(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let authority = after.split(['/', ' ', '"', '`', '\'', '?']).next().unwrap_or(after);
        // A password may itself hold a slash; the last `@` before a blank or quote ends it.
        let word = after.split([' ', '"', '`', '\'']).next().unwrap_or(after);
        let end = authority.rfind('@').or_else(|| word.rfind('@').filter(|_| word.contains(':')));
        clean.push_str(before);
        clean.push_str("://");
        rest = match end {
            Some(at) => {
                clean.push('…');
                &after[at..]
            }
            None => after,
        };
    }
    clean.push_str(rest);
    clean
}

/// serde's words for a bad value at `path`, as a person would say it.
pub(super) fn bad_value(path: &KeyPath, message: &str) -> String {
    // The config crate ends its own messages with the key, which the path already tells.
    let message = message.split(" for key `").next().unwrap_or(message);
    if is_secret(path) {
        return format!("`{path}`: invalid value (not shown, it may be a secret)");
    }
    if let Some((found, allowed)) = message.strip_prefix("unknown variant `").and_then(|m| m.split_once("`, ")) {
        let hint = suggestion(found, &backquoted(allowed), "");
        return format!("`{path}`: invalid value {found:?}{hint}, {allowed}");
    }
    if let Some(word) =
        message.strip_prefix("enum ").and_then(|m| m.rsplit_once("does not have variant constructor ")).map(|(_, w)| w)
    {
        return format!("`{path}`: invalid value {word:?}");
    }
    if message == "invalid socket address syntax" {
        return format!("`{path}`: expected {}", expectation("socket address"));
    }
    let found = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = found.and_then(|m| m.split_once(", expected ")) else {
        return format!("`{path}`: {message}");
    };
    format!("`{path}`: invalid value {}, expected {}", plain(found), expectation(expected))
}

/// What serde calls a value that it found, as it stands in the file.
fn plain(found: &str) -> &str {
    match found {
        "sequence" => "(a list)",
        "map" => "(a table)",
        _ => {
            let bare = |kind| found.strip_prefix(kind).map(|value: &str| value.trim_matches('`'));
            let bare = ["integer ", "floating point ", "boolean "].into_iter().find_map(bare);
            bare.or_else(|| found.strip_prefix("string ")).unwrap_or(found)
        }
    }
}

/// What serde and its helpers call an expected type, in words.
fn expectation(expected: &str) -> &str {
    match expected {
        "an integer or string" | "parsable string" | "integer overflow" => "a size such as 64KiB",
        "a duration" => "a duration such as 30s or 10m",
        "socket address" => "an address and port such as 127.0.0.1:8780",
        "a string" => "a text in quotes",
        "path string" => "a path in quotes",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "a map" => "a table",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number, not negative",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        other if other.starts_with("struct ") => "a table",
        other => other.strip_prefix("enum ").map_or(other, |_| "one of the words allowed there"),
    }
}

/// The words about a key that does not exist, with the nearest that does.
pub(super) fn unknown_key(path: &KeyPath, message: &str) -> String {
    let valid = backquoted(message.split_once("`, ").map_or("", |(_, rest)| rest));
    format!("unknown key `{path}`{}", suggestion(path.last_key().unwrap_or_default(), &valid, "allowed here: "))
}

/// ` (did you mean …?)`, or after `otherwise` the whole list, or nothing.
pub(super) fn suggestion(word: &str, valid: &[&str], otherwise: &str) -> String {
    match nearest(word, valid) {
        Some(near) => format!(" (did you mean `{near}`?)"),
        None if otherwise.is_empty() || valid.is_empty() => String::new(),
        None => format!(" ({otherwise}`{}`)", valid.join("`, `")),
    }
}

fn nearest<'a>(word: &str, valid: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let far = |other: &str| strsim::damerau_levenshtein(&word, &other.to_lowercase());
    let best = valid.iter().copied().min_by_key(|other| far(other))?;
    let near_enough = far(best) <= 1 + best.chars().count().max(word.chars().count()) / 4;
    near_enough.then_some(best).or_else(|| valid.iter().copied().find(|v| word.len() > 2 && v.contains(word.as_str())))
}

/// The words between back quotes.
fn backquoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_and_otherwise_all() {
        let path = KeyPath::of(&["bucket", "windw"]);
        let message = "unknown field `windw`, expected one of `window`, `max_samples`, `grace`";
        assert_eq!(unknown_key(&path, message), "unknown key `bucket.windw` (did you mean `window`?)");
        let path = KeyPath::of(&["bucket", "colour"]);
        assert_eq!(
            unknown_key(&path, message),
            "unknown key `bucket.colour` (allowed here: `window`, `max_samples`, `grace`)"
        );
        assert_eq!(nearest("samples", &["window", "max_samples"]), Some("max_samples"));
        assert_eq!(nearest("Window", &["window"]), Some("window"));
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn values_are_explained_and_secrets_kept() {
        let say = |path: &str, message| bad_value(&KeyPath::parse(path), message);
        assert_eq!(
            say("store.max_bytes", "invalid value: string \"ten\", expected parsable string"),
            "`store.max_bytes`: invalid value \"ten\", expected a size such as 64KiB"
        );
        assert_eq!(
            say("store.when_full", "unknown variant `thim`, expected one of `thin`, `evict`, `refuse`"),
            "`store.when_full`: invalid value \"thim\" (did you mean `thin`?), expected one of `thin`, `evict`, `refuse`"
        );
        assert_eq!(
            say("a.b", "enum Parity does not have variant constructor oddd for key `b`"),
            "`a.b`: invalid value \"oddd\""
        );
        assert!(!say("sources.a.password", "invalid type: string \"hunter2\", expected u8").contains("hunter2"));
    }

    #[test]
    fn credentials_in_addresses_are_not_shown() {
        for (text, clean) in [
            ("mqtt://joe:word@host:1883 failed", "mqtt://…@host:1883 failed"),
            ("bad \"mongodb://u:p/q@h/db\"", "bad \"mongodb://…@h/db\""),
            ("http://host/path, mail a@b", "http://host/path, mail a@b"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_credentials(text), clean);
        }
    }
}
