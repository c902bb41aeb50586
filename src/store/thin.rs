//! Thinning: when room is short, the samples of the oldest undelivered buckets are replaced by their rollups, a segment
//! at a time and in place, so that the segment keeps its number and its buckets their identity.

use rusqlite::{Connection, OptionalExtension, params};

use super::error::Doing;
use super::ledger::{Loss, Losses};
use super::names::Names;
use super::segment::{self, Packer};
use super::{SegmentId, StoreError};
use crate::model::codec;
use crate::model::varint::{self, Damaged, Reader};
use crate::model::{FieldStats, LossReason, MAX_FIELDS, Number, Rollup, SiteName, Timestamp};

/// Bytes of a content hash: 32 hex digits.
const HASH_BYTES: usize = 16;

/// Thins the oldest segment after `after` that still holds samples; its number and how many samples went, `None` if all
/// are thinned. A segment that cannot be read is passed over: evicting comes after thinning.
pub(super) fn oldest(
    db: &Connection,
    after: u64,
    site: &SiteName,
    names: &Names,
    losses: &mut Losses,
) -> Result<Option<(u64, u64)>, StoreError> {
    let sql = "SELECT id, samples, data FROM segment WHERE id > ?1 AND thinned = 0 ORDER BY id LIMIT 1";
    let mut select = db.prepare_cached(sql).doing("read a segment to thin it")?;
    let oldest =
        select.query_row([after], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?, row.get::<_, Vec<u8>>(2)?)));
    let Some((id, held, data)) = oldest.optional().doing("read a segment to thin it")? else { return Ok(None) };
    let Ok(parcel) = segment::open(SegmentId(id), data, &names.reader()) else { return Ok(Some((id, 0))) };
    let mut packer = Packer::whole();
    let mut left = held;
    for bucket in &parcel.buckets {
        // One bucket that does not unpack is kept as it is, for the forwarder to put aside.
        let thin = bucket.unpack().ok().filter(|_| !bucket.0.is_thinned()).map(|whole| whole.thinned(site));
        match thin.as_ref().and_then(|thin| thin.rollup.as_ref()).filter(|rollup| known(rollup, names)) {
            Some(rollup) => {
                packer.add_rollup(&bucket.0, rollup, &encode(rollup, names));
                // No more than the segment still answers for: a bucket of it may have been put aside.
                let samples = left.min(rollup.count.into());
                left -= samples;
                let loss = Loss { first: rollup.first, last: rollup.last, samples };
                losses.add(Some(bucket.0.key.sensor), LossReason::Thinned, loss);
            }
            None => packer.add_as_is(&bucket.0),
        }
    }
    let Some(packed) = packer.finish() else { return Ok(Some((id, 0))) };
    let sql = "UPDATE segment SET data = ?2, samples = ?3, thinned = 1 WHERE id = ?1";
    let mut update = db.prepare_cached(sql).doing("thin a segment")?;
    update.execute(params![id, packed.seal(), left]).doing("thin a segment")?;
    Ok(Some((id, held - left)))
}

fn known(rollup: &Rollup, names: &Names) -> bool {
    rollup.stats.iter().all(|(name, _)| names.known_field(name).is_some())
}

fn encode(rollup: &Rollup, names: &Names) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, rollup.count.into());
    varint::put(&mut out, rollup.first.as_millis() as u64);
    varint::put(&mut out, rollup.last.as_millis() as u64);
    let hash = (0..HASH_BYTES)
        .map(|i| rollup.hash.get(2 * i..2 * i + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(0));
    out.extend(hash);
    varint::put(&mut out, rollup.stats.len() as u64);
    for (name, stats) in &rollup.stats {
        varint::put(&mut out, names.known_field(name).unwrap_or(0).into());
        varint::put(&mut out, u64::from(stats.count) << 1 | u64::from(stats.numbers.is_some()));
        if let Some((sum, min, max)) = stats.numbers {
            [sum, min, max].into_iter().for_each(|number| codec::put_value(&mut out, &number.value()));
        }
        codec::put_value(&mut out, &stats.first);
        codec::put_value(&mut out, &stats.last);
    }
    out
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(bytes: &[u8], names: &super::names::NameReader) -> Result<Rollup, Damaged> {
    let mut input = Reader::new(bytes);
    let count = input.u32()?;
    let mut time =
        || i64::try_from(input.varint()?).ok().and_then(Timestamp::from_millis).ok_or(Damaged("time out of range"));
    let (first, last) = (time()?, time()?);
    let hash = input.array::<HASH_BYTES>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut stats = Vec::new();
    for _ in 0..input.bounded(MAX_FIELDS)? {
        let name = names.field(input.u32()?).ok_or(Damaged("field without a name"))?;
        let head = input.varint()?;
        let numbers = if head & 1 == 1 {
            let mut number = || Number::of(&codec::read_value(&mut input)?).ok_or(Damaged("sum that is no number"));
            Some((number()?, number()?, number()?))
        } else {
            None
        };
        let count = u32::try_from(head >> 1).map_err(|_| Damaged("count above 32 bits"))?;
        let (first, last) = (codec::read_value(&mut input)?, codec::read_value(&mut input)?);
        stats.push((name, FieldStats { count, numbers, first, last }));
    }
    Ok(Rollup { count, first, last, stats, hash })
}

/// How many samples the encoded rollup stands for.
pub(super) fn count(bytes: &[u8]) -> usize {
    Reader::new(bytes).u32().map_or(0, |count| count as usize)
}
