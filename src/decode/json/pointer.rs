//! JSON pointers (RFC 6901): `/temperature`, `/data/0/value`, `/a~1b` for the key `a/b`.

use super::parse::Node;

/// A path from the top of a payload to one value in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<String>,
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
            steps.push(plain);
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value there, if there is one.
    pub(super) fn find<'n, 'a>(&self, top: &'n Node<'a>) -> Option<&'n Node<'a>> {
        self.steps.iter().try_fold(top, |node, step| match node {
            Node::Map(members) => members.iter().find(|(key, _)| key == step).map(|(_, value)| value),
            Node::List(items) => index(step).and_then(|i| items.get(i)),
            _ => None,
        })
    }
}

/// An array index as RFC 6901 writes it: digits without leading zeros.
fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with(['0', '+']);
    if plain { step.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
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
}
