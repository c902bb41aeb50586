//! The forwarder's end of the store.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::names::NameReader;
use super::writer::Settle;
use super::{Backlog, Closed, Parcel, SegmentId, Settled, StoreError, database, segment};

/// Draws sealed buckets through a connection of its own, and reports to the writer what is settled.
#[derive(Debug)]
pub struct Outlet {
    reader: Arc<Mutex<Connection>>,
    names: NameReader,
    after: u64,
    latest: watch::Receiver<u64>,
    settles: mpsc::Sender<Settle>,
    store_id: String,
}

impl Outlet {
    pub(super) fn open(
        path: &Path,
        names: NameReader,
        latest: watch::Receiver<u64>,
        settles: mpsc::Sender<Settle>,
        store_id: String,
    ) -> Result<Self, StoreError> {
        let reader = Arc::new(Mutex::new(database::open_reader(path)?));
        Ok(Self { reader, names, after: 0, latest, settles, store_id })
    }
}

impl Backlog for Outlet {
    async fn next(&mut self) -> Result<Option<Parcel>, StoreError> {
        loop {
            let latest = *self.latest.borrow_and_update();
            if latest > self.after {
                let (reader, after) = (Arc::clone(&self.reader), self.after);
                let read = tokio::task::spawn_blocking(move || {
                    segment::read_after(&reader.lock().unwrap_or_else(PoisonError::into_inner), after)
                });
                match read.await.map_err(|_| Closed)?? {
                    Some((id, data)) => {
                        // Drawn even if it is damaged: the next call goes on behind it.
                        self.after = id;
                        return segment::open(SegmentId(id), &data, &self.names).map(Some);
                    }
                    None => self.after = latest,
                }
            } else if self.latest.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    fn rewind(&mut self) {
        self.after = 0;
    }

    async fn settle(&mut self, settled: Settled) -> Result<(), StoreError> {
        let (reply, done) = oneshot::channel();
        self.settles.send((settled, reply)).await.map_err(|_| Closed)?;
        done.await.map_err(|_| Closed.into())
    }

    fn store_id(&self) -> &str {
        &self.store_id
    }
}
