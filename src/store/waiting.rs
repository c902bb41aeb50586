//! Deliveries that wait while nothing can be committed: the disk is full, or away.
//!
//! They wait in memory, up to a bound. Beyond it those of sources that cannot send again (a serial line, QoS 0) are turned
//! away, the oldest first, and counted for the ledger; a broker's stay, and it is the broker that waits then.

use std::collections::{BTreeMap, VecDeque};

use super::Delivery;
use super::ledger::Loss;
use crate::model::SensorName;

/// Weight beyond which deliveries are turned away: half of what may wait for a commit, so that sources are not stopped
/// before it is reached.
const MAX_WEIGHT: usize = 2 << 20;
/// Most sensors whose losses are counted apart before the next commit.
const MAX_SENSORS: usize = 100_000;

/// Readings of one sensor, or of some that nobody could count apart, that were turned away.
pub(super) type TurnedAwayLoss = (Option<SensorName>, Loss);

/// What waits, and what could not.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    deliveries: VecDeque<(Delivery, u32)>,
    weight: usize,
    away: BTreeMap<Option<SensorName>, Loss>,
}

impl Waiting {
    /// Whether more can wait: there is room, or something that can be turned away.
    pub(super) fn has_room(&self) -> bool {
        self.weight <= MAX_WEIGHT
    }

    /// Lets a delivery wait; the weight of those that are turned away for it.
    pub(super) fn push(&mut self, delivery: Delivery, weight: u32) -> usize {
        self.deliveries.push_back((delivery, weight));
        self.weight += weight as usize;
        let before = self.weight;
        while self.weight > MAX_WEIGHT
            && let Some(place) = self.deliveries.iter().position(|(delivery, _)| delivery.receipt.is_none())
            && let Some((delivery, weight)) = self.deliveries.remove(place)
        {
            self.weight -= weight as usize;
            self.turn_away(&delivery);
        }
        before - self.weight
    }

    /// The oldest.
    pub(super) fn pop(&mut self) -> Option<(Delivery, u32)> {
        let (delivery, weight) = self.deliveries.pop_front()?;
        self.weight -= weight as usize;
        Some((delivery, weight))
    }

    /// What was turned away since the last call, by sensor.
    pub(super) fn turned_away(&mut self) -> Vec<TurnedAwayLoss> {
        std::mem::take(&mut self.away).into_iter().collect()
    }

    /// It could not be put on record.
    pub(super) fn put_back(&mut self, away: Vec<TurnedAwayLoss>) {
        away.into_iter().for_each(|(sensor, loss)| self.count(sensor.as_ref(), loss));
    }

    fn turn_away(&mut self, delivery: &Delivery) {
        let kept = delivery.readings.iter().map(|reading| (&reading.sensor, reading.at));
        let refused = delivery.refused.iter().map(|refused| (&refused.sensor, refused.at));
        for (sensor, at) in kept.chain(refused) {
            self.count(Some(sensor), Loss { first: at, last: at, samples: 1 });
        }
    }

    fn count(&mut self, sensor: Option<&SensorName>, loss: Loss) {
        // Beyond all bounds the count is still right, under no name.
        let is_named = self.away.len() < MAX_SENSORS;
        let key = sensor.filter(|sensor| is_named || self.away.contains_key(&Some((*sensor).clone()))).cloned();
        let known = self.away.entry(key).or_insert(Loss { samples: 0, ..loss });
        known.first = known.first.min(loss.first);
        known.last = known.last.max(loss.last);
        known.samples += loss.samples;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::model::{FieldName, Reading, Timestamp, Value};
    use crate::store::Receipt;

    fn delivery(sensor: &str, n: i64, receipt: Option<Receipt>) -> Delivery {
        let fields = [(FieldName::new("t").unwrap(), Value::I64(n))].into_iter().collect();
        let at = Timestamp::clamped(1_796_043_600_000 + n);
        let reading = Reading::new(SensorName::new(sensor).unwrap(), at, fields).unwrap();
        Delivery { receipt, ..Delivery::of(vec![reading]) }
    }

    #[test]
    fn the_oldest_of_those_that_cannot_come_again_are_turned_away_and_counted() {
        let mut waiting = Waiting::default();
        let (to, _receipts) = mpsc::channel(1);
        let third = (MAX_WEIGHT / 3) as u32;
        assert_eq!(waiting.push(delivery("mqtt", 0, Some(Receipt::new(to.clone(), 0))), third), 0);
        assert_eq!(waiting.push(delivery("line", 1, None), third), 0);
        assert_eq!(waiting.push(delivery("line", 2, None), third), 0);
        assert_eq!(waiting.push(delivery("line", 3, None), third), third as usize);
        assert_eq!(waiting.push(delivery("mqtt", 4, Some(Receipt::new(to.clone(), 1))), third), third as usize);
        assert_eq!(waiting.push(delivery("mqtt", 5, Some(Receipt::new(to.clone(), 2))), third), third as usize);
        assert!(waiting.has_room());
        assert_eq!(waiting.push(delivery("mqtt", 6, Some(Receipt::new(to, 3))), third), 0);
        assert!(!waiting.has_room(), "a broker waits, and loses nothing");
        let away = waiting.turned_away();
        let told: Vec<_> =
            away.iter().map(|(s, l)| (s.as_ref().unwrap().as_str(), l.first.as_millis() % 1000, l.samples)).collect();
        assert_eq!(told, [("line", 1, 3)]);
        waiting.put_back(away);
        assert_eq!(waiting.turned_away()[0].1.samples, 3);
        let order: Vec<_> =
            std::iter::from_fn(|| waiting.pop()).map(|(d, _)| d.readings[0].at.as_millis() % 1000).collect();
        assert_eq!(order, [0, 4, 5, 6]);
    }
}
