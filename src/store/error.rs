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
    /// The file is damaged, or is no database at all.
    #[error(
        "cannot {doing}: {cause} (the file of store.path is damaged: move it away together with its -wal and -shm, keep \
         them for a rescue, and start again)"
    )]
    Broken {
        /// The operation, with the file where that helps.
        doing: String,
        /// SQLite's error.
        cause: rusqlite::Error,
    },
    /// SQLite failed.
    #[error("cannot {doing}: {cause}")]
    Sqlite {
        /// The operation, with the file where that helps.
        doing: String,
        /// SQLite's error.
        cause: rusqlite::Error,
    },
    /// The file belongs to a newer release, or to another program.
    #[error("{0}")]
    Unusable(String),
}

impl StoreError {
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
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                StoreError::Broken { doing: doing.to_owned(), cause }
            }
            _ => StoreError::Sqlite { doing: doing.to_owned(), cause },
        })
    }
}
