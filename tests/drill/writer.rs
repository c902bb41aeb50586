//! The writer: hands numbered readings over as fast as they are acknowledged, draws what is sealed and has it deleted, and
//! says on its standard output what it knows. Each line ends with a dot, so that one that was cut off is seen.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tipbucket::clock::Clock;
use tipbucket::model::Value;
use tipbucket::store::{Backlog, Delivery, Settled};

use crate::site::{START, Site, reading};

const FOLDER: &str = "TIPBUCKET_DRILL_FOLDER";
const FIRST: &str = "TIPBUCKET_DRILL_FIRST";
/// Sensors that take turns.
const SENSORS: u64 = 2;
/// Readings handed over in one piece.
const BATCH: u64 = 40;

/// Whether this process is a writer: where, and from which number on.
pub fn role() -> Option<(PathBuf, u64)> {
    let folder = std::env::var_os(FOLDER)?;
    Some((folder.into(), std::env::var(FIRST).ok()?.parse().ok()?))
}

/// Makes a process a writer.
pub fn give_role(command: &mut Command, folder: &Path, first: u64) {
    command.env(FOLDER, folder).env(FIRST, first.to_string());
}

/// Writes until it is killed.
pub fn write(folder: &Path, first: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let site = Site::open(folder, Clock::system()).await.unwrap();
        let Site { inlet, mut outlet, .. } = site;
        // Every other writer sends from memory.
        outlet.upstream_takes(first.is_multiple_of(2));
        let forwarder = tokio::spawn(draw(outlet));
        let mut n = first;
        loop {
            let numbers: Vec<u64> = (n..n + BATCH).collect();
            n += BATCH;
            say("pushed", &numbers);
            let of = |n: &u64| reading(&format!("s{}", n % SENSORS), *n as i64, &[("n", Value::I64(*n as i64))]);
            let (to, mut receipt) = tokio::sync::mpsc::channel(1);
            let delivery = Delivery {
                receipt: Some(tipbucket::store::Receipt::new(to, 1)),
                urgent: true,
                ..Delivery::of(numbers.iter().map(of).collect())
            };
            if inlet.push(delivery).await.is_err() || receipt.recv().await.is_none() {
                break;
            }
            say("acknowledged", &numbers);
        }
        forwarder.await.unwrap();
    });
}

async fn draw(mut outlet: impl Backlog) {
    while let Ok(Some(parcel)) = outlet.next().await {
        let buckets = parcel.buckets.iter().map(|bucket| bucket.unpack().unwrap());
        let numbers: Vec<u64> =
            buckets.flat_map(|bucket| bucket.samples).map(|sample| (sample.at.as_millis() - START) as u64).collect();
        // Some segments stay for the end.
        if parcel.id.0.is_multiple_of(3) {
            continue;
        }
        say("drawn", &numbers);
        tokio::time::sleep(Duration::from_millis(1)).await;
        if outlet.settle(Settled { segments: vec![parcel.id], ..Settled::default() }).await.is_err() {
            return;
        }
    }
}

fn say(kind: &str, numbers: &[u64]) {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let mut out = std::io::stdout().lock();
    let line = format!("{kind} {} .\n", words.join(" "));
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
