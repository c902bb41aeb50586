//! The bucketer against a plain model: a list of everything that came, put into windows by hand.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Value, WindowLength};

fn policy(max_samples: u32, max_bytes: u32) -> BucketPolicy {
    BucketPolicy {
        window: WindowLength::from_seconds(60).unwrap(),
        max_samples,
        max_bytes,
        grace: Duration::from_secs(5),
        decimals: None,
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::clamped(1_796_043_600_000 + seconds * 1000)
}

fn row(seconds: i64, value: i64) -> Row {
    Row { at: at(seconds), fields: [(0, Value::I64(value))].into_iter().collect() }
}

/// What a sealed bucket looks like from outside: (minute, part, reason, late, (second, value) …).
type Seen = (i64, u32, &'static str, bool, Vec<(i64, i64)>);

fn seen(bucketer: &mut Bucketer, seq: u64) -> Vec<Seen> {
    let step = bucketer.step(seq).unwrap();
    let sealed = step.closed.into_iter().map(|closed| bucketer.seal(closed).unwrap());
    sealed
        .map(|s| {
            let rows = s.rows.iter().map(|r| match r.fields[0].1 {
                Value::I64(v) => ((r.at.as_millis() - at(0).as_millis()) / 1000, v),
                _ => unreachable!(),
            });
            let minute = (s.key.window.start().as_millis() - at(0).as_millis()) / 60_000;
            (minute, s.key.part, s.reason.as_str(), s.late, rows.collect())
        })
        .collect()
}

/// Pushes `(arrival, time, value)` and closes what is due `until`.
fn check(pushes: &[(i64, i64, i64)], policy: &BucketPolicy, until: i64, expected: &[Seen]) {
    let mut bucketer = Bucketer::default();
    let mut all = Vec::new();
    for (i, &(arrival, time, value)) in pushes.iter().enumerate() {
        bucketer.close_due(at(arrival), usize::MAX);
        bucketer.push(1, &mut row(time, value), 40, policy, Arrival::at(at(arrival)));
        all.extend(seen(&mut bucketer, i as u64));
    }
    bucketer.close_due(at(until), usize::MAX);
    all.extend(seen(&mut bucketer, 99));
    assert_eq!(all, expected);
}

#[test]
fn a_window_is_closed_when_its_end_and_the_grace_have_passed() {
    check(&[(0, 0, 1), (59, 59, 2)], &policy(100, 10_000), 64, &[]);
    check(&[(0, 0, 1), (59, 59, 2)], &policy(100, 10_000), 65, &[(0, 0, "window", false, vec![(0, 1), (59, 2)])]);
}

#[test]
fn samples_are_in_time_order_however_they_arrived() {
    check(
        &[(9, 7, 1), (9, 3, 2), (9, 5, 3)],
        &policy(9, 9_999),
        99,
        &[(0, 0, "window", false, vec![(3, 2), (5, 3), (7, 1)])],
    );
}

#[test]
fn the_same_sample_is_kept_once_and_another_value_at_its_time_is_kept_too() {
    check(
        &[(1, 1, 7), (2, 2, 7), (3, 1, 7), (3, 1, 8), (4, 2, 7)],
        &policy(9, 9_999),
        99,
        &[(0, 0, "window", false, vec![(1, 7), (1, 8), (2, 7)])],
    );
}

#[test]
fn a_cap_of_samples_closes_a_part_and_opens_the_next() {
    check(
        &[(1, 1, 1), (2, 2, 2), (3, 3, 3)],
        &policy(2, 9_999),
        99,
        &[(0, 0, "samples", false, vec![(1, 1), (2, 2)]), (0, 1, "window", false, vec![(3, 3)])],
    );
}

#[test]
fn a_cap_of_bytes_closes_a_part_before_it_is_exceeded() {
    check(
        &[(1, 1, 1), (2, 2, 2), (3, 3, 3)],
        &policy(9, 100),
        99,
        &[(0, 0, "bytes", false, vec![(1, 1), (2, 2)]), (0, 1, "window", false, vec![(3, 3)])],
    );
}

#[test]
fn a_late_reading_opens_a_new_part() {
    check(
        &[(1, 1, 1), (70, 2, 2), (71, 3, 3), (200, 4, 4)],
        &policy(9, 9_999),
        300,
        &[
            (0, 0, "window", false, vec![(1, 1)]),
            (0, 1, "late", true, vec![(2, 2), (3, 3)]),
            (0, 2, "late", true, vec![(4, 4)]),
        ],
    );
}

#[test]
fn an_old_window_that_was_never_opened_is_not_late() {
    check(&[(500, 1, 1)], &policy(9, 9_999), 600, &[(0, 0, "window", false, vec![(1, 1)])]);
}

#[test]
fn a_sensor_that_replays_its_history_has_a_bounded_number_of_open_buckets() {
    let mut bucketer = Bucketer::default();
    for minute in 0..2000 {
        bucketer.push(1, &mut row(minute * 60, 1), 40, &policy(9, 9_999), Arrival::at(at(200_000)));
    }
    assert_eq!(bucketer.open_buckets(), MAX_OPEN_PER_SENSOR);
    assert_eq!(bucketer.step(1).unwrap().closed.len(), 2000 - MAX_OPEN_PER_SENSOR);
}

#[test]
fn when_memory_is_short_the_largest_are_closed_and_their_windows_go_on() {
    let mut bucketer = Bucketer::default();
    for i in 0..60 {
        bucketer.push(1, &mut row(i, i * i * 1_000_000), 40, &policy(1000, 100_000), Arrival::at(at(i)));
    }
    bucketer.push(2, &mut row(1, 1), 40, &policy(1000, 100_000), Arrival::at(at(60)));
    bucketer.step(1).unwrap();
    bucketer.close_largest(100_000);
    assert!(!bucketer.has_news());
    bucketer.close_largest(100);
    bucketer.push(1, &mut row(59, 7), 40, &policy(1000, 100_000), Arrival::at(at(60)));
    let closed = seen(&mut bucketer, 2);
    assert_eq!(closed.iter().map(|(.., samples)| samples.len()).collect::<Vec<_>>(), [60]);
    assert_eq!((closed[0].1, closed[0].2, bucketer.open_buckets()), (0, "bytes", 2));
}

#[derive(Clone, Debug)]
enum Event {
    Push { sensor: u32, back: i64, value: i64 },
    Pass { seconds: i64 },
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        10 => (0u32..3, 0i64..150, 0i64..3).prop_map(|(sensor, back, value)| Event::Push { sensor, back, value }),
        3 => (1i64..40).prop_map(|seconds| Event::Pass { seconds }),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..300)
}

/// What is on disk: records since the low mark, as the store keeps them.
#[derive(Default)]
struct Disk {
    seq: u64,
    records: Vec<(u64, Groups, Vec<BucketKey>)>,
    sealed: Vec<SealedRows>,
}

impl Disk {
    fn write(&mut self, bucketer: &mut Bucketer) {
        self.seq += 1;
        let step = bucketer.step(self.seq).unwrap();
        self.records.push((self.seq, step.groups, step.closed.iter().map(Closed::key).collect()));
        self.sealed.extend(step.closed.into_iter().map(|closed| bucketer.seal(closed).unwrap()));
        let low = bucketer.first_seq().unwrap_or(self.seq + 1);
        self.records.retain(|(seq, ..)| *seq >= low);
    }

    fn restart(&self, before: &Bucketer, policy: &BucketPolicy) -> Bucketer {
        let mut bucketer = Bucketer::default();
        for (sensor, used) in before.used() {
            bucketer.restore_used(sensor, used.clone()).unwrap();
        }
        for (seq, groups, seals) in &self.records {
            for group in groups.iter() {
                bucketer.restore(group, *seq, policy, |_| 40).unwrap();
            }
            seals.iter().for_each(|key| bucketer.forget(*key));
        }
        // A bucket whose seal is still on record but whose first samples are not must not come back.
        bucketer
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_sample_is_in_exactly_one_bucket_whatever_happens(events in events(), max_samples in 1u32..12) {
        let policy = policy(max_samples, 9_999);
        let mut bucketer = Bucketer::default();
        let mut disk = Disk::default();
        let mut clock = 1000i64;
        let mut accepted: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        for event in events {
            match event {
                Event::Push { sensor, back, value } => {
                    if bucketer.push(sensor, &mut row(clock - back, value), 40, &policy, Arrival::at(at(clock))) == Pushed::Kept {
                        accepted.entry(sensor).or_default().push((clock - back, value));
                    }
                    if value == 0 {
                        disk.write(&mut bucketer);
                    }
                }
                Event::Pass { seconds } => {
                    clock += seconds;
                    bucketer.close_due(at(clock), usize::MAX);
                    disk.write(&mut bucketer);
                }
                Event::Restart => {
                    disk.write(&mut bucketer);
                    let open = bucketer.open_buckets();
                    bucketer = disk.restart(&bucketer, &policy);
                    prop_assert_eq!(bucketer.open_buckets(), open);
                }
            }
        }
        bucketer.close_due(at(clock + 100_000), usize::MAX);
        disk.write(&mut bucketer);
        prop_assert_eq!((bucketer.open_buckets(), bucketer.pieces.bytes()), (0, 0), "all room is given back");

        let mut identities = HashSet::new();
        let mut found: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        for bucket in disk.sealed {
            prop_assert!(identities.insert(bucket.key), "{:?} sealed twice", bucket.key);
            prop_assert!(bucket.rows.len() <= max_samples as usize);
            prop_assert!(bucket.rows.is_sorted_by_key(|row| row.at));
            for row in bucket.rows {
                prop_assert!(bucket.key.window.contains(row.at));
                let Value::I64(value) = row.fields[0].1 else { unreachable!() };
                found.entry(bucket.key.sensor).or_default().push(((row.at.as_millis() - at(0).as_millis()) / 1000, value));
            }
        }
        accepted.values_mut().chain(found.values_mut()).for_each(|samples| samples.sort_unstable());
        prop_assert_eq!(found, accepted);
    }
}
