//! What a configuration costs, in plain arithmetic: documents per day, the outage the disk budget bridges, wear of the card.
//!
//! Estimates from stated assumptions, not promises; `tipbucket status` shows what really happens.

use std::time::Duration;

use serde::Serialize;

use super::Settings;
use crate::model::{BucketPolicy, FieldName, Fields, Sample, Value};
use crate::store::Config;
use crate::upstream::{self, Kind, Mode, Shape};

/// Bytes that one reading of two fields takes in the store, journal or bucket (measured: 3 to 12; the upper end).
pub const STORED_BYTES_PER_READING: u64 = 12;
/// Of the budget, what is not for buckets: write-ahead log and journal, 16 MiB each.
pub const OVERHEAD_BYTES: u64 = 32 << 20;
/// A document's bytes beside its samples: identity, window, rollups of two fields.
pub const DOCUMENT_HEAD_BYTES: u64 = 600;
/// Bytes of an update of an open bucket beside its samples: which document, rollups of two fields, what a new one would say.
pub const LIVE_HEAD_BYTES: u64 = 650;
/// Fixed part of what one commit writes to the card: the block it ends in, now and then a second one, and its share of
/// checkpoints (measured: 4,500 to 5,500).
const COMMIT_BYTES: f64 = 4096.0 + 1400.0;
/// How often each byte of a reading reaches the card: in the journal, and a little of it again in checkpoints. Buckets are
/// mostly sent from memory.
const WRITTEN_PER_BYTE: f64 = 1.1;
/// Times that `check --explain` compares.
const CHOICES_MS: [u64; 6] = [100, 1_000, 5_000, 10_000, 30_000, 60_000];
const SECONDS_PER_DAY: f64 = 86_400.0;

/// What is assumed where the site file cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    /// How many sensors send.
    pub sensors: u64,
    /// How often each does, in milliseconds.
    pub every_ms: u64,
}

impl Load {
    /// One reading of each of `sensors` in `every`; both at least the smallest that makes sense.
    pub fn new(sensors: u64, every: Duration) -> Self {
        Self { sensors: sensors.max(1), every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1) }
    }

    fn readings_per_day(self) -> f64 {
        SECONDS_PER_DAY * 1000.0 / self.every_ms as f64
    }
}

/// What ends a bucket under the assumed load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ends {
    /// Its window.
    Window,
    /// `max_samples`.
    Samples,
    /// `max_bytes`.
    Bytes,
}

/// One sensor's buckets under one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketSizes {
    /// Samples in a usual bucket.
    pub samples: u64,
    /// What ends it.
    pub ends: Ends,
    /// Documents per day.
    pub buckets_per_day: f64,
    /// Bytes of a usual document.
    pub document_bytes: u64,
    /// Most bytes a document can have: when a cap is reached.
    pub full_document_bytes: u64,
    /// Documents' bytes per day, before compression on the wire.
    pub upload_bytes_per_day: u64,
}

/// The whole site's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteSizes {
    /// What was assumed.
    pub load: Load,
    /// Readings per day of all sensors.
    pub readings_per_day: f64,
    /// Days without the upstream until the budget is used up.
    pub outage_days: f64,
    /// Bytes written to the card per day.
    pub flash_bytes_per_day: u64,
    /// What open buckets cost beside the complete ones, in mode `live`.
    pub live: Option<LiveSizes>,
    /// Of the sensors that follow `[bucket]`.
    pub bucket: BucketSizes,
    /// Of the sensors that have a policy of their own, by name.
    pub sensors: Vec<(String, BucketSizes)>,
}

/// Updates of open buckets, of all sensors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LiveSizes {
    /// Operations per day.
    pub updates_per_day: f64,
    /// Their bytes per day, before compression on the wire.
    pub upload_bytes_per_day: u64,
}

/// Works out what `settings` cost under `load`.
pub fn of(settings: &Settings, load: Load) -> SiteSizes {
    let mut sensors: Vec<_> = settings.policies.by_sensor.iter().collect();
    sensors.sort_by(|a, b| a.0.cmp(b.0));
    let store = &settings.store;
    SiteSizes {
        load,
        readings_per_day: load.readings_per_day() * load.sensors as f64,
        outage_days: outage_days(store.max_bytes.as_u64(), load),
        flash_bytes_per_day: flash_bytes_per_day(commit_every(settings), load),
        live: live(&settings.upstream, &settings.policies.default, load),
        bucket: bucket(&settings.policies.default, load),
        sensors: sensors.into_iter().map(|(name, policy)| (name.to_string(), bucket(policy, load))).collect(),
    }
}

/// How long a batch waits: the longer time only if every source can send again.
pub fn commit_every(settings: &Settings) -> Duration {
    let Config { commit_every, commit_every_resendable, .. } = settings.store;
    let all_resend = settings.sources.iter().all(|source| source.config.claims().resends);
    if all_resend { commit_every_resendable.max(commit_every) } else { commit_every }
}

/// One choice of `commit_every`, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// How long a batch waits, in milliseconds.
    pub commit_every_ms: u64,
    /// Whether it is what the site file says.
    pub chosen: bool,
    /// Bytes written to the card per day.
    pub flash_bytes_per_day: u64,
    /// Readings that a power cut costs at most, of sources that cannot send again.
    pub readings_at_risk: u64,
}

/// The usual choices and the site's own, shortest first.
pub fn choices(settings: &Settings, load: Load) -> Vec<Choice> {
    let own = commit_every(settings);
    let mut times: Vec<Duration> = CHOICES_MS.map(Duration::from_millis).to_vec();
    times.push(own);
    times.sort_unstable();
    times.dedup();
    let choice = |every: Duration| Choice {
        commit_every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX),
        chosen: every == own,
        flash_bytes_per_day: flash_bytes_per_day(every, load),
        readings_at_risk: (load.sensors as f64 * (every.as_secs_f64() * 1000.0 / load.every_ms as f64).max(1.0)).ceil()
            as u64,
    };
    times.into_iter().map(choice).collect()
}

/// One sensor's buckets.
pub fn bucket(policy: &BucketPolicy, load: Load) -> BucketSizes {
    let sample = u64::from(usual_sample().document_bytes());
    let by_bytes = (u64::from(policy.max_bytes).saturating_sub(DOCUMENT_HEAD_BYTES) / sample).max(1);
    let cap = u64::from(policy.max_samples).min(by_bytes);
    let in_window = (policy.window.millis() as u64).div_ceil(load.every_ms).max(1);
    let ends = match (in_window > cap, by_bytes < u64::from(policy.max_samples)) {
        (false, _) => Ends::Window,
        (true, true) => Ends::Bytes,
        (true, false) => Ends::Samples,
    };
    // Seldom readings leave windows empty: then every reading is a bucket of its own.
    let windows_per_day = SECONDS_PER_DAY / f64::from(policy.window.seconds());
    let buckets_per_day = windows_per_day.min(load.readings_per_day()) * in_window.div_ceil(cap) as f64;
    let samples = in_window.min(cap);
    let document_bytes = DOCUMENT_HEAD_BYTES + samples * sample;
    BucketSizes {
        samples,
        ends,
        buckets_per_day,
        document_bytes,
        full_document_bytes: DOCUMENT_HEAD_BYTES + cap * sample,
        upload_bytes_per_day: (load.readings_per_day() * sample as f64 + buckets_per_day * DOCUMENT_HEAD_BYTES as f64)
            as u64,
    }
}

/// Each sensor's open bucket is brought up to date with every reading, but no oftener than is set.
fn live(upstream: &upstream::Config, policy: &BucketPolicy, load: Load) -> Option<LiveSizes> {
    if upstream.kind != Kind::Mongodb || upstream.mode != Mode::Live {
        return None;
    }
    let most = SECONDS_PER_DAY / upstream.live_every.as_secs_f64().max(0.001);
    let updates_per_day = load.readings_per_day().min(most) * load.sensors as f64;
    let samples = f64::from(usual_sample().document_bytes()) * load.readings_per_day() * load.sensors as f64;
    let bytes = if upstream::can_grow(&Shape::of(upstream)) {
        updates_per_day.mul_add(LIVE_HEAD_BYTES as f64, samples)
    } else {
        // The whole document every time: half full on average.
        updates_per_day * (bucket(policy, load).document_bytes + DOCUMENT_HEAD_BYTES) as f64 / 2.0
    };
    Some(LiveSizes { updates_per_day, upload_bytes_per_day: bytes as u64 })
}

/// Days until `max_bytes` are used up while nothing is delivered.
pub fn outage_days(max_bytes: u64, load: Load) -> f64 {
    let room = max_bytes.saturating_sub(OVERHEAD_BYTES);
    room as f64 / (load.readings_per_day() * load.sensors as f64 * STORED_BYTES_PER_READING as f64)
}

/// Bytes written to the card per day: every reading goes into the journal.
pub fn flash_bytes_per_day(commit_every: Duration, load: Load) -> u64 {
    let readings = load.readings_per_day() * load.sensors as f64;
    let commits = (SECONDS_PER_DAY / commit_every.as_secs_f64().max(0.001)).min(readings);
    let payload = readings * STORED_BYTES_PER_READING as f64;
    commits.mul_add(COMMIT_BYTES, WRITTEN_PER_BYTE * payload) as u64
}

/// Two doubles with names of four letters.
fn usual_sample() -> Sample {
    let mut fields = Fields::new();
    for name in ["temp", "humi"] {
        if let Ok(name) = FieldName::new(name) {
            fields.push((name, Value::F64(0.0)));
        }
    }
    Sample { at: crate::model::Timestamp::EPOCH, fields }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WindowLength;

    fn policy(window: u32, max_samples: u32, max_bytes: u32) -> BucketPolicy {
        let window = WindowLength::from_seconds(window).unwrap();
        BucketPolicy { window, max_samples, max_bytes, grace: Duration::ZERO, decimals: None }
    }

    #[test]
    fn a_usual_sensor_fills_one_document_per_window() {
        let sizes = bucket(&policy(600, 1000, 64 << 10), Load::new(1, Duration::from_secs(10)));
        assert_eq!((sizes.samples, sizes.ends, sizes.buckets_per_day), (60, Ends::Window, 144.0));
        assert_eq!(sizes.document_bytes, 600 + 60 * u64::from(usual_sample().document_bytes()));
        assert_eq!(usual_sample().document_bytes(), 51);
    }

    #[test]
    fn caps_end_buckets_of_fast_sensors() {
        let fast = Load::new(1, Duration::from_millis(100));
        let sizes = bucket(&policy(600, 1000, 1 << 20), fast);
        assert_eq!((sizes.samples, sizes.ends, sizes.buckets_per_day), (1000, Ends::Samples, 144.0 * 6.0));
        let sizes = bucket(&policy(600, 1000, 10_800), fast);
        assert_eq!((sizes.samples, sizes.ends, sizes.buckets_per_day), (200, Ends::Bytes, 144.0 * 30.0));
        assert_eq!(sizes.full_document_bytes, 10_800);
    }

    #[test]
    fn a_seldom_sensor_has_no_more_buckets_than_readings() {
        let sizes = bucket(&policy(600, 1000, 64 << 10), Load::new(1, Duration::from_secs(3600)));
        assert_eq!((sizes.samples, sizes.buckets_per_day), (1, 24.0));
    }

    #[test]
    fn the_budget_bridges_an_outage_in_proportion() {
        let load = Load::new(10, Duration::from_secs(10));
        // 10 sensors, 8,640 readings a day each, 12 bytes: 1,036,800 bytes a day.
        let days = outage_days(OVERHEAD_BYTES + 10_368_000, load);
        assert!((days - 10.0).abs() < 1e-9, "{days}");
        assert_eq!(outage_days(1, load), 0.0);
    }

    #[test]
    fn the_card_is_written_once_per_commit_and_never_oftener_than_readings_come() {
        let load = Load::new(1, Duration::from_secs(3600));
        let day = flash_bytes_per_day(Duration::from_secs(1), load);
        assert_eq!(day, (24.0 * 5496.0 + 1.1 * 24.0 * 12.0) as u64);
        let busy = Load::new(100, Duration::from_secs(1));
        let (second, minute) =
            (flash_bytes_per_day(Duration::from_secs(1), busy), flash_bytes_per_day(Duration::from_secs(60), busy));
        assert!(second > minute * 2 && minute < second, "{second} {minute}");
    }

    #[test]
    fn open_buckets_cost_an_update_for_each_reading_or_each_look() {
        let (mut config, policy) = (upstream::Config::default(), policy(600, 1000, 64 << 10));
        let of = |config: &upstream::Config, every| live(config, &policy, Load::new(10, Duration::from_secs(every)));
        assert_eq!(of(&config, 1), None);
        config.mode = Mode::Live;
        let sample = u64::from(usual_sample().document_bytes());
        for (every, updates) in [(1, 17_280.0), (60, 1440.0)] {
            let expected = LiveSizes {
                updates_per_day: updates * 10.0,
                upload_bytes_per_day: updates as u64 * 10 * LIVE_HEAD_BYTES + 864_000 / every * sample,
            };
            assert_eq!(of(&config, every), Some(expected));
        }
        config.layout = upstream::Layout::Columns;
        let whole = of(&config, 60).unwrap();
        assert_eq!(whole.upload_bytes_per_day, 14_400 * (2 * DOCUMENT_HEAD_BYTES + 10 * sample) / 2);
        config.kind = Kind::Archive;
        assert_eq!(of(&config, 60), None);
    }

    #[test]
    fn an_update_of_an_open_bucket_takes_what_is_assumed() {
        let config = upstream::Config { mode: Mode::Live, ..upstream::Config::default() };
        let site = crate::model::SiteName::new("greenhouse-7").unwrap();
        let clock = crate::clock::Clock::system();
        let upstream = upstream::Upstream::new(config, site, Default::default(), clock, upstream::Tuning::default());
        let mut bucket = crate::model::samples::bucket("boiler-meter", 1_796_043_600, 0, &[]);
        bucket.samples = vec![usual_sample(); 2];
        let known = upstream::Known { samples: 1, clock: bucket.clock };
        let update =
            upstream::live_update(&bucket, Some(known), &upstream.context("0badcafe"), crate::model::Timestamp::EPOCH);
        let head = update.bytes() as u64 - u64::from(usual_sample().document_bytes());
        assert!(!update.whole && (LIVE_HEAD_BYTES - 50..=LIVE_HEAD_BYTES).contains(&head), "{head}");
    }

    #[test]
    fn absurd_loads_do_not_divide_by_zero() {
        let load = Load::new(0, Duration::ZERO);
        assert_eq!((load.sensors, load.every_ms), (1, 1));
        assert!(outage_days(1 << 40, load).is_finite());
        assert!(flash_bytes_per_day(Duration::ZERO, load) > 0);
    }
}
