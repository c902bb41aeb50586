//! How much one command carries: a little more after each quick answer, half after trouble.

use std::time::Duration;

use super::super::MAX_DOCUMENT_BYTES;

/// Documents and bytes of the first command, at most.
const START_DOCUMENTS: usize = 100;
const START_BYTES: usize = 256 << 10;
/// Bytes that a command may always carry: a few full buckets.
const MIN_BYTES: usize = 16 << 10;
/// Most bytes of one command; the driver needs about three times as much memory while sending.
const MAX_BYTES: usize = 1 << 20;
/// Most bytes that wait beside them: two of the largest documents.
const MAX_BESIDE: usize = 2 * MAX_DOCUMENT_BYTES;
/// Growth after a quick answer.
const STEP_BYTES: usize = 32 << 10;
/// What counts as a quick answer,
const QUICK: Duration = Duration::from_millis(1500);
/// and what as a slow one: this much, or so many times as long as usual if that is not quick.
const SLOW: Duration = Duration::from_secs(5);
const UNUSUAL: u32 = 3;
/// How much one answer counts in what is usual.
const WEIGHT: f64 = 0.2;

/// The size of the next command.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    bytes: usize,
    probing: bool,
    /// Documents, and their bytes, that wait beside those of the next command.
    beside: (usize, usize),
    /// A moving average of how long answers take.
    usual: Option<Duration>,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self { bytes: START_BYTES, probing: false, beside: (0, 0), usual: None }
    }

    /// Most documents and bytes of the next command. While the line is stopped, one document asks whether it still is.
    pub(super) const fn limits(&self) -> (usize, usize) {
        // As the bytes grow the documents may, too: up to four hundred.
        let bytes = if self.bytes > START_BYTES { self.bytes } else { START_BYTES };
        let documents = START_DOCUMENTS * bytes / START_BYTES;
        if self.probing { (1, MIN_BYTES) } else { (documents + self.beside.0, self.bytes + self.beside.1) }
    }

    /// So many documents, and bytes, at the front wait for a command of their own: others come along all the same.
    pub(super) fn besides(&mut self, (documents, bytes): (usize, usize)) {
        self.beside = (documents, bytes.min(MAX_BESIDE));
    }

    /// A command of `sent` bytes was answered after `elapsed`.
    pub(super) fn answered(&mut self, elapsed: Duration, sent: usize) {
        self.probing = false;
        let usual = self.usual.unwrap_or(elapsed);
        self.usual = Some(usual.mul_f64(1.0 - WEIGHT) + elapsed.mul_f64(WEIGHT));
        if elapsed > SLOW || elapsed > QUICK.max(usual * UNUSUAL) {
            self.bytes = (self.bytes / 2).max(MIN_BYTES);
        } else if elapsed < QUICK && sent * 2 > self.bytes {
            self.bytes = (self.bytes + STEP_BYTES).min(MAX_BYTES);
        }
    }

    /// A command was lost, or the server asks for less.
    pub(super) fn troubled(&mut self) {
        self.bytes = (self.bytes / 2).max(MIN_BYTES);
    }

    /// A person must act. If nothing gets through, ask with one document; if other documents do, let them.
    pub(super) const fn stopped(&mut self, nothing_gets_through: bool) {
        self.probing = nothing_gets_through;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_grow_slowly_and_shrink_fast_within_bounds() {
        let mut pace = Pace::new();
        pace.answered(Duration::from_millis(10), 200 << 10);
        assert_eq!(pace.limits(), (112, 288 << 10));
        pace.answered(Duration::from_millis(10), 1 << 10);
        assert_eq!(pace.limits().1, 288 << 10, "a small command proves nothing");
        pace.answered(Duration::from_secs(6), 288 << 10);
        assert_eq!(pace.limits().1, 144 << 10);
        (0..10).for_each(|_| pace.troubled());
        assert_eq!(pace.limits(), (100, MIN_BYTES));
        (0..100).for_each(|_| pace.answered(Duration::ZERO, MAX_BYTES));
        assert_eq!(pace.limits(), (400, MAX_BYTES));
    }

    #[test]
    fn an_answer_that_takes_far_longer_than_usual_asks_for_less() {
        let mut pace = Pace::new();
        (0..20).for_each(|_| pace.answered(Duration::from_millis(200), 1 << 10));
        pace.answered(Duration::from_secs(2), 1 << 10);
        assert_eq!(pace.limits().1, 128 << 10);
        (0..40).for_each(|_| pace.answered(Duration::from_secs(2), 1 << 10));
        let slow_but_usual = pace.limits().1;
        pace.answered(Duration::from_secs(2), 1 << 10);
        assert_eq!(pace.limits().1, slow_but_usual);
    }

    #[test]
    fn what_waits_for_a_command_of_its_own_keeps_no_other_out() {
        let mut pace = Pace::new();
        pace.besides((1, 300 << 10));
        assert_eq!(pace.limits(), (101, 556 << 10));
        pace.besides((2, usize::MAX));
        assert_eq!(pace.limits(), (102, START_BYTES + MAX_BESIDE));
        pace.besides((0, 0));
        assert_eq!(pace.limits(), (100, START_BYTES));
    }

    #[test]
    fn a_stopped_line_is_probed_with_one_document() {
        let mut pace = Pace::new();
        pace.stopped(true);
        assert_eq!(pace.limits().0, 1);
        pace.stopped(false);
        assert_eq!(pace.limits().0, 100);
        pace.stopped(true);
        pace.answered(Duration::ZERO, 1000);
        assert_eq!(pace.limits().0, 100);
    }
}
