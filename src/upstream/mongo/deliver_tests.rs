//! Delivery against a database made of plain rules: no network, no time.

use std::collections::{BTreeMap, HashMap};

use super::super::{Collections, Context, Document, Fate, Report, Shape, TroubleKind};
use super::breaker::Breaker;
use super::classify::{Labels, Signal, Stored};
use super::deliver::{Answer, Outcome, Problem, Wire, deliver};
use crate::model::SiteName;
use crate::model::samples::bucket;

const STORE: &str = "0badcafe";

/// Stores documents by `_id`; refuses those whose `_id` holds one of `bad`.
#[derive(Default)]
pub(super) struct Database {
    pub(super) stored: BTreeMap<String, String>,
    pub(super) bad: Vec<(&'static str, i32)>,
    /// Answers given before any rule is asked.
    pub(super) script: Vec<Answer>,
    /// Refusals fail the whole command.
    pub(super) whole: bool,
    pub(super) find_fails: bool,
    /// The connection is closed on commands with a document whose `_id` holds one of these.
    pub(super) closes: Vec<&'static str>,
    pub(super) pings: bool,
    pub(super) commands: Vec<usize>,
    pub(super) replaced: usize,
}

/// Stands in the place of a hash for a live document of ours.
const LIVE: &str = "live";

pub(super) fn problem(code: i32, message: &str) -> Problem {
    let signal = Signal::Code { code, labels: Labels::default(), message: message.to_owned() };
    Problem { signal, text: format!("the database answered {code}: {message}"), wait: None }
}

impl Database {
    fn take(&mut self, documents: &[&Document]) -> Answer {
        self.commands.push(documents.len());
        if !self.script.is_empty() {
            return self.script.remove(0);
        }
        if documents.iter().any(|document| self.closes.iter().any(|part| document.id.contains(part))) {
            return Answer::Failed(closed());
        }
        let code = |id: &str| self.bad.iter().find(|(part, _)| id.contains(part)).map(|(_, code)| *code);
        if let Some(code) = documents.iter().find_map(|document| code(&document.id)).filter(|_| self.whole) {
            return Answer::Failed(problem(code, "one of them"));
        }
        let mut errors = Vec::new();
        for (i, document) in documents.iter().enumerate() {
            if let Some(code) = code(&document.id) {
                errors.push((i, problem(code, "refused")));
            } else if self.stored.contains_key(&document.id) {
                errors.push((i, problem(11000, "E11000 duplicate key error index: _id_ dup key")));
            } else {
                self.stored.insert(document.id.clone(), document.hash.clone());
            }
        }
        Answer::Ran { errors, concern: None }
    }
}

impl Wire for Database {
    async fn insert(&mut self, documents: &mut [&mut Document]) -> Answer {
        documents.iter_mut().for_each(|document| drop(document.give()));
        self.take(&documents.iter().map(|document| &**document).collect::<Vec<_>>())
    }

    async fn replace(&mut self, documents: &[&Document]) -> Answer {
        let live: Vec<String> = documents.iter().map(|document| document.id.clone()).collect();
        self.stored.retain(|id, hash| hash != LIVE || !live.contains(id));
        self.replaced += documents.len();
        self.take(documents)
    }

    async fn stored(&mut self, documents: &[&Document]) -> Result<HashMap<String, Stored>, Problem> {
        if self.find_fails {
            return Err(problem(91, "shutting down"));
        }
        let found = |ours: &&Document| {
            let stored = match self.stored.get(&ours.id)? {
                hash if *hash == ours.hash => Stored::Same,
                hash if hash == LIVE => Stored::Live,
                _ => Stored::Other,
            };
            Some((ours.id.clone(), stored))
        };
        Ok(documents.iter().filter_map(found).collect())
    }

    async fn answers(&mut self) -> bool {
        self.pings
    }
}

pub(super) fn closed() -> Problem {
    Problem { signal: Signal::Closed, text: "unexpected end of file".into(), wait: None }
}

pub(super) fn documents(names: &[&str]) -> Vec<Document> {
    let context = Context {
        site: SiteName::new("s").unwrap(),
        store: STORE.into(),
        retention: None,
        shape: Shape::default(),
        collections: Collections::new("telemetry", "buckets", None),
        form: Default::default(),
        meta: HashMap::new(),
    };
    let document = |name: &&str| {
        let (bucket, context) = (bucket(name, 1_796_043_600, 0, &[(0, 1.0)]), context.clone());
        let again = move || Document::of(&bucket, &context);
        again().made_again_by(std::sync::Arc::new(again))
    };
    names.iter().map(document).collect()
}

pub(super) async fn send(database: &mut Database, breaker: &mut Breaker, documents: &mut [Document]) -> Outcome {
    deliver(database, breaker, documents, STORE).await
}

async fn once(database: &mut Database, names: &[&str]) -> Report {
    send(database, &mut Breaker::default(), &mut documents(names)).await.report
}

/// `d` delivered, `x` refused, `-` unsent.
pub(super) fn fates(report: &Report) -> String {
    let letter = |fate: &Fate| match fate {
        Fate::Delivered => 'd',
        Fate::Refused(_) => 'x',
        Fate::Unsent => '-',
        Fate::Held => 'h',
    };
    report.fates.iter().map(letter).collect()
}

fn kind(report: &Report) -> Option<TroubleKind> {
    report.trouble.as_ref().map(|trouble| trouble.kind)
}

#[tokio::test]
async fn success_is_what_no_error_names() {
    let mut database = Database { bad: vec![("b", 121)], ..Database::default() };
    let report = once(&mut database, &["a", "b", "c"]).await;
    assert_eq!(fates(&report), "dxd");
    assert_eq!(report.trouble, None);
    let Fate::Refused(words) = &report.fates[1] else { panic!() };
    assert!(words.contains("121") && words.contains("1 try"), "{words}");
}

#[tokio::test]
async fn sending_twice_delivers_once() {
    let mut database = Database::default();
    assert_eq!(fates(&once(&mut database, &["a", "b"]).await), "dd");
    let again = once(&mut database, &["a", "b", "c"]).await;
    assert_eq!((fates(&again).as_str(), again.conflicts), ("ddd", 0));
    assert_eq!(database.stored.len(), 3);
}

#[tokio::test]
async fn other_content_under_an_id_is_never_overwritten() {
    let mut database = Database::default();
    let ids: Vec<String> = documents(&["a"]).iter().map(|d| d.id.clone()).collect();
    let id = &ids[0];
    database.stored.insert(id.clone(), "other".into());
    let report = once(&mut database, &["a", "b"]).await;
    assert_eq!((fates(&report).as_str(), report.conflicts), ("dd", 1));
    assert_eq!(database.stored[id], "other");
    assert!(database.stored.contains_key(&format!("{id}~{STORE}")));

    database.stored.insert(format!("{id}~{STORE}"), "third".into());
    let report = once(&mut database, &["a"]).await;
    assert_eq!((fates(&report).as_str(), report.conflicts), ("d", 1));
    let last = database.stored.keys().find(|key| key.starts_with(&format!("{id}~{STORE}-"))).unwrap().clone();

    database.stored.insert(last, "fourth".into());
    assert_eq!(fates(&once(&mut database, &["a"]).await), "x");
    assert_eq!(database.stored[id], "other");
}

#[tokio::test]
async fn a_conflict_is_counted_once_however_often_it_is_sent() {
    let mut database = Database::default();
    let mut sent = documents(&["a"]);
    database.stored.insert(sent[0].id.clone(), "other".into());
    let taken = Answer::Ran { errors: vec![(0, problem(11000, "index: _id_"))], concern: None };
    database.script = vec![taken, Answer::Failed(problem(91, "shutdown"))];
    let mut breaker = Breaker::default();
    let first = send(&mut database, &mut breaker, &mut sent).await.report;
    assert_eq!((fates(&first).as_str(), first.conflicts, kind(&first)), ("-", 1, Some(TroubleKind::Transient)));
    let second = send(&mut database, &mut breaker, &mut sent).await.report;
    assert_eq!((fates(&second).as_str(), second.conflicts), ("d", 0));
}

#[tokio::test]
async fn without_a_look_at_what_is_stored_nothing_is_delivered() {
    let mut database = Database { find_fails: true, ..Database::default() };
    once(&mut database, &["a"]).await;
    let report = once(&mut database, &["a", "b"]).await;
    assert_eq!((fates(&report).as_str(), kind(&report)), ("-d", Some(TroubleKind::Transient)));
}

#[tokio::test]
async fn a_taken_id_that_is_gone_is_sent_again() {
    let taken = Answer::Ran { errors: vec![(0, problem(11000, "index: _id_"))], concern: None };
    let mut database = Database { script: vec![taken], ..Database::default() };
    let report = once(&mut database, &["a"]).await;
    assert_eq!((fates(&report).as_str(), kind(&report)), ("-", Some(TroubleKind::Transient)));
}

#[tokio::test]
async fn an_id_that_is_always_taken_and_never_there_stops_the_line() {
    let taken = || Answer::Ran { errors: vec![(0, problem(11000, "E11000 duplicate key"))], concern: None };
    let mut database = Database { script: (0..8).map(|_| taken()).collect(), ..Database::default() };
    let mut sent = documents(&["a"]);
    for tries in 1..=8 {
        let report = send(&mut database, &mut Breaker::default(), &mut sent).await.report;
        let expected = if tries < 8 { TroubleKind::Transient } else { TroubleKind::Stopped };
        assert_eq!((fates(&report).as_str(), kind(&report)), ("-", Some(expected)), "{tries}");
    }
}

#[tokio::test]
async fn a_duplicate_on_another_index_is_refused() {
    let taken = Answer::Ran { errors: vec![(0, problem(11000, "index: seq_1 dup key"))], concern: None };
    let mut database = Database { script: vec![taken], ..Database::default() };
    assert_eq!(fates(&once(&mut database, &["a", "b"]).await), "xd");
}

#[tokio::test]
async fn a_write_concern_error_leaves_everything_unconfirmed() {
    let concern = Problem { signal: Signal::Concern { code: 64 }, text: "waiting".into(), wait: None };
    let errors = vec![(0, problem(121, "refused"))];
    let mut database = Database { script: vec![Answer::Ran { errors, concern: Some(concern) }], ..Database::default() };
    let report = once(&mut database, &["a", "b"]).await;
    assert_eq!((fates(&report).as_str(), kind(&report)), ("--", Some(TroubleKind::Transient)));
}

#[tokio::test]
async fn an_answer_about_documents_that_were_not_sent_is_not_believed() {
    for errors in [vec![(2, problem(121, ""))], vec![(0, problem(121, "")), (0, problem(121, ""))]] {
        let mut database = Database { script: vec![Answer::Ran { errors, concern: None }], ..Database::default() };
        let report = once(&mut database, &["a", "b"]).await;
        assert_eq!((fates(&report).as_str(), kind(&report)), ("--", Some(TroubleKind::Transient)));
    }
}

#[tokio::test]
async fn a_command_that_names_no_culprit_is_taken_apart() {
    let mut database = Database { bad: vec![("f", 22)], whole: true, ..Database::default() };
    let report = once(&mut database, &["a", "b", "c", "d", "e", "f", "g", "h"]).await;
    assert_eq!(fates(&report), "dddddxdd");
    assert_eq!(database.commands, [8, 4, 4, 2, 1, 1, 2]);
}

#[tokio::test]
async fn a_changed_validator_stops_the_line_and_drops_nothing() {
    let mut database = Database { bad: vec![("s/", 121)], ..Database::default() };
    let mut breaker = Breaker::default();
    let mut sent = documents(&["a", "b", "c", "d"]);
    let outcome = send(&mut database, &mut breaker, &mut sent).await;
    assert_eq!((fates(&outcome.report).as_str(), kind(&outcome.report)), ("----", Some(TroubleKind::Stopped)));
    assert!(!outcome.whole, "whole batches show when others are taken");
    assert!(outcome.report.trouble.unwrap().text.contains("validator"));
    database.bad.clear();
    assert_eq!(fates(&send(&mut database, &mut breaker, &mut sent).await.report), "dddd");
}

#[tokio::test]
async fn a_whole_batch_is_not_taken_apart_once_the_breaker_knows() {
    let mut database = Database { bad: vec![("s/", 2)], whole: true, ..Database::default() };
    let names: Vec<String> = (0..64).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let report = once(&mut database, &names).await;
    assert_eq!((fates(&report), kind(&report)), ("-".repeat(64), Some(TroubleKind::Stopped)));
    assert!(database.commands.len() < 12, "{:?}", database.commands);
}

#[tokio::test]
async fn an_unknown_error_is_tried_eight_times_and_never_dropped() {
    let mut database = Database { bad: vec![("b", 4711)], ..Database::default() };
    let mut breaker = Breaker::default();
    let mut sent = documents(&["b"]);
    for tries in 1..=10 {
        let report = send(&mut database, &mut breaker, &mut sent).await.report;
        let expected = if tries < 8 { TroubleKind::Transient } else { TroubleKind::Stopped };
        assert_eq!((fates(&report).as_str(), kind(&report)), ("-", Some(expected)), "{tries}");
    }
}

#[tokio::test]
async fn each_class_of_failure_has_its_trouble() {
    let lost = Problem { signal: Signal::Lost, text: String::new(), wait: None };
    let away = Problem { signal: Signal::NoServer("Connection refused".into()), text: String::new(), wait: None };
    let rows = [
        (problem(91, ""), TroubleKind::Transient, false),
        (problem(462, ""), TroubleKind::Overload, false),
        (problem(13, ""), TroubleKind::Stopped, true),
        (problem(8000, ""), TroubleKind::Stopped, true),
        (lost, TroubleKind::Transient, false),
        (away, TroubleKind::Transient, true),
    ];
    for (problem, expected, hang_up) in rows {
        let mut database = Database { script: vec![Answer::Failed(problem.clone())], ..Database::default() };
        let outcome = send(&mut database, &mut Breaker::default(), &mut documents(&["a", "b"])).await;
        assert_eq!((fates(&outcome.report).as_str(), kind(&outcome.report)), ("--", Some(expected)), "{problem:?}");
        assert_eq!((outcome.hang_up, outcome.whole), (hang_up, true), "{problem:?}");
        assert_eq!(database.commands, [2]);
    }
}

#[tokio::test]
async fn among_troubles_the_worst_is_told() {
    let mut database = Database { bad: vec![("a", 112), ("b", 13), ("c", 462)], ..Database::default() };
    let report = once(&mut database, &["a", "b", "c", "d"]).await;
    assert_eq!((fates(&report).as_str(), kind(&report)), ("---d", Some(TroubleKind::Stopped)));
}

#[tokio::test]
async fn one_command_is_for_one_collection() {
    let mut database = Database { bad: vec![("d", 121)], ..Database::default() };
    let mut sent = documents(&["a", "b", "c", "d", "e"]);
    for i in [1, 3] {
        sent[i].collection = "other".into();
    }
    let report = send(&mut database, &mut Breaker::default(), &mut sent).await.report;
    assert_eq!((fates(&report).as_str(), &database.commands), ("dddxd", &vec![3, 2]));
    let again = send(&mut database, &mut Breaker::default(), &mut sent[..3]).await.report;
    assert_eq!((fates(&again).as_str(), again.conflicts), ("ddd", 0));
}

#[tokio::test]
async fn a_live_document_of_ours_is_replaced_and_nothing_else() {
    let mut database = Database::default();
    for id in documents(&["a", "b"]).iter().map(|document| &document.id) {
        let known = if id.contains("/a|") { LIVE } else { "other" };
        database.stored.insert(id.clone(), known.into());
    }
    let report = once(&mut database, &["a", "b", "c"]).await;
    assert_eq!((fates(&report).as_str(), report.conflicts, database.replaced), ("ddd", 1, 1));
    assert_eq!(database.stored.values().filter(|hash| *hash == LIVE).count(), 0);
}
