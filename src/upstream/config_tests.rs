//! `[upstream]` read from TOML, and what of it is refused.

use bytesize::ByteSize;

use super::*;
use crate::upstream::Uri;

fn check(toml: &str, expected: &[(&str, &str)]) {
    let config: Config = toml::from_str(toml).unwrap();
    let found = config.contradictions();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((key, words), (expected_key, part)) in found.iter().zip(expected) {
        assert_eq!(key, expected_key, "{found:?}");
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn the_defaults_can_work() {
    check("", &[]);
    let config: Config = toml::from_str("").unwrap();
    assert_eq!(config, Config::default());
    let written = toml::to_string(&config).unwrap();
    assert_eq!(toml::from_str::<Config>(&written).unwrap(), config);
}

#[test]
fn unknown_keys_are_errors() {
    assert!(toml::from_str::<Config>("colection = 'x'").unwrap_err().to_string().contains("colection"));
    assert!(toml::from_str::<Config>("[names]\nsensr = 'x'").unwrap_err().to_string().contains("sensr"));
}

#[test]
fn names_that_mongodb_refuses_are_refused_here() {
    check("database = ''\ncollection = ''", &[("database", "is empty"), ("collection", "is empty")]);
    check("database = 'a b'", &[("database", "' '")]);
    check("database = 'a.b'", &[("database", "'.'")]);
    check("database = 'admin'", &[("database", "belongs to the server")]);
    check("collection = 'system.x'", &[("collection", "system.")]);
    check("collection = 'a$b'", &[("collection", "'$'")]);
    check("collection = 'a..b'", &[("collection", "empty part")]);
    check("collection = 'plant.buckets'", &[]);
    check("collection = '../x'", &[("collection", "'/'")]);
    let long = "x".repeat(64);
    check(&format!("database = '{long}'"), &[("database", "64 bytes")]);
    check(&format!("collection = '{}'", "x".repeat(120)), &[("collection", "over 120 bytes")]);
}

#[test]
fn what_cannot_be_live_is_refused_with_a_remedy() {
    check("mode = 'live'\nlive_every = '1s'\nlayout = 'columns'\nsummary = '5m'", &[]);
    check("mode = 'live'\nlive_every = '100ms'", &[("live_every", "mode = \"buckets\"")]);
    check("mode = 'live'\nlive_every = '1h'", &[("live_every", "1s to 10m")]);
    check("mode = 'live'\nupload_every = '1h'", &[("upload_every", "leave it out")]);
    check("mode = 'live'\nconnection = 'duty-cycle'", &[("connection", "use \"auto\"")]);
    check("mode = 'live'\n[names]\nstore = ''", &[("names.store", "name both")]);
    check("mode = 'live'\n[names]\nlast_seq = ''", &[("names.last_seq", "name both")]);
    for mode in ["live", "append"] {
        let archive = format!("mode = '{mode}'\ntype = 'archive'");
        check(&archive, &[("mode", "use mode = \"buckets\"")]);
    }
    for preset in ["hourly", "measurements", "values", "readings", "samples"] {
        check(&format!("mode = 'live'\npreset = '{preset}'"), &[]);
    }
}

#[test]
fn what_cannot_be_appended_is_refused_with_a_remedy() {
    check("mode = 'append'\npreset = 'hourly'\nappend_up_to = 60", &[]);
    check("mode = 'append'\nlayout = 'columns'", &[("layout", "layout = \"rows\"")]);
    check("mode = 'append'\nsummary = '5m'", &[("summary", "leave it out")]);
    check("mode = 'append'\noverflow_collection = 'x'", &[("overflow_collection", "leave it out")]);
    check("mode = 'append'\nappend_up_to = 0", &[("append_up_to", "1 to 100000")]);
    check("mode = 'append'\n[names]\nstats_avg = 'avg'", &[("names.stats_avg", "sum by count")]);
    check("mode = 'append'\n[names]\ncount = ''", &[("names", "sensor, start and count")]);
    check("mode = 'append'\npreset = 'readings'", &[]);
}

#[test]
fn what_a_time_series_cannot_have_is_refused() {
    check("mode = 'timeseries'", &[]);
    check(
        "mode = 'timeseries'\npreset = 'hourly'\ncollection = '{sensor}'",
        &[("collection", "all sensors"), ("preset", "shapes")],
    );
    assert!(toml::from_str::<Config>("mode = 'dead'").is_err());
}

#[test]
fn a_bad_connection_string_is_refused_without_being_shown() {
    check("uri = 'http://zoe:s3cret@db'", &[("uri", "not a connection string")]);
    check("uri = 'mongodb://zoe:s3cret@db/?w=s3cret&tls=maybe'", &[("uri", "not a connection string")]);
    for uri in ["http://zoe:s3cret@db", "mongodb://zoe:s3cret@/", "mongodb://zoe:s3cret@db:99999", "zoe:s3cret"] {
        let config = Config { uri: Uri::new(uri), ..Config::default() };
        let told = format!("{:?} {config:?}", config.contradictions());
        assert!(!told.contains("s3cret") && !told.contains("zoe"), "{told}");
        assert_eq!(config.contradictions().len(), 1, "{uri}");
    }
}

#[test]
fn the_connection_string_may_be_kept_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("uri");
    let with = |uri: &str| Config { uri: Uri::new(uri), uri_file: Some(file.clone()), ..Config::default() };
    assert_eq!(with(DEFAULT_URI).warnings()[0].0, "uri_file", "it is missing");
    std::fs::write(&file, "\n").unwrap();
    assert!(with(DEFAULT_URI).warnings()[0].1.contains("holds no connection string"));
    assert_eq!(with(DEFAULT_URI).contradictions(), [], "it may come later: no reason to lose readings");
    std::fs::write(&file, "mongodb://zoe:s3cret@db\n").unwrap();
    assert_eq!(with(DEFAULT_URI).contradictions(), []);
    assert_eq!(with(DEFAULT_URI).address().unwrap(), Uri::new("mongodb://zoe:s3cret@db"));
    assert!(with("mongodb://other").contradictions()[0].1.contains("leave one of them out"));
}

#[test]
fn a_systemd_credential_serves_when_the_site_file_names_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mongodb-uri");
    std::fs::write(&file, "mongodb://from-credential").unwrap();
    let of = |uri: &str, file: &std::path::Path| {
        let config = Config { uri: Uri::new(uri), ..Config::default() };
        config.address_or(Some(file.to_owned())).unwrap().to_string()
    };
    assert_eq!(of(DEFAULT_URI, &file), "mongodb://from-credential");
    assert_eq!(of("mongodb://named", &file), "mongodb://named");
    assert_eq!(of(DEFAULT_URI, &folder.path().join("none")), DEFAULT_URI);
}

#[test]
fn an_archive_without_its_folder_is_warned_of_and_has_sane_bounds() {
    let missing: Config = toml::from_str("type = 'archive'\nfolder = '/nonexistent'").unwrap();
    assert!(missing.contradictions().is_empty(), "a disk that is not mounted yet is no reason to lose readings");
    assert!(missing.warnings()[0].1.contains("does not exist now"));
    let folder = tempfile::tempdir().unwrap();
    let head = format!("type = 'archive'\nfolder = '{}'\n", folder.path().display());
    check(&head, &[]);
    check(&format!("{head}max_file_bytes = '1KiB'"), &[("max_file_bytes", "64.0 KiB")]);
    check(&format!("{head}max_bytes = '1MiB'"), &[("max_bytes", "at least one file")]);
    check(&format!("{head}max_file_age = '0s'"), &[("max_file_age", "1s")]);
}

#[test]
fn fields_can_be_renamed() {
    let config: Config = toml::from_str("[names]\nsensor = 'sensorId'\nsamples_t = 'ts'").unwrap();
    assert_eq!((config.names.sensor.as_str(), config.names.samples_t.as_str()), ("sensorId", "ts"));
    check("[names]\nsensor = 'site'", &[("names.sensor", "already names `site`")]);
}

#[test]
fn manners_that_cannot_be_kept_are_told() {
    check("spread = '2h'", &[("spread", "upload_every")]);
    check("upload_every = '1s'", &[("upload_every", "10s to 7d")]);
    check("fleet_size = 0", &[("fleet_size", "leave it out")]);
    check("max_connects_per_second = 0", &[("max_connects_per_second", "never")]);
    check("max_bytes_per_day = '10KiB'", &[("max_bytes_per_day", "1MiB")]);
    check("backlog_share = 0", &[("backlog_share", "1 to 1000")]);
    let polite = "connection = 'duty-cycle'\nupload_every = '1h'\nfleet_size = 5000\nmax_bytes_per_day = '5MiB'";
    check(polite, &[]);
    let config: Config = toml::from_str(polite).unwrap();
    assert_eq!(config.max_bytes_per_day, Some(ByteSize::mib(5)));
}

#[test]
fn shapes_that_cannot_be_written_are_told() {
    check("summary = '100ms'", &[("summary", "at least 1s")]);
    check("field = ''", &[("field", "")]);
    check("rollups = 'flat'\n[names]\nstats_sum = 'count'", &[("names.stats_sum", "already names `count`")]);
    check("collection = '{sensor}'", &[]);
    check("collection = 'r_{senser}'", &[("collection", "only {site} and {sensor}")]);
    check("overflow_collection = 'a$b'", &[("overflow_collection", "'$'")]);
    assert!(toml::from_str::<Config>("preset = 'nobodys'").unwrap_err().to_string().contains("measurements"));
    let folder = tempfile::tempdir().unwrap();
    let archive = format!("type = 'archive'\nfolder = '{}'\ncollection = '{{sensor}}'", folder.path().display());
    check(&archive, &[("collection", "one collection")]);
}
