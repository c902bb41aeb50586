//! Recorded messages instead of a connection: read exactly as they would be if they came from the broker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::Notify;

use super::{Config, Replay};
use crate::sources::{Intake, Recording, Source};
use crate::store::Delivery;

/// Messages on their topics.
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
            for recording in self.recording.before.iter().chain([&self.recording]) {
                one(&mut replay, recording, intake).await?;
            }
            self.over.notify_one();
            std::future::pending().await
        })
    }
}

async fn one(replay: &mut Replay, recording: &Recording, intake: &Intake) -> anyhow::Result<()> {
    let topic = recording.topic.as_deref().or(replay.only_topic()).map(str::to_owned);
    let topic = topic.context("which topic was it published on? (say so with --topic)")?;
    let replayed = replay.message(&topic, &recording.payload(), intake.clock.now());
    let delivery = Delivery { refused: replayed.turned_away, ..Delivery::of(replayed.readings) };
    intake.deliver(delivery).await?;
    for why in &replayed.refused {
        intake.stats.tap.refused(&topic, why);
    }
    for note in &replayed.notes {
        tracing::info!("{topic}: {note}");
    }
    Ok(())
}
