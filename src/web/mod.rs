//! The status page, `/status.json`, `/metrics` (OpenMetrics) and `/healthz`. Reads only, keeps nothing, decides nothing.

mod config;
mod listener;
mod metrics;
mod page;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

pub use config::Config;
pub use status::{ClockStatus, ConditionStatus, SourceStatus, Status, StoreStatus, UpstreamStatus};

use crate::clock::Clock;
use crate::model::{SiteName, Timestamp};
use crate::stats::{Condition, Stats};

/// Pause before a taken address is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// What the pages are made from.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The installation.
    pub site: SiteName,
    /// When the daemon was started.
    pub started: Timestamp,
    /// What is counted.
    pub stats: Stats,
    /// The time of a page.
    pub clock: Clock,
}

/// Serves for ever. An address that is taken is told and tried again: readings do not wait for a status page.
pub async fn serve(config: Config, subject: Subject) -> anyhow::Result<()> {
    if !config.enabled {
        std::future::pending::<()>().await;
    }
    let condition = Condition::new("status page");
    let subject = Arc::new(subject);
    loop {
        match listener::bind(config.listen).await {
            Ok(listener) => {
                condition.up(subject.clock.now(), format_args!("http://{}/", listener.address()));
                axum::serve(listener, router(Arc::clone(&subject))).await?;
            }
            Err(error) => condition.down(
                subject.clock.now(),
                format_args!("cannot listen on web.listen {}: {error} (is another program there?)", config.listen),
            ),
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn router(subject: Arc<Subject>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/status.json", get(status_json))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .with_state(subject)
}

async fn page(State(subject): State<Arc<Subject>>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
    ];
    (headers, page::render(&Status::of(&subject)).into_string()).into_response()
}

async fn status_json(State(subject): State<Arc<Subject>>) -> Json<Status> {
    Json(Status::of(&subject))
}

async fn metrics(State(subject): State<Arc<Subject>>) -> Response {
    match metrics::render(&subject) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write the metrics: {error}\n")).into_response()
        }
    }
}

/// 200 while readings can be stored. An upstream that is away is what we are here for, not ill health.
async fn healthz(State(subject): State<Arc<Subject>>) -> Response {
    let store = subject.stats.store().condition.get();
    if store.up == Some(false) {
        (StatusCode::SERVICE_UNAVAILABLE, format!("the store cannot write: {}\n", store.detail)).into_response()
    } else {
        "ok\n".into_response()
    }
}
