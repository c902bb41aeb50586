//! `tipbucket sniff`: what a source receives and what becomes of it, without storing anything.
//!
//! The source is the one that the daemon runs, with the same settings: what is shown here is what would be stored. Live, it
//! opens the port itself (the daemon must leave it free), or listens at the broker under a name of its own. A recording is
//! read in its own time: pauses of an hour take none.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{ConfigArg, Format, capture};
use crate::clock::Clock;
use crate::model::Timestamp;
use crate::settings::{ConfiguredSource, Settings};
use crate::sources::{Intake, Recording, Source};
use crate::stats::Stats;
use crate::store::{Deliveries, Delivery, inlet};
use capture::Printer;

/// How often a failed source is started again, live.
const RESTART: Duration = Duration::from_secs(1);

/// Shows what a source receives and what becomes of it, without storing anything.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Sniff {
    #[command(flatten)]
    config: ConfigArg,
    /// Which source of the site file.
    #[arg(long, value_name = "NAME")]
    source: String,
    /// For a recorded message: where it was published. Given as often as --replay, or once for all.
    #[arg(long, value_name = "TOPIC", requires = "replay")]
    topic: Vec<String>,
    /// When the recording arrived [default: now].
    #[arg(long, value_name = "RFC3339", requires = "replay", value_parser = instant)]
    received_at: Option<Timestamp>,
    /// Reads this file instead of the line or broker: a stream, a payload, or a dialogue that --save wrote. Several messages
    /// (a birth before its data) are several of these.
    #[arg(long, value_name = "FILE")]
    replay: Vec<PathBuf>,
    /// Writes everything that passes into this file, for --replay.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    save: Option<PathBuf>,
    /// Ends after so long [default: at Ctrl-C].
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "replay")]
    duration: Option<Duration>,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

const EXAMPLE: &str = "Live, a serial port must be free: stop the service first. A broker is asked under a name of its own.
With --format json each line is {\"reading\":{\"sensor\":…,\"at\":…,\"fields\":{…}}} or {\"refused\":{\"what\":…,\"why\":…}}.

Example:
  tipbucket sniff --source boiler
  tipbucket sniff --source boiler --for 1m --save boiler.hex
  tipbucket sniff --source boiler --replay boiler.hex --format json
  tipbucket sniff --source broker --topic sensors/7/state --replay payload.json
  tipbucket sniff --source plant --topic spBv1.0/g/NBIRTH/e --replay birth.bin --topic spBv1.0/g/NDATA/e --replay data.bin";

fn instant(text: &str) -> Result<Timestamp, String> {
    let at: jiff::Timestamp = text.parse().map_err(|_| "is no time such as 2026-11-30T13:00:00Z".to_owned())?;
    Timestamp::from_millis(at.as_millisecond()).ok_or_else(|| "is outside the years 1970 to 9999".to_owned())
}

impl Sniff {
    pub(super) fn execute(self, _out: &mut impl Write) -> anyhow::Result<()> {
        let mut settings = self.config.load()?;
        let source = self.take_source(&mut settings)?;
        // Standard output may be locked by us already: the lock knows its own thread.
        let printer = Printer::new(Box::new(std::io::stdout()), self.format, self.save.as_deref())?;
        let printer = Arc::new(Mutex::new(printer));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(!self.replay.is_empty());
        let runtime = builder.build().context("cannot start the runtime")?;
        let done = runtime.block_on(async {
            if self.replay.is_empty() {
                self.live(source, &settings, &printer).await
            } else {
                self.replayed(source, &settings, &printer).await
            }
        });
        runtime.shutdown_timeout(Duration::from_millis(200));
        done
    }

    fn take_source(&self, settings: &mut Settings) -> anyhow::Result<ConfiguredSource> {
        let names: Vec<String> = settings.sources.iter().map(|source| source.name.to_string()).collect();
        let Some(at) = names.iter().position(|name| *name == self.source) else {
            bail!("there is no source `{}` (there are: {})", self.source, names.join(", "));
        };
        Ok(settings.sources.swap_remove(at))
    }

    /// The files, each with its topic.
    fn recording(&self, kind: &str) -> anyhow::Result<Recording> {
        if kind != "mqtt" && self.replay.len() > 1 {
            bail!("several recordings are for sources of type mqtt; this one is {kind}");
        }
        if let Some(filter) = self.topic.iter().find(|topic| topic.contains(['+', '#'])) {
            bail!("--topic {filter} is a filter: nothing is published on it");
        }
        if self.topic.len() > 1 && self.topic.len() != self.replay.len() {
            bail!("{} topics stand beside {} recordings: give one for each", self.topic.len(), self.replay.len());
        }
        let mut all = Vec::new();
        for (i, file) in self.replay.iter().enumerate() {
            let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            // An empty message clears what a broker retains.
            if bytes.is_empty() && kind != "mqtt" {
                bail!("{} is empty: nothing was recorded", file.display());
            }
            let is_hex = file.extension().is_some_and(|ending| ending == "hex");
            let mut recording =
                Recording::read(bytes, is_hex).map_err(|why| anyhow::anyhow!("{}: {why}", file.display()))?;
            recording.topic = self.topic.get(i).or(self.topic.first()).cloned();
            all.push(recording);
        }
        let last = all.pop().unwrap_or_default();
        Ok(Recording { before: all, ..last })
    }

    async fn replayed(
        &self,
        source: ConfiguredSource,
        settings: &Settings,
        printer: &Arc<Mutex<Printer>>,
    ) -> anyhow::Result<()> {
        let at = self.received_at.unwrap_or_else(|| Clock::system().now());
        let recording = self.recording(source.kind)?;
        let (intake, mut deliveries) = intake(&source, settings, Clock::fixed(at), printer);
        let over = Arc::new(Notify::new());
        let (name, kind) = (source.name.clone(), source.kind);
        let Some(mut source) = source.config.replay(recording, Arc::clone(&over)) else {
            bail!("source {name} is {kind}: there is nothing to replay");
        };
        let mut running = source.run(&intake);
        loop {
            tokio::select! {
                // Everything that was handed over is printed before the end is looked at.
                biased;
                Some((delivery, weight)) = deliveries.next() => print(printer, delivery, weight, &deliveries)?,
                ended = &mut running => return ended.with_context(|| format!("source {name}")),
                () = over.notified() => break,
            }
        }
        while let Some((delivery, weight)) = deliveries.try_next() {
            print(printer, delivery, weight, &deliveries)?;
        }
        Ok(lock(printer).flush()?)
    }

    async fn live(
        &self,
        mut source: ConfiguredSource,
        settings: &Settings,
        printer: &Arc<Mutex<Printer>>,
    ) -> anyhow::Result<()> {
        source.config.listen_only();
        let (intake, mut deliveries) = intake(&source, settings, Clock::system(), printer);
        let mut source = source.config.build();
        let until = self.duration.map(|duration| Instant::now() + duration);
        let mut told = String::new();
        let mut running = restarting(&mut *source, &intake);
        loop {
            let state = intake.stats.condition.get();
            if state.detail != told {
                told = state.detail;
                writeln!(std::io::stderr(), "{}: {told}", self.source)?;
            }
            tokio::select! {
                Some((delivery, weight)) = deliveries.next() => print(printer, delivery, weight, &deliveries)?,
                _ = &mut running => return Ok(()),
                () = tokio::time::sleep(Duration::from_millis(200)) => lock(printer).flush()?,
                () = at(until) => return Ok(()),
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    }
}

/// Starts a source again whenever it fails; what is wrong stands in its condition.
fn restarting<'a>(source: &'a mut dyn Source, intake: &'a Intake) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(async move {
        while let Err(error) = source.run(intake).await {
            if error.is::<crate::store::Closed>() {
                return;
            }
            intake.stats.condition.down(intake.clock.now(), format!("{error:#}"));
            tokio::time::sleep(RESTART).await;
        }
    })
}

async fn at(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn intake(
    source: &ConfiguredSource,
    settings: &Settings,
    clock: Clock,
    printer: &Arc<Mutex<Printer>>,
) -> (Intake, Deliveries) {
    let (inlet, deliveries) = inlet();
    let stats = Stats::default().source(&source.name, source.kind);
    let watcher = Arc::clone(printer);
    stats.tap.watch(move |seen| lock(&watcher).seen(seen));
    let (admission, timezone) = (settings.admission, settings.timezone.clone());
    (Intake { name: source.name.clone(), clock, stats, admission, timezone, inlet }, deliveries)
}

fn print(printer: &Mutex<Printer>, delivery: Delivery, weight: u32, deliveries: &Deliveries) -> anyhow::Result<()> {
    deliveries.release(weight as usize);
    // Nothing is stored: whoever waits for the receipt may go on.
    let receipt = delivery.receipt;
    let printed = lock(printer).delivery(&delivery.readings, &delivery.dead_letters);
    receipt.into_iter().for_each(crate::store::Receipt::fire);
    Ok(printed?)
}

fn lock(printer: &Mutex<Printer>) -> std::sync::MutexGuard<'_, Printer> {
    printer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
