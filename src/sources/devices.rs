//! Ready descriptions of devices: `device = "eastron-sdm630"` stands for what its file says.
//!
//! The files of `config/devices` are part of the program; the files of the folder `devices` beside the site file come before
//! them, so that a new device needs one file and no new program. What the site file says itself goes before its device.

use std::collections::BTreeMap;
use std::path::Path;

use config::{File, FileFormat, Map, Value, ValueKind};

/// Largest description read: a device with all its registers is far below it.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Most descriptions read from the folder.
const MAX_FILES: usize = 1000;
/// Keys that are for the reader of a description.
const REMARKS: [&str; 3] = ["about", "manual", "line"];
/// The kinds whose devices stand in a list of their own.
const WITH_DEVICES: [&str; 2] = ["modbus-rtu", "modbus-tcp"];

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every description that comes along.
        pub const EMBEDDED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../config/devices/", $name, ".toml")))),*];
    };
}

embedded![
    "davis-vantage",
    "dsmr-meter",
    "easymeter-q3d",
    "eastron-sdm120",
    "eastron-sdm230",
    "eastron-sdm630",
    "gps-receiver",
    "growatt-inverter",
    "mh-z19",
    "peacefair-pzem-004t",
    "peacefair-pzem-016",
    "peacefair-pzem-017",
    "plantower-pms5003",
    "nova-sds011",
    "senseair-s8",
    "sml-meter",
    "sunspec-inverter",
    "xy-md02-sht20",
];

/// What is wrong, as (key path from the top, words).
pub type Wrong = (Vec<String>, String);

/// Replaces every `device = "…"` under `sources` by what it stands for.
pub fn expand(tree: &mut Map<String, Value>, folder: &Path) -> Vec<Wrong> {
    let Some(ValueKind::Table(sources)) = tree.get_mut("sources").map(|value| &mut value.kind) else {
        return Vec::new();
    };
    let mut wrong = Vec::new();
    let mut known = None;
    let mut names: Vec<String> = sources.keys().cloned().collect();
    names.sort();
    for name in names {
        let Some(ValueKind::Table(source)) = sources.get_mut(&name).map(|value| &mut value.kind) else { continue };
        let kind = match source.get("type").map(|value| &value.kind) {
            Some(ValueKind::String(kind)) => kind.clone(),
            _ => continue,
        };
        let path = vec!["sources".to_owned(), name];
        if !WITH_DEVICES.contains(&kind.as_str()) {
            one(source, &kind, &path, folder, &mut known, &mut wrong);
            continue;
        }
        let Some(ValueKind::Array(devices)) = source.get_mut("devices").map(|value| &mut value.kind) else { continue };
        for (i, device) in devices.iter_mut().enumerate() {
            let ValueKind::Table(device) = &mut device.kind else { continue };
            let path = [&path[..], &[format!("devices[{i}]")]].concat();
            one(device, "modbus", &path, folder, &mut known, &mut wrong);
        }
    }
    wrong
}

/// Everything known, by name; the folder's files go before those that come along.
type Known = BTreeMap<String, Result<Map<String, Value>, String>>;

fn one(
    table: &mut Map<String, Value>,
    kind: &str,
    path: &[String],
    folder: &Path,
    known: &mut Option<Known>,
    wrong: &mut Vec<Wrong>,
) {
    let Some(device) = table.remove("device") else { return };
    let at = || [path, &["device".to_owned()]].concat();
    let ValueKind::String(name) = device.kind else {
        return wrong.push((at(), "is no text".to_owned()));
    };
    let known = known.get_or_insert_with(|| read_all(folder));
    let described = match known.get(&name) {
        Some(Ok(described)) => described,
        Some(Err(why)) => return wrong.push((at(), why.clone())),
        None => {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            let nearest =
                names.iter().max_by(|a, b| strsim::jaro_winkler(a, &name).total_cmp(&strsim::jaro_winkler(b, &name)));
            let near = nearest.map(|near| format!(" (did you mean `{near}`? ")).unwrap_or_else(|| " (".to_owned());
            let words = format!(
                "there is no device `{name}`{near}a new one is a file devices/{name}.toml beside the site file)"
            );
            return wrong.push((at(), words));
        }
    };
    let told = match described.get("type").map(|value| &value.kind) {
        Some(ValueKind::String(told)) => told.as_str(),
        _ => "",
    };
    if told != kind {
        return wrong.push((at(), format!("`{name}` is for type = \"{told}\"")));
    }
    merge(table, described, path, wrong);
}

fn merge(table: &mut Map<String, Value>, described: &Map<String, Value>, path: &[String], wrong: &mut Vec<Wrong>) {
    let take = table.remove("take");
    for (key, value) in described.iter().filter(|(key, _)| *key != "type" && !REMARKS.contains(&key.as_str())) {
        match (table.get_mut(key).map(|own| &mut own.kind), &value.kind) {
            // Registers of one's own stand beside the device's.
            (Some(ValueKind::Array(own)), ValueKind::Array(theirs)) if key == "registers" => {
                own.splice(0..0, theirs.iter().cloned());
            }
            (Some(_), _) => {}
            (None, _) => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
    let Some(take) = take else { return };
    let at = [path, &["take".to_owned()]].concat();
    let names: Option<Vec<String>> = match take.kind {
        ValueKind::Array(names) => names.into_iter().map(|name| name.into_string().ok()).collect(),
        _ => None,
    };
    let Some(names) = names else { return wrong.push((at, "is no list of field names".to_owned())) };
    let field = |value: &Value| match &value.kind {
        ValueKind::Table(entry) => entry.get("field").and_then(|field| field.clone().into_string().ok()),
        _ => None,
    };
    for key in ["registers", "fields"] {
        match table.get_mut(key).map(|value| &mut value.kind) {
            Some(ValueKind::Array(entries)) => {
                let there: Vec<String> = entries.iter().filter_map(field).collect();
                unknown(&names, &there, &at, wrong);
                entries.retain(|entry| field(entry).is_some_and(|name| names.contains(&name)));
            }
            Some(ValueKind::Table(entries)) => {
                unknown(&names, &entries.keys().cloned().collect::<Vec<_>>(), &at, wrong);
                entries.retain(|name, _| names.contains(name));
            }
            _ => {}
        }
    }
}

fn unknown(names: &[String], there: &[String], at: &[String], wrong: &mut Vec<Wrong>) {
    for name in names.iter().filter(|name| !there.contains(name)) {
        wrong.push((at.to_vec(), format!("the device has no field `{name}` (it has: {})", there.join(", "))));
    }
}

fn read_all(folder: &Path) -> Known {
    let embedded = EMBEDDED.iter().map(|(name, text)| ((*name).to_owned(), parse(text)));
    let mut known: Known = embedded.collect();
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).take(MAX_FILES);
    for path in entries.map(|entry| entry.path()) {
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if path.extension().is_some_and(|ending| ending == "toml") {
            let text = match std::fs::metadata(&path).map(|meta| meta.len()) {
                Ok(size) if size > MAX_FILE_BYTES => {
                    Err(format!("it has {size} bytes, at most {MAX_FILE_BYTES} are read"))
                }
                _ => std::fs::read_to_string(&path).map_err(|error| error.to_string()),
            };
            let read = text.and_then(|text| parse(&text));
            known.insert(name.to_owned(), read.map_err(|why| format!("cannot read {}: {why}", path.display())));
        }
    }
    known
}

fn parse(text: &str) -> Result<Map<String, Value>, String> {
    let built = config::Config::builder().add_source(File::from_str(text, FileFormat::Toml)).build();
    let table = built.map_err(|error| error.to_string())?.cache.into_table().map_err(|error| error.to_string())?;
    match table.get("type").map(|value| &value.kind) {
        Some(ValueKind::String(_)) => Ok(table),
        _ => Err("it says no `type`, as \"modbus\" or \"binary\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Map<String, Value> {
        let built = config::Config::builder().add_source(File::from_str(text, FileFormat::Toml)).build().unwrap();
        built.cache.into_table().unwrap()
    }

    /// The words of everything that is wrong, with the paths.
    fn check(text: &str, folder: &Path, expected: &[(&str, &str)]) -> Map<String, Value> {
        let mut tree = tree(text);
        let wrong = expand(&mut tree, folder);
        assert_eq!(wrong.len(), expected.len(), "{wrong:?}");
        for ((path, words), (place, part)) in wrong.iter().zip(expected) {
            assert!(path.join(".") == *place && words.contains(part), "{path:?} {words}");
        }
        tree
    }

    const METER: &str = "[sources.m]\ntype = 'modbus-rtu'\n[[sources.m.devices]]\nsensor = 's'\ndevice = ";

    #[test]
    fn a_device_stands_for_its_file() {
        let nowhere = Path::new("/nonexistent");
        let text = format!("{METER}'eastron-sdm120'\ntake = ['voltage', 'own']\nregisters = [{{ field = 'own' }}]\n");
        let tree = check(&text, nowhere, &[]);
        let device =
            tree["sources"].clone().into_table().unwrap()["m"].clone().into_table().unwrap()["devices"].clone();
        let device = device.into_array().unwrap()[0].clone().into_table().unwrap();
        assert_eq!(device["registers"].clone().into_array().unwrap().len(), 2);
        assert!(!device.contains_key("device") && !device.contains_key("about") && device.contains_key("sensor"));
    }

    #[test]
    fn what_is_wrong_is_told_where_it_stands() {
        let nowhere = Path::new("/nonexistent");
        let at = "sources.m.devices[0].device";
        check(
            &format!("{METER}'eastron-sdm63'"),
            nowhere,
            &[(at, "did you mean `eastron-sdm630`? a new one is a file")],
        );
        check(&format!("{METER}'mh-z19'"), nowhere, &[(at, "`mh-z19` is for type = \"binary\"")]);
        check(&format!("{METER}7"), nowhere, &[(at, "is no text")]);
        let text = format!("{METER}'eastron-sdm120'\ntake = ['volt']");
        check(&text, nowhere, &[("sources.m.devices[0].take", "no field `volt` (it has: voltage, ")]);
    }

    #[test]
    fn a_file_beside_the_site_file_is_a_device_and_goes_before_ours() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine.toml"), "type = 'modbus'\nregisters = []\n").unwrap();
        std::fs::write(folder.path().join("eastron-sdm120.toml"), "registers = [").unwrap();
        check(&format!("{METER}'mine'"), folder.path(), &[]);
        check(&format!("{METER}'eastron-sdm120'"), folder.path(), &[("sources.m.devices[0].device", "cannot read")]);
    }

    #[test]
    fn every_file_of_the_folder_comes_along() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/devices");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        let mut names: Vec<String> = EMBEDDED.iter().map(|(name, _)| (*name).to_owned()).collect();
        files.sort();
        names.sort();
        assert_eq!(files, names);
        assert!(names.len() >= 12);
    }
}
