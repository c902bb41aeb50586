//! What happens in one folder: a log of events, counts, and the trouble that was ordered.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Folders that are watched at present.
static WATCHED: Mutex<Vec<(PathBuf, Arc<Inner>)>> = Mutex::new(Vec::new());

/// Which file of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The database itself.
    Database,
    /// Its write-ahead log.
    Log,
    /// Whatever else lies in the folder.
    Other,
}

impl Part {
    pub(crate) fn of(path: &Path) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match name {
            name if name.ends_with(".db") => Self::Database,
            name if name.ends_with(".db-wal") => Self::Log,
            _ => Self::Other,
        }
    }
}

/// One thing that reached the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// Into which file.
        part: Part,
        /// From which offset on.
        at: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A file got this length.
    Truncate {
        /// Which file.
        part: Part,
        /// Its bytes from now on.
        length: u64,
    },
    /// Everything written to the file so far is on the medium.
    Sync {
        /// Which file.
        part: Part,
    },
    /// A sync failed: what was written since the last one is lost, and no later sync brings it to the medium.
    FailedSync {
        /// Which file.
        part: Part,
    },
    /// The test says that something became known here.
    Mark(u64),
}

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Writing and truncating; opening for writing, too, if the failure is [`Failure::ReadOnly`].
    Write,
    /// Syncing.
    Sync,
}

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device reports an error (EIO).
    Device,
    /// There is no room (ENOSPC).
    NoRoom,
    /// The file system was mounted read-only, as after an error of its own (EROFS).
    ReadOnly,
}

/// What was done to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that wrote.
    pub writes: u64,
    /// Bytes they wrote.
    pub bytes: u64,
    /// Syncs that SQLite asked for.
    pub syncs: u64,
    /// Calls of `fsync`, by SQLite or by anybody.
    pub fsyncs: u64,
    /// Calls of `fdatasync`.
    pub fdatasyncs: u64,
}

/// Watches a folder until it is dropped. Files that were open before are not seen.
#[derive(Debug)]
pub struct Watch {
    folder: PathBuf,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    log: Option<Vec<Event>>,
    counts: HashMap<Part, Counts>,
    trouble: HashMap<(Part, Op), (Failure, u64)>,
    /// Syncs wait until this is false again.
    held: bool,
    waiting: usize,
    unsynced: bool,
}

impl Watch {
    /// Begins to watch everything below `folder`.
    pub fn on(folder: &Path) -> Self {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let inner = Arc::new(Inner::default());
        watched().push((folder.clone(), Arc::clone(&inner)));
        Self { folder, inner }
    }

    /// Keeps every event from now on.
    pub fn record(&self) {
        self.inner.state().log = Some(Vec::new());
    }

    /// The events since [`Self::record`]; ends the recording.
    pub fn events(&self) -> Vec<Event> {
        self.inner.state().log.take().unwrap_or_default()
    }

    /// Notes in the log that something is known now.
    pub fn mark(&self, mark: u64) {
        self.inner.note(|| Event::Mark(mark));
    }

    /// What was done to a file so far.
    pub fn counts(&self, part: Part) -> Counts {
        self.inner.state().counts.get(&part).copied().unwrap_or_default()
    }

    /// Lets the next `times` operations fail.
    pub fn fail(&self, part: Part, op: Op, failure: Failure, times: u64) {
        self.inner.state().trouble.insert((part, op), (failure, times));
    }

    /// Lets everything succeed again.
    pub fn heal(&self) {
        self.inner.state().trouble.clear();
    }

    /// Syncs are counted and recorded, but the disk is not waited for: for folders whose content is thrown away.
    pub fn spare_the_disk(&self) {
        self.inner.state().unsynced = true;
    }

    /// Lets syncs wait, as on a card that tidies up.
    pub fn hold_syncs(&self) {
        self.inner.state().held = true;
    }

    /// Lets them go on.
    pub fn release_syncs(&self) {
        self.inner.state().held = false;
        self.inner.released.notify_all();
    }

    /// How many syncs wait at present.
    pub fn held_syncs(&self) -> usize {
        self.inner.state().waiting
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.release_syncs();
        watched().retain(|(folder, inner)| *folder != self.folder || !Arc::ptr_eq(inner, &self.inner));
    }
}

impl Inner {
    /// Who watches `path`.
    pub(crate) fn of(path: &Path) -> Option<Arc<Self>> {
        watched().iter().find(|(folder, _)| path.starts_with(folder)).map(|(_, inner)| Arc::clone(inner))
    }

    pub(crate) fn note(&self, event: impl FnOnce() -> Event) {
        if let Some(log) = &mut self.state().log {
            log.push(event());
        }
    }

    pub(crate) fn count(&self, part: Part, count: impl FnOnce(&mut Counts)) {
        count(self.state().counts.entry(part).or_default());
    }

    /// Whether this operation is to fail, and how.
    pub(crate) fn trouble(&self, part: Part, op: Op) -> Option<Failure> {
        let mut state = self.state();
        let (failure, times) = state.trouble.get_mut(&(part, op))?;
        let failure = *failure;
        *times -= 1;
        if *times == 0 {
            state.trouble.remove(&(part, op));
        }
        Some(failure)
    }

    /// Whether files here cannot be opened for writing. Does not count as an operation.
    pub(crate) fn is_read_only(&self, part: Part) -> bool {
        matches!(self.state().trouble.get(&(part, Op::Write)), Some((Failure::ReadOnly, _)))
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.state().unsynced
    }

    /// Waits while syncs are held.
    pub(crate) fn wait(&self) {
        let mut state = self.state();
        state.waiting += 1;
        while state.held {
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watched() -> MutexGuard<'static, Vec<(PathBuf, Arc<Inner>)>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}
