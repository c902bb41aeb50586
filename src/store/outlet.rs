//! The forwarder's end of the store.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::lazy::Pool;
use super::names::NameReader;
use super::writer::Request;
use super::{
    Backlog, Closed, Growth, Head, Lost, Parcel, Question, SegmentId, Settled, StoreError, database, ledger, segment,
};
use crate::model::Timestamp;

/// Most stretches that are put behind at once; beyond it a further outage's backlog goes with what is new.
const MAX_BEHIND: usize = 64;

/// Draws sealed buckets through a connection of its own, and reports to the writer what is settled.
#[derive(Debug)]
pub struct Outlet {
    path: PathBuf,
    reader: Arc<Mutex<Connection>>,
    pool: Pool,
    names: NameReader,
    after: u64,
    /// What was put behind: from after the first number to the second.
    behind: VecDeque<(u64, u64)>,
    generation: u64,
    head: watch::Receiver<Head>,
    requests: mpsc::Sender<Request>,
    store_id: String,
}

impl Outlet {
    pub(super) fn open(
        path: PathBuf,
        pool: Pool,
        names: NameReader,
        head: watch::Receiver<Head>,
        requests: mpsc::Sender<Request>,
        store_id: String,
    ) -> Result<Self, StoreError> {
        let reader = Arc::new(Mutex::new(database::open_reader(&path)?));
        let generation = head.borrow().generation;
        Ok(Self { path, reader, pool, names, after: 0, behind: VecDeque::new(), generation, head, requests, store_id })
    }

    /// Begins anew where the writer did: with the file that is in place now.
    async fn follow(&mut self, generation: u64) -> Result<(), StoreError> {
        let path = self.path.clone();
        let reader = spawn_blocking(move || database::open_reader(&path)).await.map_err(|_| Closed)??;
        self.reader = Arc::new(Mutex::new(reader));
        self.generation = generation;
        self.rewind();
        Ok(())
    }

    async fn read(&self, after: u64, until: u64) -> Result<Option<segment::Raw>, StoreError> {
        let reader = Arc::clone(&self.reader);
        let read = move || segment::read_after(&reader.lock().unwrap_or_else(PoisonError::into_inner), after, until);
        spawn_blocking(read).await.map_err(|_| Closed)?
    }

    /// The first segment after `after` up to `until`, with its number; it counts as drawn even if it is damaged.
    async fn first(&self, after: u64, until: u64) -> Result<Option<(u64, Result<Parcel, StoreError>)>, StoreError> {
        // In this order: a pack leaves memory after its row is there, and none up to `until` is still to come.
        let waiting = self.pool.next(after, until);
        let row = self.read(after, waiting.as_ref().map_or(until, |(id, _)| *id)).await?;
        Ok(match (row, waiting) {
            (Some((id, data)), _) => Some((id, segment::open(SegmentId(id), data, &self.names))),
            (None, Some((id, packed))) => Some((id, packed.parcel(SegmentId(id), &self.names))),
            (None, None) => None,
        })
    }

    /// One that cannot be read is put aside, and the next one is drawn.
    async fn sound(&self, id: u64, parcel: Result<Parcel, StoreError>) -> Result<Option<Parcel>, StoreError> {
        match parcel {
            Ok(parcel) => Ok(Some(parcel)),
            Err(why) => {
                let broken = Request::Broken(SegmentId(id), why.to_string());
                self.requests.send(broken).await.map_err(|_| Closed)?;
                Ok(None)
            }
        }
    }

    /// Has a damaged file looked after; gives whether to go on.
    async fn damaged(&mut self, error: StoreError) -> Result<bool, StoreError> {
        self.requests.send(Request::Damaged(error)).await.map_err(|_| Closed)?;
        Ok(self.head.changed().await.is_ok())
    }

    /// Goes on with the file that is in place now.
    async fn look(&mut self) -> Result<u64, StoreError> {
        let Head { latest, generation } = *self.head.borrow_and_update();
        if generation != self.generation {
            self.follow(generation).await?;
        }
        Ok(latest)
    }
}

impl Backlog for Outlet {
    async fn next(&mut self) -> Result<Option<Parcel>, StoreError> {
        loop {
            let latest = self.look().await?;
            if latest <= self.after {
                if self.head.changed().await.is_err() {
                    return Ok(None);
                }
                continue;
            }
            match self.first(self.after, latest).await {
                Ok(Some((id, parcel))) => {
                    // The next call goes on behind it.
                    self.after = id;
                    if let Some(parcel) = self.sound(id, parcel).await? {
                        return Ok(Some(parcel));
                    }
                }
                Ok(None) => self.after = latest,
                Err(error) if error.is_damage() => {
                    if !self.damaged(error).await? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn rewind(&mut self) {
        self.after = 0;
        self.behind.clear();
    }

    fn has_next(&self) -> bool {
        self.head.borrow().latest > self.after
    }

    fn split(&mut self) {
        let latest = self.head.borrow().latest;
        if latest > self.after && self.behind.len() < MAX_BEHIND {
            self.behind.push_back((self.after, latest));
            self.after = latest;
        }
    }

    async fn next_old(&mut self) -> Result<Option<Parcel>, StoreError> {
        loop {
            self.look().await?;
            let Some(&(after, until)) = self.behind.front() else { return Ok(None) };
            match self.first(after, until).await {
                Ok(Some((id, parcel))) => {
                    self.behind[0].0 = id;
                    if let Some(parcel) = self.sound(id, parcel).await? {
                        return Ok(Some(parcel));
                    }
                }
                Ok(None) => drop(self.behind.pop_front()),
                Err(error) if error.is_damage() => {
                    if !self.damaged(error).await? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), StoreError> {
        let (reply, done) = oneshot::channel();
        self.requests.send(Request::Settle(settled, reply)).await.map_err(|_| Closed)?;
        done.await.map_err(|_| Closed.into())
    }

    fn upstream_takes(&mut self, takes: bool) {
        self.pool.tell(takes);
    }

    async fn look(&mut self, question: Question) -> Growth {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(Request::Look(question, reply)).await.is_err() {
            return Growth::default();
        }
        // The writer drops the question while it cannot commit.
        let Ok(compact) = answer.await else { return Growth::default() };
        let names = self.names.clone();
        spawn_blocking(move || compact.unpack(&names)).await.unwrap_or_default()
    }

    async fn losses(&mut self, after: i64, now: Timestamp, most: usize) -> Result<Vec<Lost>, StoreError> {
        let reader = Arc::clone(&self.reader);
        // Younger entries may still grow.
        let until = now.minus(ledger::SPAN);
        let read = move || ledger::entries(&reader.lock().unwrap_or_else(PoisonError::into_inner), after, until, most);
        spawn_blocking(read).await.map_err(|_| Closed)?
    }

    fn store_id(&self) -> &str {
        &self.store_id
    }
}
