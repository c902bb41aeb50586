//! The daemon: wires the parts, waits for the end, takes them apart in order.
//!
//! The order is the protocol. Sources are dropped first, so their inlets are; the store then commits what waits. The
//! forwarder is told, finishes the delivery in flight and drops its outlet; the store sees both ends closed, brings the
//! file into order and ends. Nothing else has to be told anything. A source that fails is started again by its
//! supervisor; any other part that ends early ends the process, and whoever started it starts a clean one.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::health::Health;
use crate::model::{SensorName, SourceName};
use crate::settings::{Notes, Settings};
use crate::sources::{Intake, supervise};
use crate::stats::Stats;
use crate::upstream::{Meta, Tuning, Upstream};
use crate::{forwarder, store, web};

/// How long the end may take: systemd is told 15 s, people are told 10.
const END: Duration = Duration::from_secs(9);

/// Runs until `stop`; then ends within ten seconds with everything accepted on disk.
pub async fn run(settings: Settings, clock: Clock, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    run_with(settings, clock, Stats::default(), Tuning::default(), stop).await
}

/// As [`run`], with counters that somebody else reads too, and the upstream's pauses and deadlines of your own.
pub async fn run_with(
    settings: Settings,
    clock: Clock,
    stats: Stats,
    tuning: Tuning,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let clock = clock.governed_by(settings.clock);
    let health = Health::new(stats.clone());
    let subject =
        web::Subject { site: settings.site.clone(), started: clock.now(), stats: stats.clone(), clock: clock.clone() };
    let max_sensors = settings.max_sensors as usize;
    let opened = store::open(
        &settings.store,
        settings.site.clone(),
        settings.policies,
        max_sensors,
        clock.clone(),
        stats.clone(),
    );
    let (inlet, outlet, writer) = opened.await.context("cannot start the store")?;
    let meta = described(settings.notes);
    let upstream =
        Upstream::new(settings.upstream, settings.site, meta, clock.clone(), tuning).remembering(&settings.store.path);
    let end = CancellationToken::new();
    let mut writer = Part::new("store", tokio::spawn(writer.run()));
    let forward = forwarder::run(outlet, upstream, clock.clone(), stats.clone(), end.clone());
    let mut forwarder = Part::new("forwarder", tokio::spawn(forward));
    let mut web = Part::new("status page", tokio::spawn(web::serve(settings.web, subject)));
    let intake = |name: SourceName, kind, sets_clock: bool| Intake {
        stats: stats.source(&name, kind),
        clock: clock.for_arrivals(sets_clock.then(|| name.clone())),
        name,
        admission: settings.admission,
        timezone: settings.timezone.clone(),
        inlet: inlet.clone(),
    };
    let mut sources = JoinSet::new();
    for source in settings.sources {
        sources.spawn(supervise(source.config.build(), intake(source.name, source.kind, source.sets_clock)));
    }
    drop(inlet);
    health.ready();
    tracing::info!("running; sources: {}", sources.len());

    let early = tokio::select! {
        () = stop => None,
        error = writer.early() => Some(error),
        error = forwarder.early() => Some(error),
        error = web.early() => Some(error),
        () = health.run() => None,
    };

    health.stopping();
    tracing::info!("stopping");
    sources.shutdown().await;
    web.handle.abort();
    end.cancel();
    let ended = timeout(END, async {
        forwarder.end().await?;
        writer.end().await
    });
    let ended = ended
        .await
        .unwrap_or_else(|_| Err(anyhow!("the end took longer than {} s; what is on disk stays there", END.as_secs())));
    let done = early.map_or(ended, Err);
    done.inspect(|()| tracing::info!("stopped"))
}

/// What documents say about sensors besides their readings.
fn described(notes: HashMap<SensorName, Notes>) -> HashMap<SensorName, Meta> {
    let described = notes.into_iter().map(|(sensor, notes)| {
        let tags = notes.tags.into_iter().map(|(tag, text)| (tag.to_string(), text)).collect();
        (sensor, Meta { units: notes.units.into_iter().collect(), tags })
    });
    described.collect()
}

/// A part that lives as long as the daemon.
struct Part {
    name: &'static str,
    handle: JoinHandle<anyhow::Result<()>>,
    done: bool,
}

impl Part {
    fn new(name: &'static str, handle: JoinHandle<anyhow::Result<()>>) -> Self {
        Self { name, handle, done: false }
    }

    /// Why it ended, which it should not. Loses nothing when dropped before.
    async fn early(&mut self) -> anyhow::Error {
        let result = (&mut self.handle).await;
        self.done = true;
        match result {
            Ok(Ok(())) => anyhow!("{} ended early", self.name),
            Ok(Err(error)) => error.context(format!("{} failed", self.name)),
            Err(panic) => anyhow!("{} panicked: {panic} (please report this)", self.name),
        }
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        if self.done {
            return Ok(());
        }
        match (&mut self.handle).await {
            Ok(result) => result.with_context(|| format!("{} could not end well", self.name)),
            Err(panic) => Err(anyhow!("{} panicked: {panic} (please report this)", self.name)),
        }
    }
}
