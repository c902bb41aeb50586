//! The command line: arguments, printing, exit codes. One file per subcommand.
//!
//! Results go to the standard output, everything else to the standard error output. Exit codes: 0 done, 1 failed with one
//! readable message, 2 wrong usage.

mod capture;
mod check;
mod dead_letters;
mod durability;
mod export;
mod logging;
mod printing;
mod query;
#[cfg(test)]
mod query_tests;
mod run;
mod sniff;
mod status;
mod times;
mod upstream;
mod verify;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::clock::Clock;
use crate::settings::{self, Problems, Settings};

/// Where the site file is unless said otherwise.
const DEFAULT_CONFIG: &str = "/etc/tipbucket/site.toml";

/// Sensor readings from serial lines and MQTT into SQLite buckets, complete buckets into MongoDB.
#[derive(Debug, Parser)]
#[command(name = "tipbucket", version, arg_required_else_help = true, after_help = EXAMPLE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLE: &str = "Example:
  tipbucket check --config /etc/tipbucket/site.toml && tipbucket run --config /etc/tipbucket/site.toml";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Check(check::Check),
    Status(status::Status),
    Sniff(sniff::Sniff),
    Query(query::Query),
    Export(export::Export),
    Upstream(upstream::Upstream),
    Verify(verify::Verify),
    DeadLetters(dead_letters::DeadLetters),
}

/// Which site file is meant; every command that needs one takes it.
#[derive(Clone, Debug, Args)]
struct ConfigArg {
    /// The site file; its drop-ins are beside it, in a folder of the same name with `.d`.
    #[arg(long = "config", short = 'c', value_name = "FILE", default_value = DEFAULT_CONFIG)]
    path: PathBuf,
}

impl ConfigArg {
    /// Reads, checks and returns the settings.
    fn load(&self) -> Result<Settings, Problems> {
        // A variable that is not UTF-8 cannot be one of ours.
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        settings::load(&self.path, environment)
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// Runs the program with its arguments, the program's own name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(usage) => {
            // Help and version are no errors: clap prints them on the standard output and they end with 0.
            let code = u8::try_from(usage.exit_code()).unwrap_or(2);
            let _ = usage.print();
            return ExitCode::from(code);
        }
    };
    let mut out = std::io::stdout().lock();
    let done = match cli.command {
        Command::Run(run) => run.execute(&mut out),
        Command::Check(check) => check.execute(&mut out),
        Command::Status(status) => status.execute(&mut out),
        Command::Sniff(sniff) => sniff.execute(&mut out),
        Command::Query(query) => query.execute(&mut out, Clock::system().now()),
        Command::Export(export) => export.execute(&mut out, Clock::system().now()),
        Command::Upstream(upstream) => upstream.execute(&mut out),
        Command::Verify(verify) => verify.execute(&mut out, Clock::system().now()),
        Command::DeadLetters(letters) => letters.execute(&mut out, Clock::system().now()),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}", message(&error));
            ExitCode::FAILURE
        }
    }
}

/// Whoever read our output has seen enough (`tipbucket query … | head`).
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The one message an error is told in.
fn message(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Problems>() {
        // One per line, each with its own place: editors jump to it.
        Some(problems) => problems.to_string(),
        None => format!("tipbucket: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        let cli = Cli::command();
        for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "tipbucket {} --help has no example", command.get_name());
            assert!(help.contains("tipbucket "), "the example of {} names no command", command.get_name());
        }
    }

    #[test]
    fn the_config_defaults_to_the_installed_one() {
        let cli = Cli::try_parse_from(["tipbucket", "run"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("not run: {cli:?}") };
        assert_eq!(run.config.path, PathBuf::from(DEFAULT_CONFIG));
    }

    #[test]
    fn wrong_usage_ends_with_2() {
        for wrong in [vec!["tipbucket", "fly"], vec!["tipbucket", "check", "--colour"], vec!["tipbucket"]] {
            assert_eq!(Cli::try_parse_from(wrong).unwrap_err().exit_code(), 2);
        }
        assert_eq!(Cli::try_parse_from(["tipbucket", "--help"]).unwrap_err().exit_code(), 0);
    }
}
