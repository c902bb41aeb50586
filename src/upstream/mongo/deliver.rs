//! One round of delivery: insert, look at the errors, read back what was taken already, give a second `_id` to what met
//! other content, isolate what the database refuses.
//!
//! Nothing here touches the network: [`Wire`] does, and the tests have one of their own.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use super::super::{Document, Fate, Report, Trouble, TroubleKind};
use super::breaker::{Breaker, Fared};
use super::classify::{Class, Signal, Stored, classify};
use super::groups::{by_collection, chosen, take_apart};
use super::hangups::{self, Hunt, Verdict};

/// After so many unknown errors for one document the line is stopped.
pub(super) const RIDDLES: u32 = 8;

/// What delivery needs of a database.
pub(super) trait Wire {
    /// Inserts documents of one collection with one command. It may give their bytes away.
    fn insert(&mut self, documents: &mut [&mut Document]) -> impl Future<Output = Answer> + Send;

    /// Puts documents of one collection in the place of the live ones, or where there is nothing, with one command.
    fn replace(&mut self, documents: &[&Document]) -> impl Future<Output = Answer> + Send;

    /// Which of these `_id`s are there, by a majority read, and what stands under them.
    fn stored(
        &mut self,
        documents: &[&Document],
    ) -> impl Future<Output = Result<HashMap<String, Stored>, Problem>> + Send;

    /// Whether the database answers a ping.
    fn answers(&mut self) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }
}

/// How an insert was answered.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The command ran: errors by index, and perhaps a write concern error.
    Ran { errors: Vec<(usize, Problem)>, concern: Option<Problem> },
    /// The command failed as a whole.
    Failed(Problem),
}

/// Something that went wrong: for the table, and for people.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) signal: Signal,
    /// In words for an operator, without secrets.
    pub(super) text: String,
    /// The server's own wish for a pause.
    pub(super) wait: Option<Duration>,
}

/// A round's report, and what it means for the connection.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) report: Report,
    /// The trouble is that whole commands fail, so one document is enough to ask whether they still do. Otherwise whole
    /// batches go on: what the database does take must not wait for what it does not.
    pub(super) whole: bool,
    /// Close the connection: what it waits for is better waited for without one.
    pub(super) hang_up: bool,
}

/// Sends documents, oldest first.
pub(super) async fn deliver<W: Wire + Send>(
    wire: &mut W,
    breaker: &mut Breaker,
    documents: &mut [Document],
    store: &str,
) -> Outcome {
    let mut round = Round::new(documents.len(), store);
    let mut groups = by_collection(documents);
    while let Some(group) = groups.pop_front() {
        if group.is_empty() {
            continue;
        }
        group.iter().for_each(|&i| documents[i].tries += 1);
        let answer = if documents[group[0]].replaces {
            wire.replace(&group.iter().map(|&i| &documents[i]).collect::<Vec<_>>()).await
        } else {
            wire.insert(&mut chosen(documents, &group)).await
        };
        if !matches!(&answer, Answer::Failed(problem) if is_off(&problem.signal)) {
            hangups::answered(documents, &group);
        }
        match answer {
            Answer::Failed(problem) if problem.signal == Signal::Closed => {
                if !(round.hunt.is_on(documents, &group) && wire.answers().await) {
                    round.failed(documents, &group, problem, breaker);
                    break;
                }
                let alone = Some(group[0]).filter(|_| group.len() == 1);
                if round.hunt.narrows(documents, alone, &problem.text) {
                    take_apart(&mut groups, &group);
                } else if round.hunt.is_hopeless() && !round.fates.contains(&Fate::Delivered) {
                    break;
                }
            }
            Answer::Failed(problem) => {
                if classify(&problem.signal) == Class::Poison && group.len() > 1 {
                    take_apart(&mut groups, &group);
                } else if !round.failed(documents, &group, problem, breaker) {
                    break;
                }
            }
            Answer::Ran { concern: Some(problem), .. } => {
                // Applied, perhaps to be rolled back. The errors are told again when it is sent again.
                round.trouble(&problem);
                break;
            }
            Answer::Ran { errors, concern: None } => {
                let Some(taken) = round.ran(documents, &group, errors) else { break };
                let Some(again) = round.look_up(wire, documents, taken).await else { break };
                let (replacing, inserting) = again.into_iter().partition(|&i| documents[i].replaces);
                groups.push_front(inserting);
                groups.push_front(replacing);
            }
        }
    }
    round.close(documents, breaker)
}

struct Round<'a> {
    store: &'a str,
    fates: Vec<Fate>,
    /// Codes and words of refusals, until the breaker believes them.
    refused: Vec<Option<(i32, String)>>,
    in_a_row: u32,
    conflicts: u64,
    hunt: Hunt,
    /// An `_id` that was taken by other content, and the one that is tried instead.
    example: Option<(String, String)>,
    trouble: Option<Trouble>,
    whole: bool,
    hang_up: bool,
    /// The next try needs another connection.
    reconnects: bool,
}

impl<'a> Round<'a> {
    fn new(documents: usize, store: &'a str) -> Self {
        Self {
            store,
            fates: vec![Fate::Unsent; documents],
            refused: vec![None; documents],
            in_a_row: 0,
            conflicts: 0,
            hunt: Hunt::default(),
            example: None,
            trouble: None,
            whole: false,
            hang_up: false,
            reconnects: false,
        }
    }

    /// A command failed that was not taken apart; `false` ends the round.
    fn failed(&mut self, documents: &mut [Document], group: &[usize], problem: Problem, breaker: &Breaker) -> bool {
        if let ([one], Class::Poison) = (group, classify(&problem.signal)) {
            let code = code_of(&problem.signal);
            self.in_a_row += 1;
            self.refused[*one] = Some((code, problem.text));
            return !breaker.would_open(self.in_a_row, code);
        }
        for &i in group {
            self.riddle(&mut documents[i], &problem);
        }
        self.trouble(&problem);
        self.whole = true;
        false
    }

    /// A command ran; the documents whose `_id` is taken, or `None` if the answer makes no sense.
    fn ran(
        &mut self,
        documents: &mut [Document],
        group: &[usize],
        errors: Vec<(usize, Problem)>,
    ) -> Option<Vec<usize>> {
        let mut by_index: HashMap<usize, Problem> = HashMap::new();
        for (index, problem) in errors {
            if index >= group.len() || by_index.insert(index, problem).is_some() {
                let text =
                    format!("the server's answer makes no sense (error for document {index} of {})", group.len());
                self.add(TroubleKind::Transient, text, None);
                return None;
            }
        }
        let mut taken = Vec::new();
        for (index, &i) in group.iter().enumerate() {
            let problem = by_index.remove(&index);
            let signal = problem.as_ref().map_or(&Signal::Inserted, |problem| &problem.signal);
            match (classify(signal), problem) {
                (Class::Delivered, _) | (_, None) => {
                    self.fates[i] = Fate::Delivered;
                    self.in_a_row = 0;
                }
                (Class::LookUp, _) => taken.push(i),
                (Class::Poison, Some(problem)) => self.refused[i] = Some((code_of(&problem.signal), problem.text)),
                (_, Some(problem)) => {
                    self.riddle(&mut documents[i], &problem);
                    self.trouble(&problem);
                }
            }
        }
        Some(taken)
    }

    /// Looks at what stands under taken `_id`s. Gives those that must be sent under another one; `None` ends the round.
    async fn look_up<W: Wire>(
        &mut self,
        wire: &mut W,
        documents: &mut [Document],
        taken: Vec<usize>,
    ) -> Option<Vec<usize>> {
        if taken.is_empty() {
            return Some(Vec::new());
        }
        let asked: Vec<&Document> = taken.iter().map(|&i| &documents[i]).collect();
        let stored = match wire.stored(&asked).await {
            Ok(stored) => stored,
            Err(problem) => {
                self.trouble(&problem);
                return None;
            }
        };
        let mut again = Vec::new();
        for i in taken {
            let document = &mut documents[i];
            let found = stored.get(&document.id).copied().unwrap_or(Stored::Missing);
            match classify(&Signal::Taken(found)) {
                Class::Delivered => self.fates[i] = Fate::Delivered,
                // A late live update may have made it between our try and the look: then it is replaced now.
                Class::Replace if document.riddles < RIDDLES => {
                    document.riddles += 1;
                    document.replaces = true;
                    again.push(i);
                }
                Class::Conflict => {
                    self.conflicts += u64::from(document.rekeyed == 0);
                    let id = document.id.clone();
                    if document.rekey(self.store) {
                        self.example.get_or_insert_with(|| (id, document.id.clone()));
                        again.push(i);
                    } else {
                        let text = format!("`{id}` and both of its other names are taken by other content");
                        self.refused[i] = Some((super::classify::DUPLICATE_KEY, text));
                    }
                }
                _ => self.vanished(document),
            }
        }
        Some(again)
    }

    /// Its `_id` was taken and is not there: deleted meanwhile, or the duplicate is on an index that was not named.
    fn vanished(&mut self, document: &mut Document) {
        document.riddles += 1;
        let id = &document.id;
        if document.riddles < RIDDLES {
            self.add(TroubleKind::Transient, format!("`{id}` was taken but is not there now: sending again"), None);
        } else {
            let text = format!("`{id}` is told to be taken and is not there: is there another unique index?");
            self.add(TroubleKind::Stopped, text, None);
        }
    }

    /// Counts an error that is not understood; too many stop the line.
    fn riddle(&mut self, document: &mut Document, problem: &Problem) {
        if classify(&problem.signal) == Class::Unknown {
            document.riddles += 1;
            if document.riddles >= RIDDLES {
                let text = format!("{} ({} tries of `{}`)", problem.text, document.riddles, document.id);
                self.add(TroubleKind::Stopped, text, None);
            }
        }
    }

    fn trouble(&mut self, problem: &Problem) {
        let kind = match classify(&problem.signal) {
            Class::Stop => TroubleKind::Stopped,
            Class::Overload => TroubleKind::Overload,
            _ => TroubleKind::Transient,
        };
        self.hang_up |= kind == TroubleKind::Stopped || matches!(problem.signal, Signal::NoServer(_));
        self.reconnects |= is_off(&problem.signal);
        self.add(kind, problem.text.clone(), problem.wait);
    }

    /// Keeps the worst trouble; among equals, the first.
    fn add(&mut self, kind: TroubleKind, text: String, wait: Option<Duration>) {
        if self.trouble.as_ref().is_none_or(|known| known.kind < kind) {
            self.trouble = Some(Trouble { kind, text, wait, reconnects: false });
        }
    }

    /// What those are found to be that closed the connection alone.
    fn judge(&mut self, documents: &mut [Document]) {
        let others_are_taken = self.fates.contains(&Fate::Delivered);
        for (i, verdict) in std::mem::take(&mut self.hunt).verdicts(documents, others_are_taken) {
            match verdict {
                Verdict::Guilty(text) => self.refused[i] = Some((code_of(&Signal::Closed), text)),
                Verdict::Suspected(text) => {
                    self.reconnects = true;
                    self.add(TroubleKind::Transient, text, None);
                }
            }
        }
    }

    fn close(mut self, documents: &mut [Document], breaker: &mut Breaker) -> Outcome {
        self.judge(documents);
        if let Some((taken, instead)) = &self.example {
            tracing::warn!(
                "other content is stored under the ids of our buckets (a re-imaged card, or two gateways of one name?); nothing is overwritten: `{taken}` is sent as `{instead}`"
            );
        }
        let fared: Vec<Fared> = self
            .fates
            .iter()
            .zip(&self.refused)
            .filter_map(|(fate, refused)| match (fate, refused) {
                (Fate::Delivered, _) => Some(Fared::Delivered),
                (_, Some((code, _))) => Some(Fared::Refused(*code)),
                _ => None,
            })
            .collect();
        let believed = breaker.believes(&fared);
        let refusals: Vec<(usize, String)> =
            self.refused.iter_mut().enumerate().filter_map(|(i, r)| Some((i, r.take()?.1))).collect();
        if believed {
            for (i, text) in refusals {
                let tries = documents[i].tries;
                let times = if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") };
                self.fates[i] = Fate::Refused(format!("{text} ({times})"));
            }
        } else if let Some((_, text)) = refusals.into_iter().next() {
            let text = format!(
                "the database refuses too many buckets to be their fault (a changed validator?), nothing is dropped: {text}"
            );
            self.add(TroubleKind::Stopped, text, None);
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.reconnects = self.reconnects || self.hang_up;
        }
        let report =
            Report { fates: self.fates, conflicts: self.conflicts, trouble: self.trouble, ..Report::default() };
        Outcome { report, whole: self.whole && believed, hang_up: self.hang_up }
    }
}

/// Whether the connection that met this is of no use any more.
pub(super) fn is_off(signal: &Signal) -> bool {
    matches!(
        signal,
        Signal::NoServer(_) | Signal::NoName(_) | Signal::Login | Signal::Setup | Signal::Lost | Signal::Closed
    )
}

/// A problem outside a round, as a trouble: its kind is that of the table.
pub(super) fn trouble_of(problem: &Problem) -> Trouble {
    let kind = match classify(&problem.signal) {
        Class::Stop => TroubleKind::Stopped,
        Class::Overload => TroubleKind::Overload,
        _ => TroubleKind::Transient,
    };
    Trouble { kind, text: problem.text.clone(), wait: problem.wait, reconnects: is_off(&problem.signal) }
}

pub(super) fn code_of(signal: &Signal) -> i32 {
    match signal {
        Signal::Code { code, .. } => *code,
        _ => 0,
    }
}
