//! Bad configurations: each folder of `tests/config-cases` holds `site.toml`, perhaps `site.toml.d/` and `env`
//! (`NAME=value` lines), and in `expected.txt` exactly what is printed. `TIPBUCKET_BLESS=1` writes the expectations anew.

use std::path::{Path, PathBuf};

use tipbucket::settings::load_with;

use crate::support::kinds::TEST_KINDS;

#[test]
fn every_bad_configuration_is_refused_with_the_expected_words() {
    let bless = std::env::var_os("TIPBUCKET_BLESS").is_some();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir("tests/config-cases").unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(folders.len() >= 25, "only {} cases", folders.len());
    let mut failures = Vec::new();
    for folder in folders {
        let printed = problems(&folder);
        let file = folder.join("expected.txt");
        if bless {
            std::fs::write(&file, &printed).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        if printed != expected {
            failures.push(format!("{}\n--- expected\n{expected}--- printed\n{printed}", folder.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What is printed, with paths as seen from the case's folder.
fn problems(folder: &Path) -> String {
    let environment = std::fs::read_to_string(folder.join("env")).unwrap_or_default();
    let environment = environment.lines().filter_map(|line| line.split_once('='));
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    match load_with(TEST_KINDS, &folder.join("site.toml"), environment) {
        Ok(_) => "(accepted)\n".to_owned(),
        Err(problems) => format!("{problems}\n").replace(&format!("{}/", folder.display()), ""),
    }
}
