//! The bytes of a document, which may be given away and made again.
//!
//! The driver copies what it is given, twice. So that ours are not a third copy, they are given away with the insert, and made
//! again, the same ones, only where they are wanted once more: what was delivered is not.

use std::fmt;
use std::sync::{Arc, OnceLock};

use mongodb::bson::RawDocumentBuf;

use super::Document;

/// Bytes that are there, or can be made.
#[derive(Clone)]
pub(super) struct Body {
    bytes: OnceLock<RawDocumentBuf>,
    size: usize,
    again: Option<Again>,
}

/// Makes the document again.
pub(crate) type Again = Arc<dyn Fn() -> Document + Send + Sync>;

impl Body {
    /// Bytes that cannot be made again.
    pub(super) fn new(bytes: RawDocumentBuf) -> Self {
        let size = bytes.as_bytes().len();
        Self { bytes: bytes.into(), size, again: None }
    }

    /// The same, which `again` would make.
    pub(super) fn with(self, again: Again) -> Self {
        Self { again: Some(again), ..self }
    }

    pub(super) fn get(&self) -> &RawDocumentBuf {
        self.bytes.get_or_init(|| self.made())
    }

    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Gives the bytes away; a copy of those that cannot be made again.
    pub(super) fn give(&mut self) -> RawDocumentBuf {
        match &self.again {
            Some(_) => self.bytes.take().unwrap_or_else(|| self.made()),
            None => self.get().clone(),
        }
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.give().into_bytes()
    }

    fn made(&self) -> RawDocumentBuf {
        let again = self.again.as_ref().expect("only what can be made again is given away");
        again().give()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("size", &self.size).field("is_here", &self.bytes.get().is_some()).finish()
    }
}
