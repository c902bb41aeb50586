//! The forwarder's end of the store.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::names::NameReader;
use super::writer::Request;
use super::{Backlog, Closed, Head, Parcel, SegmentId, Settled, StoreError, database, segment};

/// Draws sealed buckets through a connection of its own, and reports to the writer what is settled.
#[derive(Debug)]
pub struct Outlet {
    path: PathBuf,
    reader: Arc<Mutex<Connection>>,
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
        names: NameReader,
        head: watch::Receiver<Head>,
        requests: mpsc::Sender<Request>,
        store_id: String,
    ) -> Result<Self, StoreError> {
        let reader = Arc::new(Mutex::new(database::open_reader(&path)?));
        let generation = head.borrow().generation;
        Ok(Self { path, reader, names, after: 0, generation, head, requests, store_id })
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

    async fn read(&self) -> Result<Option<segment::Raw>, StoreError> {
        let (reader, after) = (Arc::clone(&self.reader), self.after);
        let read = move || segment::read_after(&reader.lock().unwrap_or_else(PoisonError::into_inner), after);
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
            match self.read().await {
                Ok(Some((id, data))) => {
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
                Ok(None) => self.after = latest,
                Err(error) if error.is_damage() => {
                    self.requests.send(Request::Damaged(error)).await.map_err(|_| Closed)?;
                    if self.head.changed().await.is_err() {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
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

    fn store_id(&self) -> &str {
        &self.store_id
    }
}
