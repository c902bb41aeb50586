//! Which layer wins, and what the winner is blamed for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tipbucket::model::{FieldName, SensorName};
use tipbucket::settings::{Level, Problems, Settings, load_with};

use crate::support::kinds::TEST_KINDS;

const SITE: &str = r#"
[site]
name = "layers-1"
timezone = "Europe/Amsterdam"

[store]
path = "a.db"
max_bytes = "1GiB"

[bucket]
window = "5m"
decimals = 2

[sensors.Tank-1]
window = "1h"
units = { level = "m" }
tags = { room = "cellar" }

[sensors.same]
window = "5m"

[sources.main]
type = "probe"
port = "/dev/nothing-here"
units = [["Tank-1", "temp", "°C"], ["pump", "flow", "l/s"]]
"#;

struct Layers {
    _folder: tempfile::TempDir,
    site: PathBuf,
}

impl Layers {
    fn new(site: &str, drop_ins: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.toml");
        std::fs::write(&path, site).unwrap();
        std::fs::create_dir(folder.path().join("site.toml.d")).unwrap();
        for (name, text) in drop_ins {
            std::fs::write(folder.path().join("site.toml.d").join(name), text).unwrap();
        }
        Self { _folder: folder, site: path }
    }

    fn load(&self, environment: &[(&str, &str)]) -> Result<Settings, Problems> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        load_with(TEST_KINDS, &self.site, environment)
    }
}

#[test]
fn a_site_file_alone_fills_the_rest_with_defaults() {
    let settings = Layers::new(SITE, &[]).load(&[]).unwrap();
    assert_eq!(settings.site.as_str(), "layers-1");
    assert_eq!(settings.max_sensors, 10_000);
    assert_eq!(settings.timezone.as_ref().and_then(|zone| zone.iana_name()), Some("Europe/Amsterdam"));
    assert_eq!(settings.admission.max_future, Duration::from_secs(600));
    assert_eq!(settings.policies.default.window.seconds(), 300);
    assert_eq!(settings.policies.default.max_samples, 1000);
    assert_eq!(settings.sources.len(), 1);
    assert_eq!((settings.sources[0].name.as_str(), settings.sources[0].kind), ("main", "probe"));
    assert!(settings.warnings.is_empty());
}

#[test]
fn a_sensor_overrides_only_what_it_says() {
    let settings = Layers::new(SITE, &[]).load(&[]).unwrap();
    let tank = SensorName::new("Tank-1").unwrap();
    let policy = settings.policies.of(&tank);
    assert_eq!((policy.window.seconds(), policy.decimals, policy.max_samples), (3600, Some(2), 1000));
    // A sensor that says the same as [bucket] needs no policy of its own.
    assert_eq!(settings.policies.by_sensor.len(), 1);
    let notes = &settings.notes[&tank];
    let unit = |field: &str| notes.units.get(&FieldName::new(field).unwrap()).map(String::as_str);
    assert_eq!((unit("level"), unit("temp")), (Some("m"), Some("°C")));
    assert_eq!(notes.tags.len(), 1);
    assert!(settings.notes.contains_key(&SensorName::new("pump").unwrap()));
}

#[test]
fn drop_ins_win_over_the_site_file_in_the_order_of_their_names() {
    let layers = Layers::new(
        SITE,
        &[
            ("20-later.toml", "store.path = \"c.db\""),
            ("10-first.toml", "[store]\npath = \"b.db\"\nwhen_full = \"evict\""),
            ("README.md", "not = [toml"),
            (".30-hidden.toml", "store.path = \"hidden.db\""),
        ],
    );
    let settings = layers.load(&[]).unwrap();
    assert_eq!(settings.store.path, Path::new("c.db"));
    assert_eq!(settings.store.when_full, tipbucket::store::WhenFull::Evict);
    assert_eq!(settings.store.max_bytes, bytesize::ByteSize::gib(1));
}

#[test]
fn the_environment_wins_over_every_file() {
    let layers = Layers::new(SITE, &[("10.toml", "store.path = \"b.db\"")]);
    let settings = layers
        .load(&[
            ("TIPBUCKET__STORE__PATH", "env.db"),
            ("TIPBUCKET__STORE__MAX_BYTES", "3GiB"),
            ("TIPBUCKET__SITE__MAX_SENSORS", "77"),
            ("TIPBUCKET__WEB__ENABLED", "false"),
            ("TIPBUCKET__LOG__LEVEL", "debug"),
            ("TIPBUCKET__STORE__COMMIT_EVERY", ""),
            ("TIPBUCKET_TEST", "not ours"),
            ("PATH", "/bin"),
        ])
        .unwrap();
    assert_eq!(settings.store.path, Path::new("env.db"));
    assert_eq!(settings.store.max_bytes, bytesize::ByteSize::gib(3));
    assert_eq!(settings.max_sensors, 77);
    assert!(!settings.web.enabled);
    assert_eq!(settings.log.level, Level::Debug);
    assert_eq!(settings.store.commit_every, Duration::from_secs(1));
}

#[test]
fn the_environment_finds_names_that_are_spelt_with_capitals_and_dashes() {
    let layers = Layers::new(SITE, &[]);
    let settings = layers
        .load(&[
            ("TIPBUCKET__SENSORS__TANK_1__WINDOW", "2h"),
            ("TIPBUCKET__SOURCES__MAIN__TOPICS", "[{ filter = \"a/#\", sensor = \"from-env\" }]"),
        ])
        .unwrap();
    assert_eq!(settings.policies.of(&SensorName::new("Tank-1").unwrap()).window.seconds(), 7200);
    assert_eq!(settings.sources[0].config.claims().sensors, ["from-env"]);
}

#[test]
fn a_page_that_others_can_reach_is_a_warning() {
    let layers = Layers::new(SITE, &[]);
    let settings = layers.load(&[("TIPBUCKET__WEB__LISTEN", "0.0.0.0:8780")]).unwrap();
    assert_eq!(settings.warnings.len(), 1);
    let warning = settings.warnings[0].to_string();
    assert!(warning.starts_with("environment TIPBUCKET__WEB__LISTEN: `web.listen`: 0.0.0.0:8780 can be"), "{warning}");
}

#[test]
fn two_names_of_one_serial_port_are_one_port() {
    let folder = tempfile::tempdir().unwrap();
    let (device, link) = (folder.path().join("ttyUSB0"), folder.path().join("by-id"));
    std::fs::write(&device, "").unwrap();
    std::os::unix::fs::symlink(&device, &link).unwrap();
    let site = format!(
        "site.name = \"x\"\n[sources.a]\ntype = \"probe\"\nport = {device:?}\n[sources.b]\ntype = \"probe\"\nport = {link:?}\n"
    );
    let words = Layers::new(&site, &[]).load(&[]).unwrap_err().to_string();
    assert!(words.contains("is also the port of source `a`, where it is called"), "{words}");
    assert!(words.contains("site.toml:7: `sources.b.port`:"), "{words}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let missing = load_with(TEST_KINDS, Path::new("/nowhere/site.toml"), []).unwrap_err().to_string();
    assert_eq!(missing, "cannot read /nowhere/site.toml: there is no such file (name another with --config)");
    let layers = Layers::new(SITE, &[]);
    std::fs::write(&layers.site, b"[site]\nname = \"\xff\"\n").unwrap();
    let words = layers.load(&[]).unwrap_err().to_string();
    assert!(words.ends_with("line 2 is not UTF-8 (save the file as UTF-8)"), "{words}");
}
