//! Whatever is done to a site file: it is read or refused with words, never with a panic, and its secrets stay its own.

use std::fmt::Write;

use proptest::prelude::*;
use tipbucket::settings::load_with;

use crate::support::kinds::TEST_KINDS;

const SECRET: &str = "hunter2-zebra";
const SITE: &str = r#"
[site]
name = "mutant"
[store]
max_bytes = "1GiB"
commit_every = "2s"
[bucket]
window = "5m"
decimals = 2
[sensors.tank]
units = { level = "m" }
[sources.main]
type = "probe"
port = "/dev/nothing-here"
topics = [{ filter = "a/+", sensor = "x" }, { filter = "b" }]
"#;

/// What is written over some bytes of the file.
fn scrap() -> impl Strategy<Value = String> {
    let pieces =
        ["", "\"", "\n", "[", "]]", "{", "}", "=", ".", ",", "'''", "#", "[[x]]", "1e999", "-1", "nan", "é", "\\u0000"];
    prop_oneof![proptest::sample::select(pieces.to_vec()).prop_map(str::to_owned), "[ -~]{0,6}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_site_file_is_read_or_refused_with_words(
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..8, scrap()), 1..4),
    ) {
        let mut text = SITE.to_owned();
        for (at, length, scrap) in cuts {
            let start = at.index(text.len());
            let start = (0..=start).rev().find(|i| text.is_char_boundary(*i)).unwrap();
            let end = (start + length).min(text.len());
            let end = (end..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap();
            text.replace_range(start..end, &scrap);
        }
        write!(text, "\npassword = \"{SECRET}\"\n[upstream]\nuri = \"mongodb://u:{SECRET}@h\"\n").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.toml");
        std::fs::write(&path, &text).unwrap();
        if let Err(problems) = load_with(TEST_KINDS, &path, []) {
            let words = problems.to_string();
            prop_assert!(problems.count() > 0 && !words.is_empty());
            prop_assert!(!words.contains(SECRET), "{}\n---\n{}", text, words);
            for problem in problems.iter().map(ToString::to_string) {
                prop_assert!(!problem.contains("report this"), "{}\n---\n{}", text, problem);
            }
        }
    }

    #[test]
    fn any_environment_is_read_or_refused_with_words(name in "[A-Za-z_]{0,20}", value in "[ -~]{0,20}") {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.toml");
        std::fs::write(&path, SITE).unwrap();
        let variable = (format!("TIPBUCKET__{name}"), value);
        if let Err(problems) = load_with(TEST_KINDS, &path, [variable]) {
            prop_assert!(problems.to_string().starts_with("environment TIPBUCKET__"), "{}", problems);
        }
    }
}
