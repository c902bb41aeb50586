//! The body of a pack: the blocks of its buckets.
//!
//! What is drawn from the disk stays as it lies there until the first of its buckets is wanted: to unpack 64 KiB takes
//! longer than to read them, and is done where the documents are made.

use std::fmt;
use std::sync::{Arc, LazyLock};

use super::frame::{self, Checked};
use crate::model::varint::Damaged;

/// The blocks of a pack, one after the other.
#[derive(Clone)]
pub(super) enum Body {
    Plain(Arc<[u8]>),
    /// So many bytes in a frame that was checked, which goes when they are unpacked.
    Framed(usize, Arc<LazyLock<Unpacked, Unpack>>),
}

/// The blocks; or the whole segment, whose checksum was right, and which yet does not unpack.
type Unpacked = Result<Box<[u8]>, Vec<u8>>;
type Unpack = Box<dyn FnOnce() -> Unpacked + Send>;

impl Body {
    /// The body of a segment that begins at `from`. Its checksum is compared at once.
    pub(super) fn framed(segment: Vec<u8>, from: usize) -> Result<Self, Damaged> {
        let len = frame::check(&segment[from..])?.len;
        let unpack = move || {
            let blocks = frame::check(&segment[from..])
                .and_then(Checked::unpack)
                .map(|blocks| blocks.into_owned().into_boxed_slice());
            blocks.map_err(|_| segment)
        };
        Ok(Self::Framed(len, Arc::new(LazyLock::new(Box::new(unpack)))))
    }

    /// Bytes of all blocks.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(blocks) => blocks.len(),
            Self::Framed(len, _) => *len,
        }
    }

    /// The blocks; an error if they do not unpack.
    pub(super) fn blocks(&self) -> Result<&[u8], Damaged> {
        match self {
            Self::Plain(blocks) => Ok(blocks),
            Self::Framed(_, unpacked) => unpacked.as_deref().map_err(|_| Damaged("samples do not unpack")),
        }
    }

    /// What there is of them if they do not unpack.
    pub(super) fn raw(&self) -> &[u8] {
        match self {
            Self::Plain(blocks) => blocks,
            Self::Framed(_, unpacked) => unpacked.as_deref().unwrap_or_else(|segment| segment),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of blocks", self.len())
    }
}
