//! The redo record: what one commit changed, self-contained. Replaying the records in order gives back every open bucket
//! and every one that is sealed and not written yet.
//!
//! After the sections that every record has come optional ones, each `tag · length · bytes`. A tag that is not known is
//! damage: a newer release's file is refused before that by its schema version.

use super::accounts::Accounts;
use super::pack::{reason_code, reason_of};
use super::redelivery::{Trace, decode_traces, encode_traces};
use crate::model::bucketer::{BucketKey, Groups, Opened};
use crate::model::codec;
use crate::model::varint::{self, Damaged, Reader};
use crate::model::{ClockState, SealReason, Timestamp, Window, WindowLength};

/// Most groups or seals in a record; a commit touches each open bucket once.
const MAX_ENTRIES: usize = 16 << 20;

const SAME_WINDOW: u64 = 1;
const MORE: u64 = 2;

/// Tags of the optional sections.
const FROZEN: u64 = 1;
const GONE: u64 = 2;
const SEGMENTS: u64 = 3;
const ACCOUNTS: u64 = 4;

/// A bucket that was frozen, and why it was closed.
pub(super) type FrozenKey = (BucketKey, SealReason);

/// Buckets that were sealed and wait for delivery in memory, under the number of their pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frozen {
    pub id: u64,
    pub keys: Vec<FrozenKey>,
}

/// What one commit changed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Record {
    /// The number that the next segment will bear.
    pub next_segment: u64,
    /// Buckets in segments not yet delivered, after this commit.
    pub backlog: u64,
    /// Those segments; `None` in records of the first release.
    pub segments: Option<u64>,
    /// Messages to recognise when they come again.
    pub traces: Vec<Trace>,
    /// Samples by bucket, ascending.
    pub groups: Groups,
    /// Buckets sealed and written in this commit, ascending.
    pub seals: Vec<BucketKey>,
    /// The accounts after this commit; `None` in records of the first release.
    pub accounts: Option<Accounts>,
    /// Buckets sealed in this commit and not written.
    pub frozen: Vec<Frozen>,
    /// Packs that are delivered, or written in this commit.
    pub gone: Vec<u64>,
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 4 * self.groups.len() + self.groups.bytes());
        varint::put(&mut out, self.next_segment);
        varint::put(&mut out, self.backlog);
        encode_traces(&self.traces, &mut out);
        varint::put(&mut out, self.groups.len() as u64);
        let mut previous = None;
        for group in self.groups.iter() {
            put_key(&mut out, &group.key, previous.as_ref(), group.opened.is_some());
            if let Some(opened) = group.opened {
                varint::put_signed(&mut out, opened.due.as_millis() - group.key.window.end().as_millis());
                out.push(opening_flags(&opened));
            }
            out.extend_from_slice(group.block);
            previous = Some(group.key);
        }
        varint::put(&mut out, self.seals.len() as u64);
        let mut previous = None;
        for key in &self.seals {
            put_key(&mut out, key, previous.as_ref(), false);
            previous = Some(*key);
        }
        self.encode_optional(&mut out);
        out
    }

    fn encode_optional(&self, out: &mut Vec<u8>) {
        let mut section = Vec::new();
        let mut put = |tag: u64, section: &mut Vec<u8>| {
            varint::put(out, tag);
            varint::put_bytes(out, section);
            section.clear();
        };
        for frozen in &self.frozen {
            varint::put(&mut section, frozen.id);
            varint::put(&mut section, frozen.keys.len() as u64);
            let mut previous = None;
            for (key, reason) in &frozen.keys {
                put_key(&mut section, key, previous.as_ref(), false);
                section.push(reason_code(*reason));
                previous = Some(*key);
            }
            put(FROZEN, &mut section);
        }
        if !self.gone.is_empty() {
            self.gone.iter().for_each(|id| varint::put(&mut section, *id));
            put(GONE, &mut section);
        }
        if let Some(accounts) = &self.accounts {
            accounts.encode(&mut section);
            put(ACCOUNTS, &mut section);
        }
        if let Some(segments) = self.segments {
            varint::put(&mut section, segments);
            put(SEGMENTS, &mut section);
        }
    }

    fn decode_optional(&mut self, input: &mut Reader<'_>) -> Result<(), Damaged> {
        while input.left() > 0 {
            let tag = input.varint()?;
            let mut section = Reader::new(input.bytes()?);
            match tag {
                FROZEN => {
                    let mut frozen = Frozen { id: section.varint()?, keys: Vec::new() };
                    for _ in 0..section.bounded(MAX_ENTRIES)? {
                        let (key, _) = read_key(&mut section, frozen.keys.last().map(|(key, _)| key))?;
                        frozen.keys.push((key, reason_of(section.byte()?)));
                    }
                    self.frozen.push(frozen);
                }
                GONE => {
                    while section.left() > 0 {
                        self.gone.push(section.varint()?);
                    }
                }
                ACCOUNTS => self.accounts = Some(Accounts::decode(&mut section)?),
                SEGMENTS => self.segments = Some(section.varint()?),
                _ => return Err(Damaged("unknown section of a record")),
            }
            if section.left() > 0 {
                return Err(Damaged("bytes after a section"));
            }
        }
        Ok(())
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
        for _ in 0..input.bounded(MAX_ENTRIES)? {
            let (key, opened) = read_key(&mut input, previous.as_ref())?;
            let opened = if opened {
                let due = key
                    .window
                    .end()
                    .as_millis()
                    .checked_add(input.signed()?)
                    .ok_or(Damaged("due time out of range"))?;
                let due = Timestamp::from_millis(due).ok_or(Damaged("due time out of range"))?;
                Some(opening(due, input.byte()?))
            } else {
                None
            };
            let before = input.clone();
            codec::skip(&mut input)?;
            let block = &before.rest()[..before.left() - input.left()];
            record.groups.push(key, opened, |blocks| blocks.extend_from_slice(block));
            previous = Some(key);
        }
        let mut previous = None;
        for _ in 0..input.bounded(MAX_ENTRIES)? {
            let (key, _) = read_key(&mut input, previous.as_ref())?;
            record.seals.push(key);
            previous = Some(key);
        }
        record.decode_optional(&mut input)?;
        Ok(record)
    }
}

/// Bit 0: late; bits 1 and 2: what is known of its samples' times.
pub(super) const fn opening_flags(opened: &Opened) -> u8 {
    opened.late as u8 | opened.clock.code() << 1
}

/// The opening of a bucket with these flags.
pub(super) const fn opening(due: Timestamp, flags: u8) -> Opened {
    Opened { due, late: flags & 1 != 0, clock: ClockState::of_code(flags >> 1) }
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
    use crate::model::Value;
    use crate::model::codec::Row;

    #[test]
    fn a_record_survives_and_its_usual_group_costs_one_byte_of_key() {
        let window = WindowLength::from_seconds(600).unwrap().window_of(Timestamp::clamped(1_796_043_600_000));
        let row = Row { at: window.start(), fields: [(1, Value::I64(5))].into_iter().collect() };
        let add = |groups: &mut Groups, sensor, part, opened| {
            let key = BucketKey { sensor, window, part };
            groups.push(key, opened, |out| codec::encode(std::slice::from_ref(&row), window.start(), out)).len()
        };
        let mut groups = Groups::default();
        add(&mut groups, 3, 0, None);
        add(&mut groups, 3, 1, Some(opening(window.end().plus(std::time::Duration::from_secs(30)), 0b101)));
        let mut record = Record {
            next_segment: 9,
            backlog: 4,
            groups,
            seals: vec![BucketKey { sensor: 3, window, part: 0 }],
            accounts: Some(Accounts { accepted: 1_000_000, delivered: 5, stored: 0 }),
            ..Record::default()
        };
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        let key = |sensor| (BucketKey { sensor, window, part: 0 }, SealReason::Late);
        record.frozen = vec![Frozen { id: 8, keys: vec![key(3), key(4)] }, Frozen { id: 9, keys: vec![key(2)] }];
        (record.gone, record.segments) = (vec![3, 7], Some(2));
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        let before = record.encode().len();
        let block = add(&mut record.groups, 4, 0, None);
        assert_eq!(record.encode().len() - before, 1 + block);
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
