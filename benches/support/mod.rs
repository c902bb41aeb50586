//! What the benches have in common: readings to measure with, time and processor time, a broker, a flat-out publisher.
#![allow(dead_code, reason = "each bench uses some of it")]

#[path = "../../tests/it/support/child.rs"]
pub mod child;
#[path = "../../tests/it/support/mosquitto.rs"]
pub mod mosquitto;
pub mod publisher;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tipbucket::model::{
    BucketPolicy, FieldName, Fields, Policies, Reading, SensorName, Timestamp, Value, WindowLength,
};

/// The broker as `config/mosquitto.conf` recommends it, as far as speed goes.
pub const BROKER: &str = "allow_anonymous true\nautosave_interval 30\nmax_queued_messages 1000000\n\
     max_queued_bytes 209715200\nmax_inflight_messages 100\nmax_packet_size 1048576\n";

/// Whether this is `cargo bench`, and not a test runner that tries everything out.
pub fn is_wanted() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Says on what is measured.
pub fn introduce(what: &str) {
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = file("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = file("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    println!("{what}\n  on {cores} x {}, load {load} before", model.trim_start_matches(['\t', ' ', ':']));
}

/// Wall time and this process's processor time, from one moment on.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Starts it.
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu() }
    }

    /// Wall time and processor time since then.
    pub fn read(&self) -> (Duration, Duration) {
        (self.wall.elapsed(), cpu().saturating_sub(self.cpu))
    }
}

/// Bytes that this process has handed to write calls so far.
pub fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok()).unwrap_or(0)
}

/// The most memory this process ever had resident, in MiB.
pub fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim_end_matches("kB").trim().parse().unwrap_or(0.0) / 1024.0
}

fn cpu() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

/// Processor time of the calling thread.
pub fn cpu_of_thread() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The middle of several figures.
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The defaults of `[bucket]`.
pub fn policies() -> Policies {
    let default = BucketPolicy {
        window: WindowLength::from_seconds(600).expect("ten minutes"),
        max_samples: 1000,
        max_bytes: 64 << 10,
        grace: Duration::from_secs(30),
        decimals: None,
    };
    Policies { default, by_sensor: HashMap::new() }
}

/// Sensors that report in turn, each about once a second of its own time. The same in every run.
#[derive(Debug)]
pub struct Site {
    sensors: Vec<(SensorName, i64)>,
    fields: Vec<FieldName>,
    start: Timestamp,
    next: usize,
    random: fastrand::Rng,
}

impl Site {
    /// So many sensors with so many fields, from `start` on.
    pub fn new(sensors: usize, fields: usize, start: Timestamp) -> Self {
        let name = |i| SensorName::new(&format!("sensor-{i}")).expect("good name");
        let field = |i| FieldName::new(&format!("field-{i}")).expect("good name");
        Self {
            sensors: (0..sensors).map(|i| (name(i), 150 + i as i64 % 100)).collect(),
            fields: (0..fields).map(field).collect(),
            start,
            next: 0,
            random: fastrand::Rng::with_seed(7),
        }
    }

    /// The next reading: a temperature that walks by tenths, then a noisy voltage, then a counter, and so on.
    pub fn reading(&mut self) -> Reading {
        let (turn, place) = (self.next / self.sensors.len(), self.next % self.sensors.len());
        self.next += 1;
        let at = self.start.plus(Duration::from_millis(turn as u64 * 1000 + self.random.u64(..20)));
        let (sensor, walk) = &mut self.sensors[place];
        *walk += self.random.i64(-1..=1);
        let mut value = |i: usize| match i % 3 {
            0 => Value::F64(*walk as f64 / 10.0),
            1 => Value::F64(self.random.u32(229_000..231_000) as f64 / 1000.0),
            _ => Value::I64((turn * 5 + place) as i64),
        };
        let fields: Fields = self.fields.iter().enumerate().map(|(i, name)| (name.clone(), value(i))).collect();
        Reading { sensor: sensor.clone(), at, fields }
    }
}
