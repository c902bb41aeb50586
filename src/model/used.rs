//! Which parts of which windows a sensor has used already, so that no two buckets ever bear one identity.
//!
//! Kept in bounded memory: the windows used are ranges (a regular sensor has one), and only the most recent windows
//! with several parts are remembered one by one. What is forgotten is forgotten safely: a forgotten gap counts as used,
//! and forgotten part numbers are covered by `floor`, the highest of them.

use smallvec::SmallVec;

use super::varint::{self, Damaged, Reader};
use super::{Window, WindowLength};

/// Ranges kept per sensor; more only arise when a sensor falls silent again and again.
const MAX_RANGES: usize = 8;
/// Windows with several parts kept one by one per sensor.
const MAX_PARTS: usize = 8;

/// One sensor's memory of used windows, all of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    length: WindowLength,
    /// Used windows as inclusive ranges of their index: ascending, apart.
    ranges: SmallVec<[(i64, i64); 1]>,
    /// The next part of windows of which more than part 0 was used: ascending by index.
    next_parts: SmallVec<[(i64, u32); 1]>,
    /// Windows up to this index may have parts that are no longer in `next_parts` …
    floor_until: i64,
    /// … of which the next is at most this.
    floor: u32,
}

impl Used {
    /// Nothing used yet.
    pub fn new(length: WindowLength) -> Self {
        Self { length, ranges: SmallVec::new(), next_parts: SmallVec::new(), floor_until: i64::MIN, floor: 0 }
    }

    /// The first part of `window` that was not used; 0 if the window was not.
    pub fn next_part(&self, window: Window) -> u32 {
        if window.length() != self.length || !self.is_used(window.index()) {
            return 0;
        }
        match self.next_parts.binary_search_by_key(&window.index(), |(index, _)| *index) {
            Ok(place) => self.next_parts[place].1,
            Err(_) if window.index() <= self.floor_until => self.floor.max(1),
            Err(_) => 1,
        }
    }

    /// `part` of `window` is used from now on. Another window length than before forgets everything, which is safe:
    /// the length is part of a bucket's identity.
    pub fn mark(&mut self, window: Window, part: u32) {
        if window.length() != self.length {
            *self = Self::new(window.length());
        }
        self.mark_range(window.index());
        if part > 0 {
            self.mark_part(window.index(), part.saturating_add(1));
        }
    }

    fn is_used(&self, index: i64) -> bool {
        self.ranges.iter().any(|&(first, last)| first <= index && index <= last)
    }

    fn mark_range(&mut self, index: i64) {
        let place = self.ranges.partition_point(|&(_, last)| last < index.saturating_sub(1));
        match self.ranges.get_mut(place) {
            Some(range) if range.0 <= index.saturating_add(1) => {
                range.0 = range.0.min(index);
                range.1 = range.1.max(index);
                let reached = range.1;
                if self.ranges.get(place + 1).is_some_and(|next| next.0 <= reached.saturating_add(1)) {
                    let next = self.ranges.remove(place + 1);
                    self.ranges[place].1 = next.1;
                }
            }
            _ => self.ranges.insert(place, (index, index)),
        }
        if self.ranges.len() > MAX_RANGES {
            let oldest = self.ranges.remove(0);
            self.ranges[0].0 = oldest.0;
        }
    }

    fn mark_part(&mut self, index: i64, next: u32) {
        match self.next_parts.binary_search_by_key(&index, |(index, _)| *index) {
            Ok(place) => self.next_parts[place].1 = self.next_parts[place].1.max(next),
            Err(place) => self.next_parts.insert(place, (index, next)),
        }
        if self.next_parts.len() > MAX_PARTS {
            let (forgotten, part) = self.next_parts.remove(0);
            self.floor_until = self.floor_until.max(forgotten);
            self.floor = self.floor.max(part);
        }
    }

    /// Appends a compact form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.length.seconds().into());
        varint::put(out, self.ranges.len() as u64);
        let mut previous = 0;
        for &(first, last) in &self.ranges {
            varint::put_signed(out, first.wrapping_sub(previous));
            varint::put_signed(out, last.wrapping_sub(first));
            previous = last;
        }
        varint::put(out, self.next_parts.len() as u64);
        for &(index, next) in &self.next_parts {
            varint::put_signed(out, index);
            varint::put(out, next.into());
        }
        varint::put(out, self.floor.into());
        if self.floor > 0 {
            varint::put_signed(out, self.floor_until);
        }
    }

    /// Reads what [`Self::encode`] wrote.
    pub fn decode(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        let length = WindowLength::from_seconds(input.u32()?).map_err(|_| Damaged("window length"))?;
        let mut used = Self::new(length);
        let mut previous = 0i64;
        for _ in 0..input.bounded(MAX_RANGES)? {
            let first = previous.wrapping_add(input.signed()?);
            previous = first.wrapping_add(input.signed()?);
            used.ranges.push((first, previous));
        }
        for _ in 0..input.bounded(MAX_PARTS)? {
            used.next_parts.push((input.signed()?, input.u32()?));
        }
        used.floor = input.u32()?;
        if used.floor > 0 {
            used.floor_until = input.signed()?;
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn minute(index: i64) -> Window {
        Window::from_index(index, WindowLength::from_seconds(60).unwrap()).unwrap()
    }

    #[test]
    fn a_window_never_used_begins_with_part_0() {
        let mut used = Used::new(minute(0).length());
        for index in [10, 11, 13] {
            used.mark(minute(index), 0);
        }
        assert_eq!([9, 10, 11, 12, 13, 14].map(|i| used.next_part(minute(i))), [0, 1, 1, 0, 1, 0]);
        used.mark(minute(11), 1);
        assert_eq!(used.next_part(minute(11)), 2);
    }

    proptest! {
        #[test]
        fn no_identity_is_ever_given_twice(order in prop::collection::vec(0i64..60, 1..400)) {
            let mut used = Used::new(minute(0).length());
            let mut given = HashSet::new();
            for index in order {
                let part = used.next_part(minute(index));
                prop_assert!(given.insert((index, part)), "part {part} of window {index} was given twice");
                used.mark(minute(index), part);
                let mut bytes = Vec::new();
                used.encode(&mut bytes);
                prop_assert_eq!(&Used::decode(&mut Reader::new(&bytes)).unwrap(), &used);
            }
        }
    }
}
