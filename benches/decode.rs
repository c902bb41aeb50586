//! Decoders on one core: payloads in, readings out, without broker and store.
//!
//! `decoder` is the pure decoder alone; `source` adds what the source decides: route, names, times, options of fields.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

mod support;

use std::collections::HashMap;
use std::hint::black_box;

use regex::Regex;
use support::{Stopwatch, introduce, is_wanted, median};
use tipbucket::decode::line::{FixedColumn, Form, Rules};
use tipbucket::decode::nmea::{Nmea, Time as NmeaTime};
use tipbucket::decode::number;
use tipbucket::decode::pointer::Pointer;
use tipbucket::decode::preset::{Message, Preset, Presets};
use tipbucket::decode::shape::Decimal;
use tipbucket::decode::telegram::{Context, Decoder as _};
use tipbucket::decode::times::{Format, Local};
use tipbucket::decode::tree::{Decoder, Shape};
use tipbucket::model::{Admission, FieldName, Timestamp};
use tipbucket::sources::mqtt::{Config, Replay};

const ROUNDS: usize = 7;
/// Messages in one round.
const MESSAGES: usize = 400_000;
/// 200 bytes, five values wanted.
const JSON: &str = r#"{"id":"k7","ts":1772366400123,"temperature":21.53,"humidity":44.72,"pressure":1013.25,"battery":3012,"linkquality":102,"state":"ON","firmware":"2.1.0-rc4","location":{"room":"cellar","shelf":12}}    "#;
const LINE: &str = "weather,site=north,host=gw7 temp=21.53,hum=44.72,n=42i 1772366400123000000";
const SENML: &str = r#"[{"bn":"urn:dev:ow:10e2073a01080063:","bt":1772366400,"n":"temp","u":"Cel","v":21.5},{"n":"hum","u":"%RH","v":44.7}]"#;

fn main() {
    if !is_wanted() {
        return;
    }
    introduce("payloads to readings; one thread, no broker, no store");
    println!("  {:<52} {:>14} {:>10}", "", "messages/cpu s", "ns each");
    let now = Timestamp::clamped(1_772_366_400_500);
    let fields = [
        ("temp", "/temperature"),
        ("hum", "/humidity"),
        ("press", "/pressure"),
        ("batt", "/battery"),
        ("lq", "/linkquality"),
    ];
    let named =
        |(name, pointer): (&str, &str)| (FieldName::new(name).expect("name"), Pointer::new(pointer).expect("pointer"));
    let shape = || Shape { fields: fields.map(named).to_vec(), ..Shape::default() };
    let mut plain = Decoder::new(shape());
    measure("decoder: json, 200 bytes, 5 fields by pointer", 1, || plain.json(JSON.as_bytes(), now).is_ok());
    let mut timed = Decoder::new(Shape { time: Pointer::new("/ts").ok(), ..shape() });
    measure("decoder: the same with a time", 1, || timed.json(JSON.as_bytes(), now).is_ok());
    let mut every = Decoder::new(Shape::default());
    measure("decoder: json, 200 bytes, every number", 1, || every.json(JSON.as_bytes(), now).is_ok());
    measure("decoder: plain number", 1, || number::decode(b"21.53").is_ok());
    preset("decoder: influx, one line, 3 fields", Preset::Influx, "influx", LINE, 1, now);
    let many = format!("{LINE}\n").repeat(100);
    preset("decoder: influx, 100 lines in a message, each line", Preset::Influx, "influx", &many, 100, now);
    preset("decoder: senml, 2 records", Preset::Senml, "senml", SENML, 1, now);
    preset("decoder: zigbee2mqtt, 200 bytes", Preset::Zigbee2mqtt, "zigbee2mqtt/k", JSON, 1, now);
    lines();
    sentences(now);
    source("source: json, 200 bytes, 5 fields, time", now);
}

fn preset(what: &str, preset: Preset, topic: &str, payload: &str, readings: usize, now: Timestamp) {
    let mut presets = Presets::default();
    let format = Format::Auto;
    let message = Message {
        topic,
        payload: payload.as_bytes(),
        arrival: now,
        zone: None,
        format: &format,
        arrival_for_bad_time: false,
    };
    measure(what, readings, || presets.decode(preset, &message).is_ok());
}

fn lines() {
    let local = || Local { zone: None, arrival: Timestamp::clamped(1_772_366_400_500) };
    let form = |what: &str, form: Form, line: &str| {
        let rules = Rules {
            form,
            skip: Vec::new(),
            strip: Vec::new(),
            sensor_field: None,
            time_field: None,
            text_fields: Vec::new(),
            decimal: Decimal::Point,
            suffixes: Vec::new(),
            hex_fields: Vec::new(),
            options: HashMap::new(),
        };
        measure(what, 1, || rules.decode(line, local()).is_ok_and(|line| line.is_some()));
    };
    let names = ["temp", "hum", "press"];
    let columns = names.map(|name| Some(name.to_owned())).to_vec();
    form("line: csv, 3 columns", Form::Csv { columns, separator: ',' }, "21.53,44.72,1013.25");
    let pairs = Form::KeyValue { pairs: vec![' '], assign: vec!['='], wanted: Vec::new() };
    form("line: key=value, 3 pairs", pairs, "temp=21.53 hum=44.72 press=1013.25");
    let column = |(at, name): (usize, &str)| FixedColumn { name: name.to_owned(), at: at * 8, width: 8, hex: None };
    let columns = names.into_iter().enumerate().map(column).collect();
    form("line: 3 fixed columns", Form::Fixed { prefix: String::new(), columns }, "   21.53   44.72 1013.25");
    let pattern = Regex::new(r"T=(?<temp>-?[0-9.]+) H=(?<hum>[0-9.]+)").expect("a pattern");
    form("line: regex, 2 groups", Form::Regex(vec![pattern]), "T=21.53 H=44.72");
}

/// Sentences as a receiver sends them, a hundred at a time.
fn sentences(now: Timestamp) {
    let body = "IIMWV,214.8,R,10.4,M,A";
    let sum = body.bytes().fold(0u8, |sum, byte| sum ^ byte);
    let sentences = format!("${body}*{sum:02X}\r\n").repeat(100);
    let mut decoder = Nmea::new(NmeaTime::Arrival, true);
    let context = Context { local: Local { zone: None, arrival: now }, admission: Admission::default() };
    let mut out = Vec::new();
    measure("nmea: wind, 100 sentences, each", 100, || {
        out.clear();
        decoder.push(sentences.as_bytes(), &context, &mut out);
        out.len() == 100
    });
}

fn source(what: &str, now: Timestamp) {
    let table = "url = 'mqtt://b'\nclient_id = 'g'\n[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ntime = '/ts'\n\
         fields = { temp = '/temperature', hum = '/humidity', press = '/pressure', batt = '/battery', lq = '/linkquality' }\n";
    let config: Config = toml::from_str(table).expect("table");
    let admission = Admission { max_future: std::time::Duration::from_secs(600), max_age: None };
    let mut replay = Replay::new(&config, None, admission).expect("sound");
    measure(what, 1, || !replay.message("s/k", JSON.as_bytes(), now).readings.is_empty());
}

/// Runs `once`, which takes so many readings, and prints the rate of readings.
fn measure(what: &str, readings: usize, mut once: impl FnMut() -> bool) {
    let mut rates = Vec::new();
    for round in 0..=ROUNDS {
        let watch = Stopwatch::start();
        for _ in 0..MESSAGES / readings {
            assert!(black_box(once()), "{what}: nothing was taken");
        }
        // The first round warms up and is not counted.
        if round > 0 {
            rates.push((MESSAGES / readings * readings) as f64 / watch.read().1.as_secs_f64());
        }
    }
    let rate = median(&mut rates);
    println!("  {what:<52} {rate:>14.0} {:>10.0}", 1e9 / rate);
}
