//! What can go wrong in the store, for those who must branch on it.

use super::Closed;

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
    /// SQLite failed.
    #[error("cannot {doing}: {cause}")]
    Sqlite {
        /// The operation, with the file where that helps.
        doing: String,
        /// SQLite's error.
        cause: rusqlite::Error,
    },
}
