//! What can go wrong in the store, for those who must branch on it.

use super::Closed;
use crate::model::varint::Damaged;

/// A store operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store has ended.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// Bytes in the database do not decode.
    #[error("damaged {what} in the database: {why}")]
    Damaged {
        /// Which record.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The disk budget, or the disk itself, is used up.
    #[error("cannot {doing}: no room left (store.max_bytes, or the disk itself, is used up)")]
    Full {
        /// The operation.
        doing: String,
    },
    /// The file system takes no writes.
    #[error(
        "cannot {doing}: the database or its file system is read-only (if the kernel made it so after an error, see dmesg: stop \
         tipbucket, check the card, mount it again; or restart the machine)"
    )]
    ReadOnly {
        /// The operation.
        doing: String,
    },
    /// SQLite failed.
    #[error("cannot {doing}: {cause}")]
    Sqlite {
        /// The operation, with the file where that helps.
        doing: String,
        /// SQLite's error.
        cause: rusqlite::Error,
    },
    /// Another process has the store open.
    #[error("{0}")]
    Held(String),
    /// The file belongs to a newer release, or to another program.
    #[error("{0}")]
    Unusable(String),
}

impl StoreError {
    /// A file could not be opened or made: what to say, unless the file system takes no writes.
    pub(super) fn of_file(doing: &str, cause: &std::io::Error, advice: &str) -> Self {
        if cause.kind() == std::io::ErrorKind::ReadOnlyFilesystem {
            return Self::ReadOnly { doing: doing.to_owned() };
        }
        Self::Unusable(format!("cannot {doing}: {cause}{advice}"))
    }

    /// Whether the file itself is damaged, as opposed to a disk that is full or away.
    pub(super) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match self {
            Self::Sqlite { cause, .. } => matches!(cause.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase)),
            Self::Damaged { .. } => true,
            _ => false,
        }
    }

    pub(super) fn damaged(what: impl Into<String>) -> impl FnOnce(Damaged) -> Self {
        let what = what.into();
        move |why| Self::Damaged { what, why: why.to_string() }
    }
}

/// Says what was being done when SQLite failed.
pub(super) trait Doing<T> {
    fn doing(self, doing: &str) -> Result<T, StoreError>;
}

impl<T> Doing<T> for rusqlite::Result<T> {
    fn doing(self, doing: &str) -> Result<T, StoreError> {
        self.map_err(|cause| match cause.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full { doing: doing.to_owned() },
            Some(rusqlite::ErrorCode::ReadOnly) => StoreError::ReadOnly { doing: doing.to_owned() },
            _ => StoreError::Sqlite { doing: doing.to_owned(), cause },
        })
    }
}
