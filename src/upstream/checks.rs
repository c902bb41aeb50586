//! What of `[upstream]` cannot work, and what does not work now but may later; in words with the remedy.

use std::time::Duration;

use bytesize::ByteSize;
use mongodb::options::ConnectionString;

use super::collection::{MAX_NAMESPACE_BYTES, PLACEHOLDERS};
use super::config::DEFAULT_URI;
use super::{Config, Connection, Kind, Layout, Mode, Rollups, Shape};
use crate::model::FieldName;

/// Longest database name in bytes (MongoDB's limit).
const MAX_DATABASE_BYTES: usize = 63;
/// Smallest archive file worth making, and the largest that is still written comfortably.
const ARCHIVE_FILE_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 30);
/// Shortest interval of a summary.
const SHORTEST_SUMMARY: Duration = Duration::from_secs(1);
/// Longest time by which a gateway's uploads are shifted.
const LONGEST_SPREAD: Duration = Duration::from_secs(3600);
/// How rarely buckets may be sent.
const UPLOAD_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(7 * 86_400);
/// Smallest daily budget: a handful of connections and something to send by them.
const MIN_DAY: ByteSize = ByteSize::mib(1);
/// How often open buckets may be brought up to date.
const LIVE_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
/// How many readings a document may take that others write too.
const APPEND_UP_TO: std::ops::RangeInclusive<u32> = 1..=100_000;
/// How often a gateway may report.
const SHORTEST_REPORTS: Duration = Duration::from_secs(10);
/// Largest share of the backlog: beyond it new buckets would hardly go at all.
const MAX_SHARE: u32 = 1000;

impl Config {
    /// What does not work now, but may later, each as (key path inside the table, words): a disk that is not mounted yet
    /// is no reason to lose readings.
    pub fn warnings(&self) -> Vec<(String, String)> {
        if self.kind == Kind::Archive && !self.folder.is_dir() {
            let folder = self.folder.display();
            let words =
                format!("archive folder {folder} does not exist now: make it, owned by the service, or mount its disk");
            return vec![("folder".to_owned(), words)];
        }
        if self.kind == Kind::Mongodb
            && let Err(error) = self.address()
        {
            let key = if self.uri_file.is_some() { "uri_file" } else { "uri" };
            let words = format!("{error:#} (nothing is delivered until it can be; readings are kept meanwhile)");
            return vec![(key.to_owned(), words)];
        }
        Vec::new()
    }

    /// Everything that cannot work, each as (key path inside the table, words). Reads the files it names.
    pub fn contradictions(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, words: String| found.push((key.to_owned(), words));
        if let Some(words) = bad_database(&self.database) {
            say("database", words);
        }
        for (key, name) in
            [("collection", Some(&self.collection)), ("overflow_collection", self.overflow_collection.as_ref())]
        {
            if let Some(words) = name.and_then(|name| bad_collection(name, self.database.len())) {
                say(key, words);
            }
            if self.kind == Kind::Archive && name.is_some_and(|name| name.contains('{') || key != "collection") {
                say(key, "archive files hold one collection: name it without { }".to_owned());
            }
        }
        match self.mode {
            Mode::Buckets => {}
            Mode::Live => self.bad_live().into_iter().for_each(|(key, words)| say(key, words.to_owned())),
            Mode::Append => self.bad_append().into_iter().for_each(|(key, words)| say(key, words.to_owned())),
            Mode::Timeseries => self.bad_series().into_iter().for_each(|(key, words)| say(key, words)),
        }
        for (key, words) in self.bad_shape().into_iter().chain(self.bad_manners()) {
            say(&key, words);
        }
        match self.kind {
            Kind::Mongodb => self.bad_address().into_iter().for_each(|(key, words)| say(key, words)),
            Kind::Archive => self.bad_archive().into_iter().for_each(|(key, words)| say(key, words)),
        }
        found
    }

    fn bad_address(&self) -> Vec<(&'static str, String)> {
        if self.uri_file.is_some() && self.uri.expose() != DEFAULT_URI {
            return vec![("uri_file", "both uri and uri_file name the database: leave one of them out".to_owned())];
        }
        let key = if self.uri_file.is_some() { "uri_file" } else { "uri" };
        // A file that cannot be read now is read again at each connect: that is a warning.
        let Ok(uri) = self.address() else { return Vec::new() };
        match ConnectionString::parse(uri.expose()) {
            Ok(_) => Vec::new(),
            Err(error) => {
                // The driver's message may quote the part it does not understand.
                vec![(key, uri.scrub(&super::mongo::argument(&error)))]
            }
        }
    }

    fn bad_shape(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, words: String| found.push((key.to_owned(), words));
        let shape = Shape::of(self);
        for (key, words) in shape.names.contradictions(shape.rollups == Rollups::Flat) {
            say(&format!("names.{key}"), words);
        }
        if let Some(Err(error)) = self.field.as_deref().map(FieldName::new) {
            say("field", error.to_string());
        }
        if self.summary.is_some_and(|every| every < SHORTEST_SUMMARY) {
            let shortest = humantime::format_duration(SHORTEST_SUMMARY);
            say("summary", format!("must be at least {shortest}: shorter intervals hold hardly a sample each"));
        }
        if self.retention.is_some_and(|r| r.is_zero()) {
            say("retention", "0s would delete every bucket at once: leave it out to keep buckets for ever".to_owned());
        }
        found
    }

    /// What the documents of open buckets cannot have.
    fn bad_live(&self) -> Vec<(&'static str, &'static str)> {
        let mut found = self.bad_updates();
        let names = Shape::of(self).names;
        if names.last_seq.is_empty() || names.store.is_empty() {
            let words =
                "mode = \"live\" knows its own open documents by these two: name both, or use mode = \"buckets\"";
            found.push((if names.store.is_empty() { "names.store" } else { "names.last_seq" }, words));
        }
        if !LIVE_EVERY.contains(&self.live_every) {
            found.push(("live_every", "must be from 1s to 10m: to see complete buckets only, use mode = \"buckets\""));
        }
        if self.upload_every.is_some() {
            found.push((
                "upload_every",
                "sends rarely, mode = \"live\" all the time: leave it out, or use mode = \"buckets\"",
            ));
        }
        if self.connection == Connection::DutyCycle {
            let words = "\"duty-cycle\" hangs up at once, mode = \"live\" sends all the time: use \"auto\", or mode = \"buckets\"";
            found.push(("connection", words));
        }
        found
    }

    /// What cannot be appended reading by reading.
    fn bad_append(&self) -> Vec<(&'static str, &'static str)> {
        let mut found = self.bad_updates();
        let shape = Shape::of(self);
        let names = &shape.names;
        if shape.layout == Layout::Columns {
            found.push(("layout", "mode = \"append\" adds one sample at a time: use layout = \"rows\""));
        }
        if shape.summary.is_some() {
            found.push((
                "summary",
                "mode = \"append\" cannot keep rollups of intervals: leave it out, or use mode = \"buckets\"",
            ));
        }
        if !names.stats_avg.is_empty() && shape.rollups != Rollups::None {
            found.push(("names.stats_avg", "mode = \"append\" cannot keep a mean: leave it out, it is sum by count"));
        }
        if [&names.sensor, &names.start, &names.count].iter().any(|name| name.is_empty()) {
            found.push(("names", "mode = \"append\" finds documents by sensor, start and count: name all three"));
        }
        if self.overflow_collection.is_some() {
            found.push((
                "overflow_collection",
                "mode = \"append\" knows no parts: leave it out, or use mode = \"buckets\"",
            ));
        }
        if !APPEND_UP_TO.contains(&self.append_up_to) {
            found.push(("append_up_to", "must be from 1 to 100000: a document holds 16 MiB at most"));
        }
        found
    }

    /// What no mode can have that updates documents.
    fn bad_updates(&self) -> Vec<(&'static str, &'static str)> {
        let is_archive = self.kind == Kind::Archive;
        let words = "archive files hold complete buckets: use mode = \"buckets\"";
        is_archive.then_some(("mode", words)).into_iter().collect()
    }

    /// What a time series collection cannot have.
    fn bad_series(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if self.kind == Kind::Archive {
            found.push(("mode", "archive files hold buckets: use mode = \"buckets\"".to_owned()));
        }
        if self.collection.contains('{') || self.overflow_collection.is_some() {
            found.push(("collection", "one time series collection holds all sensors: name it without { }".to_owned()));
        }
        let names = &self.names;
        if self.preset.is_some() || [&names.sensor, &names.meta].iter().any(|name| name.is_empty()) {
            found.push((
                "preset",
                "shapes are of bucket documents: a time series has `samples_t`, `meta`, and the fields".to_owned(),
            ));
        }
        if self.bucket_span.is_some_and(|span| span < Duration::from_secs(1) || span > Duration::from_secs(31_536_000))
        {
            found.push(("bucket_span", "must be from 1s to 365d".to_owned()));
        }
        found
    }

    /// Keys of politeness.
    fn bad_manners(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, words: &str| found.push((key.to_owned(), words.to_owned()));
        if self.spread > LONGEST_SPREAD {
            say("spread", "is longer than an hour: use upload_every to send rarely");
        }
        if self.upload_every.is_some_and(|every| !UPLOAD_EVERY.contains(&every)) {
            say("upload_every", "must be from 10s to 7d; leave it out to send buckets when they are sealed");
        }
        if self.fleet_size == Some(0) {
            say("fleet_size", "0 gateways: this one counts too; leave it out if there is no other");
        }
        if self.max_connects_per_second == 0 {
            say("max_connects_per_second", "0 would never let a gateway connect");
        }
        if self.max_bytes_per_day.is_some_and(|bytes| bytes < MIN_DAY) {
            say("max_bytes_per_day", "must be at least 1MiB: connecting alone takes tens of KiB");
        }
        if !self.reports.is_zero() && self.reports < SHORTEST_REPORTS {
            say("reports", "must be at least 10s, or 0s for none: a fleet's reports are writes too");
        }
        if !(1..=MAX_SHARE).contains(&self.backlog_share) {
            say("backlog_share", "must be from 1 to 1000");
        }
        found
    }

    fn bad_archive(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let (smallest, largest) = (*ARCHIVE_FILE_BYTES.start(), *ARCHIVE_FILE_BYTES.end());
        if !ARCHIVE_FILE_BYTES.contains(&self.max_file_bytes.0) {
            let (smallest, largest) = (ByteSize(smallest), ByteSize(largest));
            found.push(("max_file_bytes", format!("must be from {smallest} to {largest}")));
        }
        if self.max_bytes < self.max_file_bytes {
            found.push((
                "max_bytes",
                format!("must hold at least one file of max_file_bytes = {}", self.max_file_bytes),
            ));
        }
        if self.max_file_age < Duration::from_secs(1) {
            found.push(("max_file_age", "must be at least 1s".to_owned()));
        }
        found
    }
}

fn bad_database(name: &str) -> Option<String> {
    let shown = name.escape_debug();
    if name.is_empty() {
        Some("is empty: name the database".to_owned())
    } else if name.len() > MAX_DATABASE_BYTES {
        Some(format!("`{shown}` has {} bytes, at most {MAX_DATABASE_BYTES} are allowed", name.len()))
    } else if let Some(c) = name.chars().find(|&c| c.is_control() || "/\\. \"$*<>:|?".contains(c)) {
        Some(format!("`{shown}` holds {c:?}, which cannot stand in a database name"))
    } else if matches!(name, "admin" | "local" | "config") {
        Some(format!("`{shown}` belongs to the server itself: choose another database"))
    } else {
        None
    }
}

fn bad_collection(name: &str, database_bytes: usize) -> Option<String> {
    let shown = name.escape_debug();
    if name.is_empty() {
        Some("is empty: name the collection".to_owned())
    } else if let Some(c) = name.chars().find(|&c| c.is_control() || "$/\\".contains(c)) {
        Some(format!("`{shown}` holds {c:?}, which cannot stand in a collection name"))
    } else if PLACEHOLDERS.iter().fold(name.to_owned(), |name, known| name.replace(known, "")).contains(['{', '}']) {
        Some(format!("`{shown}`: only {{site}} and {{sensor}} can stand in braces"))
    } else if name.starts_with("system.") {
        Some(format!("`{shown}` begins with `system.`, which belongs to the server itself"))
    } else if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        Some(format!("`{shown}` has an empty part between dots"))
    } else if database_bytes + 1 + name.len() > MAX_NAMESPACE_BYTES {
        Some(format!("database and collection together have over {MAX_NAMESPACE_BYTES} bytes"))
    } else {
        None
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
