//! `tipbucket run`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::{ConfigArg, logging};
use crate::clock::Clock;
use crate::daemon;

/// Takes readings in and delivers buckets, until it is told to stop.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Run {
    #[command(flatten)]
    pub(super) config: ConfigArg,
}

const EXAMPLE: &str = "Stops on SIGTERM or Ctrl-C: delivers what is under way, commits, and ends within 10 seconds.
A change of the site file takes effect at the next start; SIGHUP changes nothing.

Example:
  tipbucket run --config /etc/tipbucket/site.toml
  TIPBUCKET__LOG__LEVEL=debug tipbucket run --config ./site.toml";

/// How long a thread for blocking work stays without any: making one takes some 50 µs, a commit takes more.
const IDLE_THREAD: Duration = Duration::from_millis(100);

impl Run {
    pub(super) fn execute(self, _out: &mut impl Write) -> anyhow::Result<()> {
        let settings = self.config.load()?;
        logging::start(&settings.log)?;
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!("tipbucket {} for site {}", env!("CARGO_PKG_VERSION"), settings.site);
        // One thread: everything waits, hardly anything computes; SQLite works on threads of its own.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            // Each of them has a heap of its own, and work goes round among all that live: the fewer the smaller we are.
            .thread_keep_alive(IDLE_THREAD)
            .build()
            .context("cannot start the runtime")?;
        let done = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
            let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
            let mut hang_up = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
            // Started by hand, it ends with its terminal. A service has none: there SIGHUP asks for new settings.
            let by_hand = std::io::stdin().is_terminal();
            let stop = async move {
                loop {
                    tokio::select! {
                        _ = terminate.recv() => return,
                        _ = interrupt.recv() => return,
                        _ = hang_up.recv() => if by_hand { return },
                    }
                    tracing::warn!("SIGHUP: the settings are read at the start only; restart to apply changes");
                }
            };
            daemon::run(settings, Clock::system(), stop).await
        });
        // A blocking call that hangs (a dead disk) must not hold up the end.
        runtime.shutdown_timeout(Duration::from_millis(200));
        done
    }
}
