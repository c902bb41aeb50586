//! Every recorded sample on a real terminal, its bytes in odd pieces.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tipbucket::clock::Clock;
use tipbucket::decode::modbus::replay;
use tipbucket::model::{Timestamp, Value};
use tipbucket::settings::load;
use tipbucket::sources::Recording;
use tipbucket::sources::serial::recording::Step;
use tipbucket::stats::Seen;

use super::Running;
use super::samples::{self, Got, Sample};
use crate::support::pty::{Player, Pty};

/// How the bytes of the samples are cut, in turn.
const PIECES: [usize; 3] = [1, 7, 33];
/// Longer streams are sent in this.
const LARGE_PIECE: usize = 1021;
/// What is decided after so long a silence is decided.
const QUIET: Duration = Duration::from_millis(1500);

/// A request and what is sent on it.
type Exchange = (Vec<u8>, Vec<u8>);

/// What is sent unasked, and the exchanges. Pauses are left to the virtual time of other tests.
fn exchanges(path: &Path) -> (Vec<u8>, Vec<Exchange>) {
    let is_hex = path.extension().is_some_and(|ending| ending == "hex");
    let recording = Recording::read(std::fs::read(path).unwrap(), is_hex).unwrap();
    let mut all: Vec<Exchange> = vec![(Vec::new(), Vec::new())];
    for step in recording.steps {
        match step {
            Step::ToDevice(request) => all.push((request, Vec::new())),
            Step::FromDevice(bytes) => all.last_mut().unwrap().1.extend(bytes),
            Step::Pause(_) => {}
        }
    }
    (all.remove(0).1, all)
}

fn send(pty: &mut Pty, bytes: &[u8], piece: usize) {
    let piece = if bytes.len() > 4 * LARGE_PIECE { LARGE_PIECE } else { piece };
    for chunk in bytes.chunks(piece) {
        pty.send(chunk);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The device: sends what it sends unasked, and answers in the order of the recording.
fn device(mut pty: Pty, path: &Path, piece: usize, over: Arc<AtomicBool>) -> Player {
    let (unasked, mut waiting) = exchanges(path);
    let mut unasked = Some(unasked);
    let mut current: Option<Exchange> = None;
    let mut heard = Vec::new();
    Player::new(move || {
        if let Some(bytes) = unasked.take() {
            // The source opens the port meanwhile; what comes before waits in the terminal.
            send(&mut pty, &bytes, piece);
        }
        heard.extend(pty.receive());
        let same = waiting.iter().position(|(request, _)| heard.starts_with(request));
        let covering = |known: &Exchange| replay::covers(&known.0, &heard);
        let reply = if let Some(at) = same {
            let exchange = waiting.remove(at);
            heard.drain(..exchange.0.len());
            current.insert(exchange).1.clone()
        } else if let Some(at) = waiting.iter().position(covering).filter(|_| !current.as_ref().is_some_and(covering)) {
            let exchange = current.insert(waiting.remove(at));
            let part = replay::part(&exchange.0, &exchange.1, &heard);
            heard.clear();
            part.unwrap_or_else(|| exchange.1.clone())
        } else if let Some(exchange) = current.as_ref().filter(|known| covering(known)) {
            let part = replay::part(&exchange.0, &exchange.1, &heard);
            heard.clear();
            part.unwrap_or_default()
        } else {
            Vec::new()
        };
        send(&mut pty, &reply, piece);
        over.store(waiting.is_empty(), Ordering::Relaxed);
    })
}

/// The sample's source on a terminal of its own.
struct Line {
    running: Running,
    _device: Player,
    over: Arc<AtomicBool>,
    refused: Arc<Mutex<Vec<String>>>,
}

fn start(sample: &Sample, number: usize) -> Line {
    let folder = tempfile::tempdir().unwrap();
    let pty = Pty::new();
    let mut table = sample.table(pty.path());
    let is_polled = std::fs::read_to_string(&sample.path).is_ok_and(|text| text.contains("\n> "));
    if is_polled {
        match table.get_mut("devices") {
            Some(devices) => {
                devices[0]["poll"] = json!("500ms");
                table["retries"] = json!(0);
            }
            None => table["poll"] = json!("500ms"),
        }
    }
    let site = json!({ "site": { "name": "x", "timezone": "Europe/Amsterdam" }, "sources": { "line": table } });
    let path = folder.path().join("site.toml");
    std::fs::write(&path, toml::to_string(&site).unwrap()).unwrap();
    let mut settings = load(&path, []).unwrap_or_else(|problems| panic!("{}: {problems}", sample.id));
    let source = settings.sources.remove(0);
    let received_at: jiff::Timestamp = sample.expect["received_at"].as_str().unwrap().parse().unwrap();
    let clock = Clock::fixed(Timestamp::from_millis(received_at.as_millisecond()).unwrap());
    let refused = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&refused);
    let over = Arc::new(AtomicBool::new(false));
    let running = Running::of(source.kind, source.config, clock, settings.timezone);
    running.stats.tap.watch(move |seen| {
        if let Seen::Refused { what, why } = seen {
            noted.lock().unwrap().push(format!("{what}: {why}"));
        }
    });
    let device = device(pty, &sample.path, PIECES[number % PIECES.len()], Arc::clone(&over));
    Line { running, _device: device, over, refused }
}

fn got(line: &Line) -> Got {
    let value = |value: &Value| match value {
        Value::F64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::Text(v) => json!(v.as_ref()),
    };
    let fields = line.running.readings.iter().flat_map(|r| r.fields.iter().map(move |field| (r, field)));
    let fields: Vec<(String, String, String, Json)> =
        fields.map(|(r, (name, v))| (r.sensor.to_string(), r.at.to_string(), name.to_string(), value(v))).collect();
    let mut refused = line.refused.lock().unwrap().clone();
    refused.extend(line.running.letters.iter().map(|letter| format!("{}: {}", letter.place, letter.reason)));
    Got { fields, refused }
}

async fn check(sample: Sample, number: usize) -> Result<(), String> {
    let mut line = start(&sample, number);
    let over = Arc::clone(&line.over);
    line.running.until("everything is sent", |_| over.load(Ordering::Relaxed)).await;
    let quiet = std::time::Instant::now();
    line.running.until("everything is decided", |_| quiet.elapsed() > QUIET).await;
    let mut got = got(&line);
    if sample.expect["outcome"] == "accept" {
        // The device is asked again after all it said, and is silent then; a terminal has no end that could be seen.
        got.refused.clear();
    }
    drop(line);
    let checked = std::panic::catch_unwind(|| sample.check(&got));
    checked.map_err(|_| sample.id)
}

#[tokio::test]
async fn every_sample_gives_what_it_should_on_a_terminal() {
    let samples = samples::all().into_iter().enumerate().filter(|(_, sample)| {
        // What comes too late is decided by milliseconds; and what ends in the middle never ends on a terminal.
        !["SE-MOD-24", "SE-SML-09"].contains(&sample.id.as_str())
    });
    let tasks: Vec<_> = samples.map(|(number, sample)| tokio::spawn(check(sample, number))).collect();
    let mut failed = Vec::new();
    for task in tasks {
        failed.extend(task.await.unwrap().err());
    }
    assert!(failed.is_empty(), "{failed:?}");
}
