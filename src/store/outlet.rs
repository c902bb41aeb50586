//! The forwarder's end of the store.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::lazy::Pool;
use super::names::NameReader;
use super::writer::Request;
use super::{Backlog, Closed, Head, Parcel, SegmentId, Settled, StoreError, database, segment};

/// Draws sealed buckets through a connection of its own, and reports to the writer what is settled.
#[derive(Debug)]
pub struct Outlet {
    path: PathBuf,
    reader: Arc<Mutex<Connection>>,
    pool: Pool,
    names: NameReader,
    after: u64,
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
        Ok(Self { path, reader, pool, names, after: 0, generation, head, requests, store_id })
    }

    /// Begins anew where the writer did: with the file that is in place now.
    async fn follow(&mut self, generation: u64) -> Result<(), StoreError> {
        let path = self.path.clone();
        let reader = spawn_blocking(move || database::open_reader(&path)).await.map_err(|_| Closed)??;
        self.reader = Arc::new(Mutex::new(reader));
        self.generation = generation;
        self.after = 0;
        Ok(())
    }

    async fn read(&self, until: u64) -> Result<Option<segment::Raw>, StoreError> {
        let (reader, after) = (Arc::clone(&self.reader), self.after);
        let read = move || segment::read_after(&reader.lock().unwrap_or_else(PoisonError::into_inner), after, until);
        spawn_blocking(read).await.map_err(|_| Closed)?
    }
}

impl Backlog for Outlet {
    async fn next(&mut self) -> Result<Option<Parcel>, StoreError> {
        loop {
            let Head { latest, generation } = *self.head.borrow_and_update();
            if generation != self.generation {
                self.follow(generation).await?;
            }
            if latest <= self.after {
                if self.head.changed().await.is_err() {
                    return Ok(None);
                }
                continue;
            }
            // In this order: a pack leaves memory after its row is there, and none up to `latest` is still to come.
            let waiting = self.pool.next(self.after, latest);
            let row = self.read(waiting.as_ref().map_or(latest, |(id, _)| *id)).await;
            match (row, waiting) {
                (Ok(None), Some((id, packed))) => {
                    self.after = id;
                    return packed.parcel(SegmentId(id), &self.names).map(Some);
                }
                (Ok(Some((id, data))), _) => {
                    // One that cannot be read is put aside, and the next one is drawn.
                    self.after = id;
                    match segment::open(SegmentId(id), &data, &self.names) {
                        Ok(parcel) => return Ok(Some(parcel)),
                        Err(why) => {
                            let broken = Request::Broken(SegmentId(id), why.to_string());
                            self.requests.send(broken).await.map_err(|_| Closed)?;
                        }
                    }
                }
                (Ok(None), None) => self.after = latest,
                (Err(error), _) if error.is_damage() => {
                    self.requests.send(Request::Damaged(error)).await.map_err(|_| Closed)?;
                    if self.head.changed().await.is_err() {
                        return Ok(None);
                    }
                }
                (Err(error), _) => return Err(error),
            }
        }
    }

    fn rewind(&mut self) {
        self.after = 0;
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), StoreError> {
        let (reply, done) = oneshot::channel();
        self.requests.send(Request::Settle(settled, reply)).await.map_err(|_| Closed)?;
        done.await.map_err(|_| Closed.into())
    }

    fn upstream_takes(&mut self, takes: bool) {
        self.pool.tell(takes);
    }

    fn store_id(&self) -> &str {
        &self.store_id
    }
}
