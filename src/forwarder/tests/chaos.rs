//! The forwarder against an upstream that does everything an upstream may do, at random.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::{Forwarder, Way};
use super::{FakeBacklog, Shared, context};
use crate::clock::Clock;
use crate::model::Timestamp;
use crate::stats::Stats;
use crate::upstream::{Config, Document, Fate, Manners, Report, Trouble, TroubleKind, Tuning};

/// It remembers what it stored for good.
struct Chaos {
    world: Shared,
    random: fastrand::Rng,
    stored: Arc<Mutex<HashSet<String>>>,
    held: Vec<String>,
}

impl Chaos {
    fn flush(&mut self) -> bool {
        let any = !self.held.is_empty();
        self.stored.lock().unwrap().extend(self.held.drain(..));
        any
    }

    fn trouble(&mut self) -> Option<Trouble> {
        let kinds = [TroubleKind::Transient, TroubleKind::Overload, TroubleKind::Stopped];
        let kind = self.random.choice(kinds)?;
        self.random.bool().then(|| Trouble { kind, text: "chaos".into(), wait: None, reconnects: false })
    }
}

impl Way for Chaos {
    fn manners(&self) -> Manners {
        self.world.with(|world| world.manners.clone()).unwrap_or_else(Manners::none)
    }

    fn limits(&self) -> (usize, usize) {
        (7, 1 << 14)
    }

    async fn deliver(&mut self, documents: &mut [Document], _: &str) -> Report {
        tokio::time::sleep(Duration::from_millis(self.random.u64(0..50))).await;
        let mut report = Report { trouble: self.trouble(), ..Report::default() };
        if self.random.u8(0..20) == 0 {
            self.held.clear();
            report.dropped = true;
        } else if self.random.u8(0..10) == 0 {
            report.flushed = self.flush();
        }
        for document in documents {
            let fate = match self.random.u8(0..10) {
                0 => Fate::Refused("chaos".into()),
                1..=3 => Fate::Unsent,
                4..=5 => Fate::Held,
                _ => Fate::Delivered,
            };
            match fate {
                Fate::Held => self.held.push(document.id.clone()),
                Fate::Delivered => drop(self.stored.lock().unwrap().insert(document.id.clone())),
                _ => {}
            }
            report.fates.push(fate);
        }
        self.world.with(|world| world.held = self.held.len());
        report
    }

    fn due(&self) -> Option<Instant> {
        (!self.held.is_empty()).then(|| Instant::now() + Duration::from_secs(60))
    }

    async fn attend(&mut self) -> Report {
        let flushed = self.flush();
        Report { flushed, ..Report::default() }
    }

    async fn close(&mut self) -> Report {
        self.attend().await
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_an_upstream_does_nothing_is_settled_before_it_is_safe() {
    for seed in 0..30 {
        let world = Shared::default();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut all = Vec::new();
        for id in 1..=40 {
            let names: Vec<String> = (0..random.u32(0..9)).map(|i| format!("{id}x{i}")).collect();
            world.segment(id, &names.iter().map(String::as_str).collect::<Vec<_>>());
            all.extend(names.into_iter().map(|name| format!("s/{name}|20261130T130000.000Z|600|0")));
        }
        world.with(|w| (w.ended, w.settle_fails) = (true, 3));
        // In one lane, and in two.
        let config = Config { spread: Duration::ZERO, ..Config::default() };
        world.with(|w| w.manners = (seed % 2 == 1).then(|| Manners::new(&config, &context().site)));
        let stored = Arc::new(Mutex::new(HashSet::new()));
        let way = Chaos { world: world.clone(), random, stored: Arc::clone(&stored), held: Vec::new() };
        let stats = Stats::default();
        let forwarder = Forwarder::new(
            FakeBacklog::new(&world),
            way,
            context(),
            &Tuning::default(),
            String::new(),
            Clock::virtual_from(Timestamp::EPOCH),
            stats.clone(),
            CancellationToken::new(),
        );
        forwarder.run().await.unwrap();
        world.with(|w| {
            assert!(w.segments.is_empty(), "seed {seed}");
            let letters: HashSet<&str> = w.letters.iter().map(|l| l.place.as_str()).collect();
            let stored = stored.lock().unwrap();
            for id in &all {
                assert!(stored.contains(id) || letters.contains(id.as_str()), "seed {seed}: {id} is lost");
            }
        });
    }
}
