//! The bounded way into the store. Its bound is in bytes, so that neither many small nor a few huge deliveries fill memory.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::Delivery;

/// Most bytes of deliveries that wait for a commit; a source that pushes more waits.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Most deliveries that wait; far above what `MAX_WAITING_BYTES` usually admits.
const MAX_WAITING: usize = 16_384;

/// Where sources put what they read. The store ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Inlet {
    to: mpsc::Sender<(Delivery, u32)>,
    room: Arc<Semaphore>,
}

/// The store's end of the inlets.
#[derive(Debug)]
pub struct Deliveries {
    from: mpsc::Receiver<(Delivery, u32)>,
    room: Arc<Semaphore>,
}

/// The store has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has ended")]
pub struct Closed;

/// A way into a store, and the store's end of it.
pub fn inlet() -> (Inlet, Deliveries) {
    let (to, from) = mpsc::channel(MAX_WAITING);
    let room = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
    (Inlet { to, room: Arc::clone(&room) }, Deliveries { from, room })
}

impl Inlet {
    /// Hands a delivery over; waits while too much waits already. Dropped half-way, nothing was handed over.
    pub async fn push(&self, delivery: Delivery) -> Result<(), Closed> {
        let weight = delivery.weight().min(MAX_WAITING_BYTES) as u32;
        // Nearly always there is room, and then nothing is waited for.
        let slot = match self.to.try_reserve() {
            Ok(slot) => slot,
            Err(_) => self.to.reserve().await.map_err(|_| Closed)?,
        };
        let room = match self.room.try_acquire_many(weight) {
            Ok(room) => room,
            Err(_) => self.room.acquire_many(weight).await.map_err(|_| Closed)?,
        };
        room.forget();
        slot.send((delivery, weight));
        Ok(())
    }
}

impl Deliveries {
    /// The next delivery and its weight; `None` when every inlet is dropped and all was taken. Safe to drop.
    pub async fn next(&mut self) -> Option<(Delivery, u32)> {
        self.from.recv().await
    }

    /// The next delivery if one waits.
    pub fn try_next(&mut self) -> Option<(Delivery, u32)> {
        self.from.try_recv().ok()
    }

    /// Deliveries of this weight are on disk, or gone: others may come.
    pub fn release(&self, weight: usize) {
        self.room.add_permits(weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DeadLetter, LetterKind, Timestamp};

    fn heavy() -> Delivery {
        let payload = vec![0; 3 << 20];
        let letter = DeadLetter {
            at: Timestamp::EPOCH,
            kind: LetterKind::Payload,
            source: None,
            place: String::new(),
            reason: String::new(),
            payload,
            lost: None,
        };
        Delivery { dead_letters: vec![letter], ..Delivery::default() }
    }

    #[tokio::test]
    async fn what_waits_is_bounded_in_bytes() {
        let (inlet, mut deliveries) = inlet();
        inlet.push(heavy()).await.unwrap();
        let second = tokio::spawn({
            let inlet = inlet.clone();
            async move { inlet.push(heavy()).await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        let (_, weight) = deliveries.next().await.unwrap();
        assert!(deliveries.try_next().is_none());
        deliveries.release(weight as usize);
        second.await.unwrap().unwrap();
        drop(inlet);
        assert!(deliveries.next().await.is_some());
        assert!(deliveries.next().await.is_none());
    }
}
