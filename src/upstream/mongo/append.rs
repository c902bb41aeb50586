//! Readings one by one into documents that others write too: in order, and not exact.
//!
//! Nothing in such an update tells a reading that came before from a new one. Where an answer came, only what it names as
//! failed is sent again. Where none came (a lost reply, a kill, no majority), the readings are sent again although they may
//! be stored: rather twice than never. That goes for the search for a reading at which the server hangs up, too: it is by
//! halves (see [`super::hangups`]), and what of a half was done before the connection closed is not known.

use mongodb::bson::RawDocumentBuf;

use super::super::{Document, Fate, Report, Trouble, TroubleKind};
use super::breaker::{Breaker, Fared};
use super::classify::{Class, DUPLICATE_KEY, Signal, classify};
use super::deliver::{Outcome, Problem, RIDDLES, code_of, is_off, trouble_of};
use super::hangups::{self, Hunt, Verdict};
use super::live::Updates;
use super::series::disbelieved;
use super::updates::Updated;

/// Most updates in one command.
const MAX_UPDATES: usize = 1000;
/// Most bytes of one command.
const MAX_BYTES: usize = 1 << 20;

/// Sends what of the documents is not certainly done, oldest first.
pub(super) async fn deliver<U: Updates + Send>(
    wire: &mut U,
    breaker: &mut Breaker,
    documents: &mut [Document],
) -> Outcome {
    let mut round = Round::new(documents.len());
    let mut broke: Option<Trouble> = None;
    let mut is_away = false;
    while let Some(batch) = round.batch(documents) {
        let first = batch[0].0;
        let sent: Vec<&RawDocumentBuf> = batch.iter().map(|&(i, row)| &documents[i].rows[row]).collect();
        let collection = documents[first].collection.clone();
        let answer = wire.update(&collection, &sent, true).await;
        let group = documents_of(&batch);
        group.iter().for_each(|&i| documents[i].tries += 1);
        match &answer {
            Err(problem) if problem.signal == Signal::Closed => {
                if round.hunt.is_on(documents, &group) && wire.is_there().await {
                    round.narrow(documents, &batch, &problem.text);
                    if round.hunt.is_hopeless() && !round.fates.contains(&Fate::Delivered) {
                        break;
                    }
                    continue;
                }
            }
            Err(problem) if is_off(&problem.signal) => {}
            _ => hangups::answered(documents, &group),
        }
        if let Err(problem) = round.take(documents, &batch, answer) {
            is_away = matches!(problem.signal, Signal::NoServer(_));
            broke = Some(trouble(&mut documents[first], &problem));
            break;
        }
        if round.is_hopeless(breaker) {
            break;
        }
    }
    if let Some(trouble) = round.judge(documents) {
        broke.get_or_insert(trouble);
    }
    if !breaker.believes(&round.fared) {
        broke = Some(disbelieved(&mut round.fates));
    }
    let hang_up = is_away || broke.as_ref().is_some_and(|trouble| trouble.kind == TroubleKind::Stopped);
    if let Some(trouble) = &mut broke {
        trouble.reconnects |= hang_up;
    }
    Outcome { report: Report { fates: round.fates, trouble: broke, ..Report::default() }, whole: false, hang_up }
}

struct Round {
    fates: Vec<Fate>,
    fared: Vec<Fared>,
    /// Of the next updates, so many among which one is looked for that fails a whole command; 0: none is.
    among: usize,
    hunt: Hunt,
}

/// Documents and rows of one command.
type Batch = Vec<(usize, usize)>;

/// The documents of a command, each once.
fn documents_of(batch: &[(usize, usize)]) -> Vec<usize> {
    let mut all: Vec<usize> = batch.iter().map(|(i, _)| *i).collect();
    all.dedup();
    all
}

impl Round {
    fn new(documents: usize) -> Self {
        Self { fates: vec![Fate::Unsent; documents], fared: Vec::new(), among: 0, hunt: Hunt::default() }
    }

    /// The next updates, all for one collection; `None` when everything is settled. Suspects go at the end, reading by
    /// reading.
    fn batch(&mut self, documents: &[Document]) -> Option<Batch> {
        let is_suspected = |i: &usize| documents[*i].hangups.is_suspected();
        let (suspects, others): (Vec<usize>, Vec<usize>) = (0..documents.len()).partition(is_suspected);
        let most = if self.among > 0 { (self.among / 2).max(1) } else { MAX_UPDATES };
        let batch = self.batch_of(documents, &others, most);
        let suspects: Vec<usize> = suspects.into_iter().filter(|i| !self.hunt.has_found(*i)).collect();
        batch.or_else(|| self.batch_of(documents, &suspects, 1))
    }

    fn batch_of(&mut self, documents: &[Document], of: &[usize], most: usize) -> Option<Batch> {
        let mut batch = Batch::new();
        let mut bytes = 0;
        for &i in of {
            let document = &documents[i];
            if self.fates[i] != Fate::Unsent {
                continue;
            }
            if document.rows.is_empty() {
                let words = "readings are appended one by one, and those of this bucket were given up for want of room";
                self.refused(i, 0, words.to_owned());
                continue;
            }
            let is_another = |&(first, _): &(usize, usize)| documents[first].collection != document.collection;
            if batch.first().is_some_and(is_another) {
                break;
            }
            for row in document.done..document.rows.len() {
                bytes += document.rows[row].as_bytes().len();
                if !batch.is_empty() && (batch.len() >= most || bytes > MAX_BYTES) {
                    return Some(batch);
                }
                batch.push((i, row));
            }
        }
        Some(batch).filter(|batch| !batch.is_empty())
    }

    /// Takes in an answer; an error if the rest would fare alike.
    fn take(
        &mut self,
        documents: &mut [Document],
        batch: &[(usize, usize)],
        answer: Result<Updated, Problem>,
    ) -> Result<(), Problem> {
        match answer {
            Ok(Updated { concern: Some(problem), .. }) => Err(problem),
            Ok(Updated { concern: None, errors, .. }) => {
                let failed = errors.into_iter().next();
                let done = failed.as_ref().map_or(batch.len(), |(index, _)| *index);
                batch[..done].iter().for_each(|&(i, row)| self.done(documents, i, row));
                self.among = self.among.saturating_sub(done);
                failed.map_or(Ok(()), |(index, problem)| {
                    self.failed(&mut documents[batch[index].0], batch[index].0, problem)
                })
            }
            Err(problem) if classify(&problem.signal) == Class::Poison => {
                // Which one it was is not said, and none was done: ask with fewer.
                self.among = batch.len();
                let (i, _) = batch[0];
                if batch.len() == 1 {
                    self.among = 0;
                    self.refused_by(&documents[i], i, &problem);
                }
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    /// The connection was closed on these, and the server is there: the reading that made it do so is among them.
    fn narrow(&mut self, documents: &mut [Document], batch: &[(usize, usize)], words: &str) {
        let alone = Some(batch[0].0).filter(|_| batch.len() == 1);
        self.among = if self.hunt.narrows(documents, alone, words) { batch.len() } else { 0 };
    }

    /// What those are found to be that closed the connection alone.
    fn judge(&mut self, documents: &mut [Document]) -> Option<Trouble> {
        let others_are_taken = self.fates.contains(&Fate::Delivered);
        let mut suspected = None;
        for (i, verdict) in std::mem::take(&mut self.hunt).verdicts(documents, others_are_taken) {
            match verdict {
                Verdict::Guilty(text) => self.put_aside(&documents[i], i, code_of(&Signal::Closed), &text),
                Verdict::Suspected(text) => {
                    let trouble = Trouble { kind: TroubleKind::Transient, text, wait: None, reconnects: true };
                    suspected.get_or_insert(trouble);
                }
            }
        }
        suspected
    }

    fn done(&mut self, documents: &mut [Document], i: usize, row: usize) {
        let document = &mut documents[i];
        document.done = row + 1;
        document.riddles = 0;
        if document.done == document.rows.len() {
            self.fates[i] = Fate::Delivered;
            self.fared.push(Fared::Delivered);
        }
    }

    /// One update failed; those before it are done, those behind it were not tried.
    fn failed(&mut self, document: &mut Document, i: usize, problem: Problem) -> Result<(), Problem> {
        let is_taken = matches!(problem.signal, Signal::Code { code: DUPLICATE_KEY, .. });
        match classify(&problem.signal) {
            // Somebody else made the document at the same moment: now it is there to be added to.
            Class::Poison | Class::LookUp if is_taken && document.riddles < RIDDLES => {
                document.riddles += 1;
                Ok(())
            }
            Class::Poison | Class::LookUp => {
                self.refused_by(document, i, &problem);
                Ok(())
            }
            _ => Err(problem),
        }
    }

    fn refused_by(&mut self, document: &Document, i: usize, problem: &Problem) {
        let hint = match problem.signal {
            Signal::Code { code: DUPLICATE_KEY, .. } => ": a unique index keeps a window from having a second document",
            _ => "",
        };
        self.put_aside(document, i, code_of(&problem.signal), &format!("{}{hint}", problem.text));
    }

    fn put_aside(&mut self, document: &Document, i: usize, code: i32, why: &str) {
        let (stored, all, tries) = (document.done, document.rows.len(), document.tries);
        self.refused(i, code, format!("{why} ({stored} of {all} readings are stored, {tries} tries)"));
    }

    /// So many were refused in a row that nobody will believe it: no need to try the rest.
    fn is_hopeless(&self, breaker: &Breaker) -> bool {
        let Some(Fared::Refused(code)) = self.fared.last() else { return false };
        let alike = |fared: &&Fared| **fared == Fared::Refused(*code);
        breaker.would_open(self.fared.iter().rev().take_while(alike).count() as u32, *code)
    }

    fn refused(&mut self, i: usize, code: i32, words: String) {
        self.fates[i] = Fate::Refused(words);
        self.fared.push(Fared::Refused(code));
    }
}

/// What ended a round; an error that is not known stops the line when it comes again and again.
fn trouble(document: &mut Document, problem: &Problem) -> Trouble {
    let mut trouble = trouble_of(problem);
    if classify(&problem.signal) == Class::Unknown {
        document.riddles += 1;
        if document.riddles >= RIDDLES {
            trouble.kind = TroubleKind::Stopped;
            trouble.text = format!("{} ({} tries of `{}`)", problem.text, document.riddles, document.id);
        }
    }
    trouble
}
