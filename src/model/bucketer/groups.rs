//! What buckets gained in a step.
//!
//! Thousands of buckets gain a few bytes each: all their blocks lie in one vector.

use super::{BucketKey, Opened};

/// Samples that one bucket gained in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Which bucket.
    pub key: BucketKey,
    /// Told when this step opened it, or when the least certain of its samples came with this step.
    pub opened: Option<Opened>,
    /// The samples, as a block whose base is the window's start.
    pub block: &'a [u8],
}

/// The groups of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    heads: Vec<Head>,
    blocks: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    key: BucketKey,
    opened: Option<Opened>,
    /// Where its block ends.
    end: usize,
}

impl Groups {
    /// None, with room for so many.
    pub fn with_capacity(groups: usize) -> Self {
        Self { heads: Vec::with_capacity(groups), blocks: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Bytes of all blocks together.
    pub fn bytes(&self) -> usize {
        self.blocks.len()
    }

    /// Adds one whose block `write` appends; the block.
    pub fn push(&mut self, key: BucketKey, opened: Option<Opened>, write: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        let start = self.blocks.len();
        write(&mut self.blocks);
        self.heads.push(Head { key, opened, end: self.blocks.len() });
        &self.blocks[start..]
    }

    /// In the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Group<'_>> {
        let mut start = 0;
        self.heads.iter().map(move |head| {
            let block = &self.blocks[std::mem::replace(&mut start, head.end)..head.end];
            Group { key: head.key, opened: head.opened, block }
        })
    }
}
