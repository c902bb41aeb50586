//! JSON pointers (RFC 6901): `/temperature`, `/data/0/value`, `/a~1b` for the key `a/b`. Beyond the standard a step `*`
//! stands for every key or index there: `/sensors/*/temp`.

use super::node::Node;

/// A path from the top of a payload to one value in it, or to several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Any,
}

/// What one `*` stood for: a key, or an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stood<'n> {
    Key(&'n str),
    Index(usize),
}

impl std::fmt::Display for Stood<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => f.write_str(key),
            Self::Index(i) => write!(f, "{i}"),
        }
    }
}

impl Pointer {
    /// Checks and takes a pointer; the reason why not otherwise.
    pub fn new(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(format!("JSON pointer `{text}` must begin with `/` (as in `/{text}`)"));
        }
        let mut steps = Vec::new();
        for step in text.split('/').skip(1) {
            let plain = step.replace("~1", "/").replace("~0", "~");
            if plain.matches('~').count() != step.matches("~0").count() {
                return Err(format!("JSON pointer `{text}`: `~` must be written `~0`, and a `/` inside a key `~1`"));
            }
            steps.push(if step == "*" { Step::Any } else { Step::Key(plain) });
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many `*` it has.
    pub fn wildcards(&self) -> usize {
        self.steps.iter().filter(|step| **step == Step::Any).count()
    }

    /// Whether it asks for every item of something that is there and holds none.
    pub(super) fn is_empty_batch(&self, top: &Node<'_>) -> bool {
        let Some((Step::Any, before)) = self.steps.split_last() else { return false };
        let parent = Self { text: String::new(), steps: before.to_vec() };
        match parent.find(top) {
            Some(Node::Map(members)) => members.is_empty(),
            Some(Node::List(items)) => items.is_empty(),
            _ => false,
        }
    }

    /// The value there, if there is one; the first of them if there is a `*`.
    pub(super) fn find<'n, 'a>(&self, top: &'n Node<'a>) -> Option<&'n Node<'a>> {
        self.steps.iter().try_fold(top, |node, step| match (step, node) {
            (Step::Key(key), _) => child(node, key),
            (Step::Any, Node::Map(members)) => members.first().map(|(_, value)| value),
            (Step::Any, Node::List(items)) => items.first(),
            (Step::Any, _) => None,
        })
    }

    /// Every value there, and what each `*` stood for.
    pub(super) fn each<'n, 'a>(&self, top: &'n Node<'a>, visit: &mut impl FnMut(&[Stood<'n>], &'n Node<'a>)) {
        visit_each(&self.steps, top, &mut Vec::new(), visit);
    }
}

fn child<'n, 'a>(node: &'n Node<'a>, key: &str) -> Option<&'n Node<'a>> {
    match node {
        Node::Map(_) => node.get(key),
        Node::List(items) => index(key).and_then(|i| items.get(i)),
        _ => None,
    }
}

/// As deep as the pointer is long.
fn visit_each<'n, 'a>(
    steps: &[Step],
    node: &'n Node<'a>,
    stood: &mut Vec<Stood<'n>>,
    visit: &mut impl FnMut(&[Stood<'n>], &'n Node<'a>),
) {
    let Some((step, rest)) = steps.split_first() else { return visit(stood, node) };
    match (step, node) {
        (Step::Key(key), _) => {
            if let Some(next) = child(node, key) {
                visit_each(rest, next, stood, visit);
            }
        }
        (Step::Any, Node::Map(members)) => {
            for (key, next) in members {
                stood.push(Stood::Key(key));
                visit_each(rest, next, stood, visit);
                stood.pop();
            }
        }
        (Step::Any, Node::List(items)) => {
            for (i, next) in items.iter().enumerate() {
                stood.push(Stood::Index(i));
                visit_each(rest, next, stood, visit);
                stood.pop();
            }
        }
        (Step::Any, _) => {}
    }
}

/// An array index as RFC 6901 writes it: digits without leading zeros.
fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with(['0', '+']);
    if plain { step.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;
    use crate::model::Value;

    fn check(pointer: &str, expected: Option<i64>) {
        let top = parse(r#"{"a":{"b":[10,{"c/d":11}]},"":12,"m~n":13,"0":14}"#).unwrap();
        let found = Pointer::new(pointer).unwrap().find(&top).cloned();
        assert_eq!(found, expected.map(|v| Node::Scalar(Value::I64(v))), "{pointer}");
    }

    #[test]
    fn pointers_follow_rfc_6901() {
        check("/a/b/0", Some(10));
        check("/a/b/1/c~1d", Some(11));
        check("/", Some(12));
        check("/m~0n", Some(13));
        check("/0", Some(14));
        check("/a/b/00", None);
        check("/a/b/+0", None);
        check("/a/b/2", None);
        check("/a/x", None);
        assert!(Pointer::new("a/b").unwrap_err().contains("as in `/a/b`"));
        assert!(Pointer::new("/a~2").is_err());
    }

    #[test]
    fn a_star_stands_for_every_key_or_index() {
        let top = parse(r#"{"d1":[{"t":1},{"t":2}],"d2":[{"t":3}],"n":7}"#).unwrap();
        let mut seen = Vec::new();
        let pointer = Pointer::new("/*/*/t").unwrap();
        pointer.each(&top, &mut |stood, node| {
            let stood: Vec<String> = stood.iter().map(ToString::to_string).collect();
            seen.push((stood.join(" "), node.double().unwrap()));
        });
        assert_eq!(seen, [("d1 0".to_owned(), 1.0), ("d1 1".to_owned(), 2.0), ("d2 0".to_owned(), 3.0)]);
        assert_eq!((pointer.wildcards(), pointer.find(&top).and_then(Node::double)), (2, Some(1.0)));
    }
}
