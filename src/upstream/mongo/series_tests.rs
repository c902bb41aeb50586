//! Time series delivery against a collection that takes everything, also twice, and forgets to say so.

use mongodb::bson::RawDocumentBuf;
use mongodb::bson::oid::ObjectId;
use tokio::time::Instant;

use super::super::{Collections, Context, Document, Fate, Form, Shape, TroubleKind};
use super::breaker::Breaker;
use super::classify::{Labels, Signal};
use super::deliver::{Answer, Problem};
use super::series::{Fence, Series, deliver};
use crate::model::samples::bucket;
use crate::model::{SiteName, Timestamp};
use std::time::Duration;

const QUARANTINE: Duration = Duration::from_secs(60);

/// Stores whatever comes, in order.
#[derive(Default)]
struct Readings {
    stored: Vec<ObjectId>,
    /// What happens to the next commands: whether rows are stored, and the answer in place of success.
    faults: Vec<(bool, Answer)>,
    looks: usize,
}

impl Series for Readings {
    async fn insert_rows(&mut self, _: &str, rows: &[&RawDocumentBuf]) -> Answer {
        let (is_stored, answer) = if self.faults.is_empty() { (true, ok()) } else { self.faults.remove(0) };
        if is_stored {
            self.stored.extend(rows.iter().map(|row| row.get_object_id("_id").unwrap()));
        }
        answer
    }

    async fn ids(&mut self, document: &Document) -> Result<Vec<ObjectId>, Problem> {
        self.looks += 1;
        let ours = |id: &&ObjectId| document.rows.iter().any(|row| row.get_object_id("_id").unwrap() == **id);
        Ok(self.stored.iter().filter(ours).copied().collect())
    }
}

fn ok() -> Answer {
    Answer::Ran { errors: vec![], concern: None }
}

fn problem(signal: Signal) -> Problem {
    Problem { signal, text: "no".into(), wait: None }
}

fn code(code: i32, untouched: bool) -> Signal {
    Signal::Code { code, labels: Labels { untouched, ..Labels::default() }, message: String::new() }
}

fn document(name: &str) -> Document {
    let context = Context {
        site: SiteName::new("s").unwrap(),
        store: String::new(),
        retention: None,
        shape: Shape::default(),
        meta: Default::default(),
        collections: Collections::new("telemetry", "readings", None),
        form: Form::Series,
    };
    Document::of(&bucket(name, 1_796_043_600, 0, &[(0, 1.0), (1, 2.0), (2, 3.0)]), &context)
}

/// A process that began long before or after the buckets' windows.
fn fence(is_old: bool) -> Fence {
    let started = if is_old { Timestamp::EPOCH } else { Timestamp::LAST };
    Fence { started: (started, Instant::now()), quarantine: QUARANTINE }
}

async fn send(readings: &mut Readings, documents: &mut [Document], fence: Fence) -> (String, Option<TroubleKind>) {
    let outcome = deliver(readings, &mut Breaker::default(), documents, fence).await;
    let letter = |fate: &Fate| match fate {
        Fate::Delivered => 'd',
        Fate::Refused(_) => 'x',
        _ => '-',
    };
    (outcome.report.fates.iter().map(letter).collect(), outcome.report.trouble.map(|trouble| trouble.kind))
}

fn is_once(readings: &Readings, documents: &[Document]) -> bool {
    let mut stored = readings.stored.clone();
    let mut ours: Vec<ObjectId> =
        documents.iter().flat_map(|d| &d.rows).map(|row| row.get_object_id("_id").unwrap()).collect();
    stored.sort_unstable();
    ours.sort_unstable();
    stored == ours
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_was_certainly_not_sent_goes_without_a_look() {
    let (mut readings, mut sent) = (Readings::default(), [document("a"), document("b")]);
    assert_eq!(send(&mut readings, &mut sent, fence(true)).await, ("dd".into(), None));
    assert!(is_once(&readings, &sent) && readings.looks == 0);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_process_may_have_sent_is_waited_for_and_looked_up() {
    let mut sent = [document("a"), document("b")];
    let stored = sent[0].rows[..2].iter().map(|row| row.get_object_id("_id").unwrap()).collect();
    let mut readings = Readings { stored, ..Readings::default() };
    let fence = fence(false);
    assert_eq!(send(&mut readings, &mut sent, fence).await, ("--".into(), Some(TroubleKind::Transient)));
    assert_eq!(readings.looks, 0, "a first attempt may still be running");
    tokio::time::sleep(QUARANTINE).await;
    assert_eq!(send(&mut readings, &mut sent, fence).await, ("dd".into(), None));
    assert!(is_once(&readings, &sent));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_settled_by_what_is_stored() {
    let concern = Answer::Ran { errors: vec![], concern: Some(problem(Signal::Concern { code: 64 })) };
    let some = Answer::Ran { errors: vec![(0, problem(code(112, false)))], concern: None };
    for (is_stored, answer) in [
        (true, Answer::Failed(problem(Signal::Lost))),
        (false, Answer::Failed(problem(Signal::Lost))),
        (true, concern),
        (true, some),
        (true, Answer::Failed(problem(code(91, false)))),
    ] {
        let mut readings = Readings { faults: vec![(is_stored, answer)], ..Readings::default() };
        let mut sent = [document("a"), document("b")];
        let fence = fence(true);
        assert_eq!(send(&mut readings, &mut sent, fence).await.0, "--");
        assert_eq!(send(&mut readings, &mut sent, fence).await, ("-d".into(), Some(TroubleKind::Transient)));
        tokio::time::sleep(QUARANTINE).await;
        assert_eq!(send(&mut readings, &mut sent[..1], fence).await, ("d".into(), None));
        assert!(is_once(&readings, &sent), "{is_stored}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_certainly_wrote_nothing_is_sent_again_at_once() {
    for signal in [Signal::NoServer("refused".into()), code(10107, true), Signal::Login] {
        let faults = vec![(false, Answer::Failed(problem(signal)))];
        let mut readings = Readings { faults, ..Readings::default() };
        let mut sent = [document("a")];
        assert_eq!(send(&mut readings, &mut sent, fence(true)).await.0, "-");
        assert_eq!(send(&mut readings, &mut sent, fence(true)).await, ("d".into(), None));
        assert!(is_once(&readings, &sent) && readings.looks == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_measurements_make_a_dead_letter_and_thinned_buckets_too() {
    let faults = vec![(true, Answer::Ran { errors: vec![(1, problem(code(2, false)))], concern: None })];
    let mut readings = Readings { faults, ..Readings::default() };
    let mut thin = document("thin");
    thin.rows.clear();
    let mut sent = [document("a"), thin, document("b"), document("c"), document("d")];
    assert_eq!(send(&mut readings, &mut sent, fence(true)).await, ("xxddd".into(), None));
}

#[tokio::test(start_paused = true)]
async fn random_faults_neither_lose_nor_double_a_measurement() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let names: Vec<String> = (0..20).map(|i| format!("s{i}")).collect();
        let mut sent: Vec<Document> = names.iter().map(|name| document(name)).collect();
        let mut readings = Readings::default();
        let mut done = vec![false; sent.len()];
        let mut process = fence(random.bool());
        while done.contains(&false) {
            readings.faults = (0..random.usize(0..6))
                .map(|_| match random.u8(0..5) {
                    0 => (random.bool(), Answer::Failed(problem(Signal::Lost))),
                    1 => (false, Answer::Failed(problem(Signal::NoServer("no".into())))),
                    2 => (true, Answer::Ran { errors: vec![], concern: Some(problem(Signal::Concern { code: 64 })) }),
                    _ => (true, ok()),
                })
                .collect();
            let mut left: Vec<Document> =
                sent.iter().zip(&done).filter(|(_, done)| !**done).map(|(d, _)| d.clone()).collect();
            let outcome = deliver(&mut readings, &mut Breaker::default(), &mut left, process).await;
            let places: Vec<usize> = (0..sent.len()).filter(|i| !done[*i]).collect();
            for ((place, document), fate) in places.into_iter().zip(left).zip(outcome.report.fates) {
                done[place] = fate == Fate::Delivered;
                sent[place] = document;
            }
            tokio::time::sleep(Duration::from_secs(random.u64(0..90))).await;
            if random.u8(0..5) == 0 {
                // Killed: what was known of attempts is gone.
                process = fence(false);
                for document in &mut sent {
                    (document.suspect, document.tries) = (None, 0);
                }
            }
        }
        assert!(is_once(&readings, &sent), "seed {seed}");
    }
}
