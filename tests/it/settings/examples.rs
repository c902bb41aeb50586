//! The examples in `config/`: each loads, and the one with every key says what the code says.

use std::path::Path;

use serde::de::DeserializeOwned;
use tipbucket::settings::{Bucket, Log, Sensor, Settings, Site, load, load_with};
use tipbucket::sources::KINDS;
use tipbucket::{clock, store, upstream, web};

use crate::support::kinds::TEST_KINDS;

const ALL_KEYS: &str = "config/tipbucket.toml";

/// Delete this function and its callers' lines once every kind is registered: until then no site can load.
fn no_kind_is_registered_yet() -> bool {
    KINDS.is_empty()
}

#[test]
fn every_site_loads() {
    let mut loaded = 0;
    for entry in std::fs::read_dir("config/sites").unwrap() {
        let path = entry.unwrap().path();
        if no_kind_is_registered_yet() {
            eprintln!("NOT TESTED: {} (no kind of source is registered)", path.display());
        } else {
            load(&path, host()).unwrap_or_else(|problems| panic!("{problems}"));
        }
        loaded += 1;
    }
    assert!(loaded >= 3, "only {loaded} sites");
}

/// What the examples expect of the machine they run on: a folder, a file with an address.
fn host() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/example-host");
    std::fs::create_dir_all(folder).unwrap();
    let uri = format!("{folder}/mongodb-uri");
    std::fs::write(&uri, "mongodb://127.0.0.1:27017").unwrap();
    let mut variables = vec![("TIPBUCKET__UPSTREAM__FOLDER".to_owned(), folder.to_owned())];
    // Only in place of the one in the example: an address and a file together are a contradiction.
    variables.push(("TIPBUCKET__UPSTREAM__URI_FILE".to_owned(), uri));
    variables
}

/// The example with every key, and a source added in a drop-in.
fn all_keys() -> Settings {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site.toml");
    std::fs::copy(ALL_KEYS, &site).unwrap();
    let drop_ins = folder.path().join("site.toml.d");
    std::fs::create_dir(&drop_ins).unwrap();
    std::fs::write(drop_ins.join("source.toml"), "[sources.a]\ntype = \"probe\"\nport = \"/dev/x\"\n").unwrap();
    without_warnings(load_with(TEST_KINDS, &site, []).unwrap_or_else(|problems| panic!("{problems}")))
}

/// Warnings depend on the machine, and tell lines.
fn without_warnings(settings: Settings) -> Settings {
    Settings { warnings: Vec::new(), ..settings }
}

#[test]
fn the_example_with_every_key_says_the_defaults() {
    fn same(example: &impl std::fmt::Debug, code: &impl std::fmt::Debug) {
        assert_eq!(format!("{example:#?}"), format!("{code:#?}"));
    }
    let settings = all_keys();
    let folder = tempfile::tempdir().unwrap();
    let minimal = folder.path().join("site.toml");
    std::fs::write(&minimal, "site.name = \"greenhouse-7\"\nsources.a = { type = \"probe\", port = \"/dev/x\" }")
        .unwrap();
    let defaults = without_warnings(load_with(TEST_KINDS, &minimal, []).unwrap());
    same(&settings, &defaults);
    same(&settings.clock, &clock::Config::default());
    // What lies beside the database is no key: it is the sum of what the parts may keep there.
    let beside = bytesize::ByteSize(store::BESIDE_BYTES + upstream::BESIDE_BYTES);
    same(&settings.store, &store::Config { beside, ..store::Config::default() });
    same(&settings.upstream, &upstream::Config::default());
    same(&settings.web, &web::Config::default());
    same(&settings.log, &Log::default());
}

/// The keys a struct knows, as serde lists them when it meets one that it does not.
fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    let error = toml::from_str::<T>("not-a-key = 1").err().unwrap();
    listed(error.message())
}

fn listed(message: &str) -> Vec<String> {
    assert!(message.starts_with("unknown field `not-a-key`, expected "), "{message}");
    message.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

/// The keys that stand under each header of the example, commented out or not; a key with a table of its own counts too.
fn keys_under(header: &str) -> Vec<String> {
    let text = std::fs::read_to_string(ALL_KEYS).unwrap();
    let lines = text.lines().map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line));
    let mut inside = false;
    let mut keys = Vec::new();
    for line in lines {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_matches(['[', ']']);
            inside = name == header;
            keys.extend(name.strip_prefix(&format!("{header}.")).map(str::to_owned));
        } else if inside && let Some((key, _)) = line.split_once(" = ") {
            keys.push(key.to_owned());
        }
    }
    keys
}

fn check_keys(header: &str, known: &[String]) {
    let shown = keys_under(header);
    for key in known {
        assert!(shown.contains(key), "{ALL_KEYS} does not show `{key}` under [{header}]: {shown:?}");
    }
}

#[test]
fn the_example_with_every_key_shows_every_key() {
    check_keys("site", &keys_of::<Site>());
    check_keys("clock", &keys_of::<clock::Config>());
    check_keys("store", &keys_of::<store::Config>());
    check_keys("bucket", &keys_of::<Bucket>());
    check_keys("sensors.cold-store", &keys_of::<Sensor>());
    check_keys("upstream", &keys_of::<upstream::Config>());
    check_keys("upstream.names", &keys_of::<upstream::Names>());
    check_keys("web", &keys_of::<web::Config>());
    check_keys("log", &keys_of::<Log>());
}

#[test]
fn the_example_with_every_key_shows_every_kind_of_source() {
    let text = std::fs::read_to_string(ALL_KEYS).unwrap();
    let mut header = "";
    let mut headers = std::collections::BTreeMap::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("#[sources.") {
            header = name.trim_end_matches(']');
        } else if let Some(kind) = line.strip_prefix("#type = ") {
            headers.insert(kind.trim_matches('"').to_owned(), format!("sources.{header}"));
        }
    }
    for kind in KINDS {
        let header =
            headers.get(kind.name).unwrap_or_else(|| panic!("{ALL_KEYS} shows no source of type {}", kind.name));
        let odd: config::Map<String, config::Value> = [("not-a-key".to_owned(), 1.into())].into_iter().collect();
        let error = (kind.read)(odd.into()).err().unwrap();
        check_keys(header, &listed(&error.message));
    }
}

/// The keys of a table inside a source's table, as its reader lists them when it meets one that it does not know.
fn nested_keys(kind: &str, table: &str) -> Vec<String> {
    let kind = KINDS.iter().find(|known| known.name == kind).unwrap();
    let table: config::Map<String, config::Value> = toml::from_str(table).unwrap();
    listed(&(kind.read)(table.into()).err().unwrap().message)
}

/// What the example says about one source, its nested tables included.
fn text_about(source: &str) -> String {
    let text = std::fs::read_to_string(ALL_KEYS).unwrap();
    let from = text.find(&format!("#[sources.{source}]")).unwrap();
    let rest = &text[from + 1..];
    rest[..rest.find("\n#[sources.").unwrap_or(rest.len())].to_owned()
}

#[test]
fn the_example_with_every_key_shows_the_keys_of_nested_tables() {
    for (source, kind, table) in [
        ("broker", "mqtt", "topics = [{ not-a-key = 1 }]"),
        ("broker", "mqtt", "tls = { not-a-key = 1 }"),
        ("boiler", "modbus-rtu", "devices = [{ not-a-key = 1 }]"),
        ("boiler", "modbus-rtu", "devices = [{ registers = [{ not-a-key = 1 }] }]"),
        ("try", "simulated", "fields = { temp = { not-a-key = 1 } }"),
    ] {
        let text = text_about(source);
        for key in nested_keys(kind, table) {
            let words: Vec<_> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            assert!(words.contains(&key.as_str()), "{ALL_KEYS} does not mention `{key}` of {table} under {source}");
        }
    }
}

#[test]
fn whatever_is_commented_out_in_the_example_could_be_used() {
    let text = std::fs::read_to_string(ALL_KEYS).unwrap();
    let uncommented: Vec<_> = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            // Prose has a blank after its mark, except inside a list, where a comment line goes on.
            Some(rest) if !rest.starts_with(' ') || rest.starts_with("  {") => rest,
            _ => line,
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site.toml");
    std::fs::write(&site, uncommented.join("\n")).unwrap();
    let Err(problems) = load(&site, []) else { return };
    for problem in problems.iter().map(ToString::to_string) {
        let misfit =
            ["unknown", "invalid value", "syntax", "is missing", "expected"].iter().any(|w| problem.contains(w));
        assert!(!misfit, "{problem}");
        assert!(no_kind_is_registered_yet() || !problem.contains("no kind of source"), "{problem}");
    }
}

#[test]
fn the_broker_example_bounds_what_waits() {
    let text = std::fs::read_to_string(Path::new("config/mosquitto.conf")).unwrap();
    for line in ["persistence true", "max_queued_messages 1000000", "max_queued_bytes 209715200"] {
        assert!(text.lines().any(|other| other == line), "{line}");
    }
}
