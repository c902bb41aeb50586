//! `tipbucket status`.

use std::io::Write;

use clap::Args;

use super::ConfigArg;

/// Shows what the running gateway is doing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Status {
    #[command(flatten)]
    config: ConfigArg,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: super::Format,
}

const EXAMPLE: &str = "Example:
  tipbucket status
  tipbucket status --format json | jq .upstream";

impl Status {
    pub(super) fn execute(self, _out: &mut impl Write) -> anyhow::Result<()> {
        let (_settings, _format) = (self.config.load()?, self.format);
        // STUB: the gateway's /status.json is fetched and printed here.
        Ok(())
    }
}
