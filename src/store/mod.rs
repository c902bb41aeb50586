//! The local store: readings in, sealed buckets out, everything on disk before it is acknowledged.
//!
//! Sources see an [`Inlet`], the forwarder sees a [`Backlog`]; neither knows that SQLite is behind them. One task owns
//! the connection that writes ([`Writer`]); its work is done on blocking threads by the engine, a batch at a time.
//!
//! On disk: `slot` holds the journal (redo records of readings in open buckets, overwritten in place), `segment` the
//! sealed buckets that are not delivered yet, `meta` the snapshot of what must be remembered longer, `spill` open buckets
//! that would hold the journal back. Starting is recovering: see `recovery.rs`.

mod accounts;
mod aside;
mod backlog;
mod blocks;
mod body;
mod calendar;
mod config;
mod contents;
mod database;
mod delivery;
mod engine;
mod error;
mod frame;
mod gathered;
mod held;
mod inlet;
mod journal;
mod kept;
mod lane;
mod lazy;
mod ledger;
mod letters;
mod names;
mod open;
mod orders;
mod outlet;
mod pack;
mod pages;
mod quarantine;
mod quota;
mod record;
mod recovery;
mod redelivery;
mod rehearsal;
mod repair;
mod replay;
mod reserve;
mod rollups;
mod room;
mod schema;
mod segment;
mod state;
mod telling;
#[cfg(test)]
mod tests;
mod thin;
mod verify;
mod view;
mod waiting;
mod wal;
mod wear;
mod writer;

pub use accounts::Accounts;
pub use backlog::{Backlog, Lost, PackedBucket, Parcel, SegmentId, Settled};
pub use config::{Config, WhenFull};
pub use contents::{Contents, contents};
pub use delivery::{Delivery, Origin, OriginKind, Receipt};
pub use error::StoreError;
pub use inlet::{Closed, Deliveries, Inlet, inlet};
pub use ledger::losses;
pub use letters::{Letter, letter, letters};
pub use open::{Growing, Growth, Question};
pub use orders::Order;
pub use outlet::Outlet;
pub use quarantine::{Salvaged, salvage};
pub use rehearsal::Rehearsal;
use tokio::sync::{mpsc, watch};
pub use verify::{Depth, Fault, Verdict, verify};
pub use view::{Found, Pack, Summary, View};
pub use writer::Writer;

use crate::clock::Clock;
use crate::model::{Policies, SiteName};
use crate::stats::Stats;

/// Most that the store itself keeps beside its database: orders, and the lock's one block.
pub const BESIDE_BYTES: u64 = orders::MAX_BYTES + 4096;

/// Opens the store: the sources' end, the forwarder's end, and the task between them.
pub async fn open(
    config: &Config,
    site: SiteName,
    policies: Policies,
    max_sensors: usize,
    clock: Clock,
    stats: Stats,
) -> Result<(Inlet, Outlet, Writer), StoreError> {
    let setup = setup(config, site, policies, max_sensors, clock.config());
    let mut lock = database::Lock::take(&setup.path)?;
    let room = database::disk_room(&setup.path);
    if room < setup.max_bytes {
        let (most, room) = (config.max_bytes, bytesize::ByteSize::b(room));
        tracing::warn!("store.max_bytes is {most}, but the disk has room for {room} only: that is the budget now");
    }
    let names = names::NameReader::default();
    let (opened, shared, now) = (setup.clone(), names.clone(), clock.now());
    let lane = lane::Lane::start()?;
    let work = move || -> Result<_, StoreError> {
        let (engine, salvage) = quarantine::open(&opened, &shared, now, lock.ours)?;
        lock.mark()?;
        let store_id = recovery::store_id(&engine.db)?;
        Ok((engine, salvage, store_id, lock))
    };
    let (engine, salvage, store_id, lock) = lane.run(work).await??;
    clock.begin(&engine.known());
    // The first readings are stamped by a clock that was looked at.
    clock.look();
    let (inlet, deliveries) = inlet();
    let (head, newest) = watch::channel(Head { latest: engine.last_segment(), generation: 0 });
    // The forwarder waits for each settlement, so one is the most that can be under way.
    let (to, requests) = mpsc::channel(1);
    let outlet = Outlet::open(setup.path.clone(), setup.pool.clone(), names.clone(), newest, to, store_id)?;
    let writer = Writer {
        _lock: lock,
        lane,
        deliveries,
        requests,
        engine: Some(engine),
        salvage,
        tried: None,
        found_no_room: false,
        waiting: Default::default(),
        alarm: Default::default(),
        setup,
        names,
        head,
        commit_every: config.commit_every,
        commit_every_resendable: config.commit_every_resendable.max(config.commit_every),
        clock,
        stats,
    };
    Ok((inlet, outlet, writer.tell_opened()))
}

/// What the engine needs to know of a site.
fn setup(
    config: &Config,
    site: SiteName,
    policies: Policies,
    max_sensors: usize,
    clock: crate::clock::Config,
) -> engine::Setup {
    engine::Setup {
        site,
        path: config.path.clone(),
        max_bytes: config.max_bytes.as_u64().saturating_sub(config.beside.as_u64()),
        beside: config.beside.as_u64(),
        when_full: config.when_full,
        max_sensors,
        clock,
        policies,
        blocks: Default::default(),
        write_behind: config.write_behind,
        pool: lazy::Pool::default(),
        keep: (config.keep_raw, config.keep_rollups),
    }
}

/// Has orders about dead letters carried out, by the daemon if one runs; returns when that is on disk.
pub fn order(
    config: &Config,
    site: SiteName,
    policies: Policies,
    max_sensors: usize,
    orders: &[Order],
    now: crate::model::Timestamp,
) -> Result<(), StoreError> {
    orders::give(setup(config, site, policies, max_sensors, Default::default()), orders, now)
}

/// How far the store is: what the outlet must know of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    /// The last segment made, written or not.
    latest: u64,
    /// Grows when the outlet must begin anew: there is another file, or older segments came back.
    generation: u64,
}
