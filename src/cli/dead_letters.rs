//! `tipbucket dead-letters`: what could not be taken or delivered; showing it, sending it again, dropping it.

use std::io::Write;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{ConfigArg, Format};
use crate::model::{LetterKind, Timestamp};
use crate::settings::Settings;
use crate::store::{self, Letter, Order};
use crate::upstream;

/// Most letters that `--all` means: there are never more.
const ALL: usize = 1_000_000;
/// Bytes of a payload in a line of hexadecimal digits.
const HEX_LINE: usize = 32;

/// Looks after dead letters: payloads that could not be read, buckets that the database refused, unreadable segments.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct DeadLetters {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLE: &str =
    "list and show only read; retry and drop are carried out by the running daemon, or here if none runs.
Only buckets can be sent again. A payload is published again by hand, after its decoder was put right:

Example:
  tipbucket dead-letters list --kind bucket
  tipbucket dead-letters show 17
  tipbucket dead-letters retry 17 18
  tipbucket dead-letters show 21 --raw | mosquitto_pub -t sensors/7/state -s";

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists them, the latest first.
    #[command(after_help = "Example:\n  tipbucket dead-letters list --kind payload --limit 50")]
    List(List),
    /// Shows one with its payload.
    #[command(after_help = "Example:\n  tipbucket dead-letters show 17 --format json | jq .document")]
    Show(Show),
    /// Puts refused buckets back among those that wait for delivery.
    #[command(after_help = "Example:\n  tipbucket dead-letters retry --all")]
    Retry(Which),
    /// Deletes them.
    #[command(after_help = "Example:\n  tipbucket dead-letters drop 17 18")]
    Drop(Which),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    config: ConfigArg,
    /// Only these.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Most that are listed.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    config: ConfigArg,
    /// Its number.
    id: i64,
    /// The payload itself and nothing else.
    #[arg(long, conflicts_with = "format")]
    raw: bool,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Args)]
struct Which {
    #[command(flatten)]
    config: ConfigArg,
    /// Their numbers.
    #[arg(required_unless_present = "all")]
    ids: Vec<i64>,
    /// All of them.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// With --all: only these.
    #[arg(long, value_enum, requires = "all")]
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Bytes from a source that could not be read.
    Payload,
    /// Buckets that the database refused.
    Bucket,
    /// Stored bytes that can no longer be read.
    Segment,
}

impl From<Kind> for LetterKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Payload => Self::Payload,
            Kind::Bucket => Self::Bucket,
            Kind::Segment => Self::Segment,
        }
    }
}

impl DeadLetters {
    pub(super) fn execute(self, out: &mut impl Write, now: Timestamp) -> anyhow::Result<()> {
        match self.action {
            Action::List(list) => list.execute(out),
            Action::Show(show) => show.execute(out),
            Action::Retry(which) => which.execute(out, now, true),
            Action::Drop(which) => which.execute(out, now, false),
        }
    }
}

impl List {
    fn execute(self, out: &mut impl Write) -> anyhow::Result<()> {
        let path = self.config.load()?.store.path;
        let letters = store::letters(&path, self.kind.map(Into::into), self.limit)?;
        for letter in &letters {
            match self.format {
                Format::Json => writeln!(out, "{}", as_json(letter))?,
                Format::Table => writeln!(
                    out,
                    "{:>6}  {}  {:<7}  {}: {}",
                    letter.id,
                    letter.at,
                    letter.kind,
                    place(letter),
                    letter.reason
                )?,
            }
        }
        if letters.is_empty() && self.format == Format::Table {
            writeln!(out, "no dead letters")?;
        }
        Ok(())
    }
}

impl Show {
    fn execute(self, out: &mut impl Write) -> anyhow::Result<()> {
        let path = self.config.load()?.store.path;
        let Some(mut letter) = store::letter(&path, self.id)? else {
            bail!("there is no dead letter {} (see tipbucket dead-letters list)", self.id);
        };
        let payload = std::mem::take(&mut letter.payload);
        if self.raw {
            return Ok(out.write_all(&payload)?);
        }
        let document = (letter.kind == "bucket").then(|| document(&payload)).flatten();
        if self.format == Format::Json {
            let mut value = as_json(&letter);
            match (&document, std::str::from_utf8(&payload)) {
                (Some(document), _) => value["document"] = document.clone(),
                (None, Ok(text)) => value["text"] = json!(text),
                (None, Err(_)) => value["hex"] = json!(hex(&payload)),
            }
            return Ok(writeln!(out, "{value:#}")?);
        }
        writeln!(out, "number   {}", letter.id)?;
        writeln!(out, "at       {}", letter.at)?;
        writeln!(out, "kind     {}", letter.kind)?;
        writeln!(out, "place    {}", place(&letter))?;
        writeln!(out, "reason   {}", letter.reason)?;
        if letter.samples > 0 {
            writeln!(out, "samples  {}", letter.samples)?;
        }
        if letter.kind == "bucket" {
            writeln!(
                out,
                "retry    {}",
                if letter.is_retryable { "can be sent again" } else { "cannot be sent again" }
            )?;
        }
        writeln!(out, "payload  {} bytes\n", letter.bytes)?;
        match (document, std::str::from_utf8(&payload)) {
            (Some(document), _) => writeln!(out, "{document:#}")?,
            // A terminal must not obey what a device sent.
            (None, Ok(text)) => writeln!(out, "{}", text.escape_debug().to_string().replace("\\n", "\n"))?,
            (None, Err(_)) => {
                for line in payload.chunks(HEX_LINE) {
                    writeln!(out, "{}", hex(line))?;
                }
            }
        }
        Ok(())
    }
}

impl Which {
    fn execute(self, out: &mut impl Write, now: Timestamp, retry: bool) -> anyhow::Result<()> {
        let settings = self.config.load()?;
        let path = settings.store.path.clone();
        let letters = store::letters(&path, self.kind.map(Into::into), ALL)?;
        let ids: Vec<i64> = if self.all {
            letters.iter().filter(|letter| !retry || letter.is_retryable).map(|letter| letter.id).collect()
        } else {
            self.ids
        };
        for id in &ids {
            let letter = letters.iter().find(|letter| letter.id == *id);
            let letter =
                letter.with_context(|| format!("there is no dead letter {id} (see tipbucket dead-letters list)"))?;
            if retry && !letter.is_retryable {
                bail!(
                    "dead letter {id} is no bucket that could be sent again (publish its payload once more: tipbucket \
                     dead-letters show {id} --raw)"
                );
            }
        }
        let order = |id: &i64| if retry { Order::Retry(*id) } else { Order::Drop(*id) };
        let orders: Vec<Order> = ids.iter().map(order).collect();
        if !orders.is_empty() {
            let Settings { store, site, policies, max_sensors, .. } = settings;
            store::order(&store, site, policies, max_sensors as usize, &orders, now)?;
        }
        for id in &ids {
            if store::letter(&path, *id)?.is_some() {
                bail!("dead letter {id} is still there (the daemon's log tells why)");
            }
        }
        let done = if retry { "waiting for delivery again" } else { "dropped" };
        Ok(writeln!(out, "{} {done}", ids.len())?)
    }
}

fn as_json(letter: &Letter) -> Value {
    json!({
        "id": letter.id,
        "at": letter.at.to_string(),
        "kind": letter.kind,
        "source": letter.source,
        "place": letter.place,
        "reason": letter.reason,
        "bytes": letter.bytes,
        "samples": letter.samples,
        "retryable": letter.is_retryable,
    })
}

fn place(letter: &Letter) -> String {
    let place = letter.place.escape_debug();
    letter.source.as_ref().map_or_else(|| place.to_string(), |source| format!("{source} `{place}`"))
}

/// A bucket's document as JSON that keeps its types.
fn document(payload: &[u8]) -> Option<Value> {
    upstream::extended_json(payload).and_then(|text| serde_json::from_str(&text).ok())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
