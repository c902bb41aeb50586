//! A commit without a database: everything the store computes for one, so that this part can be measured alone.

use std::collections::HashMap;
use std::time::Duration;

use super::accounts::Accounts;
use super::calendar::Calendar;
use super::database::Budget;
use super::engine::{Count, Report, Setup};
use super::held::Held;
use super::journal::Journal;
use super::kept::Kept;
use super::lazy::{Lazy, Pool};
use super::ledger::{Ledger, Losses};
use super::names::Names;
use super::quarantine::Aside;
use super::redelivery::Redelivery;
use super::state::State;
use super::{Config, Delivery, StoreError, frame};
use crate::model::bucketer::Bucketer;
use crate::model::{Policies, SiteName, Timestamp};

/// A store that has everything but its file.
#[derive(Debug)]
pub struct Rehearsal {
    state: State,
}

impl Rehearsal {
    /// An empty one.
    pub fn new(policies: Policies, max_sensors: usize) -> Self {
        let Config { path, max_bytes, when_full, .. } = Config::default();
        let max_bytes = max_bytes.as_u64();
        let site = SiteName::new("rehearsal").expect("a sound name");
        let state = State {
            held_to: Default::default(),
            setup: Setup {
                site,
                path,
                max_bytes,
                beside: 0,
                when_full,
                max_sensors,
                clock: Default::default(),
                policies,
                blocks: Default::default(),
                write_behind: Duration::ZERO,
                pool: Pool::default(),
                keep: (Duration::ZERO, Duration::ZERO),
            },
            budget: Budget::of(max_bytes),
            names: Names::with_room_for(max_sensors),
            bucketer: Bucketer::default(),
            redelivery: Redelivery::default(),
            journal: Journal::default(),
            seq: 0,
            snapshot_seq: 0,
            next_segment: 1,
            backlog: Count::default(),
            accounts: Accounts::default(),
            has_accounts: true,
            ledger: Ledger::default(),
            damage: Vec::new(),
            losses: Losses::default(),
            reserve: Default::default(),
            is_tight: false,
            aside: Aside::default(),
            lazy: Lazy::default(),
            kept: Kept::default(),
            thinned_until: 0,
            spills: HashMap::new(),
            next_spill: 0,
            moment: None,
            calendar: Calendar::default(),
            calendar_is_new: false,
            held: Held::default(),
            stamps: HashMap::default(),
        };
        Self { state }
    }

    /// Does what a commit does up to the first byte for the database: bytes of the journal record and of segments.
    pub fn commit(&mut self, deliveries: &[Delivery], now: Timestamp) -> Result<(usize, usize), StoreError> {
        let mut report = Report::default();
        let traces = self.state.apply(deliveries, now, &mut report);
        let seq = self.state.seq + 1;
        let (record, segments) = self.state.plan(seq, traces, now, &mut report)?;
        self.state.seq = seq;
        let journal = frame::seal(&record.encode()).len();
        Ok((journal, segments.iter().map(|segment| segment.seal().len()).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BucketPolicy, FieldName, Reading, SensorName, Value, WindowLength};

    #[test]
    fn it_counts_what_would_be_written() {
        let policy = BucketPolicy {
            window: WindowLength::from_seconds(600).unwrap(),
            max_samples: 2,
            max_bytes: 65_536,
            grace: Duration::from_secs(30),
            decimals: None,
        };
        let mut rehearsal = Rehearsal::new(Policies { default: policy, by_sensor: HashMap::new() }, 10);
        let mut commit = |at: i64| {
            let at = Timestamp::clamped(1_796_043_600_000 + at);
            let fields = [(FieldName::new("t").unwrap(), Value::F64(21.5))].into_iter().collect();
            let reading = Reading::new(SensorName::new("s").unwrap(), at, fields).unwrap();
            rehearsal.commit(&[Delivery::of(vec![reading])], at).unwrap()
        };
        let (journal, segments) = commit(0);
        assert!(journal > 0 && segments == 0);
        let (_, segments) = commit(1);
        assert!(segments > 0, "two samples fill the bucket");
    }
}
