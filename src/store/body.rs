//! The body of a pack: the blocks of its buckets.
//!
//! What is drawn from the disk stays as it lies there until the first of its buckets is wanted: to unpack 64 KiB takes
//! longer than to read them, and is done where the documents are made.

use std::sync::{Arc, OnceLock};

use super::frame;
use crate::model::varint::Damaged;

/// The blocks of a pack, one after the other.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Plain(Arc<[u8]>),
    Framed(Arc<Framed>),
}

/// Blocks in a frame that was checked, unpacked where the first of them is wanted.
#[derive(Debug)]
pub(super) struct Framed {
    /// A whole segment.
    data: Vec<u8>,
    /// Where the frame begins.
    from: usize,
    /// Bytes of all blocks.
    len: usize,
    /// `None`: sealed with a checksum, and still nothing that unpacks.
    blocks: OnceLock<Option<Box<[u8]>>>,
}

impl Body {
    /// The body of a segment that begins at `from`. Its checksum is compared at once.
    pub(super) fn framed(data: Vec<u8>, from: usize) -> Result<Self, Damaged> {
        let len = frame::check(&data[from..])?.len;
        Ok(Self::Framed(Arc::new(Framed { data, from, len, blocks: OnceLock::new() })))
    }

    /// Bytes of all blocks.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(blocks) => blocks.len(),
            Self::Framed(framed) => framed.len,
        }
    }

    /// The blocks; an error if they do not unpack.
    pub(super) fn blocks(&self) -> Result<&[u8], Damaged> {
        match self {
            Self::Plain(blocks) => Ok(blocks),
            Self::Framed(framed) => framed.blocks().ok_or(Damaged("samples do not unpack")),
        }
    }

    /// What there is of them if they do not unpack.
    pub(super) fn raw(&self) -> &[u8] {
        match self {
            Self::Plain(blocks) => blocks,
            Self::Framed(framed) => &framed.data,
        }
    }
}

impl Framed {
    fn blocks(&self) -> Option<&[u8]> {
        let unpack = || Some(frame::open(&self.data[self.from..]).ok()?.into());
        self.blocks.get_or_init(unpack).as_deref()
    }
}
