//! Update commands: for live documents, for what takes their place, and for documents that others write too.
//!
//! The driver's own update calls carry one statement each, so the command is written here, and its answer read: which
//! statements failed stands in it by index, everything else was done.

use std::collections::HashSet;

use mongodb::bson::raw::{CString, RawArrayBuf};
use mongodb::bson::{Bson, Document as Bsondoc, RawBson, RawDocumentBuf, doc};
use mongodb::error::{RETRYABLE_WRITE_ERROR, SYSTEM_OVERLOADED_ERROR};
use tokio::time::timeout;

use super::super::Document;
use super::advice;
use super::classify::{Labels, Signal};
use super::client::Link;
use super::deliver::{Answer, Problem};
use super::problem::{NO_WRITES_PERFORMED, nonsense, shown};
use super::wire::MAJORITY_WITHIN;

/// What became of the statements of one command.
#[derive(Clone, Debug, Default)]
pub(super) struct Updated {
    /// Those that failed, by index. If they are ordered there is one at most, and none behind it was tried.
    pub(super) errors: Vec<(usize, Problem)>,
    /// Applied, but not confirmed.
    pub(super) concern: Option<Problem>,
    /// Statements that found no document and made one.
    pub(super) made: Vec<usize>,
}

impl Link {
    /// Runs one update command.
    pub(super) async fn run_updates(
        &mut self,
        collection: &str,
        statements: &[&RawDocumentBuf],
        ordered: bool,
    ) -> Result<Updated, Problem> {
        let deadline = self.tuning.insert;
        let name = self.config.database.clone();
        let open = self.open().await?;
        let (uri, database) = (open.uri.clone(), open.client.database(&name));
        let command = command(collection, statements, ordered);
        let answer = match timeout(deadline, async move { database.run_raw_command(command).await }).await {
            Ok(result) => result.map_err(|error| self.problem(&error, &uri))?,
            Err(_) => return Err(self.late("an update", deadline)),
        };
        let scrub = |problem: &mut Problem| problem.text = uri.scrub(&problem.text);
        let mut updated = read(&answer, statements.len(), ordered, &format!("{name}.{collection}"))?;
        updated.errors.iter_mut().map(|(_, problem)| problem).chain(&mut updated.concern).for_each(scrub);
        Ok(updated)
    }

    /// Puts documents in the place of our own live ones, or where there is nothing.
    pub(super) async fn replace_live(&mut self, documents: &[&Document]) -> Answer {
        let Some(collection) = documents.first().map(|document| document.collection.clone()) else {
            return Answer::Ran { errors: Vec::new(), concern: None };
        };
        let names = self.shape.names.clone();
        if names.last_seq.is_empty() {
            // Without the guard anything would be overwritten.
            return self.insert_raw(&collection, documents.iter().map(|document| document.bson())).await;
        }
        let guards = [names.sensor.as_str(), &names.start, &names.store];
        let statements: Vec<RawDocumentBuf> =
            documents.iter().map(|document| replacement(document, &guards, &names.last_seq)).collect();
        let statements: Vec<&RawDocumentBuf> = statements.iter().collect();
        match self.run_updates(&collection, &statements, false).await {
            Ok(Updated { errors, concern, .. }) => Answer::Ran { errors, concern },
            Err(problem) => Answer::Failed(problem),
        }
    }
}

/// The statement that replaces our live document. Where something else stands under the `_id` nothing matches, so it tries
/// to insert, and is told that the `_id` is taken.
pub(super) fn replacement(document: &Document, guards: &[&str], last_seq: &str) -> RawDocumentBuf {
    let mut filter = RawDocumentBuf::new();
    put(&mut filter, "_id", RawBson::String(document.id.clone()));
    for name in guards.iter().filter(|name| !name.is_empty()) {
        if let Ok(Some(value)) = document.bson().get(*name) {
            put(&mut filter, name, value.into());
        }
    }
    let mut is_open = RawDocumentBuf::new();
    put(&mut is_open, "$gte", RawBson::Int32(0));
    put(&mut filter, last_seq, RawBson::Document(is_open));
    let mut statement = RawDocumentBuf::new();
    put(&mut statement, "q", RawBson::Document(filter));
    put(&mut statement, "u", RawBson::Document(document.bson().clone()));
    put(&mut statement, "upsert", RawBson::Boolean(true));
    statement
}

fn put(to: &mut RawDocumentBuf, key: &str, value: RawBson) {
    to.append(CString::try_from(key).expect("a checked name holds no NUL"), value);
}

fn command(collection: &str, statements: &[&RawDocumentBuf], ordered: bool) -> RawDocumentBuf {
    let mut updates = RawArrayBuf::new();
    statements.iter().for_each(|statement| updates.push(RawBson::Document((*statement).clone())));
    let within = i64::try_from(MAJORITY_WITHIN.as_millis()).unwrap_or(i64::MAX);
    let concern = doc! { "w": "majority", "j": true, "wtimeout": within };
    let mut command = RawDocumentBuf::new();
    put(&mut command, "update", RawBson::String(collection.to_owned()));
    put(&mut command, "updates", RawBson::Array(updates));
    put(&mut command, "ordered", RawBson::Boolean(ordered));
    let concern = RawDocumentBuf::try_from(&concern).expect("it is well-formed");
    put(&mut command, "writeConcern", RawBson::Document(concern));
    command
}

/// Reads an answer. One that does not account for every statement makes no sense, and proves nothing.
fn read(answer: &Bsondoc, sent: usize, ordered: bool, namespace: &str) -> Result<Updated, Problem> {
    let list = |key: &str| answer.get_array(key).map(Vec::as_slice).unwrap_or_default();
    let labels = labels(list("errorLabels"));
    let mut updated = Updated::default();
    let mut known = HashSet::new();
    for error in list("writeErrors") {
        let error = error.as_document().ok_or_else(|| nonsense("an error that is no document"))?;
        let index = index(error, sent).filter(|index| known.insert(*index));
        let index = index.ok_or_else(|| nonsense("an error for a statement that was not sent"))?;
        updated.errors.push((index, problem(error, labels, namespace)));
    }
    for made in list("upserted") {
        let index = made.as_document().and_then(|made| index(made, sent));
        updated.made.push(index.ok_or_else(|| nonsense("a document made for a statement that was not sent"))?);
    }
    updated.concern = answer.get_document("writeConcernError").ok().map(|error| Problem {
        signal: Signal::Concern { code: number(error.get("code")).and_then(|n| i32::try_from(n).ok()).unwrap_or(0) },
        ..problem(error, labels, namespace)
    });
    let done = number(answer.get("n")).and_then(|n| usize::try_from(n).ok());
    let expected = match (ordered, updated.errors.as_slice()) {
        (true, [(first, _)]) => *first,
        (true, [_, _, ..]) => return Err(nonsense("several errors of statements that are tried in order")),
        (_, errors) => sent - errors.len(),
    };
    if done != Some(expected) {
        return Err(nonsense("it does not account for every update"));
    }
    Ok(updated)
}

fn index(of: &Bsondoc, sent: usize) -> Option<usize> {
    number(of.get("index")).and_then(|n| usize::try_from(n).ok()).filter(|index| *index < sent)
}

fn number(value: Option<&Bson>) -> Option<i64> {
    match value? {
        Bson::Int32(n) => Some((*n).into()),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) if n.fract() == 0.0 && n.abs() < 1e9 => Some(*n as i64),
        _ => None,
    }
}

fn labels(labels: &[Bson]) -> Labels {
    let has = |label: &str| labels.iter().any(|known| known.as_str() == Some(label));
    Labels {
        retryable: has(RETRYABLE_WRITE_ERROR),
        overloaded: has(SYSTEM_OVERLOADED_ERROR),
        untouched: has(NO_WRITES_PERFORMED),
    }
}

fn problem(error: &Bsondoc, labels: Labels, namespace: &str) -> Problem {
    let code = number(error.get("code")).and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
    let message = error.get_str("errmsg").unwrap_or_default().to_owned();
    let name = error.get_str("codeName").unwrap_or(if code == 121 { "DocumentValidationFailure" } else { "" });
    let mut text = advice::code(code, name, &message, namespace);
    if let Ok(details) = error.get_document("errInfo") {
        text.push_str("; errInfo: ");
        text.push_str(&shown(details));
    }
    Problem { signal: Signal::Code { code, labels, message }, text, wait: None }
}
