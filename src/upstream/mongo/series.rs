//! Delivery into a native time series collection: effectively once, for a single writer.
//!
//! Such a collection has no unique index, so nothing refuses a measurement that comes twice. A bucket's measurements go
//! with commands of their own; when it is not certain what became of one, the bucket waits until a first attempt cannot
//! be running any more, then the measurements that are there are read back by `_id` and only the missing ones are sent. What
//! an earlier process may have sent counts as uncertain too: nothing on disk says what was sent.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use mongodb::bson::RawDocumentBuf;
use mongodb::bson::oid::ObjectId;
use tokio::time::Instant;

use super::super::{Document, Fate, Report, Trouble, TroubleKind};
use super::breaker::{Breaker, Fared};
use super::classify::{Class, Signal, classify};
use super::deliver::{Answer, Outcome, Problem, code_of, trouble_of};
use crate::model::Timestamp;

/// Most measurements in one command.
const MAX_ROWS: usize = 5000;
/// Readings may be so much ahead of the clock: a bucket that begins later was certainly sealed by this process.
const AHEAD: Duration = Duration::from_secs(3600);

/// What delivery needs of a database.
pub(super) trait Series {
    /// Inserts measurements with one command.
    fn insert_rows(&mut self, collection: &str, rows: &[&RawDocumentBuf]) -> impl Future<Output = Answer> + Send;

    /// The `_id`s of what is stored of a document's sensor in its span, by a majority read.
    fn ids(&mut self, document: &Document) -> impl Future<Output = Result<Vec<ObjectId>, Problem>> + Send;
}

/// When this process began, on both clocks, and how long an uncertain bucket waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) started: (Timestamp, Instant),
    pub(super) quarantine: Duration,
}

/// What became of a bucket.
enum Became {
    Fate(Fate, Option<i32>),
    /// It waits for so long.
    Waits(Duration),
    /// The rest of the batch would fare alike.
    Broke(Problem),
}

/// Sends documents, oldest first.
pub(super) async fn deliver<W: Series + Send>(
    wire: &mut W,
    breaker: &mut Breaker,
    documents: &mut [Document],
    fence: Fence,
) -> Outcome {
    let mut fates = vec![Fate::Unsent; documents.len()];
    let mut fared = Vec::new();
    let mut waits: Option<Duration> = None;
    let mut broke = None;
    for (document, fate) in documents.iter_mut().zip(&mut fates) {
        match one(wire, document, fence).await {
            Became::Fate(became, code) => {
                fared.push(code.map_or(Fared::Delivered, Fared::Refused));
                *fate = became;
            }
            Became::Waits(left) => waits = Some(waits.map_or(left, |known| known.min(left))),
            Became::Broke(problem) => {
                broke = Some(problem);
                break;
            }
        }
    }
    let mut trouble = broke.as_ref().map(trouble_of);
    if !breaker.believes(&fared) {
        trouble = Some(disbelieved(&mut fates));
    }
    if let (Some(left), None) = (waits, &trouble) {
        let text = format!(
            "buckets wait {} s until it is certain what became of their first attempt",
            left.as_secs().saturating_add(1)
        );
        trouble = Some(Trouble { kind: TroubleKind::Transient, text, wait: Some(left), reconnects: false });
    }
    let hang_up = trouble.as_ref().is_some_and(|trouble| trouble.kind == TroubleKind::Stopped)
        || broke.is_some_and(|problem| matches!(problem.signal, Signal::NoServer(_)));
    Outcome { report: Report { fates, trouble, ..Report::default() }, whole: false, hang_up }
}

/// The breaker is open: what was refused stays, and the line is stopped.
pub(super) fn disbelieved(fates: &mut [Fate]) -> Trouble {
    let words = fates.iter().find_map(|fate| match fate {
        Fate::Refused(words) => Some(words.clone()),
        _ => None,
    });
    let words = words.unwrap_or_default();
    let text = format!("the database refuses too many buckets to be their fault, nothing is dropped: {words}");
    fates.iter_mut().filter(|fate| matches!(fate, Fate::Refused(_))).for_each(|fate| *fate = Fate::Unsent);
    Trouble { kind: TroubleKind::Stopped, text, wait: None, reconnects: false }
}

async fn one<W: Series>(wire: &mut W, document: &mut Document, fence: Fence) -> Became {
    if document.rows.is_empty() {
        let words =
            "a time series collection takes no rollups, and the samples of this bucket were given up for want of room";
        return Became::Fate(Fate::Refused(words.to_owned()), Some(0));
    }
    if document.tries == 0 && document.window.start() < fence.started.0.plus(AHEAD) {
        document.suspect.get_or_insert(fence.started.1);
    }
    let there = match look(wire, document, fence.quarantine).await {
        Ok(there) => there,
        Err(became) => return became,
    };
    document.tries += 1;
    let (collection, rows) = (document.collection.clone(), document.rows.clone());
    let missing: Vec<&RawDocumentBuf> =
        rows.iter().filter(|row| row.get_object_id("_id").map_or(true, |id| !there.contains(&id))).collect();
    let mut refused: Option<(i32, String, usize)> = None;
    for chunk in missing.chunks(MAX_ROWS) {
        // Whoever drops this future half-way leaves the bucket uncertain.
        document.suspect = Some(Instant::now());
        match wire.insert_rows(&collection, chunk).await {
            Answer::Ran { errors, concern: None } => {
                for (_, problem) in errors {
                    if classify(&problem.signal) != Class::Poison {
                        return Became::Broke(problem);
                    }
                    let code = code_of(&problem.signal);
                    let known = refused.take().map_or(0, |(_, _, known)| known);
                    refused = Some((code, problem.text, known + 1));
                }
            }
            Answer::Ran { concern: Some(problem), .. } => return Became::Broke(problem),
            Answer::Failed(problem) => {
                if is_untouched(&problem.signal) {
                    document.suspect = None;
                }
                if classify(&problem.signal) == Class::Poison {
                    let code = code_of(&problem.signal);
                    return Became::Fate(Fate::Refused(problem.text), Some(code));
                }
                return Became::Broke(problem);
            }
        }
    }
    document.suspect = None;
    match refused {
        None => Became::Fate(Fate::Delivered, None),
        Some((code, words, count)) => {
            let words = format!("{words} ({count} of {} measurements; the others are stored)", rows.len());
            Became::Fate(Fate::Refused(words), Some(code))
        }
    }
}

/// What is stored of a bucket that is uncertain, once a first attempt cannot be running any more.
async fn look<W: Series>(
    wire: &mut W,
    document: &mut Document,
    quarantine: Duration,
) -> Result<HashSet<ObjectId>, Became> {
    let Some(since) = document.suspect else { return Ok(HashSet::new()) };
    let left = (since + quarantine).saturating_duration_since(Instant::now());
    if !left.is_zero() {
        return Err(Became::Waits(left));
    }
    let ids = wire.ids(document).await.map_err(Became::Broke)?;
    let count = ids.len();
    let there: HashSet<ObjectId> = ids.into_iter().collect();
    if there.len() < count {
        let twice = count - there.len();
        tracing::warn!("{twice} measurements of `{}` are stored twice: is there a second writer?", document.id);
    }
    document.suspect = None;
    Ok(there)
}

/// Whether it is certain that nothing was written.
fn is_untouched(signal: &Signal) -> bool {
    match signal {
        Signal::NoServer(_) | Signal::NoName(_) | Signal::Login | Signal::Setup | Signal::Unsendable => true,
        Signal::Code { labels, .. } => labels.untouched,
        _ => false,
    }
}
