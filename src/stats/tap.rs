//! Whoever watches a source: what it receives, sends and refuses, as it happens. In the daemon nobody does, and it costs
//! one load.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that happened at a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// Bytes came in.
    Received(&'a [u8]),
    /// Bytes went out.
    Sent(&'a [u8]),
    /// Something was not taken, and is no dead letter either: it is only counted, or nobody is to blame.
    Refused {
        /// What it is about.
        what: &'a str,
        /// Why.
        why: &'a str,
    },
}

type Watcher = Box<dyn Fn(Seen<'_>) + Send + Sync>;

/// The place where a watcher is put.
#[derive(Default)]
pub struct Tap {
    watcher: OnceLock<Watcher>,
    /// A recording is replayed: polling goes on only while it answers.
    is_replay: AtomicBool,
    has_progress: AtomicBool,
    is_exhausted: AtomicBool,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tap({})", self.watcher.get().is_some())
    }
}

impl Tap {
    /// From now on everything is told to `watcher`. Only the first one counts.
    pub fn watch(&self, watcher: impl Fn(Seen<'_>) + Send + Sync + 'static) {
        let _ = self.watcher.set(Box::new(watcher));
    }

    /// Something happened.
    pub fn see(&self, seen: Seen<'_>) {
        if let Some(watcher) = self.watcher.get() {
            watcher(seen);
        }
    }

    /// Something was not taken.
    pub fn refused(&self, what: &str, why: &str) {
        self.see(Seen::Refused { what, why });
    }

    /// Whether anybody watches: words need not be made for nobody.
    pub fn is_watched(&self) -> bool {
        self.watcher.get().is_some()
    }

    /// What is read now is a recording.
    pub fn begin_replay(&self) {
        self.is_replay.store(true, Ordering::Relaxed);
        self.has_progress.store(true, Ordering::Relaxed);
    }

    /// Whether what is read is a recording.
    pub fn is_replay(&self) -> bool {
        self.is_replay.load(Ordering::Relaxed)
    }

    /// The recording answered something.
    pub fn progress(&self) {
        self.has_progress.store(true, Ordering::Relaxed);
    }

    /// The recording has no more answers than it gave.
    pub fn exhausted(&self) {
        self.is_exhausted.store(true, Ordering::Relaxed);
    }

    /// Whether a device may be asked (again): always, but not when a recording had no answer since the last time.
    pub fn may_poll(&self) -> bool {
        let goes_on = || !self.is_exhausted.load(Ordering::Relaxed) && self.has_progress.swap(false, Ordering::Relaxed);
        !self.is_replay() || goes_on()
    }
}
