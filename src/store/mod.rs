//! The local store: readings in, sealed buckets out, everything on disk before it is acknowledged.
//!
//! Sources see an [`Inlet`], the forwarder sees a [`Backlog`]; neither knows that SQLite is behind them. One task owns
//! the connection that writes ([`Writer`]); its work is done on blocking threads by the engine, a batch at a time.
//!
//! On disk: `slot` holds the journal (redo records of readings in open buckets, overwritten in place), `segment` the
//! sealed buckets that are not delivered yet, `meta` the snapshot of what must be remembered longer, `spill` open buckets
//! that would hold the journal back. Starting is recovering: see `recovery.rs`.

mod backlog;
mod config;
mod contents;
mod database;
mod delivery;
mod engine;
mod error;
mod frame;
mod inlet;
mod journal;
mod letters;
mod names;
mod outlet;
mod quota;
mod record;
mod recovery;
mod redelivery;
mod schema;
mod segment;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use backlog::{Backlog, PackedBucket, Parcel, SegmentId, Settled};
pub use config::{Config, WhenFull};
pub use contents::{Contents, contents};
pub use delivery::{Delivery, Origin, OriginKind, Receipt};
pub use error::StoreError;
pub use inlet::{Closed, Deliveries, Inlet, inlet};
pub use outlet::Outlet;
use tokio::sync::{mpsc, watch};
pub use writer::Writer;

use crate::clock::Clock;
use crate::model::Policies;
use crate::stats::Stats;

/// Opens the store: the sources' end, the forwarder's end, and the task between them.
pub async fn open(
    config: &Config,
    policies: Policies,
    max_sensors: usize,
    clock: Clock,
    stats: Stats,
) -> Result<(Inlet, Outlet, Writer), StoreError> {
    let setup = engine::Setup {
        path: config.path.clone(),
        max_bytes: config.max_bytes.as_u64(),
        when_full: config.when_full,
        max_sensors,
        policies,
    };
    let lock = database::lock(&setup.path)?;
    let names = names::NameReader::default();
    let (opened, shared) = (setup.clone(), names.clone());
    let work = move || -> Result<_, StoreError> {
        let engine = engine::Engine::open(opened, &shared)?;
        let store_id = recovery::store_id(&engine.db)?;
        let bytes = engine.bytes()?;
        Ok((engine, store_id, bytes))
    };
    let (engine, store_id, bytes) = tokio::task::spawn_blocking(work).await.map_err(|_| Closed)??;
    engine.tell(stats.store(), bytes);
    let (inlet, deliveries) = inlet();
    let (latest, newest) = watch::channel(engine.last_segment());
    // The forwarder waits for each settlement, so one is the most that can be under way.
    let (to, settles) = mpsc::channel(1);
    let outlet = Outlet::open(&setup.path, names.clone(), newest, to, store_id)?;
    let commit_every = config.commit_every;
    let writer = Writer {
        _lock: lock,
        deliveries,
        settles,
        engine: Some(engine),
        setup,
        names,
        latest,
        commit_every,
        clock,
        stats,
    };
    Ok((inlet, outlet, writer))
}
