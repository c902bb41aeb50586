//! Contradictions between keys, sections and sources: what each part alone cannot see.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;

use super::Findings;
use super::build::time;
use super::place::KeyPath;
use super::read::Sections;
use crate::clock::Belief;

/// The write-ahead log alone is grown to 16 MiB and the journal may need as much; below this nothing would be left for
/// an outage.
const MIN_STORE_BYTES: u64 = 48 << 20;
/// What one sensor takes on disk before it has sent anything worth keeping: its row and a first journal record.
const SENSOR_BYTES: u64 = 256;
/// A budget holds at least so many full buckets, or the first outage thins everything.
const MIN_BUCKETS: u64 = 64;
/// Range of `clock.hold_for`: below a minute nothing is synchronised, and what waits takes room on the disk.
const HOLD_FOR: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 86_400);
/// Range of `commit_every`: shorter wears the card out, longer loses too much of what cannot be sent again.
const COMMIT_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(600);

/// Longest `write_behind`: the journal keeps what is not written, and must not grow for it.
const MAX_WRITE_BEHIND: Duration = Duration::from_secs(600);

/// Adds everything that contradicts something else.
pub(super) fn check(sections: &Sections, findings: &mut Findings<'_>) {
    clock(sections, findings);
    store(sections, findings);
    budget(sections, findings);
    sources(sections, findings);
    exclusive(sections, findings);
    units(sections, findings);
    if let Some(upstream) = &sections.upstream {
        for (key, words) in upstream.contradictions() {
            findings.wrong(&KeyPath::of(&["upstream"]).join(&KeyPath::parse(&key)), words);
        }
    }
    for (key, words) in sections.upstream.iter().flat_map(crate::upstream::Config::warnings) {
        findings.warn(&KeyPath::of(&["upstream"]).join(&KeyPath::parse(&key)), words);
    }
    if sections.web.is_open() {
        let words = format!(
            "{} can be reached from other machines, and the page asks for no password (use 127.0.0.1 and a proxy that does)",
            sections.web.listen
        );
        findings.warn(&KeyPath::of(&["web", "listen"]), words);
    }
}

fn clock(sections: &Sections, findings: &mut Findings<'_>) {
    let clock = &sections.clock;
    if !HOLD_FOR.contains(&clock.hold_for) {
        findings.wrong(&KeyPath::of(&["clock", "hold_for"]), format!("{} is outside 1m to 30d", time(clock.hold_for)));
    }
    for entry in sections.sources.iter().filter(|entry| entry.sets_clock) {
        let path = KeyPath::of(&["sources", &entry.name, "sets_clock"]);
        if clock.trust == Belief::Always {
            findings.warn(&path, "has no effect: with `clock.trust` = \"always\" nothing else sets the clock");
        }
        if entry.whole && !entry.config.tells_time() {
            let words = "the readings of this source bear no time of their own (say where it stands in what the device sends, or leave this out)";
            findings.wrong(&path, words);
        }
    }
}

fn store(sections: &Sections, findings: &mut Findings<'_>) {
    let store = &sections.store;
    if !COMMIT_EVERY.contains(&store.commit_every) {
        let words = format!("{} is outside 10ms to 10m", time(store.commit_every));
        findings.wrong(&KeyPath::of(&["store", "commit_every"]), words);
    }
    if !COMMIT_EVERY.contains(&store.commit_every_resendable) {
        let words = format!("{} is outside 10ms to 10m", time(store.commit_every_resendable));
        findings.wrong(&KeyPath::of(&["store", "commit_every_resendable"]), words);
    }
    if store.write_behind > MAX_WRITE_BEHIND {
        let words = format!("{} is outside 0s to 10m", time(store.write_behind));
        findings.wrong(&KeyPath::of(&["store", "write_behind"]), words);
    }
    let path = KeyPath::of(&["store", "path"]);
    if store.path.as_os_str().is_empty() {
        findings.wrong(&path, "is empty (a file such as /var/lib/tipbucket/tipbucket.db)");
    } else if store.path.is_dir() {
        findings.wrong(&path, format!("{} is a folder (name a file in it)", store.path.display()));
    } else if let Some(folder) = store.path.parent().filter(|f| !f.as_os_str().is_empty() && !f.is_dir()) {
        // Only a warning: the file may be checked on another machine than it is meant for.
        let words =
            format!("folder {} does not exist on this machine (make it, owned by the service)", folder.display());
        findings.warn(&path, words);
    }
}

/// Caps that do not fit into the disk budget.
fn budget(sections: &Sections, findings: &mut Findings<'_>) {
    let max = sections.store.max_bytes.as_u64();
    let key = KeyPath::of(&["store", "max_bytes"]);
    if max < MIN_STORE_BYTES {
        let floor = ByteSize(MIN_STORE_BYTES);
        let words = format!("{} is less than {floor} (write-ahead log and journal alone take 32 MiB)", ByteSize(max));
        return findings.wrong(&key, words);
    }
    let sensors = u64::from(sections.site.max_sensors).saturating_mul(SENSOR_BYTES);
    if sensors > max / 2 {
        let words = format!(
            "{} sensors need at least {} of disk, but `store.max_bytes` is {}",
            sections.site.max_sensors,
            ByteSize(sensors.saturating_mul(2)),
            ByteSize(max)
        );
        findings.wrong(&KeyPath::of(&["site", "max_sensors"]), words);
    }
    let own = sections
        .sensors
        .iter()
        .filter_map(|(name, sensor)| Some((KeyPath::of(&["sensors", name, "max_bytes"]), sensor.max_bytes?)));
    let caps = std::iter::once((KeyPath::of(&["bucket", "max_bytes"]), sections.bucket.max_bytes)).chain(own);
    for (path, cap) in caps {
        if cap.as_u64().saturating_mul(MIN_BUCKETS) > max {
            let words = format!(
                "a bucket of {cap} fits less than {MIN_BUCKETS} times into `store.max_bytes` ({}): too little for an outage",
                ByteSize(max)
            );
            findings.wrong(&path, words);
        }
    }
}

/// What each source says against itself.
fn sources(sections: &Sections, findings: &mut Findings<'_>) {
    let top = KeyPath::of(&["sources"]);
    // Where keys could not be read, defaults stand in for them: whatever contradicts those is nobody's fault.
    for entry in sections.sources.iter().filter(|entry| entry.whole) {
        for (key, words) in entry.config.contradictions() {
            findings.wrong(&top.key(&entry.name).join(&KeyPath::parse(&key)), words);
        }
    }
}

/// What two sources both claim: a port, a broker's client id, a sensor.
fn exclusive(sections: &Sections, findings: &mut Findings<'_>) {
    let mut ports = BTreeMap::new();
    let mut clients = BTreeMap::new();
    let mut sensors = BTreeMap::new();
    for entry in &sections.sources {
        let (name, claims) = (&entry.name, entry.config.claims());
        let path = KeyPath::of(&["sources", name]);
        if let Some(port) = claims.port {
            let device = std::fs::canonicalize(&port).unwrap_or_else(|_| Path::new(&port).to_owned());
            if let Some((other, other_port)) = ports.insert(device, (name, port.clone())) {
                let also =
                    if other_port == port { String::new() } else { format!(", where it is called {other_port}") };
                let words = format!("{port} is also the port of source `{other}`{also} (one source must own a port)");
                findings.wrong(&path.key("port"), words);
            }
        }
        if let Some((broker, client)) = claims.client
            && let Some(other) = clients.insert((broker.clone(), client.clone()), name)
        {
            let words = format!(
                "{client:?} is also used at {broker} by source `{other}`: the broker would disconnect one for the other"
            );
            findings.wrong(&path.key("client_id"), words);
        }
        for sensor in claims.sensors {
            match sensors.get(&sensor) {
                Some(other) if *other != name => {
                    let words =
                        format!("sensor {sensor:?} also comes from source `{other}` (give one of them another name)");
                    findings.wrong(&path, words);
                }
                _ => drop(sensors.insert(sensor, name)),
            }
        }
    }
    if sensors.len() > sections.site.max_sensors as usize {
        let words =
            format!("{} is less than the {} sensors that the sources name", sections.site.max_sensors, sensors.len());
        findings.wrong(&KeyPath::of(&["site", "max_sensors"]), words);
    }
}

/// Units that differ between a source's table and `[sensors.NAME]`.
fn units(sections: &Sections, findings: &mut Findings<'_>) {
    for entry in &sections.sources {
        for (sensor, field, unit) in entry.config.claims().units {
            let told = sections.sensors.get(&sensor).and_then(|section| section.units.get(&field));
            if let Some(told) = told.filter(|told| **told != unit) {
                let path = KeyPath::of(&["sensors", &sensor, "units", &field]);
                findings.wrong(&path, format!("{told:?} here, but {unit:?} in source `{}`", entry.name));
            }
        }
    }
}
