//! The redo record: what one commit changed, self-contained. Replaying the records in order gives back every open bucket.

use std::ops::Range;

use super::accounts::Accounts;
use super::redelivery::{Trace, decode_traces, encode_traces};
use crate::model::bucketer::{BucketKey, Group};
use crate::model::codec::{self, Row};
use crate::model::varint::{self, Damaged, Reader};
use crate::model::{Window, WindowLength};

/// Most groups or seals in a record; a commit touches each open bucket once.
const MAX_ENTRIES: usize = 16 << 20;

const SAME_WINDOW: u64 = 1;
const MORE: u64 = 2;

/// What one commit changed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Record {
    /// The number that the next segment will bear.
    pub next_segment: u64,
    /// Buckets sealed and not yet delivered, after this commit.
    pub backlog: u64,
    /// Messages to recognise when they come again.
    pub traces: Vec<Trace>,
    /// Samples by bucket, ascending.
    pub groups: Vec<Group>,
    /// Buckets sealed in this commit, ascending.
    pub seals: Vec<BucketKey>,
    /// The accounts after this commit; `None` in records of the first release.
    pub accounts: Option<Accounts>,
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.groups.iter().map(|group| 4 + group.block.len()).sum::<usize>());
        varint::put(&mut out, self.next_segment);
        varint::put(&mut out, self.backlog);
        encode_traces(&self.traces, &mut out);
        varint::put(&mut out, self.groups.len() as u64);
        let mut previous = None;
        for group in &self.groups {
            put_key(&mut out, &group.key, previous.as_ref(), group.opened.is_some());
            if let Some((due, late)) = group.opened {
                varint::put_signed(&mut out, due.as_millis() - group.key.window.end().as_millis());
                out.push(u8::from(late));
            }
            out.extend_from_slice(&group.block);
            previous = Some(group.key);
        }
        varint::put(&mut out, self.seals.len() as u64);
        let mut previous = None;
        for key in &self.seals {
            put_key(&mut out, key, previous.as_ref(), false);
            previous = Some(*key);
        }
        if let Some(accounts) = &self.accounts {
            accounts.encode(&mut out);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut input = Reader::new(bytes);
        let mut record = Self {
            next_segment: input.varint()?,
            backlog: input.varint()?,
            traces: decode_traces(&mut input)?,
            ..Self::default()
        };
        let mut previous = None;
        let mut scratch: Vec<Row> = Vec::new();
        for _ in 0..input.bounded(MAX_ENTRIES)? {
            let (key, opened) = read_key(&mut input, previous.as_ref())?;
            let opened = if opened {
                let due = key
                    .window
                    .end()
                    .as_millis()
                    .checked_add(input.signed()?)
                    .ok_or(Damaged("due time out of range"))?;
                let due = crate::model::Timestamp::from_millis(due).ok_or(Damaged("due time out of range"))?;
                Some((due, input.byte()? != 0))
            } else {
                None
            };
            let before = input.clone();
            scratch.clear();
            codec::decode(&mut input, key.window.start(), &mut scratch)?;
            let block: Range<usize> = 0..before.left() - input.left();
            record.groups.push(Group { key, opened, block: before.rest()[block].to_vec() });
            previous = Some(key);
        }
        let mut previous = None;
        for _ in 0..input.bounded(MAX_ENTRIES)? {
            let (key, _) = read_key(&mut input, previous.as_ref())?;
            record.seals.push(key);
            previous = Some(key);
        }
        if input.left() > 0 {
            record.accounts = Some(Accounts::decode(&mut input)?);
        }
        if input.left() > 0 { Err(Damaged("bytes after the record")) } else { Ok(record) }
    }
}

/// A key after the previous one. Most buckets of a record share their window, and most are part 0: then it is one byte.
pub(super) fn put_key(out: &mut Vec<u8>, key: &BucketKey, previous: Option<&BucketKey>, opened: bool) {
    let same = previous.is_some_and(|p| p.window == key.window);
    let more = key.part > 0 || opened;
    // Sensors ascend; the wrapping keeps any order readable.
    let delta = key.sensor.wrapping_sub(previous.map_or(0, |p| p.sensor));
    varint::put(out, u64::from(delta) << 2 | u64::from(more) << 1 | u64::from(same));
    if !same {
        varint::put(out, key.window.length().seconds().into());
        varint::put_signed(out, key.window.index());
    }
    if more {
        varint::put(out, u64::from(key.part) << 1 | u64::from(opened));
    }
}

/// Reads what [`put_key`] wrote.
pub(super) fn read_key(input: &mut Reader<'_>, previous: Option<&BucketKey>) -> Result<(BucketKey, bool), Damaged> {
    let head = input.varint()?;
    let delta = u32::try_from(head >> 2).map_err(|_| Damaged("sensor number above 32 bits"))?;
    let sensor = previous.map_or(0, |p| p.sensor).wrapping_add(delta);
    let window = if head & SAME_WINDOW != 0 {
        previous.ok_or(Damaged("no window to repeat"))?.window
    } else {
        let length = WindowLength::from_seconds(input.u32()?).map_err(|_| Damaged("window length"))?;
        Window::from_index(input.signed()?, length).ok_or(Damaged("window out of range"))?
    };
    let more = if head & MORE != 0 { input.varint()? } else { 0 };
    let part = u32::try_from(more >> 1).map_err(|_| Damaged("part above 32 bits"))?;
    Ok((BucketKey { sensor, window, part }, more & 1 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Timestamp, Value};

    #[test]
    fn a_record_survives_and_its_usual_group_costs_one_byte_of_key() {
        let window = WindowLength::from_seconds(600).unwrap().window_of(Timestamp::clamped(1_796_043_600_000));
        let group = |sensor, part, opened| {
            let mut block = Vec::new();
            codec::encode(
                &[Row { at: window.start(), fields: [(1, Value::I64(5))].into_iter().collect() }],
                window.start(),
                &mut block,
            );
            Group { key: BucketKey { sensor, window, part }, opened, block }
        };
        let mut record = Record {
            next_segment: 9,
            backlog: 4,
            groups: vec![
                group(3, 0, None),
                group(3, 1, Some((window.end().plus(std::time::Duration::from_secs(30)), true))),
            ],
            seals: vec![BucketKey { sensor: 3, window, part: 0 }],
            accounts: Some(Accounts { accepted: 1_000_000, delivered: 5, stored: 0 }),
            ..Record::default()
        };
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        let before = record.encode().len();
        record.groups.push(group(4, 0, None));
        assert_eq!(record.encode().len() - before, 1 + record.groups[2].block.len());
        record.accounts = None;
        assert_eq!(Record::decode(&record.encode()).unwrap(), record, "as the first release wrote it");
    }

    #[test]
    fn no_bytes_make_decode_panic() {
        proptest::proptest!(|(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200))| {
            let _ = Record::decode(&bytes);
        });
    }
}
