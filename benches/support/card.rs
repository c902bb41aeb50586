//! A place to write to whose writes are counted.

use std::path::{Path, PathBuf};

use fault_vfs::{Ext4, Part, Watch};

/// Room for the largest run.
const MEBIBYTES: u64 = 512;
/// Memory, so that a real disk neither wears nor slows the count.
const MEMORY: &str = "/dev/shm";

/// A folder of its own: on a private ext4, or watched through SQLite's VFS.
#[derive(Debug)]
pub struct Card {
    ext4: Option<Ext4>,
    watch: Watch,
    folder: tempfile::TempDir,
}

impl Card {
    /// A fresh one.
    pub fn new() -> Self {
        let memory = Path::new(MEMORY);
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("folder");
        let options = std::env::var("FLASH_MOUNT").unwrap_or_else(|_| "noatime".to_owned());
        let ext4 = Ext4::new(folder.path(), MEBIBYTES, &options).ok();
        let watch = Watch::on(&ext4.as_ref().map_or(folder.path().to_owned(), Ext4::path));
        Self { ext4, watch, folder }
    }

    /// Where files go.
    pub fn path(&self) -> PathBuf {
        self.ext4.as_ref().map_or(self.folder.path().to_owned(), Ext4::path)
    }

    /// How it counts.
    pub fn words(&self) -> &'static str {
        match self.ext4 {
            Some(_) => "at the block layer of a private ext4 (mkfs defaults, noatime or FLASH_MOUNT) in memory",
            None => "as SQLite's writes, without blocks and the file system's own (root would allow a private ext4)",
        }
    }

    /// Whether also what does not go through SQLite.
    pub fn counts_everything(&self) -> bool {
        self.ext4.is_some()
    }

    /// Bytes so far, everything cached included; syncs so far.
    pub fn written(&self) -> (u64, u64) {
        let parts = [Part::Database, Part::Log, Part::Other].map(|part| self.watch.counts(part));
        let syncs = parts.iter().map(|counts| counts.fdatasyncs + counts.fsyncs).sum();
        let bytes = match &self.ext4 {
            Some(ext4) => ext4.sync().and_then(|()| ext4.written()).expect("counted"),
            None => parts.iter().map(|counts| counts.bytes).sum(),
        };
        (bytes, syncs)
    }
}
