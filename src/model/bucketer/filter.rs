//! A small Bloom filter over sample times: tells cheaply that a time is new, so that out-of-order arrival does not make
//! every push look through the whole bucket.

use crate::Timestamp;

/// Bits per time: with two probes about one new time in twenty is looked for in vain.
const BITS_PER_TIME: usize = 8;

/// Times that may be there.
#[derive(Debug)]
pub(super) struct TimeFilter {
    words: Vec<u64>,
    room: usize,
}

impl TimeFilter {
    /// An empty filter with room for twice `count` times.
    pub(super) fn with_room_for(count: usize) -> Self {
        let bits = (count.max(32) * 2 * BITS_PER_TIME).next_power_of_two();
        Self { words: vec![0; bits / 64], room: bits / BITS_PER_TIME }
    }

    /// Adds a time; `false` when the filter is full and a larger one is due.
    pub(super) fn add(&mut self, at: Timestamp) -> bool {
        for bit in self.bits(at) {
            self.words[bit / 64] |= 1 << (bit % 64);
        }
        self.room = self.room.saturating_sub(1);
        self.room > 0
    }

    /// Whether the time may be there; `false` is certain.
    pub(super) fn may_hold(&self, at: Timestamp) -> bool {
        self.bits(at).iter().all(|bit| self.words[bit / 64] >> (bit % 64) & 1 == 1)
    }

    fn bits(&self, at: Timestamp) -> [usize; 2] {
        // Fibonacci hashing; the two halves of the product are the two probes.
        let hash = (at.as_millis() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mask = self.words.len() * 64 - 1;
        [(hash >> 40) as usize & mask, (hash >> 17) as usize & mask]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_found_and_most_others_are_not() {
        let mut filter = TimeFilter::with_room_for(500);
        let time = |i: i64| Timestamp::clamped(1_796_043_600_000 + i * 250);
        (0..1000).for_each(|i| {
            filter.add(time(i));
        });
        assert!((0..1000).all(|i| filter.may_hold(time(i))));
        assert!((1000..11_000).filter(|i| filter.may_hold(time(*i))).count() < 1500);
    }
}
