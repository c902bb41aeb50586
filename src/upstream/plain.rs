//! A database of plain rules for tests: one collection, and of update commands what is used here.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

/// Another document has the key.
pub(super) const TAKEN: i32 = 11000;

/// Documents by `_id`.
#[derive(Clone, Debug, Default)]
pub(super) struct Plain {
    pub(super) stored: BTreeMap<String, Document>,
    made: u32,
}

/// What a statement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    Changed,
    Made,
}

impl Plain {
    /// Runs one statement of an update command, as an upsert.
    pub(super) fn update(&mut self, statement: &RawDocumentBuf) -> Result<Did, i32> {
        let statement = Document::try_from(statement.as_ref()).unwrap();
        let (q, u) = (statement.get_document("q").unwrap(), statement.get_document("u").unwrap());
        assert!(statement.get_bool("upsert").unwrap());
        if let Some(found) = self.stored.values_mut().find(|document| matches(document, q)) {
            change(found, u, false);
            return Ok(Did::Changed);
        }
        let mut fresh = Document::new();
        if !is_replacement(u) {
            fresh.extend(q.iter().filter(|(_, v)| v.as_document().is_none()).map(|(k, v)| (k.clone(), v.clone())));
        }
        change(&mut fresh, u, true);
        self.made += 1;
        let given = format!("made-{}", self.made);
        let id = fresh.entry("_id".to_owned()).or_insert(Bson::String(given)).as_str().unwrap().to_owned();
        if self.stored.contains_key(&id) {
            return Err(TAKEN);
        }
        self.stored.insert(id, fresh);
        Ok(Did::Made)
    }
}

fn is_replacement(u: &Document) -> bool {
    u.keys().all(|key| !key.starts_with('$'))
}

fn matches(document: &Document, q: &Document) -> bool {
    q.iter().all(|(key, wanted)| match (document.get(key), wanted.as_document()) {
        (Some(known), Some(bounds)) => bounds.iter().all(|(operator, bound)| match operator.as_str() {
            "$lt" => order(known, bound) == Ordering::Less,
            "$gte" => order(known, bound) != Ordering::Less,
            other => panic!("{other}"),
        }),
        (known, None) => known == Some(wanted),
        (None, Some(_)) => false,
    })
}

fn change(document: &mut Document, u: &Document, is_fresh: bool) {
    if is_replacement(u) {
        *document = u.clone();
        return;
    }
    for (operator, what) in u {
        for (path, value) in what.as_document().unwrap() {
            match operator.as_str() {
                "$setOnInsert" if !is_fresh => {}
                "$set" | "$setOnInsert" => *place(document, path) = value.clone(),
                "$push" => {
                    let each = value.as_document().unwrap().get_array("$each").unwrap();
                    let to = place(document, path);
                    let mut all = to.as_array().cloned().unwrap_or_default();
                    all.extend(each.iter().cloned());
                    *to = Bson::Array(all);
                }
                "$inc" => add(place(document, path), value),
                "$min" | "$max" => {
                    let wins = if operator == "$min" { Ordering::Less } else { Ordering::Greater };
                    let to = place(document, path);
                    if *to == Bson::Null || order(value, to) == wins {
                        *to = value.clone();
                    }
                }
                other => panic!("{other}"),
            }
        }
    }
}

/// The value at a dotted path, made if it is missing.
fn place<'a>(document: &'a mut Document, path: &str) -> &'a mut Bson {
    match path.split_once('.') {
        None => document.entry(path.to_owned()).or_insert(Bson::Null),
        Some((first, rest)) => {
            let inner = document.entry(first.to_owned()).or_insert(Bson::Document(doc! {}));
            place(inner.as_document_mut().unwrap(), rest)
        }
    }
}

fn add(to: &mut Bson, more: &Bson) {
    *to = match (&*to, more) {
        (Bson::Null, more) => more.clone(),
        (Bson::Int32(a), Bson::Int32(b)) => Bson::Int32(a + b),
        (Bson::Int64(a), Bson::Int64(b)) => Bson::Int64(a + b),
        (a, b) => Bson::Double(float(a) + float(b)),
    };
}

fn order(a: &Bson, b: &Bson) -> Ordering {
    match (a, b) {
        (Bson::DateTime(a), Bson::DateTime(b)) => a.cmp(b),
        (a, b) => float(a).partial_cmp(&float(b)).unwrap(),
    }
}

fn float(value: &Bson) -> f64 {
    match value {
        Bson::Int32(n) => (*n).into(),
        Bson::Int64(n) => *n as f64,
        Bson::Double(n) => *n,
        other => panic!("{other} is no number"),
    }
}
