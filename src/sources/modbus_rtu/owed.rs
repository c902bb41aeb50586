//! What a device has been asked and not yet answered: the reason why an answer can be doubtful.

use std::time::Duration;

use tokio::time::Instant;

use super::bus::Outcome;
use crate::decode::modbus::Request;

/// How long an answer may be late and still be expected. Devices that are slower than this exist nowhere.
const LATE: Duration = Duration::from_secs(10);
/// Most unanswered requests of one device that are remembered: more than a device's input buffer holds.
const MAX_OWED: usize = 16;

/// Requests that were sent to one device, that it has not answered and perhaps still will; the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Owed {
    pub(super) sent: Vec<(Request, Instant)>,
    pub(super) is_hopeless: bool,
}

impl Owed {
    /// How long the device must be left alone before its answers can be told apart again, if they cannot now.
    pub(super) fn rest(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.is_hopeless).then_some(LATE)
    }

    /// `request` is being sent.
    pub(super) fn add(&mut self, request: &Request) {
        self.sent.retain(|(_, since)| since.elapsed() < LATE);
        if self.sent.len() == MAX_OWED {
            self.sent.remove(0);
        }
        self.sent.push((*request, Instant::now()));
    }

    /// `request` was answered, undoubtedly. If it was sent more than once, the answer may be that to the first time.
    pub(super) fn settle(&mut self, request: &Request) {
        let first = self.sent.iter().position(|(owed, _)| owed == request);
        let last = self.sent.iter().rposition(|(owed, _)| owed == request);
        match (first, last) {
            (Some(first), Some(last)) if first < last => self.sent.drain(..=first),
            _ => self.sent.drain(..),
        };
    }

    /// Something was answered that looks like `request`, but the answer came damaged.
    pub(super) fn settle_oldest_like(&mut self, request: &Request) {
        let like = |owed: &Request| owed.table == request.table && owed.data_bytes() == request.data_bytes();
        if let Some(oldest) = self.sent.iter().position(|(owed, _)| like(owed)) {
            self.sent.drain(..=oldest);
        }
    }

    /// How many owed answers could look like what came on `request`; 0 if all that could are answers to it.
    pub(super) fn doubts(&self, outcome: &Outcome, request: &Request) -> usize {
        let fits = |owed: &Request| match outcome {
            Outcome::Data { data, .. } => owed.table == request.table && owed.data_bytes() == data.len(),
            _ => owed.table == request.table,
        };
        let like = || self.sent.iter().map(|(owed, _)| owed).filter(|owed| fits(owed));
        if like().all(|owed| owed == request) { 0 } else { like().count() }
    }

    /// A request about what `request` is about, whose reply has a length that nothing owed has. Fewer entries where
    /// that is possible: they certainly exist.
    pub(super) fn unlike(&self, request: &Request) -> Request {
        let step = if request.table.is_bits() { 8 } else { 1 };
        let fewer = (1..=MAX_OWED as u16 + 1).filter_map(|n| request.count.checked_sub(n * step));
        let more = (1..=MAX_OWED as u16 + 1).map(|n| request.count + n * step);
        let counts = fewer.chain(more).filter(|count| (1..=request.table.most()).contains(count));
        let free = |probe: &Request| self.sent.iter().all(|(owed, _)| owed.data_bytes() != probe.data_bytes());
        counts.map(|count| Request { count, ..*request }).find(free).unwrap_or(*request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::modbus::Table;

    fn request(table: Table, address: u16, count: u16) -> Request {
        Request { unit: 1, table, address, count }
    }

    fn data(bytes: usize) -> Outcome {
        Outcome::Data { data: vec![0; bytes], frame: vec![] }
    }

    #[test]
    fn only_answers_of_the_same_shape_are_doubtful() {
        let mut owed = Owed::default();
        let asked = request(Table::Input, 0, 2);
        owed.add(&asked);
        owed.add(&asked);
        assert_eq!(owed.doubts(&data(4), &asked), 0, "either answer is right");
        owed.settle(&asked);
        assert_eq!(owed.sent.len(), 1, "the second answer may still come");
        let next = request(Table::Input, 10, 2);
        owed.add(&next);
        assert_eq!(owed.doubts(&data(4), &next), 2);
        assert_eq!(owed.doubts(&data(4), &request(Table::Holding, 0, 2)), 0);
        assert_eq!(owed.doubts(&data(6), &request(Table::Input, 0, 3)), 0);
        owed.settle(&next);
        assert!(owed.sent.is_empty(), "answers come in order");
    }

    #[test]
    fn a_probe_has_a_length_of_its_own() {
        let check = |owed_counts: &[u16], table, count, expected| {
            let mut owed = Owed::default();
            owed_counts.iter().for_each(|&n| owed.add(&request(table, 500, n)));
            assert_eq!(owed.unlike(&request(table, 0, count)).count, expected);
        };
        check(&[4], Table::Input, 4, 3);
        check(&[4, 3, 2], Table::Input, 4, 1);
        check(&[1], Table::Input, 1, 2);
        check(&[125, 124], Table::Holding, 125, 123);
        check(&[8], Table::Coil, 8, 16);
        check(&[20], Table::Coil, 20, 12);
    }
}
