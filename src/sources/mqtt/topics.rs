//! Topic filters and the templates that make names from topics.
//!
//! `{1}` … `{9}` stand for the text of the n-th wildcard of the filter (`#` stands for all the rest, slashes included),
//! `{topic}` for the whole topic, `{name}` for the name that the payload gives, `{property:NAME}` for the user property of
//! that name (MQTT 5).

use std::fmt;
use std::sync::Arc;

use super::packets::Properties;

/// A topic filter, with `+` and `#`, perhaps shared (`$share/GROUP/FILTER`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// As the broker gets it.
    pub(super) text: String,
    /// Without the group of a shared subscription.
    own: String,
}

impl Filter {
    /// Checks and takes a filter; the reason why not otherwise.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let own = match text.strip_prefix("$share/") {
            Some(shared) => match shared.split_once('/') {
                Some((group, own)) if !group.is_empty() && !group.contains(['+', '#']) => own,
                _ => return Err(format!("shared filter `{text}` must read `$share/GROUP/FILTER`")),
            },
            None => text,
        };
        if own.is_empty() {
            return Err("filter is empty".to_owned());
        }
        if text.len() > usize::from(u16::MAX) || text.contains('\0') {
            return Err("filter is longer than 65,535 bytes or holds a NUL".to_owned());
        }
        let levels: Vec<&str> = own.split('/').collect();
        for (i, level) in levels.iter().enumerate() {
            if level.contains('#') && (*level != "#" || i + 1 < levels.len()) {
                return Err(format!("`#` in filter `{text}` must stand alone as the last level"));
            }
            if level.contains('+') && *level != "+" {
                return Err(format!("`+` in filter `{text}` must stand alone between slashes"));
            }
        }
        Ok(Self { text: text.to_owned(), own: own.to_owned() })
    }

    /// How many wildcards it has.
    pub(super) fn wildcards(&self) -> usize {
        self.own.split('/').filter(|level| matches!(*level, "+" | "#")).count()
    }

    /// What the wildcards stand for in `topic`; `None` if it does not match.
    pub(super) fn matches<'t>(&self, topic: &'t str) -> Option<Vec<&'t str>> {
        if topic.starts_with('$') && self.own.starts_with(['+', '#']) {
            return None;
        }
        let mut texts = Vec::new();
        let mut rest = Some(topic);
        for level in self.own.split('/') {
            if level == "#" {
                texts.push(rest.unwrap_or_default());
                return Some(texts);
            }
            let (head, tail) = match rest?.split_once('/') {
                Some((head, tail)) => (head, Some(tail)),
                None => (rest?, None),
            };
            if level == "+" {
                texts.push(head);
            } else if level != head {
                return None;
            }
            rest = tail;
        }
        rest.is_none().then_some(texts)
    }

    /// Whether every topic that `other` matches is matched by this one too. Shared filters stand for themselves only.
    pub(super) fn covers(&self, other: &Self) -> bool {
        if self.text != self.own || other.text != other.own {
            return self == other;
        }
        if other.own.starts_with('$') && self.own.starts_with(['+', '#']) {
            return false;
        }
        let mut theirs = other.own.split('/');
        for mine in self.own.split('/') {
            match (mine, theirs.next()) {
                ("#", _) => return true,
                ("+", Some("#")) | (_, None) => return false,
                ("+", Some(_)) => {}
                (mine, Some(their)) if mine == their => {}
                _ => return false,
            }
        }
        theirs.next().is_none()
    }
}

/// A name with parts of the topic in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Wildcard(usize),
    Topic,
    Name,
    Property(String),
}

impl Template {
    /// Checks and takes a template for a filter with so many wildcards; the reason why not otherwise.
    pub(super) fn new(text: &str, wildcards: usize) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            let Some((inside, tail)) = after.split_once('}') else {
                return Err(format!("`{{` without `}}` in `{text}`"));
            };
            pieces.push(match (inside, inside.parse::<usize>()) {
                ("topic", _) => Piece::Topic,
                ("name", _) => Piece::Name,
                (property, _) if property.starts_with(PROPERTY) && property != PROPERTY => Piece::Property(property[PROPERTY.len()..].to_owned()),
                (_, Ok(n @ 1..=9)) if n <= wildcards => Piece::Wildcard(n - 1),
                (_, Ok(n @ 1..=9)) => {
                    return Err(match wildcards {
                        0 => format!("`{{{n}}}` in `{text}`, but the filter has no wildcard"),
                        1 => format!("`{{{n}}}` in `{text}`, but the filter has only one wildcard: `{{1}}`"),
                        many => format!("`{{{n}}}` in `{text}`, but the filter has only {many} wildcards"),
                    });
                }
                _ => {
                    return Err(format!(
                        "`{{{inside}}}` in `{text}` is none of `{{1}}` to `{{9}}`, `{{topic}}`, `{{name}}`, `{{property:NAME}}`"
                    ));
                }
            });
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// Whether it is one name whatever the topic.
    pub(super) fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Whether the payload's name for the sensor is part of it.
    pub(super) fn has_name(&self) -> bool {
        self.0.contains(&Piece::Name)
    }

    /// Whether user properties are part of it.
    pub(super) fn has_properties(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Property(_)))
    }

    /// What it says of a topic whose wildcards stand for `texts`.
    pub(super) fn fill(&self, topic: &str, texts: &[&str]) -> Filled {
        let mut parts = Vec::new();
        for piece in &self.0 {
            let text = match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Wildcard(n) => texts.get(*n).copied().unwrap_or_default(),
                Piece::Topic => topic,
                Piece::Name => {
                    parts.push(Part::Name);
                    continue;
                }
                Piece::Property(name) => {
                    parts.push(Part::Property(name.clone()));
                    continue;
                }
            };
            match parts.last_mut() {
                Some(Part::Text(before)) => before.push_str(text),
                _ => parts.push(Part::Text(text.to_owned())),
            }
        }
        Filled(parts.into())
    }
}

/// Begins the name of a user property in a template.
const PROPERTY: &str = "property:";

/// A template in which only the message itself leaves something open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filled(Arc<[Part]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Name,
    Property(String),
}

impl Filled {
    /// The name, if nothing is open.
    pub(super) fn fixed(&self) -> Option<&str> {
        match &*self.0 {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The name for a message with these properties whose payload gives this name; or why there is none.
    pub(super) fn with(&self, name: Option<&str>, properties: &Properties) -> Result<String, String> {
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text) => Ok(text.as_str()),
            Part::Name => name.ok_or_else(|| "the payload names no sensor".to_owned()),
            Part::Property(name) => {
                properties.user(name).ok_or_else(|| format!("the message has no user property `{name}`"))
            }
        });
        parts.collect()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(filter: &str, topic: &str, expected: Option<&[&str]>) {
        let filter = Filter::new(filter).unwrap();
        assert_eq!(filter.matches(topic).as_deref(), expected, "{filter} against {topic}");
    }

    #[test]
    fn wildcards_match_as_the_standard_says() {
        check("a/b", "a/b", Some(&[]));
        check("a/b", "a/b/c", None);
        check("a/b", "A/b", None);
        check("+", "a", Some(&["a"]));
        check("+", "/a", None);
        check("+/+", "/a", Some(&["", "a"]));
        check("/+", "/a", Some(&["a"]));
        check("a/+/c", "a//c", Some(&[""]));
        check("a/+", "a", None);
        check("a/+", "a/", Some(&[""]));
        check("a/#", "a", Some(&[""]));
        check("a/#", "a/b/c", Some(&["b/c"]));
        check("a/+/#", "a/b", Some(&["b", ""]));
        check("a/+/#", "a", None);
        check("#", "a/b", Some(&["a/b"]));
        check("#", "$SYS/x", None);
        check("+/x", "$SYS/x", None);
        check("$SYS/#", "$SYS/x", Some(&["x"]));
        check("$share/g/a/+", "a/b", Some(&["b"]));
        check("site/温度/+", "site/温度/°C", Some(&["°C"]));
    }

    #[test]
    fn misplaced_wildcards_are_refused() {
        for filter in ["", "a#", "a/#/b", "a+/b", "+a", "##", "$share/g", "$share//a", "a\0b"] {
            assert!(Filter::new(filter).is_err(), "{filter}");
        }
    }

    fn covers(a: &str, b: &str) -> bool {
        Filter::new(a).unwrap().covers(&Filter::new(b).unwrap())
    }

    #[test]
    fn a_broader_filter_covers_a_narrower_one() {
        assert!(covers("#", "a/b"));
        assert!(covers("a/#", "a"));
        assert!(covers("a/#", "a/+/c"));
        assert!(covers("a/+", "a/b"));
        assert!(!covers("a/+", "a/#"));
        assert!(!covers("a/+", "+/b"));
        assert!(!covers("a/b", "a/+"));
        assert!(!covers("#", "$SYS/x"));
        assert!(!covers("a/#", "$share/g/a/b"));
        assert!(!covers("a/+", "a"));
    }

    #[test]
    fn templates_take_parts_of_the_topic() {
        let properties = Properties { user: vec![("fw".to_owned(), "7".to_owned())], ..Properties::default() };
        let fill = |t: &str, name| {
            let filled = Template::new(t, 2).unwrap().fill("s/k/temp", &["k", "temp"]);
            filled.with(name, &properties).unwrap_or_else(|why| why)
        };
        assert_eq!(fill("{1}-{2}", None), "k-temp");
        assert_eq!(fill("{topic}", None), "s/k/temp");
        assert_eq!(fill("fixed", None), "fixed");
        assert_eq!(fill("{1}-{name}", Some("n")), "k-n");
        assert_eq!(fill("{1}-{name}", None), "the payload names no sensor");
        assert_eq!(fill("{1}-{property:fw}", None), "k-7");
        assert_eq!(fill("{property:hw}", None), "the message has no user property `hw`");
        assert!(Template::new("{3}", 2).unwrap_err().contains("only 2 wildcards"));
        assert!(Template::new("{1}", 0).unwrap_err().contains("no wildcard"));
        assert!(Template::new("{property:}", 2).unwrap_err().contains("none of"));
        assert!(Template::new("{x}", 2).unwrap_err().contains("none of"));
        assert!(Template::new("{1", 2).unwrap_err().contains("without"));
    }

    proptest::proptest! {
        #[test]
        fn what_a_covered_filter_matches_the_broader_one_matches(
            a in "(a|b|\\+)(/(a|b|\\+)){0,2}(/#)?", b in "(a|b|\\+)(/(a|b|\\+)){0,2}(/#)?", t in "(a|b)(/(a|b)){0,3}",
        ) {
            let (a, b) = (Filter::new(&a).unwrap(), Filter::new(&b).unwrap());
            if a.covers(&b) && b.matches(&t).is_some() {
                proptest::prop_assert!(a.matches(&t).is_some());
            }
        }
    }
}
