//! The descriptions of devices: each makes a source, and one beside the site file counts.

use serde_json::json;
use tipbucket::settings::load;
use tipbucket::sources::devices::EMBEDDED;

/// Loads a site with one source.
fn check(folder: &std::path::Path, source: &serde_json::Value) -> tipbucket::settings::Settings {
    let site = json!({ "site": { "name": "x" }, "sources": { "a": source } });
    let path = folder.join("site.toml");
    std::fs::write(&path, toml::to_string(&site).unwrap()).unwrap();
    load(&path, []).unwrap_or_else(|problems| panic!("{source}: {problems}"))
}

#[test]
fn every_device_that_comes_along_makes_a_source() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in EMBEDDED {
        let described: toml::Table = text.parse().unwrap();
        for key in ["about", "manual"] {
            assert!(described.contains_key(key), "{name} says no `{key}`");
        }
        let kind = described["type"].as_str().unwrap();
        if kind == "modbus" {
            let device = json!({ "sensor": "s", "unit_id": 1, "device": name });
            check(folder.path(), &json!({ "type": "modbus-rtu", "port": "p", "devices": [device] }));
            check(folder.path(), &json!({ "type": "modbus-tcp", "address": "10.0.0.7", "devices": [device] }));
        } else {
            check(folder.path(), &json!({ "type": kind, "port": "p", "sensor": "s", "device": name }));
        }
    }
}

#[test]
fn a_description_beside_the_site_file_needs_no_new_program() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("devices")).unwrap();
    let described = "type = 'modbus'\nregisters = [{ field = 'level', table = 'holding', address = 4, unit = 'm' }]\n";
    std::fs::write(folder.path().join("devices/tank-probe.toml"), described).unwrap();
    let device = json!({ "sensor": "tank", "unit_id": 1, "device": "tank-probe" });
    let settings = check(folder.path(), &json!({ "type": "modbus-rtu", "port": "p", "devices": [device] }));
    let claims = settings.sources[0].config.claims();
    assert_eq!(claims.units, [("tank".to_owned(), "level".to_owned(), "m".to_owned())]);
}
