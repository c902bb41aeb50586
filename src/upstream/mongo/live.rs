//! Bringing the documents of open buckets up to date. Whatever becomes of it, the sealed bucket takes their place.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use mongodb::bson::RawDocumentBuf;
use tokio::time::Instant;

use super::super::meter::COMMAND_BYTES;
use super::super::{LiveReport, LiveUpdate, Shown, Trouble, TroubleKind};
use super::Mongo;
use super::classify::{Class, Signal, classify};
use super::client::Link;
use super::deliver::{Problem, Wire, trouble_of};
use super::updates::Updated;

/// What updates need of a database.
pub(super) trait Updates {
    /// Runs one update command; ordered: none behind the first that fails is tried.
    fn update(
        &mut self,
        collection: &str,
        statements: &[&RawDocumentBuf],
        ordered: bool,
    ) -> impl Future<Output = Result<Updated, Problem>> + Send;

    /// Whether the database answers a ping.
    fn is_there(&mut self) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }
}

impl Updates for Link {
    async fn update(
        &mut self,
        collection: &str,
        statements: &[&RawDocumentBuf],
        ordered: bool,
    ) -> Result<Updated, Problem> {
        self.run_updates(collection, statements, ordered).await
    }

    async fn is_there(&mut self) -> bool {
        self.answers().await
    }
}

impl Mongo {
    /// Sends updates of open buckets.
    pub(in crate::upstream) async fn live(&mut self, updates: &[LiveUpdate]) -> LiveReport {
        if let Some((wait, text)) = self.meter.half_used(self.clock.now()) {
            return LiveReport { fates: vec![Shown::Unknown; updates.len()], trouble: None, off: Some((wait, text)) };
        }
        let (started, probe) = (Instant::now(), self.link.tuning.probe.0);
        let bytes = updates.iter().map(LiveUpdate::bytes).sum();
        let (mut report, is_away) = send(&mut self.link, updates, probe).await;
        self.used = Some(Instant::now());
        self.pay(bytes as u64 + COMMAND_BYTES);
        match &mut report.trouble {
            None if report.off.is_none() => self.pace.answered(started.elapsed(), bytes),
            None => {}
            Some(trouble) => {
                trouble.reconnects |= is_away;
                self.pace.troubled();
            }
        }
        if is_away {
            self.close().await;
        }
        report
    }
}

/// Sends the updates of each collection by one command; whether no server was there.
pub(super) async fn send<U: Updates + Send>(
    wire: &mut U,
    updates: &[LiveUpdate],
    probe: Duration,
) -> (LiveReport, bool) {
    let mut fates = vec![Shown::Unknown; updates.len()];
    let mut worst: Option<Trouble> = None;
    let mut is_away = false;
    let mut add = |problem: &Problem| {
        let trouble = trouble_of(problem);
        if worst.as_ref().is_none_or(|known| known.kind < trouble.kind) {
            worst = Some(trouble);
        }
    };
    for group in by_collection(updates) {
        let statements: Vec<&RawDocumentBuf> = group.iter().map(|&i| &updates[i].statement).collect();
        let updated = match wire.update(&updates[group[0]].collection, &statements, false).await {
            Ok(Updated { concern: None, errors, made }) => {
                group.iter().for_each(|&i| fates[i] = Shown::Done);
                made.iter().for_each(|&index| fates[group[index]] = Shown::Made);
                errors
            }
            Ok(Updated { concern: Some(problem), .. }) => {
                add(&problem);
                break;
            }
            Err(problem) => {
                is_away = matches!(problem.signal, Signal::NoServer(_));
                // Refused as a whole: there is no culprit worth looking for, the seal will find it.
                let refused = classify(&problem.signal) == Class::Poison;
                add(&if refused { Problem { signal: Signal::Setup, ..problem } } else { problem });
                break;
            }
        };
        for (index, problem) in updated {
            fates[group[index]] = match classify(&problem.signal) {
                Class::LookUp => Shown::Taken,
                Class::Poison => Shown::Refused(problem.text),
                _ => {
                    add(&problem);
                    Shown::Unknown
                }
            };
        }
    }
    // What a person must put right here need not concern complete buckets: they find out for themselves.
    let stopped = worst.take_if(|trouble| trouble.kind == TroubleKind::Stopped);
    let off = stopped.map(|trouble| (probe, trouble.text));
    (LiveReport { fates, trouble: worst, off }, is_away)
}

/// In the order of each collection's first update.
fn by_collection(updates: &[LiveUpdate]) -> VecDeque<Vec<usize>> {
    let mut groups: VecDeque<Vec<usize>> = VecDeque::new();
    for (i, update) in updates.iter().enumerate() {
        match groups.iter_mut().find(|group| updates[group[0]].collection == update.collection) {
            Some(group) => group.push(i),
            None => groups.push_back(vec![i]),
        }
    }
    groups
}
