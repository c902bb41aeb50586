//! Accepted is delivered, stored, or in the ledger: after every step, and counted anew after every restart.

use super::*;
use crate::model::{DeadLetter, LetterKind, LossReason, TurnedAway};

/// What must have become of everything.
#[derive(Debug, Default)]
struct Model {
    accepted: i64,
    delivered: i64,
    refused_upstream: i64,
    too_old: i64,
    too_many: i64,
    time: i64,
}

impl Model {
    fn check(&self, site: &Site, step: &str) {
        let store = site.stats.store();
        let lost = |reason: LossReason| store.lost[reason as usize].get();
        let ledger: i64 = store.lost.iter().map(|lost| lost.get()).sum();
        let found = [store.accepted.get(), store.delivered.get()];
        assert_eq!(found, [self.accepted, self.delivered], "accepted and delivered after {step}");
        assert_eq!(found[0], found[1] + store.stored.get() + ledger, "the accounts after {step}: {self:?}");
        let known = [LossReason::Damaged, LossReason::RefusedUpstream, LossReason::TooOld, LossReason::TooManySensors];
        let expected = [0, self.refused_upstream, self.too_old, self.too_many];
        assert_eq!(known.map(lost), expected, "the ledger after {step}");
    }

    /// Readings of some sensors, the last of which is one too many, and some that come too late.
    fn delivery(&mut self, random: &mut fastrand::Rng) -> Delivery {
        let sensors = random.i64(1..=4);
        let mut readings = Vec::new();
        for n in 0..random.i64(1..1800) {
            self.time += 37;
            let value = Value::F64((self.time as f64).sin());
            readings.push(reading_ms(&format!("s{}", n % sensors), self.time, value));
            self.too_many += i64::from(n % sensors == 3);
        }
        let refused: Vec<_> = (0..random.usize(0..3))
            .map(|_| TurnedAway {
                sensor: SensorName::new("s0").unwrap(),
                at: Timestamp::clamped(START - 1000),
                reason: LossReason::TooOld,
            })
            .collect();
        self.accepted += (readings.len() + refused.len()) as i64;
        self.too_old += refused.len() as i64;
        Delivery { refused, urgent: true, ..Delivery::of(readings) }
    }

    /// Delivers the next segments; the upstream refuses some of their buckets for good.
    async fn deliver(&mut self, site: &mut Site, random: &mut fastrand::Rng, repeat: bool) {
        let Ok(parcel) = tokio::time::timeout(Duration::from_millis(10), site.outlet.next()).await else { return };
        let parcel = parcel.unwrap().unwrap();
        let mut letters = Vec::new();
        let (delivered, refused, evicted) = (self.delivered, self.refused_upstream, site.stats.store().evicted.get());
        for bucket in &parcel.buckets {
            let samples = if bucket.0.is_thinned() { 0 } else { bucket.samples() as i64 };
            if random.u8(0..64) == 0 {
                self.refused_upstream += samples;
                letters.push(DeadLetter {
                    at: site.clock.now(),
                    kind: LetterKind::Bucket,
                    source: None,
                    place: format!("{}/{}", parcel.id.0, letters.len()),
                    reason: "no".to_owned(),
                    payload: bucket.bytes().to_vec(),
                    lost: Some(bucket.lost(parcel.id, LossReason::RefusedUpstream)),
                });
            } else {
                self.delivered += samples;
            }
        }
        if repeat {
            // As when the daemon dies between the letters and their segment.
            let early = Settled { segments: vec![], dead_letters: letters.clone() };
            site.outlet.settle(early).await.unwrap();
        }
        let raced = site.stats.store().evicted.get() > evicted;
        site.outlet.settle(Settled { segments: vec![parcel.id], dead_letters: letters }).await.unwrap();
        if raced && site.stats.store().delivered.get() == delivered {
            // It was evicted between the two: its samples stand in the ledger once, under that reason.
            self.delivered = delivered;
            self.refused_upstream = site.stats.store().lost[LossReason::RefusedUpstream as usize].get().max(refused);
        }
    }
}

async fn run(seed: u64, when_full: WhenFull) {
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let time = clock();
    let config = |config: &mut Config| {
        config.max_bytes = ByteSize::mib(5);
        config.when_full = when_full;
    };
    let mut model = Model::default();
    let mut site = site_with(folder.path(), time.clone(), config, 200, 3).await;
    // Faster than it is delivered, until the budget is met.
    for round in 0..620 {
        let delivery = model.delivery(&mut random);
        site.commit(delivery).await;
        if random.u8(0..8) == 0 {
            let repeat = random.bool();
            model.deliver(&mut site, &mut random, repeat).await;
        }
        model.check(&site, &format!("seed {seed}, round {round}"));
        if random.u8(0..40) == 0 {
            if random.bool() {
                site.kill().await;
            } else {
                site.stop().await;
            }
            site = site_with(folder.path(), time.clone(), config, 200, 3).await;
            model.check(&site, &format!("seed {seed}, the restart in round {round}"));
        }
    }
    let lost = |reason: LossReason| site.stats.store().lost[reason as usize].get();
    match when_full {
        WhenFull::Thin => assert!(lost(LossReason::Thinned) > 0),
        _ => assert!(lost(LossReason::Evicted) > 0),
    }
    let entries = losses(&folder.path().join("t.db"), 0, Timestamp::LAST, 20_000).unwrap();
    assert!(entries.iter().any(|entry| entry.sensor.as_deref() == Some("s1")), "losses are told by sensor");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn accepted_is_delivered_or_stored_or_in_the_ledger_while_thinning() {
    run(1, WhenFull::Thin).await;
}

#[tokio::test(start_paused = true)]
async fn accepted_is_delivered_or_stored_or_in_the_ledger_while_evicting() {
    run(2, WhenFull::Evict).await;
}
