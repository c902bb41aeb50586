//! The `tipbucket` program itself: what it prints, where, and how it ends.

use std::process::Output;

use crate::support::daemon::command;

fn tipbucket(arguments: &[&str]) -> Output {
    let mut command = command();
    // The test's own environment must not decide.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIPBUCKET")) {
        command.env_remove(name);
    }
    command.args(arguments).env("RUST_BACKTRACE", "1").output().unwrap()
}

fn check(arguments: &[&str], code: i32) -> (String, String) {
    let output = tipbucket(arguments);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{out}\n{err}");
    assert!(!err.contains("backtrace") && !err.contains("panicked"), "{err}");
    (out, err)
}

#[test]
fn a_bad_site_file_ends_check_and_run_with_1_and_its_problems_on_stderr() {
    let site = "tests/config-cases/two-problems-at-once/site.toml";
    let expected = std::fs::read_to_string("tests/config-cases/two-problems-at-once/expected.txt").unwrap();
    // The program has no kind "probe": that is one more problem.
    let expected: Vec<_> =
        expected.lines().map(|line| format!("tests/config-cases/two-problems-at-once/{line}")).collect();
    for command in ["check", "run", "status"] {
        let (out, err) = check(&[command, "--config", site], 1);
        assert_eq!(out, "");
        for line in &expected {
            assert!(err.lines().any(|printed| printed == line), "{line}\n{err}");
        }
    }
}

#[test]
fn a_missing_site_file_is_named() {
    let (_, err) = check(&["check", "--config", "/nowhere/site.toml"], 1);
    assert_eq!(err, "cannot read /nowhere/site.toml: there is no such file (name another with --config)\n");
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_meant() {
    let (_, err) = check(&["chekc"], 2);
    assert!(err.contains("similar subcommand exists: 'check'"), "{err}");
    let (_, err) = check(&["check", "--every", "never"], 2);
    assert!(err.contains("write for example 10s or 1m"), "{err}");
    check(&["check", "--sensors", "0"], 2);
    check(&[], 2);
}

#[test]
fn help_and_version_are_results() {
    for command in ["check", "run", "status"] {
        let (out, _) = check(&[command, "--help"], 0);
        assert!(out.contains("Example:") && out.contains("/etc/tipbucket/site.toml"), "{out}");
    }
    let (out, _) = check(&["--version"], 0);
    assert_eq!(out, format!("tipbucket {}\n", env!("CARGO_PKG_VERSION")));
}
