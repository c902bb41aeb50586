//! `tipbucket upstream init|doctor|audit`: prepares a database, looks whether it is in order, compares it with our receipts.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{ConfigArg, Format};
use crate::clock::Clock;
use crate::model::Timestamp;
use crate::settings::Settings;
use crate::store;
use crate::upstream::{Admin, Audited, Finding, Kind, Level, Local, Period, Tuning, read_receipts, receipts_of};

/// Prepares the database, looks whether it is in order, or compares it with what was delivered.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Upstream {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLE: &str = "Example:
  tipbucket upstream init --dry-run
  tipbucket upstream doctor
  tipbucket upstream audit --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z";

#[derive(Debug, Subcommand)]
enum Command {
    Init(Init),
    Doctor(Doctor),
    Audit(Audit),
}

/// Makes collection, validator, indexes, views and a role with the least privileges; what is there is brought up to date.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  tipbucket upstream init --dry-run > prepare.js
  tipbucket upstream init --uri-file /run/admin-uri")]
struct Init {
    #[command(flatten)]
    site: Site,
    /// Only prints the lines for mongosh.
    #[arg(long)]
    dry_run: bool,
    /// Makes new collections clustered by `_id` (MongoDB 5.3 and later; cannot be changed afterwards).
    #[arg(long)]
    clustered: bool,
}

/// Looks at version, clock, certificates, rights, validator and indexes, and prints the remedy for what is not in order.
#[derive(Debug, Args)]
#[command(after_help = "Exits with 1 if something is wrong; advice alone is no failure.

Example:
  tipbucket upstream doctor --format json | jq '.[] | select(.level != \"ok\")'")]
struct Doctor {
    #[command(flatten)]
    site: Site,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Compares the receipts of what was delivered with what is stored, by the start of the buckets' windows.
#[derive(Debug, Args)]
#[command(after_help = "Exits with 1 if a bucket is missing or another is in its place.

Example:
  tipbucket upstream audit --from 2026-11-29 --to 2026-11-30")]
struct Audit {
    #[command(flatten)]
    site: Site,
    /// First instant: a date, or RFC 3339.
    #[arg(long, value_parser = instant)]
    from: Timestamp,
    /// First instant that does not belong to it any more.
    #[arg(long, value_parser = instant)]
    to: Timestamp,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Args)]
struct Site {
    #[command(flatten)]
    config: ConfigArg,
    /// A file with the connection string of a user with more rights, instead of the site's own.
    #[arg(long, value_name = "FILE")]
    uri_file: Option<PathBuf>,
}

impl Upstream {
    pub(super) fn execute(self, out: &mut impl Write) -> anyhow::Result<()> {
        match self.command {
            Command::Init(init) => init.execute(out),
            Command::Doctor(doctor) => doctor.execute(out),
            Command::Audit(audit) => audit.execute(out),
        }
    }
}

impl Site {
    fn open(self) -> anyhow::Result<(Admin, Local, PathBuf)> {
        let Settings { site, upstream, policies, store, .. } = self.config.load()?;
        if upstream.kind != Kind::Mongodb {
            bail!("this site writes archive files (upstream.type): there is no database to look at");
        }
        let mut upstream = upstream;
        if self.uri_file.is_some() {
            upstream = upstream.with_uri_file(self.uri_file);
        }
        let samples = policies.by_sensor.values().map(|policy| policy.max_samples);
        let local = Local {
            now: Clock::system().now(),
            oldest: store::contents(&store.path).ok().and_then(|contents| contents.first),
            max_samples: samples.chain([policies.default.max_samples]).max().unwrap_or(1000),
        };
        Ok((Admin::new(upstream, site, Tuning::default()), local, store.path))
    }
}

impl Init {
    fn execute(self, out: &mut impl Write) -> anyhow::Result<()> {
        let (mut admin, local, _) = self.site.open()?;
        let done = if self.dry_run {
            let (lines, notes) = admin.script(local, self.clustered);
            lines.into_iter().chain(notes.into_iter().map(|note| format!("// {note}"))).collect()
        } else {
            runtime()?.block_on(async {
                let done = admin.init(local, self.clustered).await;
                admin.close().await;
                done
            })?
        };
        done.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        Ok(())
    }
}

impl Doctor {
    fn execute(self, out: &mut impl Write) -> anyhow::Result<()> {
        let (mut admin, local, _) = self.site.open()?;
        let found = runtime()?.block_on(async {
            let found = admin.doctor(local).await;
            admin.close().await;
            found
        })?;
        match self.format {
            Format::Json => writeln!(out, "{}", serde_json::to_string(&found)?)?,
            Format::Table => found.iter().try_for_each(|finding| print(out, finding))?,
        }
        let wrong = found.iter().filter(|finding| finding.level == Level::Wrong).count();
        out.flush()?;
        if wrong > 0 {
            bail!("{wrong} of {} things are wrong", found.len());
        }
        Ok(())
    }
}

fn print(out: &mut impl Write, finding: &Finding) -> std::io::Result<()> {
    let level = match finding.level {
        Level::Ok => "ok    ",
        Level::Advice => "advice",
        Level::Wrong => "WRONG ",
    };
    writeln!(out, "{level}  {}", finding.what)?;
    finding.remedy.iter().try_for_each(|remedy| writeln!(out, "        → {remedy}"))
}

impl Audit {
    fn execute(self, out: &mut impl Write) -> anyhow::Result<()> {
        let (mut admin, _, database) = self.site.open()?;
        let period = Period { from: self.from, to: self.to };
        if period.from >= period.to {
            bail!("--from {} is not before --to {}", period.from, period.to);
        }
        let file = receipts_of(&database);
        let (receipts, whole) = read_receipts(&file, |id| period.holds(id))
            .with_context(|| format!("cannot read the receipts in {}", file.display()))?;
        let audited = runtime()?.block_on(async {
            let audited = admin.audit(&receipts, period).await;
            admin.close().await;
            audited
        })?;
        match self.format {
            Format::Json => writeln!(out, "{}", as_json(&audited, whole))?,
            Format::Table => table(out, &audited, whole)?,
        }
        out.flush()?;
        if !audited.is_sound() {
            bail!("not everything that was delivered is stored as it was");
        }
        Ok(())
    }
}

fn table(out: &mut impl Write, audited: &Audited, whole: bool) -> std::io::Result<()> {
    if audited.sensors.is_empty() {
        writeln!(
            out,
            "no receipts for this time (they are kept for some 100,000 buckets, and written once in an hour)"
        )?;
    }
    for one in &audited.sensors {
        let verdict = if one.missing + one.different == 0 { "ok   " } else { "WRONG" };
        writeln!(
            out,
            "{verdict}  {}  receipts {} buckets, {} samples · stored {} buckets, {} samples · {} missing · {} different · {} without receipt",
            one.sensor,
            one.receipts.0,
            one.receipts.1,
            one.stored.0,
            one.stored.1,
            one.missing,
            one.different,
            one.unknown
        )?;
        one.named.iter().try_for_each(|id| writeln!(out, "       {id}"))?;
    }
    if !whole {
        writeln!(out, "some receipts could not be read: their buckets count as without receipt")?;
    }
    Ok(())
}

fn as_json(audited: &Audited, whole: bool) -> serde_json::Value {
    let sensors = audited.sensors.iter().map(|one| {
        json!({
            "sensor": one.sensor,
            "receipts": { "buckets": one.receipts.0, "samples": one.receipts.1 },
            "stored": { "buckets": one.stored.0, "samples": one.stored.1 },
            "missing": one.missing, "different": one.different, "without_receipt": one.unknown, "named": one.named,
        })
    });
    json!({ "sound": audited.is_sound(), "receipts_whole": whole, "sensors": sensors.collect::<Vec<_>>() })
}

fn instant(text: &str) -> Result<Timestamp, String> {
    let full = if text.len() == "2026-11-30".len() { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let at: jiff::Timestamp =
        full.parse().map_err(|_| format!("{text:?} is no date (2026-11-30) and no instant (2026-11-30T13:00:00Z)"))?;
    Timestamp::from_millis(at.as_millisecond()).ok_or_else(|| format!("{text} is not between 1970 and 9999"))
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates_or_rfc_3339() {
        assert_eq!(instant("2026-11-30").unwrap(), instant("2026-11-30T00:00:00Z").unwrap());
        assert_eq!(instant("2026-11-30T01:00:00+01:00").unwrap(), instant("2026-11-30").unwrap());
        for wrong in ["", "yesterday", "2026-13-01", "2026-11-30T"] {
            assert!(instant(wrong).unwrap_err().contains("is no date"), "{wrong}");
        }
    }
}
