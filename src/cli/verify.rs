//! `tipbucket verify`: looks a store over, and brings back what can be read of a damaged one.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;

use super::{ConfigArg, Format};
use crate::model::Timestamp;
use crate::store::{self, Depth, Verdict};

/// Checks every page, checksum, bucket and name of the store, and whether everything accepted is somewhere.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Verify {
    #[command(flatten)]
    config: ConfigArg,
    /// The database file, in place of the site file's.
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Bring what can be read of this damaged database into a new one, and check that. Its log lies beside it.
    #[arg(long, value_name = "FILE", requires = "into", conflicts_with = "store")]
    salvage: Option<PathBuf>,
    /// The new database.
    #[arg(long, value_name = "NEWFILE", requires = "salvage")]
    into: Option<PathBuf>,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

const EXAMPLE: &str = "Changes nothing, and can run beside the daemon. With a fault the exit code is 1.
A salvage only reads the damaged files, and wants nobody else to have them open.

Example:
  tipbucket verify
  tipbucket verify --store /mnt/card/tipbucket.db --format json | jq .faults
  tipbucket verify --salvage quarantine/20261130T130000.000Z-0/tipbucket.db --into salvaged.db";

impl Verify {
    pub(super) fn execute(self, out: &mut impl Write, now: Timestamp) -> anyhow::Result<()> {
        let path = match (&self.salvage, self.into, self.store) {
            (Some(damaged), Some(into), _) => {
                let salvaged = store::salvage(damaged, &into, now)
                    .with_context(|| format!("cannot salvage {}", damaged.display()))?;
                writeln!(
                    std::io::stderr(),
                    "{} rows were brought back into {}, with {} steps over what cannot be read",
                    salvaged.rows,
                    into.display(),
                    salvaged.skipped
                )?;
                into
            }
            (_, _, Some(path)) => path,
            _ => self.config.load()?.store.path,
        };
        let verdict = store::verify(&path, Depth::Whole)?;
        match self.format {
            Format::Json => writeln!(out, "{:#}", as_json(&verdict))?,
            Format::Table => table(out, &verdict)?,
        }
        out.flush()?;
        match verdict.faults.len() {
            0 => Ok(()),
            1 => bail!("{} has a fault", path.display()),
            n => bail!("{} has {n} faults", path.display()),
        }
    }
}

fn as_json(verdict: &Verdict) -> serde_json::Value {
    let faults: Vec<_> = verdict
        .faults
        .iter()
        .map(|fault| json!({ "what": fault.what, "why": fault.why, "remedy": fault.remedy }))
        .collect();
    json!({
        "ok": faults.is_empty(),
        "segments": verdict.segments,
        "buckets": verdict.buckets,
        "samples": verdict.samples,
        "accepted": verdict.accounts.accepted,
        "delivered": verdict.accounts.delivered,
        "stored": verdict.accounts.stored,
        "ledger": verdict.ledger,
        "salvaging": verdict.is_salvaging,
        "faults": faults,
    })
}

fn table(out: &mut impl Write, verdict: &Verdict) -> std::io::Result<()> {
    let accounts = &verdict.accounts;
    writeln!(
        out,
        "looked at {} segments with {} buckets and {} samples",
        verdict.segments, verdict.buckets, verdict.samples
    )?;
    writeln!(
        out,
        "{} accepted = {} delivered + {} stored + {} in the ledger",
        accounts.accepted, accounts.delivered, accounts.stored, verdict.ledger
    )?;
    if verdict.is_salvaging {
        writeln!(out, "damaged files are still being read: until that is done the accounts need not add up")?;
    }
    for fault in &verdict.faults {
        writeln!(out, "FAULT {}: {} ({})", fault.what, fault.why, fault.remedy)?;
    }
    if verdict.faults.is_empty() { writeln!(out, "sound") } else { Ok(()) }
}
