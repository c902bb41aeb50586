//! `query` and `export` against a store that was written as the daemon writes it.

use std::path::Path;
use std::time::Duration;

use clap::Parser;

use super::{Cli, Command};
use crate::clock::Clock;
use crate::model::{BucketPolicy, FieldName, Policies, Reading, SensorName, SiteName, Timestamp, Value, WindowLength};
use crate::stats::Stats;
use crate::store::{self, Delivery};

const START: i64 = 1_796_043_600_000;

fn reading(sensor: &str, seconds: i64, fields: &[(&str, Value)]) -> Reading {
    let fields = fields.iter().map(|(name, value)| (FieldName::new(name).unwrap(), value.clone())).collect();
    Reading::new(SensorName::new(sensor).unwrap(), Timestamp::clamped(START + seconds * 1000), fields).unwrap()
}

/// A site file whose store holds three readings of `meter` in two windows, and one of `tank`.
fn site(folder: &Path) {
    let path = folder.join("t.db");
    let text = format!(
        "[site]\nname = 's'\n[store]\npath = '{}'\n[upstream]\ntype = 'archive'\nfolder = '{}'\n\
         [sources.sim]\ntype = 'simulated'\n",
        path.display(),
        folder.display()
    );
    std::fs::write(folder.join("site.toml"), text).unwrap();
    let default = BucketPolicy {
        window: WindowLength::from_seconds(60).unwrap(),
        max_samples: 1000,
        max_bytes: 64 << 10,
        grace: Duration::from_secs(5),
        decimals: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let config = store::Config { path, ..store::Config::default() };
        let policies = Policies { default, by_sensor: Default::default() };
        let clock = Clock::virtual_from(Timestamp::clamped(START));
        let opened = store::open(&config, SiteName::new("s").unwrap(), policies, 10, clock, Stats::default());
        let (inlet, outlet, writer) = opened.await.unwrap();
        let writer = tokio::spawn(writer.run());
        let readings = vec![
            reading("meter", 70, &[("power", Value::F64(2.5))]),
            reading("meter", 1, &[("power", Value::F64(0.1)), ("count", Value::I64(9_007_199_254_740_993))]),
            reading("meter", 2, &[("power", Value::F64(-1.0)), ("state", Value::text("on, \"hot\"").unwrap())]),
            reading("tank", 3, &[("full", Value::Bool(true))]),
        ];
        inlet.push(Delivery::of(readings)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(66)).await;
        drop((inlet, outlet));
        writer.await.unwrap().unwrap();
    });
}

fn run(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let config = folder.join("site.toml");
    let all = ["tipbucket"].into_iter().chain(arguments.iter().copied()).chain(["--config", config.to_str().unwrap()]);
    let mut out = Vec::new();
    let now = Timestamp::clamped(START + 100_000);
    let done = match Cli::try_parse_from(all).unwrap().command {
        Command::Query(query) => query.execute(&mut out, now),
        Command::Export(export) => export.execute(&mut out, now),
        other => panic!("{other:?}"),
    };
    done.map(|()| String::from_utf8(out).unwrap()).map_err(|error| format!("{error:#}"))
}

#[track_caller]
fn check(folder: &Path, arguments: &[&str], expected: &str) {
    assert_eq!(run(folder, arguments).as_deref(), Ok(expected));
}

#[test]
fn readings_of_a_sensor_are_shown_in_order_and_exactly() {
    let folder = tempfile::tempdir().unwrap();
    site(folder.path());
    let folder = folder.path();
    check(
        folder,
        &["query", "meter", "--format", "csv"],
        "time,power,count,state\n\
         2026-11-30T13:00:01.000Z,0.1,9007199254740993,\n\
         2026-11-30T13:00:02.000Z,-1.0,,\"on, \"\"hot\"\"\"\n\
         2026-11-30T13:01:10.000Z,2.5,,\n",
    );
    check(
        folder,
        &["query", "meter", "--from", "2026-11-30T13:00:02Z", "--to", "-30s", "--format", "json"],
        "{\"fields\":{\"power\":-1.0,\"state\":\"on, \\\"hot\\\"\"},\"sensor\":\"meter\",\"time\":\"2026-11-30T13:00:02.000Z\"}\n",
    );
    let table = run(folder, &["query", "tank"]).unwrap();
    assert_eq!(
        table.lines().map(str::split_whitespace).map(Iterator::collect).collect::<Vec<Vec<_>>>(),
        [["time", "full"], ["2026-11-30T13:00:03.000Z", "true"]]
    );
    check(folder, &["query", "meter", "--from", "-10s"], "");
}

#[test]
fn rollups_are_shown_by_window_and_field() {
    let folder = tempfile::tempdir().unwrap();
    site(folder.path());
    check(
        folder.path(),
        &["query", "meter", "--rollups", "--format", "csv"],
        "start,seconds,part,open,field,count,min,max,sum,first,last\n\
         2026-11-30T13:00:00.000Z,60,0,false,power,2,-1.0,0.1,-0.9,0.1,-1.0\n\
         2026-11-30T13:00:00.000Z,60,0,false,count,1,9007199254740993,9007199254740993,9007199254740993,9007199254740993,9007199254740993\n\
         2026-11-30T13:00:00.000Z,60,0,false,state,1,,,,\"on, \"\"hot\"\"\",\"on, \"\"hot\"\"\"\n\
         2026-11-30T13:01:00.000Z,60,0,true,power,1,2.5,2.5,2.5,2.5,2.5\n",
    );
}

#[test]
fn an_export_holds_everything_or_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    site(folder.path());
    let folder = folder.path();
    check(
        folder,
        &["export", "--format", "csv"],
        "sensor,time,field,value\n\
         meter,2026-11-30T13:00:01.000Z,power,0.1\n\
         meter,2026-11-30T13:00:01.000Z,count,9007199254740993\n\
         meter,2026-11-30T13:00:02.000Z,power,-1.0\n\
         meter,2026-11-30T13:00:02.000Z,state,\"on, \"\"hot\"\"\"\n\
         tank,2026-11-30T13:00:03.000Z,full,true\n\
         meter,2026-11-30T13:01:10.000Z,power,2.5\n",
    );
    check(
        folder,
        &["export", "--sensor", "tank", "--from", "-10d"],
        "{\"fields\":{\"full\":true},\"sensor\":\"tank\",\"time\":\"2026-11-30T13:00:03.000Z\"}\n",
    );
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    site(folder.path());
    let check = |arguments: &[&str], expected: &str| {
        let error = run(folder.path(), arguments).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check(&["query", "metre"], "has no sensor `metre` (did you mean `meter`?)");
    check(&["export", "--sensor", "tanks"], "did you mean `tank`?");
    check(&["query", "meter", "--from", "noon"], "--from: `noon` is no time");
    check(&["query", "meter", "--from", "now", "--to", "-1h"], "is not before --to");
    std::fs::remove_file(folder.path().join("t.db")).unwrap();
    check(&["query", "meter"], "there is no store at");
}
