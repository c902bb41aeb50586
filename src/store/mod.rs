//! The local store: readings in, sealed buckets out, everything on disk before it is acknowledged.
//!
//! Sources see an [`Inlet`], the forwarder sees a [`Backlog`]; neither knows that SQLite is behind them.

mod backlog;
mod config;
mod delivery;
mod error;
mod inlet;

pub use backlog::{Backlog, PackedBucket, Parcel, SegmentId, Settled};
pub use config::{Config, WhenFull};
pub use delivery::{Delivery, Origin, OriginKind, Receipt};
pub use error::StoreError;
pub use inlet::{Closed, Deliveries, Inlet, inlet};
