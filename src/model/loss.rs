//! Why readings were not kept, or not delivered: the fixed words of the loss ledger, and what a source turns away.

use super::{SensorName, Timestamp};

/// Why readings stand in the loss ledger. The words are part of what users see and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossReason {
    /// The site has `max_sensors` sensors already.
    TooManySensors,
    /// The site has as many field names as it may.
    TooManyFields,
    /// There was no room, and the source cannot send again.
    StoreFull,
    /// The samples were replaced by their rollups.
    Thinned,
    /// The bucket was deleted undelivered to make room.
    Evicted,
    /// What was stored can no longer be read.
    Damaged,
    /// Older than `bucket.max_age` when it arrived.
    TooOld,
    /// Before 2000: a device's clock was never set.
    BeforeClock,
    /// Further ahead of the gateway's clock than `site.max_future`.
    TooFarAhead,
    /// The database refused the bucket for good; it is a dead letter.
    RefusedUpstream,
}

impl LossReason {
    /// Every reason, in the order of their declaration.
    pub const ALL: [Self; 10] = [
        Self::TooManySensors,
        Self::TooManyFields,
        Self::StoreFull,
        Self::Thinned,
        Self::Evicted,
        Self::Damaged,
        Self::TooOld,
        Self::BeforeClock,
        Self::TooFarAhead,
        Self::RefusedUpstream,
    ];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::TooManySensors => "too-many-sensors",
            Self::TooManyFields => "too-many-fields",
            Self::StoreFull => "store-full",
            Self::Thinned => "thinned",
            Self::Evicted => "evicted",
            Self::Damaged => "damaged",
            Self::TooOld => "too-old",
            Self::BeforeClock => "before-2000",
            Self::TooFarAhead => "too-far-ahead",
            Self::RefusedUpstream => "refused-upstream",
        }
    }

    /// The reason of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }
}

/// A reading that was understood and is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// Whose.
    pub sensor: SensorName,
    /// The time that it claims.
    pub at: Timestamp,
    /// Why.
    pub reason: LossReason,
}

/// The accepted readings that go with a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBucket {
    /// The segment that held the bucket.
    pub segment: u64,
    /// Why it is not delivered.
    pub reason: LossReason,
    /// Whose it is, if that can be told.
    pub sensor: Option<SensorName>,
    /// No sample is earlier.
    pub first: Timestamp,
    /// No sample is later.
    pub last: Timestamp,
    /// Samples that it held; none if they had been thinned.
    pub samples: u32,
    /// The bucket in the store's own form, so that it can be sent again; empty if there is none.
    pub packed: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        for (place, reason) in LossReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            assert_eq!(LossReason::of_word(reason.word()), Some(reason));
        }
        assert_eq!(LossReason::of_word("nonsense"), None);
    }
}
