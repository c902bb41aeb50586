//! Resident memory of the real program: idle (MQTT, Modbus on a terminal nobody answers, status page, an upstream that cannot
//! be reached), and at 5,000 messages a second from 1,000 sensors over MQTT. Also the size of the binary, and how many
//! documents the upstream gets.
//!
//! `MONGODB_URI=…` sends to a database instead of archive files, `MEMORY_SECONDS=…` loads it for so long.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub)]

#[allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "a test's terminal, of which little is wanted")]
#[path = "../tests/it/support/pty.rs"]
mod pty;
mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::mosquitto::{Mosquitto, free_port};
use support::publisher::{Load, take_role};
use support::{BROKER, introduce, is_wanted};

const RATE: usize = 5000;
const SENSORS: usize = 1000;
const LOAD_SECONDS: usize = 130;
const IDLE: Duration = Duration::from_secs(20);
/// Where no database listens.
const NOWHERE: &str = "mongodb://127.0.0.1:9";

fn main() {
    take_role();
    if !is_wanted() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_tipbucket");
    introduce("resident memory of the release binary (VmRSS, its peak VmHWM), threads, processor time");
    let bytes = std::fs::metadata(program).map_or(0, |file| file.len());
    println!("  binary: {:.2} MiB ({bytes} bytes)", bytes as f64 / 1_048_576.0);
    let broker = Mosquitto::with(BROKER);
    idle(program, &broker);
    load(program, &broker);
}

fn idle(program: &str, broker: &Mosquitto) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
    let terminal = pty::Pty::new();
    let modbus = format!(
        "[sources.boiler]\ntype = 'modbus-rtu'\nport = '{}'\n[[sources.boiler.devices]]\nsensor = 'boiler'\n\
         unit_id = 1\npoll = '1s'\nregisters = [{{ field = 'v', table = 'input', address = 0, type = 'f32' }}]\n",
        terminal.path().display()
    );
    let upstream = format!("type = 'mongodb'\nuri = '{NOWHERE}'");
    let (daemon, port) = start(program, folder.path(), broker.port, &upstream, &modbus);
    std::thread::sleep(IDLE);
    for path in ["/", "/status.json", "/metrics"] {
        get(port, path);
    }
    println!("  idle for {} s: {}", IDLE.as_secs(), daemon.memory());
}

fn load(program: &str, broker: &Mosquitto) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
    std::fs::create_dir(folder.path().join("archive")).expect("archive folder");
    let seconds = std::env::var("MEMORY_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(LOAD_SECONDS);
    let upstream = match std::env::var("MONGODB_URI") {
        Ok(uri) => format!("type = 'mongodb'\nuri = '{uri}'\ndatabase = 'tipbucket_bench'"),
        Err(_) => format!("type = 'archive'\nfolder = '{}'", folder.path().join("archive").display()),
    };
    let (daemon, port) =
        start(program, folder.path(), broker.port, &upstream, "[bucket]\nwindow = '1m'\ngrace = '5s'\n");
    std::thread::sleep(Duration::from_secs(2));
    let cpu = daemon.cpu();
    let messages = RATE * seconds;
    let publisher = Load { port: broker.port, messages, sensors: SENSORS, rate: RATE }.start();
    for _ in 0..seconds / 20 {
        std::thread::sleep(Duration::from_secs(20));
        println!("    {}", daemon.memory());
    }
    publisher.wait();
    std::thread::sleep(Duration::from_secs(2));
    let spent = daemon.cpu().saturating_sub(cpu).as_secs_f64();
    println!(
        "  {RATE} messages/s, {SENSORS} sensors, {seconds} s: {}; {:.1} us of processor time for each message",
        daemon.memory(),
        spent * 1e6 / messages as f64
    );
    let metrics = get(port, "/metrics");
    for line in
        metrics.lines().filter(|line| line.starts_with("tipbucket_upstream") || line.starts_with("tipbucket_store_"))
    {
        println!("    {line}");
    }
}

/// The program at work; it ends when it is dropped.
struct Daemon(Child);

fn start(program: &str, folder: &Path, broker: u16, upstream: &str, more: &str) -> (Daemon, u16) {
    let port = free_port();
    let site = folder.join("site.toml");
    let text = format!(
        "[site]\nname = 'bench'\n[store]\npath = '{}/bench.db'\n[web]\nlisten = '127.0.0.1:{port}'\n\
         [upstream]\n{upstream}\n[sources.broker]\ntype = 'mqtt'\nurl = 'mqtt://127.0.0.1:{broker}'\nclient_id = '{port}'\n\
         [[sources.broker.topics]]\nfilter = 's/+'\nsensor = '{{1}}'\n\
         fields = {{ temp = '/temperature', hum = '/humidity' }}\n{more}",
        folder.display()
    );
    std::fs::write(&site, text).expect("site file");
    let mut command = Command::new(program);
    command.args(["run", "--config"]).arg(&site).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let daemon = Daemon(command.spawn().expect("program starts"));
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "the program does not serve its status page");
        std::thread::sleep(Duration::from_millis(20));
    }
    (daemon, port)
}

impl Daemon {
    fn memory(&self) -> String {
        let status = self.file("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
            line.trim_end_matches("kB").trim().parse().unwrap_or(0.0)
        };
        let [rss, peak, file] = ["VmRSS:", "VmHWM:", "RssFile:"].map(|name| field(name) / 1024.0);
        let threads = field("Threads:");
        format!("{rss:.1} MiB (peak {peak:.1}, of it {file:.1} mapped files), {threads:.0} threads")
    }

    /// User and system time. The kernel counts in hundredths of a second.
    fn cpu(&self) -> Duration {
        let stat = self.file("stat");
        let ticks = stat.rsplit(')').next().into_iter().flat_map(|rest| rest.split_whitespace().skip(11).take(2));
        Duration::from_millis(ticks.filter_map(|n| n.parse::<u64>().ok()).sum::<u64>() * 10)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(port: u16, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut answer = String::new();
    if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
        let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}
