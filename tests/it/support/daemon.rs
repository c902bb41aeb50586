//! The real `tipbucket` program in a folder of its own, started, killed and started again as a machine would.
//!
//! Every call blocks; use a plain thread or `spawn_blocking` from async tests. The process dies with the test process,
//! however that dies.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tipbucket::web::Status;

use super::patience;

/// Longest time from the start until `/healthz` answers, and longest time a stop may hang before the test fails.
const READY: Duration = Duration::from_secs(20);
/// Longest time for one answer of the status page.
const ANSWER: Duration = Duration::from_secs(5);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// Ports for status pages: below those the system gives to `bind(0)` and to connections, so nobody takes one in between.
const PORTS: std::ops::Range<u32> = 20_000..32_000;

/// An installation: site file, database, log and at most one running process.
#[derive(Debug)]
pub struct Daemon {
    folder: TempDir,
    port: u16,
    process: Option<Process>,
    environment: Vec<(String, String)>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// A shell behind the process kills it when this closes without a word.
    guard: ChildStdin,
}

impl Daemon {
    /// A site with this text as its site file; `@DIR@` in it becomes the folder. The database's path
    /// (`@DIR@/tipbucket.db`) and the page's address are set in a drop-in.
    pub fn new(site: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Self { folder, port: 0, process: None, environment: Vec::new() };
        daemon.set_site(site);
        daemon
    }

    /// Writes a new site file; the next start reads it.
    pub fn set_site(&self, site: &str) {
        fs::write(self.site_file(), site.replace("@DIR@", self.folder().to_str().unwrap())).unwrap();
    }

    /// Sets a variable for all later starts.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Starts it and waits until it takes readings.
    pub fn start(&mut self) {
        self.spawn();
        let deadline = Instant::now() + patience(READY);
        while self.get("/healthz").is_none_or(|(code, _)| code != 200) {
            if let Some(status) = self.exited() {
                panic!("tipbucket ended with {status}; its log:\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "tipbucket does not get ready; its log:\n{}", self.log());
            std::thread::sleep(LOOK);
        }
    }

    /// Starts it and waits for nothing.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        self.port = free_port();
        let drop_ins = self.folder().join("site.toml.d");
        fs::create_dir_all(&drop_ins).unwrap();
        let path = self.folder().join("tipbucket.db");
        let text = format!("[store]\npath = '{}'\n[web]\nlisten = '127.0.0.1:{}'\n", path.display(), self.port);
        fs::write(drop_ins.join("test.toml"), text).unwrap();
        // The shell becomes the program, under the same process id; its child watches our end of the pipe.
        let script = r#"exec 3<&0 </dev/null; p=$$; { read -r _ <&3 || kill -9 "$p"; } >/dev/null 2>&1 &
            exec "$@" 3<&-"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(program()).arg("run").arg("--config").arg(self.site_file());
        let mut command = self.prepared(command);
        command.stdin(Stdio::piped()).stdout(self.log_file()).stderr(self.log_file());
        let mut child = command.spawn().unwrap();
        let guard = child.stdin.take().unwrap();
        self.process = Some(Process { child, guard });
    }

    /// SIGKILL, as a power cut would; nothing is left running.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        let _ = process.child.kill();
        process.reap();
    }

    /// SIGTERM; how it ended and how long that took. Fails the test when it hangs.
    pub fn terminate(&mut self) -> (ExitStatus, Duration) {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        let status = self.wait(patience(READY));
        (status, begun.elapsed())
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self, longest: Duration) -> ExitStatus {
        let deadline = Instant::now() + longest;
        loop {
            if let Some(status) = self.exited() {
                self.process.take().unwrap().reap();
                return status;
            }
            if Instant::now() > deadline {
                self.kill();
                panic!("tipbucket did not end within {longest:?}; its log:\n{}", self.log());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let id = self.pid().expect("it runs");
        kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), signal).unwrap();
    }

    /// The process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// How it ended, if it was started and has ended by itself.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().and_then(|process| process.child.try_wait().unwrap())
    }

    /// What `/status.json` says; `None` while nobody answers.
    pub fn status(&self) -> Option<Status> {
        let (code, body) = self.get("/status.json")?;
        assert_eq!(code, 200, "{body}");
        Some(serde_json::from_str(&body).unwrap_or_else(|error| panic!("/status.json: {error}: {body}")))
    }

    /// Waits until the status meets the condition, and returns it.
    pub fn until(&mut self, what: &str, longest: Duration, condition: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + patience(longest);
        loop {
            let status = self.status();
            if let Some(status) = status.as_ref().filter(|status| condition(status)) {
                return status.clone();
            }
            if let Some(ended) = self.exited() {
                panic!("{what}: tipbucket ended with {ended}; its log:\n{}", self.log());
            }
            assert!(Instant::now() < deadline, "{what}: not in time; {status:#?}\nits log:\n{}", self.log());
            std::thread::sleep(LOOK);
        }
    }

    /// Status code and body of a page; `None` while nobody answers.
    pub fn get(&self, page: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(patience(ANSWER))).ok()?;
        write!(stream, "GET {page} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Runs another subcommand with this site file and waits for its end.
    pub fn tipbucket(&self, arguments: &[&str]) -> Output {
        let mut command = command();
        command.args(arguments).arg("--config").arg(self.site_file());
        self.prepared(command).stdin(Stdio::null()).output().unwrap()
    }

    /// Where site file, database and log are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The site file.
    pub fn site_file(&self) -> PathBuf {
        self.folder().join("site.toml")
    }

    /// The port of the status page; each start takes a new one.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What it wrote since the first start.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.folder().join("tipbucket.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_file(&self) -> File {
        OpenOptions::new().create(true).append(true).open(self.folder().join("tipbucket.log")).unwrap()
    }

    /// Without the variables of whoever runs the tests that would change what it does.
    fn prepared(&self, mut command: Command) -> Command {
        let ours = ["RUST_LOG", "JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("TIPBUCKET__") || ours.contains(&text.as_ref()) {
                command.env_remove(&name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Process {
    fn reap(mut self) {
        // Tells the guard that there is nothing left to kill, before the process id is free for others.
        let _ = self.guard.write_all(b"done\n");
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

/// The program of this build, the emulator in front where there is one.
pub fn program() -> Vec<String> {
    super::emulator::words(env!("CARGO_BIN_EXE_tipbucket"))
}

/// Starts the program of this build.
pub fn command() -> Command {
    let words = program();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let size = PORTS.end - PORTS.start;
    for _ in 0..size {
        // Test processes that run at the same time begin at different places.
        let turn = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(PORTS.start + turn % size).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}
