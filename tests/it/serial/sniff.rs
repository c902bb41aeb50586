//! `tipbucket sniff`: every recorded sample gives what it should, and a capture is replayed as it was.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::samples::{self, Got, Sample};
use crate::support::daemon::command;
use crate::support::pty::Pty;

/// Writes a site file with one source.
fn site(folder: &Path, source: &Json) -> std::path::PathBuf {
    let site = json!({ "site": { "name": "x", "timezone": "Europe/Amsterdam" }, "sources": { "line": source } });
    let path = folder.join("site.toml");
    std::fs::write(&path, toml::to_string(&site).unwrap()).unwrap();
    path
}

/// Runs it, and reads its JSON lines.
pub fn sniff(site: &Path, source: &str, arguments: &[&str]) -> Got {
    let output = command()
        .args(["sniff", "--source", source, "--format", "json", "--config"])
        .arg(site)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut got = Got::default();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line: Json = serde_json::from_str(line).unwrap();
        let text = |value: &Json| value.as_str().unwrap().to_owned();
        if let Some(refused) = line.get("refused") {
            got.refused.push(format!("{}: {}", text(&refused["what"]), text(&refused["why"])));
        } else {
            let reading = &line["reading"];
            for (name, value) in reading["fields"].as_object().unwrap() {
                got.fields.push((text(&reading["sensor"]), text(&reading["at"]), name.clone(), value.clone()));
            }
        }
    }
    got
}

fn check(sample: &Sample) {
    let folder = tempfile::tempdir().unwrap();
    let site = site(folder.path(), &sample.table(Path::new("/dev/none")));
    let received_at = sample.expect["received_at"].as_str().unwrap();
    let got = sniff(&site, "line", &["--received-at", received_at, "--replay", sample.path.to_str().unwrap()]);
    sample.check(&got);
}

#[test]
fn every_sample_gives_what_it_should() {
    let samples = samples::all();
    let failed: Vec<&str> = samples
        .iter()
        .filter(|sample| std::panic::catch_unwind(|| check(sample)).is_err())
        .map(|sample| sample.id.as_str())
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn what_is_captured_live_is_replayed_alike() {
    let folder = tempfile::tempdir().unwrap();
    let mut pty = Pty::new();
    let source = json!({ "type": "line", "port": pty.path(), "sensor": "s", "decode": "csv", "columns": ["v"] });
    let site = site(folder.path(), &source);
    let capture = folder.path().join("capture.hex");
    pty.send(b"1.5\r\n2.5\r\nx\r\n");
    let live = sniff(&site, "line", &["--for", "1s", "--save", capture.to_str().unwrap()]);
    assert_eq!(live.fields.len(), 2, "{live:?}");
    assert_eq!(live.refused.len(), 1, "{live:?}");
    let again = sniff(&site, "line", &["--replay", capture.to_str().unwrap()]);
    let values = |got: &Got| got.fields.iter().map(|(.., value)| value.clone()).collect::<Vec<_>>();
    assert_eq!(values(&again), values(&live));
    assert_eq!(again.refused.len(), 1, "{again:?}");
}

#[test]
fn a_message_is_replayed_on_its_topic() {
    let folder = tempfile::tempdir().unwrap();
    let source = json!({ "type": "mqtt", "url": "mqtt://127.0.0.1:1", "client_id": "x",
        "topics": [{ "filter": "room/+", "sensor": "{1}" }] });
    let site = site(folder.path(), &source);
    let payload = folder.path().join("payload.json");
    std::fs::write(&payload, r#"{"temp": 21.5, "big": 9007199254740993}"#).unwrap();
    let at = "2026-11-30T13:00:00Z";
    let got = sniff(&site, "line", &["--topic", "room/7", "--received-at", at, "--replay", payload.to_str().unwrap()]);
    assert!(
        got.fields.contains(&("7".into(), "2026-11-30T13:00:00.000Z".into(), "temp".into(), json!(21.5))),
        "{got:?}"
    );
    assert!(got.fields.iter().any(|(.., value)| *value == json!(9_007_199_254_740_993_u64)), "{got:?}");
    std::fs::write(&payload, "{").unwrap();
    let got = sniff(&site, "line", &["--topic", "room/7", "--replay", payload.to_str().unwrap()]);
    assert!(got.fields.is_empty() && got.refused.len() == 1, "{got:?}");
}

#[test]
fn wrong_use_is_told_with_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let source = json!({ "type": "line", "port": "/dev/none", "sensor": "s", "decode": "csv", "columns": ["v"] });
    let site = site(folder.path(), &source);
    let error = |arguments: &[&str]| {
        let output = command().args(["sniff", "--config"]).arg(&site).args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(&["--source", "lin"]).contains("there is no source `lin` (there are: line)"));
    assert!(error(&["--source", "line", "--replay", "/nonexistent"]).contains("cannot read /nonexistent"));
    assert!(error(&["--source", "line", "--topic", "x"]).contains("--replay"));
}
