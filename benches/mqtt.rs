//! End to end from mosquitto, QoS 1, 100 bytes of JSON: the whole daemon (source, store, SQLite on disk, archive) beside a bare
//! rumqttc subscriber that acknowledges and throws away (rumqttc's own automatic acknowledgements, its fastest way). Both in
//! turns, in one run, each at a fresh broker.
//!
//! `queued`: the broker holds the messages already, so only broker and subscriber are at work. `live`: a publisher sends as
//! fast as it can all the while, so three processes share the processors.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use support::mosquitto::Mosquitto;
use support::publisher::{Load, take_role};
use support::{BROKER, Stopwatch, introduce, is_wanted, median};
use tipbucket::clock::Clock;
use tipbucket::model::SourceName;
use tipbucket::stats::Stats;
use tipbucket::{daemon, settings, upstream};
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 5;
/// Messages in one queued round.
const QUEUED: usize = 200_000;
/// How long one live round is measured, and how long before.
const LIVE: Duration = Duration::from_secs(5);
const WARM_UP: Duration = Duration::from_secs(2);
const SENSORS: usize = 1000;
/// Longest that anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    take_role();
    if !is_wanted() {
        return;
    }
    introduce("mosquitto to disk, QoS 1, 100 bytes of JSON, two fields taken, 1,000 topics");
    println!(
        "  {:<8} {:>5} {:>14} {:>14} {:>16} {:>16}",
        "", "round", "bare msg/s", "ours msg/s", "bare cpu us/msg", "ours cpu us/msg"
    );
    compare("queued", queued);
    compare("live", live);
}

/// What one subscriber reached: messages a second, and microseconds of processor time for each.
type Figures = (f64, f64);
/// Measures what a subscriber that is started like this reaches at this broker.
type Measure = fn(&Mosquitto, &dyn Fn(u16) -> Subscriber) -> Figures;

fn compare(what: &str, measure: Measure) {
    let mut columns: [Vec<f64>; 4] = Default::default();
    for round in 0..ROUNDS {
        let mut bare = (0.0, 0.0);
        let mut ours = (0.0, 0.0);
        // Each begins as often as the other.
        for turn in [round % 2, (round + 1) % 2] {
            let broker = Mosquitto::with(BROKER);
            match turn {
                0 => bare = measure(&broker, &Subscriber::bare),
                _ => ours = measure(&broker, &Subscriber::daemon),
            }
        }
        println!("  {what:<8} {round:>5} {:>14.0} {:>14.0} {:>16.2} {:>16.2}", bare.0, ours.0, bare.1, ours.1);
        columns.iter_mut().zip([bare.0, ours.0, bare.1, ours.1]).for_each(|(column, figure)| column.push(figure));
    }
    let [bare, ours, bare_cpu, ours_cpu] = columns.each_mut().map(|column| median(column));
    println!("  {what:<8} {:>5} {bare:>14.0} {ours:>14.0} {bare_cpu:>16.2} {ours_cpu:>16.2}", "mid");
    println!("  {what}: {:.0} % of the bare subscriber", 100.0 * ours / bare);
}

/// Fills the queue of a session, then lets the subscriber take it.
fn queued(broker: &Mosquitto, start: &dyn Fn(u16) -> Subscriber) -> Figures {
    let session = start(broker.port);
    session.connected();
    session.stop();
    Load { port: broker.port, messages: QUEUED, sensors: SENSORS, rate: 0 }.start().wait();
    let subscriber = start(broker.port);
    // The first moments are connecting, and the last ones wait for `commit_every`: neither is speed.
    let (first, last) = (QUEUED / 20, QUEUED - QUEUED / 20);
    let begun = subscriber.reach(first);
    let watch = Stopwatch::start();
    let ended = subscriber.reach(last);
    let (wall, cpu) = watch.read();
    subscriber.stop();
    let n = (ended - begun) as f64;
    (n / wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / n)
}

/// Lets the subscriber take what is published meanwhile.
fn live(broker: &Mosquitto, start: &dyn Fn(u16) -> Subscriber) -> Figures {
    let subscriber = start(broker.port);
    subscriber.connected();
    let publisher = Load { port: broker.port, messages: usize::MAX >> 1, sensors: SENSORS, rate: 0 }.start();
    subscriber.reach(1);
    std::thread::sleep(WARM_UP);
    let begun = subscriber.taken();
    let watch = Stopwatch::start();
    std::thread::sleep(LIVE);
    let n = (subscriber.taken() - begun) as f64;
    let (wall, cpu) = watch.read();
    drop(publisher);
    subscriber.stop();
    (n / wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / n)
}

/// A subscriber on a thread of its own.
struct Subscriber {
    taken: Box<dyn Fn() -> usize>,
    connected: Box<dyn Fn() -> bool>,
    stop: CancellationToken,
    thread: JoinHandle<()>,
}

impl Subscriber {
    /// Acknowledges and throws away.
    fn bare(port: u16) -> Self {
        let (taken, connected) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = CancellationToken::new();
        let (counted, subscribed, stopped) = (Arc::clone(&taken), Arc::clone(&connected), stop.clone());
        let thread = std::thread::spawn(move || {
            runtime().block_on(async move {
                tokio::select! {
                    () = subscribe(port, &counted, &subscribed) => {}
                    () = stopped.cancelled() => {}
                }
            });
        });
        Self {
            taken: Box::new(move || taken.load(Ordering::Relaxed)),
            connected: Box::new(move || connected.load(Ordering::Relaxed) > 0),
            stop,
            thread,
        }
    }

    /// The daemon, just as it runs.
    fn daemon(port: u16) -> Self {
        let stats = Stats::default();
        let source = stats.source(&SourceName::new("broker").expect("good name"), "mqtt");
        let stop = CancellationToken::new();
        let (counted, stopped) = (stats.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
            std::fs::create_dir(folder.path().join("archive")).expect("archive folder");
            let site = folder.path().join("site.toml");
            std::fs::write(&site, site_file(port, &folder.path().display().to_string())).expect("site file");
            let settings = settings::load(&site, []).expect("good site file");
            let tuning = upstream::Tuning::default();
            let run = daemon::run_with(settings, Clock::system(), stats, tuning, stopped.cancelled_owned());
            runtime().block_on(run).expect("daemon ends well");
        });
        Self {
            taken: Box::new(move || counted.store().readings.get() as usize),
            connected: Box::new(move || source.condition.get().up == Some(true)),
            stop,
            thread,
        }
    }

    fn taken(&self) -> usize {
        (self.taken)()
    }

    fn connected(&self) {
        self.wait(|| (self.connected)());
    }

    /// Waits until so many are taken; how many there are then.
    fn reach(&self, n: usize) -> usize {
        self.wait(|| self.taken() >= n);
        self.taken()
    }

    fn wait(&self, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline && !self.thread.is_finished(), "{} taken, no more come", self.taken());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) {
        self.stop.cancel();
        self.thread.join().expect("no panic");
    }
}

/// As `tipbucket run` makes it.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build().expect("runtime")
}

async fn subscribe(port: u16, taken: &AtomicUsize, connected: &AtomicUsize) {
    let mut options = MqttOptions::new("bare", "127.0.0.1", port);
    options.set_clean_session(false);
    let (client, mut events) = AsyncClient::new(options, 10);
    events.network_options.set_tcp_nodelay(true);
    loop {
        match events.poll().await.expect("broker stays") {
            Event::Incoming(Packet::ConnAck(_)) => client.try_subscribe("s/+", QoS::AtLeastOnce).expect("room"),
            Event::Incoming(Packet::SubAck(_)) => connected.store(1, Ordering::Relaxed),
            Event::Incoming(Packet::Publish(_)) => {
                taken.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

fn site_file(port: u16, folder: &str) -> String {
    format!(
        r#"
        [site]
        name = "bench"
        [store]
        path = "{folder}/bench.db"
        [upstream]
        type = "archive"
        folder = "{folder}/archive"
        [web]
        listen = "127.0.0.1:0"
        [sources.broker]
        type = "mqtt"
        url = "mqtt://127.0.0.1:{port}"
        client_id = "bench"
        [[sources.broker.topics]]
        filter = "s/+"
        sensor = "{{1}}"
        fields = {{ temp = "/temperature", hum = "/humidity" }}
        "#
    )
}
