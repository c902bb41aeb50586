//! A server that closes the connection instead of answering: which document makes it do so?
//!
//! One closed connection says nothing, networks do that. So a document is suspected, and put aside in the end, only when
//!
//! - commands with it ended in a closed connection [`TOGETHER`] times in a row, while the server answered a ping at once,
//! - halving such a command again and again led to it,
//! - then, sent alone in [`ALONE`] further rounds, it closed the connection each time, while the server answered a ping
//!   *and took another document in the same round*.
//!
//! In an outage, and with a server that falls over whatever it is sent, the last is never true: nothing is put aside, and
//! everything is sent again. Whoever is answered in any way is suspected no more. What is remembered is lost with the
//! process; then it takes as many tries again. Plain state, no I/O.

use super::super::Document;

/// Commands in a row that end in a closed connection before one is taken apart.
const TOGETHER: u32 = 3;
/// Rounds in which a suspect must close it alone.
const ALONE: u32 = 5;
/// Most commands taken apart or blamed in one round: enough to find two among a hundred. Each costs the server a
/// connection or two.
const MOST: u32 = 16;

/// How often a document's commands were ended by a closed connection, since it was last answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hangups {
    together: u32,
    alone: u32,
    /// It goes alone, after all others.
    suspected: bool,
}

impl Hangups {
    /// Whether it goes alone, after all others.
    pub(crate) const fn is_suspected(self) -> bool {
        self.suspected
    }
}

/// One round's search.
#[derive(Debug, Default)]
pub(super) struct Hunt {
    closed: u32,
    /// Those that closed the connection alone, and in which words.
    alone: Vec<(usize, String)>,
}

/// What becomes of a document that closed the connection alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is put aside, for this reason.
    Guilty(String),
    /// It is sent again; in these words.
    Suspected(String),
}

impl Hunt {
    /// The connection was closed on a command of these documents; whether it is worth to ask if the server answers
    /// anything else.
    pub(super) fn is_on(&self, documents: &mut [Document], group: &[usize]) -> bool {
        group.iter().for_each(|&i| documents[i].hangups.together += 1);
        let is_suspect = |i: &usize| documents[*i].hangups.suspected || documents[*i].hangups.together >= TOGETHER;
        let often = group.iter().any(is_suspect);
        (often || self.closed > 0) && self.closed < MOST
    }

    /// It does. Whether the command is to be taken apart; if not, what was alone in it is suspected.
    pub(super) fn narrows(&mut self, documents: &mut [Document], alone: Option<usize>, words: &str) -> bool {
        self.closed += 1;
        if let Some(one) = alone {
            documents[one].hangups.suspected = true;
            self.alone.push((one, words.to_owned()));
        }
        alone.is_none()
    }

    /// Whether this one closed the connection alone in this round.
    pub(super) fn has_found(&self, one: usize) -> bool {
        self.alone.iter().any(|(found, _)| *found == one)
    }

    /// Whether so many closed the connection alone that others should have been taken by now, if any are.
    pub(super) const fn is_hopeless(&self) -> bool {
        self.alone.len() > 1
    }

    /// What the round says of those that closed the connection alone.
    pub(super) fn verdicts(self, documents: &mut [Document], others_are_taken: bool) -> Vec<(usize, Verdict)> {
        let of = |(i, words): (usize, String)| {
            let Document { id, hangups, .. } = &mut documents[i];
            hangups.alone += u32::from(others_are_taken);
            let times = hangups.alone;
            let verdict = if times >= ALONE {
                Verdict::Guilty(format!(
                    "the server closes the connection whenever it is sent this bucket alone ({times} times), and takes others: {words}"
                ))
            } else if times > 0 {
                Verdict::Suspected(format!(
                    "the server closes the connection when it is sent `{id}` alone ({times} times so far, a dead letter after {ALONE}), and takes others: {words}"
                ))
            } else {
                Verdict::Suspected(words)
            };
            (i, verdict)
        };
        self.alone.into_iter().map(of).collect()
    }
}

/// These documents were answered.
pub(super) fn answered(documents: &mut [Document], group: &[usize]) {
    group.iter().for_each(|&i| documents[i].hangups = Hangups::default());
}

/// Number and bytes of suspects among documents that wait: they go alone, so the next command's bounds are not for them.
pub(super) fn suspects<'a>(documents: impl Iterator<Item = &'a Document>) -> (usize, usize) {
    let suspected = documents.filter(|document| document.hangups.is_suspected());
    suspected.fold((0, 0), |(count, bytes), document| (count + 1, bytes + document.bytes()))
}
