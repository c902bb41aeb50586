//! `tipbucket sniff` at a broker: it listens beside the gateway, under a name of its own.

use std::time::Duration;

use tokio::process::Command;

use super::table;
use crate::support::daemon::command;
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::{Publisher, start};
use crate::support::patience;

#[tokio::test]
async fn a_listener_does_not_disturb_the_gateway() {
    let broker = Mosquitto::start();
    let port = broker.url().rsplit(':').next().unwrap().parse().unwrap();
    let mut publisher = Publisher::new(port);
    publisher.retain("s/7", r#"{"temp":21.5}"#).await;
    publisher.retain("s/8", "{").await;
    let topics = "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\n";
    let gateway = start(&table(&broker.url(), topics));
    gateway.connected().await;

    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site.toml");
    let source = table(&broker.url(), &topics.replace("[[topics]]", "[[sources.line.topics]]"));
    std::fs::write(&site, format!("site.name = 'x'\n[sources.line]\ntype = 'mqtt'\n{source}")).unwrap();
    let long = format!("{}s", patience(Duration::from_secs(3)).as_secs());
    let output = Command::from(command())
        .args(["sniff", "--source", "line", "--format", "json", "--for", &long, "--config"])
        .arg(&site)
        .output()
        .await
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines.iter().any(|line| line["reading"]["fields"]["temp"] == 21.5), "{told}");
    assert!(lines.iter().any(|line| line["refused"]["what"] == "s/8"), "{told}");
    // Another client of the gateway's name would have thrown it out.
    gateway.connected().await;
}
