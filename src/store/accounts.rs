//! The store's accounts: what was accepted is delivered, stored, or in the ledger. Always.
//!
//! `accepted` and `delivered` are in every redo record, `stored` is counted from what is on disk (of what lies in segments
//! the record tells, so that a start need not look at each), the ledger adds itself up: figures from different places, so
//! that a mistake in one of them shows. They are compared at each start; readings that are missing then were on damaged
//! pages, and are put on record as such. `verify` counts everything.

use super::ledger::{Ledger, Loss, Losses};
use crate::model::varint::{self, Damaged, Reader};
use crate::model::{LossReason, Timestamp};

/// Readings since the file was born.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Taken charge of: kept, or put on record as refused.
    pub accepted: u64,
    /// Proven stored upstream.
    pub delivered: u64,
    /// In open or sealed buckets, as samples.
    pub stored: u64,
}

impl Accounts {
    /// Readings were put into open buckets.
    pub(super) const fn kept(&mut self, readings: u64) {
        self.accepted += readings;
        self.stored += readings;
    }

    /// Readings were refused; they go into the ledger.
    pub(super) const fn refused(&mut self, readings: u64) {
        self.accepted += readings;
    }

    /// Samples were delivered, and are gone here.
    pub(super) const fn delivered(&mut self, samples: u64) {
        self.delivered += samples;
        self.stored = self.stored.saturating_sub(samples);
    }

    /// Stored samples went into the ledger.
    pub(super) const fn lost(&mut self, samples: u64) {
        self.stored = self.stored.saturating_sub(samples);
    }

    /// Readings that are nowhere (positive), or more than were accepted (negative).
    pub const fn missing(&self, ledger: u64) -> i128 {
        self.accepted as i128 - (self.delivered as i128 + self.stored as i128 + ledger as i128)
    }

    /// In a record: what is stored is that part of it that lies in segments, as samples; the rest is counted.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        [self.accepted, self.delivered, self.stored].into_iter().for_each(|number| varint::put(out, number));
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self { accepted: input.varint()?, delivered: input.varint()?, stored: input.varint()? })
    }

    /// A reading that had been accepted was the same as another one.
    pub(super) const fn was_duplicate(&mut self) {
        self.accepted = self.accepted.saturating_sub(1);
        self.stored = self.stored.saturating_sub(1);
    }

    /// What is known from the records, if anything, with what was counted on disk. Readings that are nowhere were lost
    /// by damage; buckets that came back though they were delivered are accepted anew.
    pub(super) fn settle(known: Option<Self>, stored: u64, ledger: &Ledger, losses: &mut Losses) -> Self {
        let recorded = ledger.samples() + losses.samples();
        let Some(known) = known else {
            // The first start of a release that keeps accounts.
            return Self { accepted: stored + recorded, delivered: 0, stored };
        };
        let mut accounts = Self { stored, ..known };
        match accounts.missing(recorded) {
            0 => {}
            missing if missing > 0 => {
                let samples = u64::try_from(missing).unwrap_or(u64::MAX);
                tracing::error!("{samples} accepted readings can no longer be read; the ledger has them as damaged");
                losses.add(None, LossReason::Damaged, Loss { first: Timestamp::EPOCH, last: Timestamp::LAST, samples });
            }
            surplus => {
                let samples = u64::try_from(-surplus).unwrap_or(u64::MAX);
                tracing::warn!("{samples} readings came back that were delivered; they are delivered again");
                accounts.accepted += samples;
            }
        }
        accounts
    }
}
