//! The bytes of many growing things, in pieces of one size.
//!
//! Thousands of open buckets grow in step, a few bytes each with every commit. As ordinary vectors they would lie
//! scattered between what a commit needs for a moment, and the allocator could give none of that room back: three times
//! the memory that is in use. Here they share pages that hold nothing else, and a piece that is free serves any of them.

/// Bytes in a piece; with the number of the next one it is 64.
const PIECE: usize = 60;
/// Pieces in a page of 64 KiB.
const PAGE: usize = 1024;
/// No further piece.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Piece {
    bytes: [u8; PIECE],
    next: u32,
}

/// Where the bytes of all lie.
#[derive(Debug)]
pub(super) struct Pieces {
    pages: Vec<Box<[Piece]>>,
    free: u32,
    taken: usize,
}

/// The bytes of one. It must be [given back](Pieces::give_back), else its pieces are never used again.
#[derive(Debug)]
pub(super) struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { pages: Vec::new(), free: NONE, taken: 0 }
    }
}

impl Chain {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE, len: 0 };

    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of its pieces.
    pub(super) const fn taken(&self) -> usize {
        self.len().div_ceil(PIECE) * size_of::<Piece>()
    }
}

impl Pieces {
    /// Bytes of all pieces that are taken.
    pub(super) const fn bytes(&self) -> usize {
        self.taken * size_of::<Piece>()
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, chain: &mut Chain, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let filled = chain.len() % PIECE;
            if filled == 0 {
                let taken = self.take();
                match chain.last {
                    NONE => chain.first = taken,
                    last => self.piece_mut(last).next = taken,
                }
                chain.last = taken;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - filled));
            self.piece_mut(chain.last).bytes[filled..filled + now.len()].copy_from_slice(now);
            chain.len += now.len() as u32;
            bytes = later;
        }
    }

    /// Appends what is there from `start` on to `out`.
    pub(super) fn read(&self, chain: &Chain, start: usize, out: &mut Vec<u8>) {
        out.reserve_exact(chain.len().saturating_sub(start));
        let (mut at, mut place) = (0, chain.first);
        while at < chain.len() {
            let piece = self.piece(place);
            let filled = PIECE.min(chain.len() - at);
            out.extend_from_slice(&piece.bytes[start.saturating_sub(at).min(filled)..filled]);
            (at, place) = (at + filled, piece.next);
        }
    }

    /// Keeps the first `len` bytes.
    pub(super) fn truncate(&mut self, chain: &mut Chain, len: usize) {
        if len >= chain.len() {
            return;
        }
        let kept = len.div_ceil(PIECE);
        if kept == 0 {
            return self.give_back(chain);
        }
        let last = (1..kept).fold(chain.first, |place, _| self.piece(place).next);
        let rest = std::mem::replace(&mut self.piece_mut(last).next, NONE);
        self.release(rest);
        (chain.last, chain.len) = (last, len as u32);
    }

    /// Others may use the pieces; nothing is left.
    pub(super) fn give_back(&mut self, chain: &mut Chain) {
        self.release(std::mem::replace(chain, Chain::EMPTY).first);
        if self.taken == 0 {
            *self = Self::default();
        }
    }

    fn release(&mut self, first: u32) {
        let mut place = first;
        while place != NONE {
            let free = self.free;
            let next = std::mem::replace(&mut self.piece_mut(place).next, free);
            self.free = place;
            self.taken -= 1;
            place = next;
        }
    }

    fn take(&mut self) -> u32 {
        if self.free == NONE {
            let first = (self.pages.len() * PAGE) as u32;
            let piece =
                |i: usize| Piece { bytes: [0; PIECE], next: if i + 1 < PAGE { first + i as u32 + 1 } else { NONE } };
            self.pages.push((0..PAGE).map(piece).collect());
            self.free = first;
        }
        let taken = self.free;
        self.free = std::mem::replace(&mut self.piece_mut(taken).next, NONE);
        self.taken += 1;
        taken
    }

    fn piece(&self, place: u32) -> &Piece {
        &self.pages[place as usize / PAGE][place as usize % PAGE]
    }

    fn piece_mut(&mut self, place: u32) -> &mut Piece {
        &mut self.pages[place as usize / PAGE][place as usize % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Append(usize, Vec<u8>),
        Truncate(usize, usize),
        GiveBack(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let which = 0usize..4;
        prop_oneof![
            5 => (which.clone(), prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(which, bytes)| Act::Append(which, bytes)),
            2 => (which.clone(), 0usize..400).prop_map(|(which, len)| Act::Truncate(which, len)),
            1 => which.prop_map(Act::GiveBack),
        ]
    }

    proptest! {
        #[test]
        fn each_chain_holds_what_it_was_given(acts in prop::collection::vec(act(), 1..80), start in 0usize..300) {
            let mut pieces = Pieces::default();
            let mut chains: Vec<(Chain, Vec<u8>)> = (0..4).map(|_| (Chain::EMPTY, Vec::new())).collect();
            for act in acts {
                match act {
                    Act::Append(which, bytes) => {
                        pieces.append(&mut chains[which].0, &bytes);
                        chains[which].1.extend(bytes);
                    }
                    Act::Truncate(which, len) => {
                        pieces.truncate(&mut chains[which].0, len);
                        chains[which].1.truncate(len);
                    }
                    Act::GiveBack(which) => {
                        pieces.give_back(&mut chains[which].0);
                        chains[which].1.clear();
                    }
                }
                let mut needed = 0;
                for (chain, expected) in &chains {
                    let mut found = Vec::new();
                    pieces.read(chain, 0, &mut found);
                    prop_assert_eq!(&found, expected);
                    found.clear();
                    pieces.read(chain, start, &mut found);
                    prop_assert_eq!(&found, &expected[start.min(expected.len())..]);
                    needed += expected.len().div_ceil(PIECE);
                }
                prop_assert_eq!(pieces.bytes(), needed * 64, "no piece is lost or held twice");
            }
        }
    }

    #[test]
    fn what_is_given_back_is_used_again() {
        let mut pieces = Pieces::default();
        let mut kept = Chain::EMPTY;
        pieces.append(&mut kept, &[1; 10]);
        for _ in 0..100 {
            let mut chain = Chain::EMPTY;
            pieces.append(&mut chain, &[7; 10_000]);
            pieces.give_back(&mut chain);
        }
        assert_eq!(pieces.pages.len(), 1);
    }
}
