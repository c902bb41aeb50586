//! The `tipbucket` program: hands its arguments to [`tipbucket::cli`] and returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    tipbucket::cli::main(std::env::args_os())
}
