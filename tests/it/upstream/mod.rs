//! Delivery against servers, peers and folders.

mod admin;
mod answers;
mod append;
mod archive;
mod database;
mod economy;
mod faults;
mod fleet;
mod forward;
mod gateway;
mod killed;
mod live;
mod login;
mod manners;
mod shapes;
mod storm;
mod tls;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::support::patience;
use tipbucket::clock::Clock;
use tipbucket::model::{
    FieldName, Sample, SealReason, SealedBucket, SensorName, SiteName, Timestamp, Value, WindowLength,
};
use tipbucket::upstream::{Config, Document, Fate, Report, TroubleKind, Tuning, Upstream, Uri};

const STORE: &str = "0badcafe";
/// 2026-11-30T13:00:00Z, where a window of ten minutes begins.
const START: i64 = 1_796_043_600_000;

fn config(uri: &str, database: &str) -> Config {
    Config { uri: Uri::new(uri), database: database.to_owned(), ..Config::default() }
}

/// Short pauses; deadlines that a healthy server keeps on a busy machine.
fn patient() -> Tuning {
    let deadlines = Tuning::default();
    Tuning {
        selection: patience(Duration::from_secs(20)),
        connect: patience(deadlines.connect),
        insert: patience(deadlines.insert),
        find: patience(deadlines.find),
        shutdown: Duration::from_secs(1),
        retry: (Duration::from_millis(20), Duration::from_millis(200)),
        overload: (Duration::from_millis(20), Duration::from_millis(200)),
        probe: (Duration::from_millis(50), Duration::from_millis(200)),
        ..deadlines
    }
}

/// Short deadlines too, for servers that are broken on purpose.
fn impatient() -> Tuning {
    let s = Duration::from_secs;
    Tuning { selection: s(3), connect: s(3), insert: s(4), find: s(4), ..patient() }
}

fn upstream(config: Config) -> Upstream {
    with(config, patient())
}

fn with(config: Config, tuning: Tuning) -> Upstream {
    let site = SiteName::new("greenhouse-7").unwrap();
    Upstream::new(config, site, HashMap::new(), Clock::system(), tuning)
}

/// Sends until there is no trouble any more.
async fn deliver_in_the_end(upstream: &mut Upstream, documents: &mut [Document]) -> Report {
    let deadline = Instant::now() + patience(Duration::from_secs(60));
    loop {
        let report = upstream.deliver(documents, STORE).await;
        if report.trouble.is_none() || Instant::now() > deadline {
            return report;
        }
    }
}

/// A bucket of one field with these values, a second apart.
fn bucket(sensor: &str, part: u32, values: &[f64]) -> SealedBucket {
    let temp = FieldName::new("temp").unwrap();
    let at = |i: usize| Timestamp::from_millis(START + 1000 * i as i64).unwrap();
    let sample =
        |(i, v): (usize, &f64)| Sample { at: at(i), fields: [(temp.clone(), Value::F64(*v))].into_iter().collect() };
    SealedBucket {
        sensor: SensorName::new(sensor).unwrap(),
        window: WindowLength::from_seconds(600).unwrap().window_of(at(0)),
        part,
        sealed: SealReason::Window,
        late: false,
        clock: tipbucket::model::ClockState::Synced,
        rollup: None,
        samples: values.iter().enumerate().map(sample).collect(),
    }
}

fn documents(upstream: &Upstream, sensors: &[&str]) -> Vec<Document> {
    let context = upstream.context(STORE);
    sensors.iter().map(|sensor| Document::of(&bucket(sensor, 0, &[21.5, 22.0]), &context)).collect()
}

/// `d` delivered, `x` refused, `-` unsent, `h` held.
fn fates(report: &Report) -> String {
    let letter = |fate: &Fate| match fate {
        Fate::Delivered => 'd',
        Fate::Refused(_) => 'x',
        Fate::Unsent => '-',
        Fate::Held => 'h',
    };
    report.fates.iter().map(letter).collect()
}

fn trouble(report: &Report) -> (TroubleKind, &str) {
    let trouble = report.trouble.as_ref().expect("there is trouble");
    (trouble.kind, &trouble.text)
}
