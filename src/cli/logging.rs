//! The log: to the journal when systemd started us, else as text on the standard error output. Never both.

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{Level, Log, LogFormat};

/// Starts logging. `RUST_LOG`, where set, goes before `log.level`.
pub(super) fn start(log: &Log) -> anyhow::Result<()> {
    let level = match log.level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    // Libraries speak from WARN on: their INFO is our TRACE.
    let usual = || EnvFilter::new(format!("warn,tipbucket={level}"));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| usual());
    let registry = tracing_subscriber::registry().with(filter);
    let to_journal = match log.format {
        LogFormat::Journald => true,
        LogFormat::Text => false,
        LogFormat::Auto => std::env::var_os("JOURNAL_STREAM").is_some(),
    };
    if to_journal && let Ok(journal) = tracing_journald::layer() {
        return registry.with(journal).try_init().context("cannot start the log");
    }
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let text = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(colours);
    registry.with(text).try_init().context("cannot start the log")
}
