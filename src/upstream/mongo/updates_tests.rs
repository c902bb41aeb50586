//! Live documents, what replaces them, and appended readings, against a database of plain rules that loses answers.

mod append;
mod live;

use std::collections::{HashMap, VecDeque};

use mongodb::bson::{Document as Bsondoc, RawDocumentBuf};

use super::super::document::is_same;
use super::super::plain::{Did, Plain};
use super::super::{Collections, Context, Document, Form, Shape};
use super::classify::{Labels, Signal, Stored};
use super::deliver::{Answer, Problem, Wire};
use super::live::Updates;
use super::updates::{Updated, replacement};
use super::wire::what_is;
use crate::model::SiteName;

const STORE: &str = "0badcafe";
const START: i64 = 1_796_043_600;

/// What happens to one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trick {
    Answered,
    /// It is run, and nobody hears of it.
    ReplyLost,
    /// It never arrives, and nobody hears of it.
    RequestLost,
    /// It is run, and no majority confirms it.
    Unconfirmed,
    /// It fails as a whole.
    Fails(i32),
    /// The statement at this place fails.
    FailsAt(usize, i32),
}

#[derive(Default)]
struct Fake {
    plain: Plain,
    tricks: VecDeque<Trick>,
    /// Statements of each command.
    commands: Vec<usize>,
    /// The connection is closed at a reading with this value, when those before it are done.
    closes: Option<f64>,
}

fn problem(code: i32) -> Problem {
    let signal = Signal::Code { code, labels: Labels::default(), message: "E11000 index: _id_ dup key".to_owned() };
    Problem { signal, text: format!("the database answered {code}"), wait: None }
}

fn lost() -> Problem {
    Problem { signal: Signal::Lost, text: "no answer".to_owned(), wait: None }
}

impl Updates for Fake {
    async fn update(&mut self, _: &str, statements: &[&RawDocumentBuf], ordered: bool) -> Result<Updated, Problem> {
        self.commands.push(statements.len());
        let trick = self.tricks.pop_front().unwrap_or(Trick::Answered);
        match trick {
            Trick::RequestLost => return Err(lost()),
            Trick::Fails(code) => return Err(problem(code)),
            _ => {}
        }
        let mut updated = Updated::default();
        for (index, statement) in statements.iter().enumerate() {
            if self.closes.is_some() && self.closes == pushed(statement) {
                return Err(Problem { signal: Signal::Closed, text: "unexpected end of file".to_owned(), wait: None });
            }
            let told = match trick {
                Trick::FailsAt(at, code) if at == index => Err(code),
                _ => self.plain.update(statement),
            };
            match told {
                Ok(Did::Changed) => {}
                Ok(Did::Made) => updated.made.push(index),
                Err(code) => {
                    updated.errors.push((index, problem(code)));
                    if ordered {
                        break;
                    }
                }
            }
        }
        match trick {
            Trick::ReplyLost => Err(lost()),
            Trick::Unconfirmed => Ok(Updated { concern: Some(lost()), ..updated }),
            _ => Ok(updated),
        }
    }

    async fn is_there(&mut self) -> bool {
        true
    }
}

/// The value that a statement appends.
fn pushed(statement: &RawDocumentBuf) -> Option<f64> {
    let update = bson(statement).get_document("u").ok()?.clone();
    let each = update.get_document("$push").ok()?.get_document("samples").ok()?.get_array("$each").ok()?;
    each.first()?.as_document()?.get_f64("temp").ok()
}

impl Wire for Fake {
    async fn insert(&mut self, documents: &mut [&mut Document]) -> Answer {
        let mut errors = Vec::new();
        for (index, document) in documents.iter_mut().enumerate() {
            if self.plain.stored.contains_key(&document.id) {
                errors.push((index, problem(11000)));
            } else {
                self.plain.stored.insert(document.id.clone(), bson(&document.give()));
            }
        }
        Answer::Ran { errors, concern: None }
    }

    async fn replace(&mut self, documents: &[&Document]) -> Answer {
        let statements =
            documents.iter().map(|document| replacement(document, &["sensor", "start", "store"], "lastSeq"));
        let statements: Vec<RawDocumentBuf> = statements.collect();
        let statements: Vec<&RawDocumentBuf> = statements.iter().collect();
        match self.update("buckets", &statements, false).await {
            Ok(Updated { errors, concern, .. }) => Answer::Ran { errors, concern },
            Err(problem) => Answer::Failed(problem),
        }
    }

    async fn stored(&mut self, documents: &[&Document]) -> Result<HashMap<String, Stored>, Problem> {
        let found = |ours: &&Document| {
            let stored = RawDocumentBuf::try_from(self.plain.stored.get(&ours.id)?).unwrap();
            assert!(!is_same(&stored, ours, &Shape::default()) || stored == *ours.bson());
            Some((ours.id.clone(), what_is(&stored, ours, &Shape::default())))
        };
        Ok(documents.iter().filter_map(found).collect())
    }
}

fn context(form: Form) -> Context {
    Context {
        site: SiteName::new("s").unwrap(),
        store: STORE.into(),
        retention: None,
        shape: Shape::default(),
        collections: Collections::new("telemetry", "buckets", None),
        form,
        meta: HashMap::new(),
    }
}

fn bson(raw: &RawDocumentBuf) -> Bsondoc {
    Bsondoc::try_from(raw.as_ref()).unwrap()
}
