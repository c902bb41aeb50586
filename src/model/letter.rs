//! What could not be taken or could not be delivered, kept for a person to look at.

use super::{LostBucket, SourceName, Timestamp};

/// Which of the two kinds of dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterKind {
    /// Bytes from a source that could not be decoded.
    Payload,
    /// A bucket that the database refused; the payload is its exact BSON.
    Bucket,
    /// Stored bytes that can no longer be read.
    Segment,
}

/// One dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// When it was put aside.
    pub at: Timestamp,
    /// What kind.
    pub kind: LetterKind,
    /// The source it came from; `None` for a bucket.
    pub source: Option<SourceName>,
    /// Where within the source: a topic, a port, an `_id`.
    pub place: String,
    /// What is wrong, in words for an operator.
    pub reason: String,
    /// The bytes themselves.
    pub payload: Vec<u8>,
    /// The accepted readings that are lost with it, of a bucket.
    pub lost: Option<LostBucket>,
}

impl LetterKind {
    /// Its word in the database and for users.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Bucket => "bucket",
            Self::Segment => "segment",
        }
    }
}
