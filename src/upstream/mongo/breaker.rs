//! The circuit breaker: many refusals at once are a changed validator, not bad data.
//!
//! Three refusals in a row with one code, or over half of a batch of four or more, stop the line instead of emptying the
//! backlog into dead letters. Once open it closes again when a batch shows that the database takes other documents: at
//! least as many delivered as refused. Then those that it still refuses are guilty themselves.

/// Refusals in a row, with one code, that open the breaker.
const IN_A_ROW: u32 = 3;
/// Smallest batch of which "over half" says anything.
const SMALLEST_BATCH: usize = 4;

/// Whether refusals are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Breaker {
    row: u32,
    code: i32,
    open: bool,
}

/// How one document of a batch fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fared {
    /// Stored.
    Delivered,
    /// Refused for good, with this code.
    Refused(i32),
}

impl Breaker {
    /// Takes in a batch, in order; `false` means: do not believe its refusals, stop the line.
    pub(super) fn believes(&mut self, batch: &[Fared]) -> bool {
        let delivered = batch.iter().filter(|&&fared| fared == Fared::Delivered).count();
        let refused = batch.len() - delivered;
        if refused == 0 {
            if delivered > 0 {
                *self = Self::default();
            }
            return true;
        }
        if self.open {
            if delivered >= refused {
                *self = Self::default();
            }
            return !self.open;
        }
        let mut longest = 0;
        for fared in batch {
            match *fared {
                Fared::Delivered => self.row = 0,
                Fared::Refused(code) if self.row > 0 && code != self.code => (self.row, self.code) = (1, code),
                Fared::Refused(code) => (self.row, self.code) = (self.row + 1, code),
            }
            longest = longest.max(self.row);
        }
        self.open = longest >= IN_A_ROW || (batch.len() >= SMALLEST_BATCH && refused * 2 > batch.len());
        !self.open
    }

    /// Whether `refused` further ones with this code would open it: no need to try the rest of the batch.
    pub(super) fn would_open(&self, refused: u32, code: i32) -> bool {
        let row = if self.row > 0 && self.code == code { self.row } else { 0 };
        !self.open && row + refused >= IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Fared = Fared::Delivered;
    const BAD: Fared = Fared::Refused(121);
    const OTHER: Fared = Fared::Refused(2);

    fn check(batches: &[(&[Fared], bool)]) {
        let mut breaker = Breaker::default();
        for (batch, believed) in batches {
            assert_eq!(breaker.believes(batch), *believed, "{batch:?}");
        }
    }

    #[test]
    fn single_refusals_are_believed() {
        check(&[(&[GOOD, BAD, GOOD, GOOD, BAD], true), (&[GOOD, BAD], true), (&[BAD], true), (&[GOOD], true)]);
    }

    #[test]
    fn three_in_a_row_with_one_code_are_not() {
        check(&[(&[BAD, BAD, BAD], false)]);
        check(&[(&[BAD], true), (&[BAD], true), (&[BAD], false)]);
        check(&[(&[BAD], true), (&[OTHER], true), (&[BAD], true), (&[GOOD], true), (&[BAD], true)]);
    }

    #[test]
    fn over_half_of_a_batch_are_not() {
        check(&[(&[BAD, OTHER, GOOD, BAD], false)]);
        check(&[(&[BAD, OTHER, GOOD, GOOD], true)]);
        check(&[(&[BAD, OTHER, GOOD], true)]);
    }

    #[test]
    fn it_closes_when_others_are_taken() {
        check(&[
            (&[BAD, BAD, BAD], false),
            (&[BAD, BAD, BAD], false),
            (&[BAD, BAD, BAD, GOOD], false),
            (&[BAD, BAD, BAD, GOOD, GOOD, GOOD], true),
            (&[BAD, GOOD], true),
        ]);
        check(&[(&[BAD, BAD, BAD], false), (&[GOOD, GOOD, GOOD], true), (&[BAD], true)]);
    }
}
