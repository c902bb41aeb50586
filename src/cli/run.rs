//! `tipbucket run`.

use std::io::Write;

use clap::Args;

use super::ConfigArg;

/// Takes readings in and delivers buckets, until it is told to stop.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Run {
    #[command(flatten)]
    pub(super) config: ConfigArg,
}

const EXAMPLE: &str = "Stops on SIGTERM or Ctrl-C: delivers what is under way, commits, and ends within 10 seconds.

Example:
  tipbucket run --config /etc/tipbucket/site.toml
  TIPBUCKET__LOG__LEVEL=debug tipbucket run --config ./site.toml";

impl Run {
    pub(super) fn execute(self, _out: &mut impl Write) -> anyhow::Result<()> {
        let _settings = self.config.load()?;
        // STUB: the daemon is started here.
        Ok(())
    }
}
