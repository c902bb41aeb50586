//! The house rules, and why they are rules. Each is a test, so that nobody has to remember them.
//!
//! | Rule | Why |
//! |---|---|
//! | imports go strictly downwards through the layers | a part can be read, tested and replaced without what stands above it |
//! | a file has at most 400 lines, a function at most 70 | what fits on a screen gets read |
//! | each file opens with `//!` | its purpose and what must stay true come before its code |
//! | no modules named after nothing (`utils`, `common` …) | everything ends up in them |
//! | nothing unfinished, no ignored tests | what is promised is there, and what is tested is true |
//! | no unbounded queue | a slow disk must not become an out-of-memory kill |
//! | no detached task | who starts a task ends it |
//! | only `clock` asks for the time | days of operation can be tested in milliseconds |
//! | `mod` lines stand at the top level, outside macros | rustfmt and editors do not see files declared elsewhere |
//! | no paths of one machine, no registry hosts in the tree | the repository works anywhere |
//! | decision records: numbered without gaps, at most 40 lines | they are read when a decision is doubted |
//! | every example configuration parses; README and CHANGELOG are there | they are a stranger's first minute |
//! | the code map names every module of `src`, and no other | a map with holes is not believed |
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::process::Command;

#[path = "tidy/source.rs"]
mod source;

use source::{Source, closing, files_under, is_name, line_of, relative, root, rust_files};

/// Top to bottom. A module may name modules of lower rows only.
const LAYERS: [&[&str]; 7] = [
    &["main", "cli"],
    &["daemon"],
    &["settings", "health", "web"],
    &["sources", "forwarder"],
    &["store", "upstream"],
    &["clock", "stats"],
    &["model", "decode"],
];
/// The only neighbours that may be named.
const NEIGHBOURS: [(&str, &str); 3] = [
    ("main", "cli"),     // main is nothing but a call of it
    ("settings", "web"), // the settings join every part's own configuration
    ("decode", "model"), // decoders make the model's values
];

const MAX_FILE_LINES: usize = 400;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_RECORD_LINES: usize = 40;

const EMPTY_NAMES: [&str; 9] = ["utils", "util", "common", "helpers", "helper", "base", "manager", "misc", "shared"];

/// Forbidden in code (not in comments or literals), everywhere.
const FORBIDDEN: [(&str, &str); 7] = [
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("dbg!", "use tracing"),
    ("unbounded_channel", "give the queue a bound"),
    ("mpsc::unbounded", "give the queue a bound"),
    ("std::sync::mpsc::channel", "it has no bound; use sync_channel"),
    ("#[ignore", "make it run or delete it"),
];
/// Forbidden in `src` outside `clock`.
const ASKS_FOR_TIME: [&str; 4] = ["SystemTime::now", "Timestamp::now", "Zoned::now", "Utc::now"];

#[track_caller]
fn assert_none(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}

fn check_all(rule: &str, check: fn(&Source) -> Vec<String>) {
    let breaches: Vec<String> = rust_files().iter().flat_map(check).collect();
    assert_none(rule, &breaches);
}

#[test]
fn imports_go_downwards_through_the_layers() {
    check_all("imports go strictly downwards", upward_imports);
}

#[test]
fn files_are_short() {
    check_all("files are short", |file| {
        let lines = file.text.lines().count();
        let breach = || format!("{}: {lines} lines, at most {MAX_FILE_LINES}", file.path);
        (lines > MAX_FILE_LINES).then(breach).into_iter().collect()
    });
}

#[test]
fn functions_are_short() {
    check_all("functions are short", long_functions);
}

#[test]
fn each_file_says_what_it_is_for() {
    check_all("each file opens with `//!`", |file| {
        let breach = || format!("{}: does not begin with //!", file.path);
        (!file.text.starts_with("//!")).then(breach).into_iter().collect()
    });
}

#[test]
fn modules_are_named_after_something() {
    check_all("modules are named after what they hold", |file| {
        let parts = file.path.trim_end_matches(".rs").split('/');
        let empty = parts.filter(|part| EMPTY_NAMES.contains(part));
        empty.map(|part| format!("{}: `{part}` says nothing", file.path)).collect()
    });
}

#[test]
fn nothing_forbidden_stands_in_the_code() {
    check_all("some things are never written", forbidden_code);
}

#[test]
fn tasks_are_not_detached() {
    check_all("a task's handle is kept", detached_tasks);
}

#[test]
fn only_the_clock_asks_for_the_time() {
    check_all("time comes from the clock", questions_for_the_time);
}

#[test]
fn mod_lines_stand_at_the_top_level() {
    check_all("`mod` lines stand at the top level", nested_mod_lines);
}

#[test]
fn the_rules_find_what_they_forbid() {
    let found = |check: fn(&Source) -> Vec<String>, path: &str, text: &str| check(&Source::new(path, text)).len();
    assert_eq!(
        found(upward_imports, "src/store/disk.rs", "use crate::{model::X, upstream::{a, b}};\nuse crate::web;"),
        2
    );
    assert_eq!(
        found(upward_imports, "src/store/disk.rs", "use crate::model::X; // crate::web\nuse crate::store::y;"),
        0
    );
    assert_eq!(found(upward_imports, "src/clock/mod.rs", "fn f() { super::stats::x() }"), 1);
    assert_eq!(found(upward_imports, "src/novel.rs", "fn f() {}"), 1);
    let inner = "use super::X; mod tests { use super::super::cli; use super::cli; }";
    assert_eq!(found(upward_imports, "src/web.rs", inner), 1);
    assert_eq!(found(upward_imports, "src/web/mod.rs", inner), 1);
    assert_eq!(found(upward_imports, "src/web/page.rs", inner), 0);
    assert_eq!(found(upward_imports, "src/web/page.rs", "use super::super::cli;"), 1);
    let long =
        format!("fn long(a: [u8; 4]) -> u8 {{\n{}}}\nfn short() {{}}", "    let s = '{';\n".repeat(MAX_FUNCTION_LINES));
    assert_eq!(found(long_functions, "src/x.rs", &long), 1);
    assert_eq!(found(long_functions, "src/x.rs", &long.replacen("let s = '{'", "let s = r#\"}\"#", 1)), 1);
    assert_eq!(found(forbidden_code, "src/x.rs", "fn f() { todo!() } // todo!()\nconst S: &str = \"dbg!(1)\";"), 1);
    assert_eq!(found(detached_tasks, "src/x.rs", "fn f() { a(); tokio::spawn(async { g(); }); }"), 1);
    assert_eq!(found(detached_tasks, "src/x.rs", "fn f() { let _ = tokio::spawn(g()); }"), 1);
    assert_eq!(found(detached_tasks, "src/x.rs", "fn f() -> H { let a = tokio::spawn(g()); tokio::spawn(h()) }"), 0);
    assert_eq!(found(questions_for_the_time, "src/x.rs", "let t = SystemTime::now();"), 1);
    assert_eq!(found(nested_mod_lines, "src/x.rs", "mod a;\nm! { mod b; }\nmod tests { fn f() {} }"), 1);
}

/// Names of modules that this file may not know, and modules that have no layer.
fn upward_imports(file: &Source) -> Vec<String> {
    let Some(module) = file.top_module() else { return Vec::new() };
    let rank = |name: &str| LAYERS.iter().position(|row| row.contains(&name));
    let Some(own_rank) = rank(module) else {
        return vec![format!("{}: `{module}` has no layer; give it one in tests/tidy.rs", file.path)];
    };
    let mut breaches = Vec::new();
    for (at, name) in named_modules(file) {
        let allowed = name == module || NEIGHBOURS.contains(&(module, name.as_str()));
        if !allowed && rank(&name).is_some_and(|named| named <= own_rank) {
            breaches.push(format!("{}: `{module}` must not know `{name}`", file.place(at)));
        }
    }
    breaches
}

/// Names directly under the crate's root, as (offset, name).
fn named_modules(file: &Source) -> Vec<(usize, String)> {
    let mut named = Vec::new();
    for (root, step) in [("crate", "crate::"), ("tipbucket", "tipbucket::"), ("super", "super::")] {
        for at in file.find_word(root).filter(|at| !file.code[..*at].ends_with("::")) {
            let mut rest = &file.code[at..];
            let mut steps = 0;
            while let Some(further) = rest.strip_prefix(step) {
                (rest, steps) = (further, steps + 1);
            }
            if steps == 0 || root == "super" && steps != file.depth(at) {
                continue; // not a path, or one that stays inside the module
            }
            let names = if rest.starts_with('{') { first_names_in_group(rest) } else { vec![first_name(rest)] };
            named.extend(names.into_iter().filter(|name| !name.is_empty()).map(|name| (at, name)));
        }
    }
    named
}

fn first_name(code: &str) -> String {
    code.trim_start().chars().take_while(|c| c.is_ascii() && is_name(*c as u8)).collect()
}

/// `{a::b, c::{d, e}}` gives a and c.
fn first_names_in_group(code: &str) -> Vec<String> {
    let inside = &code[1..closing(code, 0).unwrap_or(code.len())];
    let mut depth = 0;
    let mut names = vec![first_name(inside)];
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => names.push(first_name(&inside[at + 1..])),
            _ => {}
        }
    }
    names
}

fn long_functions(file: &Source) -> Vec<String> {
    let code = &file.code;
    let mut breaches = Vec::new();
    for at in file.find_word("fn") {
        let name = first_name(&code[at + 2..]);
        let Some(open) = body_start(code, at).filter(|_| !name.is_empty()) else { continue };
        let Some(end) = closing(code, open) else { continue };
        let lines = line_of(code, end) - line_of(code, at) + 1;
        if lines > MAX_FUNCTION_LINES {
            breaches.push(format!("{}: {name} has {lines} lines, at most {MAX_FUNCTION_LINES}", file.place(at)));
        }
    }
    breaches
}

/// The brace that opens the body of the function whose `fn` stands at `at`; none for a declaration.
fn body_start(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(offset),
            _ => {}
        }
    }
    None
}

fn forbidden_code(file: &Source) -> Vec<String> {
    let find = |(word, remedy): &(&'static str, &'static str)| {
        let (word, remedy) = (*word, *remedy);
        file.find_word(word).map(|at| format!("{}: {word}: {remedy}", file.place(at))).collect::<Vec<_>>()
    };
    FORBIDDEN.iter().flat_map(find).collect()
}

fn detached_tasks(file: &Source) -> Vec<String> {
    if file.top_module().is_none() {
        return Vec::new();
    }
    let is_detached = |at: &usize| {
        let before = file.code[..*at].trim_end();
        let thrown_away = before.ends_with([';', '{', '}']) || before.ends_with("let _ =");
        let open = file.code[*at..].find('(').map(|offset| at + offset);
        let end = open.and_then(|open| closing(&file.code, open));
        thrown_away && end.is_some_and(|end| file.code[end + 1..].trim_start().starts_with(';'))
    };
    let spawns = file.find_word("tokio::spawn").chain(file.find_word("tokio::task::spawn_local"));
    spawns.filter(is_detached).map(|at| format!("{}: keep its handle and abort it", file.place(at))).collect()
}

fn questions_for_the_time(file: &Source) -> Vec<String> {
    if file.top_module().is_none_or(|module| module == "clock") {
        return Vec::new();
    }
    let find = |word: &'static str| file.find_word(word).map(move |at| (at, word));
    let found = ASKS_FOR_TIME.into_iter().flat_map(find);
    found.map(|(at, word)| format!("{}: {word}: take the time as an argument", file.place(at))).collect()
}

fn nested_mod_lines(file: &Source) -> Vec<String> {
    let is_nested = |at: &usize| {
        let name = first_name(&file.code[at + 3..]);
        let declares = file.code[at + 3..].trim_start().strip_prefix(&name).is_some_and(|rest| rest.starts_with(';'));
        let before = &file.code[..*at];
        !name.is_empty() && declares && before.matches('{').count() != before.matches('}').count()
    };
    file.find_word("mod").filter(is_nested).map(|at| file.place(at)).collect()
}

#[test]
fn the_tree_names_no_machine_and_no_registry_host() {
    let words = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("index.crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("pypi", ".org"),
        concat!("pythonhosted", ".org"),
        concat!("deb.debian", ".org"),
        concat!("npmjs", ".org"),
        concat!("proxy.golang", ".org"),
    ];
    let mut breaches = Vec::new();
    for path in tracked_files() {
        let Ok(text) = fs::read_to_string(root().join(&path)) else { continue };
        for (number, line) in text.lines().enumerate() {
            let found = words.iter().filter(|word| line.contains(**word));
            breaches.extend(found.map(|word| format!("{path}:{}: {word}", number + 1)));
        }
    }
    assert_none("the tree names no machine's folders and no registry's hosts", &breaches);
}

/// What git tracks; every file but the build's, where this is not a git checkout.
fn tracked_files() -> Vec<String> {
    let listed = Command::new("git").args(["ls-files", "--cached"]).current_dir(root()).output();
    match listed {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
        }
        _ => files_under(&root()).iter().map(|path| relative(path)).collect(),
    }
}

#[test]
fn decision_records_are_numbered_and_short() {
    let records = files_under(&root().join("docs/decisions"));
    assert!(!records.is_empty(), "docs/decisions is empty");
    for (index, path) in records.iter().enumerate() {
        let name = relative(path);
        let text = fs::read_to_string(path).unwrap();
        let number = format!("docs/decisions/{:04}-", index + 1);
        assert!(name.starts_with(&number), "{name}: expected number {number}");
        assert!(text.lines().count() <= MAX_RECORD_LINES, "{name}: over {MAX_RECORD_LINES} lines");
        for heading in ["## Context", "## Decision", "## Consequences", "## When to revisit"] {
            assert!(text.contains(heading), "{name}: no `{heading}`");
        }
    }
}

#[test]
fn every_example_configuration_parses() {
    let files = files_under(&root().join("config"));
    let tomls: Vec<_> = files.iter().filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    assert!(!tomls.is_empty(), "no example configuration");
    for path in tomls {
        let parsed = fs::read_to_string(path).unwrap().parse::<toml::Table>();
        assert!(parsed.is_ok(), "{}: {}", relative(path), parsed.unwrap_err());
    }
}

#[test]
fn a_stranger_finds_the_first_steps() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let readme = read("README.md");
    for command in ["make test", "make demo"] {
        assert!(readme.contains(command), "README.md does not mention `{command}`");
    }
    assert!(read("CHANGELOG.md").contains("## Unreleased"), "CHANGELOG.md has no `## Unreleased`");
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "SECURITY.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md"] {
        assert!(!read(name).trim().is_empty(), "{name} is empty");
    }
}

#[test]
fn the_code_map_names_every_module() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let map = page.split("## Code map").nth(1).expect("a code map").split("\n## ").next().unwrap();
    // A row of the map begins with a path from `src`.
    let rows = map.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |").map(|(path, _)| path));
    let mut named: Vec<String> = rows.map(|path| format!("src/{path}")).collect();
    named.sort();
    let is_test = |path: &String| path.contains("tests") || path == "src/upstream/samples.rs";
    let files = rust_files().into_iter().map(|file| file.path).filter(|path| path.starts_with("src/"));
    let mut there: Vec<String> = files.filter(|path| !is_test(path)).collect();
    there.sort();
    let missing = there.iter().filter(|path| !named.contains(path)).map(|path| format!("{path} is missing"));
    let gone = named.iter().filter(|path| !there.contains(path)).map(|path| format!("{path} is not there"));
    assert_none("docs/ARCHITECTURE.md maps the code", &missing.chain(gone).collect::<Vec<_>>());
}
