//! `tipbucket status`: asks the running daemon; if there is none, tells what its store holds.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;

use super::{ConfigArg, Format};
use crate::settings::Settings;
use crate::store::{self, Contents};
use crate::web::{ConditionStatus, SourceStatus, Status as Report, StoreStatus};

/// A daemon on the same machine answers at once.
const PATIENCE: Duration = Duration::from_secs(3);
/// Largest answer that is read.
const MAX_ANSWER: u64 = 4 << 20;

/// Shows what the running gateway is doing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Status {
    #[command(flatten)]
    config: ConfigArg,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

const EXAMPLE: &str =
    "Asks the daemon at [web] listen. If none answers it says so, shows what the store holds, and exits with 1.

Example:
  tipbucket status
  tipbucket status --format json | jq .upstream";

impl Status {
    pub(super) fn execute(self, out: &mut impl Write) -> anyhow::Result<()> {
        let settings = self.config.load()?;
        match ask(&settings) {
            Ok(answer) => {
                let report: Report =
                    serde_json::from_str(&answer).context("the daemon's answer is not what this version writes")?;
                if report.site != settings.site.as_str() {
                    let (listen, other, site) = (settings.web.listen, report.site, settings.site);
                    bail!("the daemon at {listen} is site {other}, not {site} (give each its own web.listen)");
                }
                match self.format {
                    Format::Json => writeln!(out, "{answer}")?,
                    Format::Table => print(out, &report)?,
                }
            }
            Err(why) => {
                let path = &settings.store.path;
                let contents = store::contents(path)
                    .with_context(|| format!("no daemon answers ({why:#}), and its store cannot be read"))?;
                match self.format {
                    Format::Json => writeln!(out, "{}", offline_json(&contents))?,
                    Format::Table => print_contents(out, &contents)?,
                }
                out.flush()?;
                bail!("no daemon answers: {why:#}");
            }
        }
        Ok(())
    }
}

/// The text of `/status.json`.
fn ask(settings: &Settings) -> anyhow::Result<String> {
    if !settings.web.enabled {
        bail!("web.enabled is false");
    }
    let address = reachable(settings.web.listen);
    let mut stream =
        TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer ends with the connection, and is not sent in chunks.
    write!(stream, "GET /status.json HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer).with_context(|| format!("{address} does not answer"))?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{address} does not speak HTTP"))?;
    if head.split(' ').nth(1) != Some("200") {
        bail!("{address} answers {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// Where a daemon that listens everywhere is reached from here.
fn reachable(listen: SocketAddr) -> SocketAddr {
    match listen {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], v4.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, v6.port())),
        other => other,
    }
}

fn print(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    let (store, upstream) = (&report.store, &report.upstream);
    let up = humantime::format_duration(Duration::from_secs(report.uptime_s));
    writeln!(out, "site      {} · tipbucket {} · up {up}", report.site, report.version)?;
    let clock = &report.clock;
    writeln!(out, "clock     {}", words(&clock.condition))?;
    if clock.held > 0 || clock.restamped > 0 || clock.unsynced > 0 {
        let (held, restamped, unsynced) = (clock.held, clock.restamped, clock.unsynced);
        writeln!(out, "          {held} samples held · {restamped} put right · {unsynced} marked as unsynced")?;
    }
    writeln!(out, "store     {}", words(&store.condition))?;
    writeln!(
        out,
        "          {} readings of {} sensors · {} open buckets · {} sealed · {} dead letters",
        store.readings, store.sensors, store.open_buckets, store.sealed, store.dead_letters
    )?;
    let alarm = if store.alarm_percent > 0 { ": ALARM" } else { "" };
    writeln!(
        out,
        "          {} of {} · {} % used{alarm} · {}",
        size(store.bytes),
        size(store.max_bytes),
        store.fill_percent,
        wear(store.written_bytes, report.uptime_s)
    )?;
    print_accounts(out, store)?;
    writeln!(out, "upstream  {}", words(&upstream.condition))?;
    let last = upstream.last_delivery.as_deref().unwrap_or("none yet");
    writeln!(
        out,
        "          {} buckets delivered · {} waiting · last delivery {last}",
        upstream.buckets, store.backlog_buckets
    )?;
    if let Some(left) = upstream.drained_in_s {
        let left = humantime::format_duration(Duration::from_secs(left.unsigned_abs()));
        writeln!(out, "          the backlog will be drained in about {left}")?;
    }
    if let Some(live) = &upstream.live {
        writeln!(out, "live      {}", words(live))?;
        writeln!(out, "          {} readings shown by {} updates", upstream.live_readings, upstream.live_updates)?;
    }
    let losses = [
        ("samples thinned for want of room", store.thinned),
        ("buckets evicted for want of room", store.evicted),
        ("readings refused: too many sensors", store.refused_by_sensor_limit),
        ("buckets refused by the database", upstream.refused),
        ("buckets sent under a second _id", upstream.conflicts),
        ("attempts that failed", upstream.failures),
    ];
    for (what, count) in losses.into_iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "          {count} {what}")?;
    }
    report.sources.iter().try_for_each(|source| print_source(out, source))
}

fn print_source(out: &mut impl Write, source: &SourceStatus) -> std::io::Result<()> {
    writeln!(out, "source    {} ({}) {}", source.name, source.kind, words(&source.condition))?;
    writeln!(
        out,
        "          {} messages · {} readings · {} refused · {} restarts",
        source.messages, source.readings, source.refused, source.restarts
    )?;
    let rarer = [("values left out as declared", source.left_out), ("counters fell", source.rollovers)];
    for (what, count) in rarer.into_iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "          {count} {what}")?;
    }
    if source.silent_sensors > 0 {
        writeln!(out, "          {} sensors are silent: {}", source.silent_sensors, source.silence)?;
    }
    if !source.picked.is_empty() {
        let picked: Vec<_> = source.picked.iter().map(|(name, topics)| format!("{name} ({topics})")).collect();
        writeln!(out, "          topics read as {}", picked.join(", "))?;
    }
    Ok(())
}

/// What became of everything accepted, and why some of it is lost.
fn print_accounts(out: &mut impl Write, store: &StoreStatus) -> std::io::Result<()> {
    let lost: i64 = store.ledger.values().sum();
    writeln!(
        out,
        "          {} accepted = {} delivered + {} stored + {lost} in the ledger",
        store.accepted, store.delivered, store.stored
    )?;
    let reasons: Vec<_> =
        store.ledger.iter().filter(|(_, count)| **count > 0).map(|(why, count)| format!("{count} {why}")).collect();
    if reasons.is_empty() { Ok(()) } else { writeln!(out, "ledger    {}", reasons.join(" · ")) }
}

fn print_contents(out: &mut impl Write, contents: &Contents) -> std::io::Result<()> {
    writeln!(
        out,
        "store     {} sensors · {} buckets to deliver with {} samples · {} dead letters",
        contents.sensors, contents.buckets, contents.samples, contents.dead_letters
    )?;
    if contents.held > 0 {
        writeln!(out, "          {} samples wait for a trusted clock", contents.held)?;
    }
    if let (Some(first), Some(last)) = (contents.first, contents.last) {
        writeln!(out, "          from {first} to {last}")?;
    }
    Ok(())
}

fn offline_json(contents: &Contents) -> serde_json::Value {
    json!({
        "running": false,
        "sensors": contents.sensors,
        "backlog_buckets": contents.buckets,
        "backlog_samples": contents.samples,
        "dead_letters": contents.dead_letters,
        "held_samples": contents.held,
        "first": contents.first.map(|t| t.to_string()),
        "last": contents.last.map(|t| t.to_string()),
    })
}

fn words(condition: &ConditionStatus) -> String {
    let since = condition.since.as_deref().map(|since| format!(" since {since}")).unwrap_or_default();
    let detail = if condition.detail.is_empty() { String::new() } else { format!(" · {}", condition.detail) };
    format!("{}{since}{detail}", condition.state)
}

/// What the card bears. A rate is told once an hour can stand for the day.
fn wear(bytes: u64, uptime_s: u64) -> String {
    let written = format!("{} written to the card", size(i64::try_from(bytes).unwrap_or(i64::MAX)));
    if uptime_s < 3600 {
        return written;
    }
    let a_day = u128::from(bytes) * 86_400 / u128::from(uptime_s);
    format!("{written}, {} a day", size(i64::try_from(a_day).unwrap_or(i64::MAX)))
}

fn size(bytes: i64) -> String {
    bytesize::ByteSize::b(u64::try_from(bytes).unwrap_or(0)).display().iec().to_string()
}
