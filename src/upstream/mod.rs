//! Where complete buckets go: MongoDB, or archive files. It knows documents, not the store they come from.
//!
//! [`Upstream::deliver`] takes documents, oldest first, and says of each what became of it. A document is `Delivered`
//! only on proof. An archive may hold documents back (`Held`) until their file is finished; then the report says
//! `flushed`. Whoever calls keeps what is neither delivered nor refused, and gives it again: sending twice is harmless.

mod archive;
mod checks;
mod collection;
mod config;
mod document;
mod fleet;
mod identity;
mod manners;
mod meter;
mod mongo;
mod names;
mod notebook;
#[cfg(test)]
mod plain;
mod receipts;
mod secret;
mod shape;
mod tuning;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

pub use archive::extended_json;
pub use collection::Collections;
pub use config::{Config, Connection, Format, Granularity, Kind, Mode};
pub use document::{
    Context, Document, Form, Known, LiveUpdate, MAX_DOCUMENT_BYTES, Meta, Retention, can_grow, live_update,
};
pub use fleet::{Gap, Orders, Vitals};
pub use identity::{id, prefix};
pub use manners::Manners;
pub use mongo::ZSTD_LEVEL;
pub use mongo::admin::{Admin, Audited, Finding, Level, Local, Period, SensorAudit};
pub use names::Names;
pub use receipts::{Receipt, Receipts, read_receipts};
pub use secret::Uri;
pub use shape::{Layout, Preset, Rollups, Shape, Times};
pub use tuning::Tuning;

use crate::clock::Clock;
use crate::model::{SensorName, SiteName};

/// The way out, ready but not yet connected.
#[derive(Debug)]
pub struct Upstream {
    to: To,
    config: Config,
    site: SiteName,
    meta: HashMap<SensorName, Meta>,
    clock: Clock,
    tuning: Tuning,
    receipts: Option<receipts::ReceiptBook>,
}

#[derive(Debug)]
enum To {
    Mongo(Box<mongo::Mongo>),
    Archive(Box<archive::Archive>),
}

/// What became of documents that were given to an upstream.
#[derive(Debug, Default)]
pub struct Report {
    /// One per document, in their order.
    pub fates: Vec<Fate>,
    /// The upstream answered, and can be used.
    pub reached: bool,
    /// Everything that was held before this call is durable now.
    pub flushed: bool,
    /// Everything that was held before this call is gone: it must be given again.
    pub dropped: bool,
    /// Buckets whose `_id` was newly found taken by other content.
    pub conflicts: u64,
    /// Why not everything worked.
    pub trouble: Option<Trouble>,
}

/// What became of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is stored for good.
    Delivered,
    /// It is taken, but not durable before a report says `flushed`.
    Held,
    /// It will never be taken; the words say why.
    Refused(String),
    /// Give it again.
    Unsent,
}

/// What became of updates of open buckets.
#[derive(Clone, Debug, Default)]
pub struct LiveReport {
    /// One per update, in their order.
    pub fates: Vec<Shown>,
    /// Why not everything worked, if delivery is likely to meet the same.
    pub trouble: Option<Trouble>,
    /// Why, and how long, open buckets had better be left alone although delivery goes on.
    pub off: Option<(Duration, String)>,
}

/// What became of one update of an open bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The document says what it should.
    Done,
    /// There was no document, and now there is one with what the update brought.
    Made,
    /// Another document has the `_id`, or it came before.
    Taken,
    /// It is not taken; the words say why.
    Refused(String),
    /// Nobody knows.
    Unknown,
}

/// Why a delivery did not work, for an operator, and how long to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// How bad.
    pub kind: TroubleKind,
    /// In words, without secrets.
    pub text: String,
    /// The server's own wish for a pause.
    pub wait: Option<Duration>,
    /// The next try opens another connection.
    pub reconnects: bool,
}

/// How bad a trouble is, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TroubleKind {
    /// It passes by itself.
    Transient,
    /// The other side asks for less.
    Overload,
    /// A person must act.
    Stopped,
}

/// Most that an upstream keeps beside the store's database: receipts, and its notebook with the one that takes its place.
pub const BESIDE_BYTES: u64 = receipts::MAX_BYTES + 2 * notebook::MAX_BYTES;

impl Upstream {
    /// An upstream as configured. Touches nothing yet: the database may be away, the folder on a disk not yet mounted.
    pub fn new(config: Config, site: SiteName, meta: HashMap<SensorName, Meta>, clock: Clock, tuning: Tuning) -> Self {
        let to = match config.kind {
            Kind::Mongodb => {
                let notebook = notebook::Notebook::default();
                To::Mongo(Box::new(mongo::Mongo::new(&config, &site, &tuning, clock.clone(), notebook)))
            }
            Kind::Archive => To::Archive(Box::new(archive::Archive::new(&config, clock.clone()))),
        };
        Self { to, config, site, meta, clock, tuning, receipts: None }
    }

    /// The same, with small files beside the store's database for what it wants to know after a restart: `….upstream` and
    /// `….receipts`. Reads them.
    pub fn remembering(mut self, database: &Path) -> Self {
        if let To::Mongo(mongo) = &mut self.to {
            let notebook = notebook::Notebook::open(beside(database, "upstream"));
            **mongo = mongo::Mongo::new(&self.config, &self.site, &self.tuning, self.clock.clone(), notebook);
            self.receipts = Some(receipts::ReceiptBook::open(receipts_of(database)));
        }
        self
    }

    /// What its documents say besides their buckets; `store` is the id that was born with the database file.
    pub fn context(&self, store: &str) -> Context {
        let config = &self.config;
        let retention = config
            .retention
            .map(|after_window| Retention { after_window, after_sending: config.retention_after_sending });
        Context {
            site: self.site.clone(),
            store: store.to_owned(),
            retention,
            shape: Shape::of(config),
            meta: self.meta.clone(),
            collections: Collections::new(&config.database, &config.collection, config.overflow_collection.as_deref()),
            form: match (config.kind, config.mode) {
                (Kind::Archive, _) | (_, Mode::Buckets) => Form::Buckets,
                (_, Mode::Live) => Form::Live,
                (_, Mode::Timeseries) => Form::Series,
                (_, Mode::Append) => Form::Append(config.append_up_to),
            },
        }
    }

    /// When to send and when to connect.
    pub fn manners(&self) -> Manners {
        Manners::new(&self.config, &self.site)
    }

    /// Whether it can be used at all; asked once at the start, so that `status` tells early.
    pub async fn greet(&mut self) -> Report {
        match &mut self.to {
            To::Mongo(mongo) => mongo.greet().await,
            To::Archive(_) => Report::default(),
        }
    }

    /// Pauses and deadlines.
    pub const fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Where it goes, in words without secrets.
    pub fn place(&self) -> String {
        match self.config.kind {
            Kind::Mongodb => {
                format!("delivering to {}.{}", self.config.database, self.config.collection)
            }
            Kind::Archive => format!("writing archive files into {}", self.config.folder.display()),
        }
    }

    /// Most documents and bytes that the next call should be given (one document may always be larger).
    pub fn limits(&self) -> (usize, usize) {
        match &self.to {
            To::Mongo(mongo) => mongo.limits(),
            To::Archive(_) => archive::LIMITS,
        }
    }

    /// Sends documents, oldest first; `store` as in the context. Dropped half-way, some may have been stored: give all
    /// of them again.
    pub async fn deliver(&mut self, documents: &mut [Document], store: &str) -> Report {
        match &mut self.to {
            To::Mongo(mongo) => {
                let report = mongo.deliver(documents, store).await;
                if let Some(book) = &mut self.receipts {
                    let now = self.clock.now();
                    let stored = documents.iter().zip(&report.fates).filter(|(_, fate)| **fate == Fate::Delivered);
                    stored.for_each(|(document, _)| book.add(document, now));
                    book.tend().await;
                }
                report
            }
            To::Archive(archive) => archive.deliver(documents).await,
        }
    }

    /// How often open buckets are brought up to date; never if `None`.
    pub fn live_every(&self) -> Option<Duration> {
        let is_live = self.config.kind == Kind::Mongodb && self.config.mode == Mode::Live;
        is_live.then_some(self.config.live_every)
    }

    /// Brings documents of open buckets up to date. Dropped half-way, any of them may have been.
    pub async fn live(&mut self, updates: &[LiveUpdate]) -> LiveReport {
        match &mut self.to {
            To::Mongo(mongo) => mongo.live(updates).await,
            To::Archive(_) => LiveReport::default(),
        }
    }

    /// How often [`Self::report`] is wanted; never if `None`.
    pub fn reports_every(&self) -> Option<Duration> {
        Some(self.config.reports).filter(|every| self.config.kind == Kind::Mongodb && !every.is_zero())
    }

    /// Whether there is a connection.
    pub fn is_open(&self) -> bool {
        matches!(&self.to, To::Mongo(mongo) if mongo.is_open())
    }

    /// Tells how this gateway is; gives the orders of the database's owner, `None` if they cannot be read.
    pub async fn report(&mut self, vitals: &Vitals) -> Option<Orders> {
        match &mut self.to {
            To::Mongo(mongo) => mongo.report(vitals, &self.site).await,
            To::Archive(_) => None,
        }
    }

    /// The number of the last gap that is stored.
    pub fn gaps_after(&self) -> i64 {
        match &self.to {
            To::Mongo(mongo) => mongo.gaps_after(),
            To::Archive(_) => 0,
        }
    }

    /// Stores gaps, oldest first; whether all are there.
    pub async fn gaps(&mut self, gaps: &[Gap], store: &str) -> bool {
        match &mut self.to {
            To::Mongo(mongo) => mongo.gaps(gaps, &self.site, store).await,
            To::Archive(_) => false,
        }
    }

    /// When it next wants [`Self::attend`] to be called, if nothing is delivered before.
    pub fn due(&self) -> Option<Instant> {
        match &self.to {
            To::Mongo(mongo) => mongo.due(),
            To::Archive(archive) => archive.due(),
        }
    }

    /// What is due: an archive finishes its file, an idle connection is closed.
    pub async fn attend(&mut self) -> Report {
        match &mut self.to {
            To::Mongo(mongo) => {
                mongo.close().await;
                Report::default()
            }
            To::Archive(archive) => archive.finish().await,
        }
    }

    /// The end: what is held becomes durable, connections are closed.
    pub async fn close(&mut self) -> Report {
        if let Some(book) = &mut self.receipts {
            book.write().await;
        }
        self.attend().await
    }
}

/// Where the receipts of the upstream of a store's database are.
pub fn receipts_of(database: &Path) -> PathBuf {
    beside(database, "receipts")
}

/// The file beside the database whose name has this ending more.
fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}
