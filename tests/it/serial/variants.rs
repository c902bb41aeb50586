//! Recordings of other devices and firmware than those of the corpus (`tests/variants/serial`), as a technician replays them.

use std::path::Path;
use std::sync::Mutex;

use serde_json::Value as Json;

use crate::mqtt::variants::{cases, is_wanted, payload};
use crate::support::daemon::command;

/// How many programs run side by side.
const WORKERS: usize = 4;

/// What `tipbucket sniff` tells of a case.
fn told(folder: &Path, number: usize, case: &Json) -> Vec<String> {
    let source = case["source"].as_str().unwrap();
    let port = if source.contains("type=\"modbus-tcp\"") { "" } else { "port = \"/dev/none\"\n" };
    let zone = case.get("zone").map_or(Some("Europe/Amsterdam"), Json::as_str);
    let zone = zone.map(|zone| format!("timezone = \"{zone}\"\n")).unwrap_or_default();
    let source = source.replace("[[devices]]", "[[sources.s.devices]]");
    let site = folder.join(format!("{number}.toml"));
    std::fs::write(&site, format!("[site]\nname = \"x\"\n{zone}[sources.s]\n{port}{source}\n")).unwrap();
    let recording = folder.join(format!("{number}.{}", case["ending"].as_str().unwrap()));
    std::fs::write(&recording, payload(case)).unwrap();
    let at = case["at"].as_str().unwrap_or("2026-03-01T12:00:00.000Z");
    let output = command()
        .args(["sniff", "--source", "s", "--format", "json", "--received-at", at, "--config"])
        .arg(&site)
        .arg("--replay")
        .arg(&recording)
        .output()
        .unwrap();
    assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line_told(line, at)).collect()
}

fn line_told(line: &str, arrival: &str) -> String {
    let line: Json = serde_json::from_str(line).unwrap();
    if let Some(refused) = line.get("refused") {
        return format!("! {}", refused["why"].as_str().unwrap());
    }
    let reading = &line["reading"];
    let at = reading["at"].as_str().unwrap();
    let at = if at == arrival { String::new() } else { format!("@{at}") };
    let mut fields: Vec<_> = reading["fields"].as_object().unwrap().iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!(" {name}={value}")).collect();
    format!("{}{at}{}", reading["sensor"].as_str().unwrap(), fields.concat())
}

#[test]
fn every_variant_becomes_what_it_should() {
    let cases = cases("serial");
    assert!(cases.len() >= 280, "only {} cases", cases.len());
    let folder = tempfile::tempdir().unwrap();
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (cases, folder, failed) = (&cases, folder.path(), &failed);
            scope.spawn(move || {
                for (number, (file, case)) in cases.iter().enumerate().filter(|(number, _)| number % WORKERS == worker)
                {
                    let told = told(folder, number, case);
                    if !is_wanted(&case["want"], &told) {
                        failed.lock().unwrap().push(format!("{file}: {case}\ngave {told:#?}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
