//! Sections into values that hold by themselves: names, windows and zones checked once, here.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytesize::ByteSize;

use super::place::KeyPath;
use super::read::{Sections, SourceEntry};
use super::sections::{Bucket, Sensor, Site};
use super::{ConfiguredSource, Findings, Notes, Settings};
use crate::model::{Admission, BucketPolicy, FieldName, Policies, SensorName, SiteName, SourceName, WindowLength};

/// Most samples in one bucket: a longer array makes every read of the document slow.
pub(super) const MAX_SAMPLES: u32 = 60_000;
/// Smallest bound of a bucket's bytes: a single sample with a few fields still fits.
const MIN_BUCKET_BYTES: u64 = 1 << 10;
/// Largest: half of MongoDB's 16 MiB per document, so that another layout or longer names still fit.
const MAX_BUCKET_BYTES: u64 = 8 << 20;
/// Most windows of one sensor that are open at once; each holds memory.
const MAX_OPEN_WINDOWS: u32 = 100;
/// Most decimals: a double has 15 to 17 significant digits.
const MAX_DECIMALS: u8 = 15;
/// Least age at which readings are refused: what a busy broker or a slow line may hold back.
const MIN_AGE: Duration = Duration::from_secs(60);
/// Longest time ahead that may be believed.
const MAX_AHEAD: Duration = Duration::from_secs(366 * 86_400);
/// Most sensors of a site: each costs memory even when it is silent.
const MAX_SENSORS: u32 = 1_000_000;
/// Most tags of one sensor: they are repeated in each of its documents.
const MAX_TAGS: usize = 32;
/// Longest unit or tag in bytes.
const MAX_NOTE_BYTES: usize = 256;

/// Builds what it can; `None` if something was wrong (then it is among the findings).
pub(super) fn build(sections: Sections, findings: &mut Findings<'_>) -> Option<Settings> {
    let site = site_name(&sections.site, findings);
    let timezone = timezone(&sections.site, findings);
    let policies = policies(&sections, findings);
    let notes = notes(&sections, findings);
    limits(&sections.site, &sections.bucket, findings);
    let sources: Vec<_> = sections.sources.into_iter().filter_map(|entry| source(entry, findings)).collect();
    if !sections.any_source {
        findings.wrong_at_all("no source is configured (add at least one, as [sources.NAME] with its type)");
    }
    Some(Settings {
        site: site?,
        max_sensors: sections.site.max_sensors,
        clock: sections.clock,
        timezone: timezone?,
        admission: Admission { max_future: sections.site.max_future, max_age: sections.bucket.max_age },
        policies: policies?,
        notes,
        store: crate::store::Config {
            beside: ByteSize(crate::store::BESIDE_BYTES + crate::upstream::BESIDE_BYTES),
            ..sections.store
        },
        upstream: sections.upstream?,
        sources,
        web: sections.web,
        log: sections.log,
        warnings: Vec::new(),
    })
}

fn site_name(site: &Site, findings: &mut Findings<'_>) -> Option<SiteName> {
    let path = KeyPath::of(&["site", "name"]);
    if site.name.is_empty() {
        // A name that was there but unreadable has been reported already.
        if !findings.problems.iter().any(|problem| problem.to_string().contains("`site.name`")) {
            findings.wrong(&path, "missing (give the installation a name: name = \"greenhouse-7\" under [site])");
        }
        return None;
    }
    SiteName::new(&site.name).map_err(|error| findings.wrong(&path, error)).ok()
}

fn timezone(site: &Site, findings: &mut Findings<'_>) -> Option<Option<jiff::tz::TimeZone>> {
    let Some(name) = &site.timezone else { return Some(None) };
    let words = || format!("{name:?} is not a known time zone (an IANA name such as Europe/Amsterdam)");
    let found = jiff::tz::TimeZone::get(name);
    found.map_err(|_| findings.wrong(&KeyPath::of(&["site", "timezone"]), words())).ok().map(Some)
}

fn limits(site: &Site, bucket: &Bucket, findings: &mut Findings<'_>) {
    if !(1..=MAX_SENSORS).contains(&site.max_sensors) {
        let words = format!("{} sensors are outside 1 to {MAX_SENSORS}", site.max_sensors);
        findings.wrong(&KeyPath::of(&["site", "max_sensors"]), words);
    }
    if bucket.max_age.is_some_and(|age| age < MIN_AGE) {
        let words = "less than a minute: readings on their way would be refused (leave it out to take any age)";
        findings.wrong(&KeyPath::of(&["bucket", "max_age"]), words);
    }
    if site.max_future > MAX_AHEAD {
        findings.wrong(&KeyPath::of(&["site", "max_future"]), "is more than a year: no reading is that far ahead");
    }
}

fn policies(sections: &Sections, findings: &mut Findings<'_>) -> Option<Policies> {
    let default = policy(&sections.bucket, &KeyPath::of(&["bucket"]), None, findings);
    let mut by_sensor = HashMap::new();
    let mut whole = true;
    for (name, sensor) in &sections.sensors {
        let path = KeyPath::of(&["sensors", name]);
        let key = SensorName::new(name).map_err(|error| findings.wrong(&path, error));
        let policy = policy(&sensor.over(&sections.bucket), &path, Some(sensor), findings);
        match (key, policy) {
            (Ok(key), Some(policy)) => {
                if Some(&policy) != default.as_ref() {
                    by_sensor.insert(key, policy);
                }
            }
            _ => whole = false,
        }
    }
    default.filter(|_| whole).map(|default| Policies { default, by_sensor })
}

/// The policy of `[bucket]`, or of one sensor: then only what that sensor itself says is blamed on it.
fn policy(
    bucket: &Bucket,
    path: &KeyPath,
    sensor: Option<&Sensor>,
    findings: &mut Findings<'_>,
) -> Option<BucketPolicy> {
    let said = |own: fn(&Sensor) -> bool| sensor.is_none_or(own);
    let mut sound = true;
    let mut wrong = |here: bool, key: &str, words: String| {
        sound = false;
        if here {
            findings.wrong(&path.key(key), words);
        }
    };
    let window = WindowLength::from_duration(bucket.window);
    if let Err(error) = window {
        wrong(said(|s| s.window.is_some()), "window", format!("{} is refused: {error}", time(bucket.window)));
    }
    if !(1..=MAX_SAMPLES).contains(&bucket.max_samples) {
        let words = format!("{} samples are outside 1 to {MAX_SAMPLES}", bucket.max_samples);
        wrong(said(|s| s.max_samples.is_some()), "max_samples", words);
    }
    let bytes = bucket.max_bytes.as_u64();
    if !(MIN_BUCKET_BYTES..=MAX_BUCKET_BYTES).contains(&bytes) {
        let words = format!("{} is outside 1 KiB to 8 MiB (a document holds at most 16 MiB)", bucket.max_bytes);
        wrong(said(|s| s.max_bytes.is_some()), "max_bytes", words);
    }
    if window.is_ok() && bucket.grace > bucket.window.saturating_mul(MAX_OPEN_WINDOWS) {
        let (grace, window) = (time(bucket.grace), time(bucket.window));
        let words = format!(
            "{grace} keeps more than {MAX_OPEN_WINDOWS} windows of {window} open at once for each sensor (shorten it, or lengthen the window)"
        );
        let own = |s: &Sensor| s.grace.is_some() || s.window.is_some();
        // The key to blame is the one the sensor itself sets.
        let key = if sensor.is_some_and(|s| s.grace.is_none()) { "window" } else { "grace" };
        let words = if key == "window" { format!("with a grace of {words}") } else { words };
        wrong(said(own), key, words);
    }
    if let Some(decimals) = bucket.decimals.filter(|d| *d > MAX_DECIMALS) {
        wrong(said(|s| s.decimals.is_some()), "decimals", format!("{decimals} is more than {MAX_DECIMALS}"));
    }
    let max_bytes = u32::try_from(bytes).ok();
    Some(BucketPolicy {
        window: window.ok()?,
        max_samples: bucket.max_samples,
        max_bytes: max_bytes?,
        grace: bucket.grace,
        decimals: bucket.decimals,
    })
    .filter(|_| sound)
}

/// What is known of each sensor: what sources declare, and over it what `[sensors.NAME]` says.
fn notes(sections: &Sections, findings: &mut Findings<'_>) -> HashMap<SensorName, Notes> {
    let mut notes: HashMap<SensorName, Notes> = HashMap::new();
    for entry in &sections.sources {
        for (sensor, field, unit) in entry.config.claims().units {
            if let (Ok(sensor), Ok(field)) = (SensorName::new(&sensor), FieldName::new(&field)) {
                notes.entry(sensor).or_default().units.insert(field, unit);
            }
        }
    }
    for (name, sensor) in &sections.sensors {
        let Ok(key) = SensorName::new(name) else { continue };
        let path = KeyPath::of(&["sensors", name]);
        let units = texts(&path.key("units"), &sensor.units, findings);
        let tags = texts(&path.key("tags"), &sensor.tags, findings);
        if tags.len() > MAX_TAGS {
            let words = format!("{} tags are more than {MAX_TAGS}: each stands in every document", tags.len());
            findings.wrong(&path.key("tags"), words);
        }
        if !(units.is_empty() && tags.is_empty()) {
            let known = notes.entry(key).or_default();
            known.units.extend(units);
            known.tags.extend(tags);
        }
    }
    notes
}

fn texts(path: &KeyPath, texts: &BTreeMap<String, String>, findings: &mut Findings<'_>) -> BTreeMap<FieldName, String> {
    let mut checked = BTreeMap::new();
    for (key, text) in texts {
        if text.len() > MAX_NOTE_BYTES {
            findings.wrong(&path.key(key), format!("has {} bytes, at most {MAX_NOTE_BYTES} are allowed", text.len()));
        }
        match FieldName::new(key) {
            Ok(key) => drop(checked.insert(key, text.clone())),
            Err(error) => findings.wrong(&path.key(key), error),
        }
    }
    checked
}

fn source(entry: SourceEntry, findings: &mut Findings<'_>) -> Option<ConfiguredSource> {
    let path = KeyPath::of(&["sources", &entry.name]);
    let name = SourceName::new(&entry.name).map_err(|error| findings.wrong(&path, error)).ok()?;
    Some(ConfiguredSource { name, kind: entry.kind, sets_clock: entry.sets_clock, config: entry.config })
}

/// A length of time as it would be written in the site file.
pub(super) fn time(length: Duration) -> String {
    humantime::format_duration(length).to_string()
}
