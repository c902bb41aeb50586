//! One recorded message instead of a connection: read exactly as it would be if it came from the broker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use rumqttc::{Publish, QoS};
use tokio::sync::Notify;

use super::{Config, Filter, reader};
use crate::sources::{Intake, Recording, Source};

/// A message on a topic.
pub(super) struct Replayed {
    config: Config,
    recording: Recording,
    over: Arc<Notify>,
}

impl Replayed {
    pub(super) fn new(config: Config, recording: Recording, over: Arc<Notify>) -> Self {
        Self { config, recording, over }
    }

    /// Where it was published; a source with one plain topic leaves no doubt.
    fn topic(&self) -> Option<String> {
        let plain = |filter: &str| Filter::new(filter).is_ok_and(|f| f.wildcards() == 0);
        self.recording.topic.clone().or_else(|| match &self.config.topics[..] {
            [only] if plain(&only.filter) => Some(only.filter.clone()),
            _ => None,
        })
    }
}

impl Source for Replayed {
    fn run<'a>(&'a mut self, intake: &'a Intake) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            let topic = self.topic().context("which topic was it published on? (say so with --topic)")?;
            let mut reader = reader(&self.config, intake)?;
            let message = Publish::new(topic, QoS::AtMostOnce, self.recording.payload());
            let delivery = reader.delivery(&message, intake, intake.clock.now());
            intake.deliver(delivery).await?;
            self.over.notify_one();
            std::future::pending().await
        })
    }
}
