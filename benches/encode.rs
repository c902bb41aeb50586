//! Model and journal encoding on one core: everything a commit computes, without the database.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

mod support;

use support::{Site, Stopwatch, introduce, is_wanted, median, policies};
use tipbucket::model::Timestamp;
use tipbucket::store::{Delivery, Rehearsal};

const ROUNDS: usize = 7;
/// Readings in one round.
const READINGS: usize = 1_000_000;

fn main() {
    if !is_wanted() {
        return;
    }
    introduce("names, buckets, rows to blocks, journal record, zstd, checksum, sealing; one thread, no database");
    println!("  {:<44} {:>14} {:>12} {:>12}", "", "readings/cpu s", "ns/reading", "B/reading");
    for (sensors, fields, commit) in
        [(1000, 1, 10_000), (1000, 2, 10_000), (1000, 2, 1000), (10_000, 2, 10_000), (10, 2, 1000)]
    {
        measure(sensors, fields, commit);
    }
}

/// So many readings to a commit, one reading to a delivery as MQTT messages are.
fn measure(sensors: usize, fields: usize, commit: usize) {
    let mut now = Timestamp::clamped(1_796_043_600_000);
    let mut site = Site::new(sensors, fields, now);
    let mut store = Rehearsal::new(policies(), sensors);
    let mut rates = Vec::new();
    let mut bytes = 0;
    for round in 0..=ROUNDS {
        let mut spent = std::time::Duration::ZERO;
        for _ in 0..READINGS / commit {
            let deliveries: Vec<Delivery> = (0..commit).map(|_| Delivery::of(vec![site.reading()])).collect();
            now = deliveries.last().map_or(now, |last| last.readings[0].at);
            let watch = Stopwatch::start();
            let (journal, segments) = store.commit(&deliveries, now).expect("nothing is damaged");
            spent += watch.read().1;
            bytes += journal + segments;
        }
        // The first round opens the buckets and is not counted.
        if round > 0 {
            rates.push(READINGS as f64 / spent.as_secs_f64());
        }
    }
    let rate = median(&mut rates);
    let what = format!("{sensors} sensors, {fields} field(s), {commit} to a commit");
    let each = bytes as f64 / (READINGS * (ROUNDS + 1)) as f64;
    println!("  {what:<44} {rate:>14.0} {:>12.0} {each:>12.2}", 1e9 / rate);
}
