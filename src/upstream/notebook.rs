//! A small file beside the database with what the upstream wants to know after a restart: where `mongodb+srv` led, and
//! what was sent today.
//!
//! Nothing in it is needed to be right: a notebook that is lost or damaged is begun anew. It holds no secrets.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::meter::Today;

/// Largest file that is written and read; an ordinary one has less than a KiB.
pub(super) const MAX_BYTES: u64 = 64 << 10;

/// What is noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Notes {
    pub(super) srv: Option<Srv>,
    pub(super) today: Today,
    /// The last entry of the loss ledger that is stored upstream.
    pub(super) gaps_after: Option<i64>,
}

/// Where a `mongodb+srv` address led.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Srv {
    /// The name that was asked for.
    pub(super) name: String,
    pub(super) hosts: Vec<String>,
    pub(super) replica_set: Option<String>,
    pub(super) auth_source: Option<String>,
    pub(super) load_balanced: Option<bool>,
}

/// Notes, and the file they are in; without a file they last as long as the process.
#[derive(Clone, Debug, Default)]
pub(super) struct Notebook {
    file: Option<PathBuf>,
    pub(super) notes: Notes,
    written: Notes,
}

impl Notebook {
    /// Opens the notebook; blocks for the reading of a small file.
    pub(super) fn open(file: PathBuf) -> Self {
        let notes = read(&file).unwrap_or_default();
        Self { file: Some(file), written: notes.clone(), notes }
    }

    /// Writes it, if anything is new. Best effort: at worst a name is asked for again, or some bytes are not counted.
    pub(super) async fn save(&mut self) {
        let Some(file) = self.file.clone().filter(|_| self.notes != self.written) else { return };
        let notes = self.notes.clone();
        let written = tokio::task::spawn_blocking(move || write(&file, &notes).map(|()| notes)).await;
        match written {
            Ok(Ok(notes)) => self.written = notes,
            Ok(Err(error)) => tracing::debug!("cannot write the upstream's notebook: {error}"),
            Err(_) => {}
        }
    }
}

fn read(file: &Path) -> Option<Notes> {
    if std::fs::metadata(file).ok()?.len() > MAX_BYTES {
        return None;
    }
    let text = std::fs::read(file).ok()?;
    serde_json::from_slice(&text)
        .inspect_err(|error| tracing::warn!("{} is damaged and begun anew: {error}", file.display()))
        .ok()
}

fn write(file: &Path, notes: &Notes) -> std::io::Result<()> {
    let text = serde_json::to_vec(notes).map_err(std::io::Error::other)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    let temporary = file.with_extension("tmp");
    let mut out = std::fs::File::create(&temporary)?;
    out.write_all(&text)?;
    out.sync_all()?;
    std::fs::rename(temporary, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notes_are_there_after_a_restart_and_damage_begins_a_new_book() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.db.upstream");
        let mut book = Notebook::open(file.clone());
        assert_eq!(book.notes, Notes::default());
        book.notes.srv = Some(Srv { name: "c.example.net".into(), hosts: vec!["a:27017".into()], ..Srv::default() });
        book.notes.today = Today { day: 20_000, bytes: 7 };
        book.save().await;
        assert_eq!(Notebook::open(file.clone()).notes, book.notes);
        for damage in ["", "{", "[]", "{\"srv\":7}"] {
            std::fs::write(&file, damage).unwrap();
            assert_eq!(Notebook::open(file.clone()).notes, Notes::default(), "{damage}");
        }
        std::fs::write(&file, "{\"later\":1}").unwrap();
        assert_eq!(Notebook::open(file).notes, Notes::default(), "what a later version noted is no damage");
        let mut nowhere = Notebook::default();
        nowhere.notes.today.bytes = 1;
        nowhere.save().await;
    }

    #[tokio::test]
    async fn notes_beyond_the_bound_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.db.upstream");
        let mut book = Notebook::open(file.clone());
        book.notes.today.bytes = 7;
        book.save().await;
        let known = book.notes.clone();
        book.notes.srv = Some(Srv { hosts: vec!["a.example.net:27017".to_owned(); 5000], ..Srv::default() });
        book.save().await;
        assert_eq!(Notebook::open(file).notes, known, "the last that fits");
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["t.db.upstream"]);
    }
}
