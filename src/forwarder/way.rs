//! A way out, as the forwarder sees it.

use std::future::Future;

use tokio::time::Instant;

use crate::upstream::{Document, Manners, Report, Upstream};

/// A way out, as the forwarder sees it.
pub(super) trait Way: Send {
    /// When to send and when to connect.
    fn manners(&self) -> Manners {
        Manners::none()
    }
    /// Whether it can be used, before there is anything to send.
    fn greet(&mut self) -> impl Future<Output = Report> + Send {
        std::future::ready(Report::default())
    }
    fn limits(&self) -> (usize, usize);
    fn deliver(&mut self, documents: &mut [Document], store: &str) -> impl Future<Output = Report> + Send;
    fn due(&self) -> Option<Instant>;
    fn attend(&mut self) -> impl Future<Output = Report> + Send;
    fn close(&mut self) -> impl Future<Output = Report> + Send;
}

impl Way for Upstream {
    fn manners(&self) -> Manners {
        self.manners()
    }

    async fn greet(&mut self) -> Report {
        self.greet().await
    }

    fn limits(&self) -> (usize, usize) {
        self.limits()
    }

    async fn deliver(&mut self, documents: &mut [Document], store: &str) -> Report {
        self.deliver(documents, store).await
    }

    fn due(&self) -> Option<Instant> {
        self.due()
    }

    async fn attend(&mut self) -> Report {
        self.attend().await
    }

    async fn close(&mut self) -> Report {
        self.close().await
    }
}
