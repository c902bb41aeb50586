//! What `check --explain` says of `store.commit_every`: the shorter, the less a power cut can cost, and the more is
//! written to the card.

use std::io::Write;
use std::time::Duration;

use bytesize::ByteSize;
use serde_json::json;

use crate::settings::Settings;
use crate::settings::sizes::{self, Choice, Load};

/// Days in which a card's lifetime is counted.
const DAYS_PER_YEAR: u64 = 365;

pub(super) fn table(out: &mut impl Write, settings: &Settings, load: Load) -> std::io::Result<()> {
    writeln!(out, "\nWhat store.commit_every costs under the same assumptions:\n")?;
    writeln!(out, "  {:<16} {:>14} {:>14}  a power cut costs at most", "a commit every", "written a day", "a year")?;
    for choice in sizes::choices(settings, load) {
        let every = humantime::format_duration(Duration::from_millis(choice.commit_every_ms));
        let every = format!("{every}{}", if choice.chosen { "  (as set)" } else { "" });
        let [day, year] = [1, DAYS_PER_YEAR].map(|days| ByteSize(choice.flash_bytes_per_day * days).to_string());
        writeln!(out, "  {every:<16} {day:>14} {year:>14}  {} readings", choice.readings_at_risk)?;
    }
    writeln!(out)?;
    for source in &settings.sources {
        let words = if source.config.claims().resends {
            "loses nothing: the broker keeps QoS 1 and 2 messages until they are on disk, and sends them again"
        } else {
            "what waits for its commit is lost in a power cut: it cannot be sent again"
        };
        writeln!(out, "  {} ({}): {words}", source.name, source.kind)?;
    }
    let words = "`tipbucket status` shows what is really written";
    let longer = "batches of nothing but what can be sent again wait for store.commit_every_resendable";
    writeln!(out, "\n  {longer}; {words}")
}

pub(super) fn as_json(settings: &Settings, load: Load) -> serde_json::Value {
    let sources = settings.sources.iter();
    let sources: Vec<_> = sources
        .map(|source| json!({ "name": source.name.as_str(), "resends": source.config.claims().resends }))
        .collect();
    let choices: Vec<Choice> = sizes::choices(settings, load);
    json!({ "choices": choices, "sources": sources })
}
