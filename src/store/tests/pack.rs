//! Packs of sealed buckets: what is packed is read back, also what the first release packed.

use super::*;
use crate::model::bucketer::{BucketKey, SealedRows};
use crate::model::codec::{self, Row};
use crate::model::{ClockState, SealReason, varint};
use crate::store::names::{NameReader, Names};
use crate::store::pack::{Packer, flags, list, listed, open};
use crate::store::record::put_key;

fn bucket(sensor: u32, values: &[i64]) -> SealedRows {
    let window = WindowLength::from_seconds(600).unwrap().window_of(Timestamp::clamped(1_796_043_600_000));
    let row = |(i, value): (usize, &i64)| Row {
        at: Timestamp::clamped(window.start().as_millis() + i as i64),
        fields: [(0, Value::I64(*value))].into_iter().collect(),
    };
    let rows = values.iter().enumerate().map(row).collect();
    let clock = ClockState::Synced;
    SealedRows { key: BucketKey { sensor, window, part: 1 }, reason: SealReason::Late, late: true, clock, rows }
}

fn names() -> NameReader {
    let mut names = Names::with_room_for(9);
    for sensor in ["a", "b"] {
        names.sensor(&crate::model::SensorName::new(sensor).unwrap()).unwrap();
    }
    let fields = [(crate::model::FieldName::new("t").unwrap(), Value::I64(1))].into_iter().collect();
    let sensor = crate::model::SensorName::new("a").unwrap();
    assert!(names.fill(&mut Row::default(), &Reading { sensor, at: Timestamp::EPOCH, fields }, None));
    names.reader()
}

/// What a segment holds: sensor, values.
fn check(data: &[u8], expected: &[(&str, Vec<i64>)]) {
    let parcel = open(SegmentId(1), data.to_vec(), &names()).unwrap();
    let value = |sample: &Sample| if let Value::I64(v) = sample.fields[0].1 { v } else { unreachable!() };
    let buckets = parcel.buckets.iter().map(|packed| packed.unpack().unwrap());
    let buckets: Vec<_> = buckets.collect();
    assert!(buckets.iter().all(|bucket| bucket.late && bucket.sealed == SealReason::Late && bucket.part == 1));
    let found: Vec<(&str, Vec<i64>)> =
        buckets.iter().map(|b| (b.sensor.as_str(), b.samples.iter().map(value).collect())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_pack_is_read_back_and_its_rollups_without_its_body() {
    let mut packer = Packer::default();
    assert!(packer.add(&bucket(0, &[1, 2])).is_none() && packer.add(&bucket(1, &[7])).is_none());
    let mut data = packer.finish().unwrap().seal();
    check(&data, &[("a", vec![1, 2]), ("b", vec![7])]);
    *data.last_mut().unwrap() ^= 1;
    assert!(open(SegmentId(1), data.clone(), &names()).is_err());
    let listed = list(1, &data).unwrap();
    let counts = listed.iter().map(|listed| listed.rollup().unwrap().unwrap().count);
    assert_eq!(counts.collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn samples_that_do_not_unpack_are_told_where_they_are_wanted() {
    let mut packer = Packer::default();
    packer.add(&bucket(0, &(0..1000).map(|n| n * n * n % 977).collect::<Vec<_>>()));
    let mut data = packer.finish().unwrap().seal();
    let head = 5 + u32::from_le_bytes(data[..4].try_into().unwrap()) as usize;
    // Behind checksum, version, flags and zstd's own head, with a checksum to match.
    data[head + 20..].fill(0xff);
    let crc = crc32fast::hash(&data[head + 4..]);
    data[head..head + 4].copy_from_slice(&crc.to_le_bytes());
    let parcel = open(SegmentId(1), data.clone(), &names()).unwrap();
    let told = parcel.buckets[0].unpack().unwrap_err().to_string();
    assert!(told.contains("samples do not unpack"), "{told}");
    assert_eq!(parcel.buckets[0].bytes(), data);
}

#[test]
fn a_segment_of_the_first_release_is_read() {
    let mut payload = vec![2];
    for bucket in [bucket(0, &[1, 2]), bucket(1, &[7])] {
        let mut block = Vec::new();
        codec::encode(&bucket.rows, bucket.key.window.start(), &mut block);
        put_key(&mut payload, &bucket.key, None, false);
        payload.push(flags(SealReason::Late, true, ClockState::Synced, false));
        varint::put_bytes(&mut payload, &block);
    }
    let data = frame::seal(&payload);
    check(&data, &[("a", vec![1, 2]), ("b", vec![7])]);
    assert!(list(1, &data).unwrap().iter().all(|listed| listed.rollup().unwrap().is_none()));
}

#[test]
fn no_bytes_make_it_panic() {
    proptest::proptest!(|(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200))| {
        let _ = listed(&bytes);
        let _ = list(1, &bytes);
        let _ = open(SegmentId(1), bytes, &names());
    });
}
