//! One recorded message instead of a connection: read exactly as it would be if it came from the broker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::Notify;

use super::{Config, Replay};
use crate::sources::{Intake, Recording, Source};
use crate::store::Delivery;

/// A message on a topic.
pub(super) struct Sniffed {
    config: Config,
    recording: Recording,
    over: Arc<Notify>,
}

impl Sniffed {
    pub(super) fn new(config: Config, recording: Recording, over: Arc<Notify>) -> Self {
        Self { config, recording, over }
    }
}

impl Source for Sniffed {
    fn run<'a>(&'a mut self, intake: &'a Intake) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            let replay = Replay::new(&self.config, intake.timezone.as_ref(), intake.admission);
            let mut replay = replay.map_err(anyhow::Error::msg)?;
            let topic = self.recording.topic.as_deref().or(replay.only_topic()).map(str::to_owned);
            let topic = topic.context("which topic was it published on? (say so with --topic)")?;
            let replayed = replay.message(&topic, &self.recording.payload(), intake.clock.now());
            intake.deliver(Delivery::of(replayed.readings)).await?;
            for why in &replayed.refused {
                intake.stats.tap.refused(&topic, why);
            }
            for note in &replayed.notes {
                tracing::info!("{topic}: {note}");
            }
            self.over.notify_one();
            std::future::pending().await
        })
    }
}
