//! A real mosquitto on a free loopback port, with its own folder; it can be stopped, killed and started again there.

use std::ffi::OsStr;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::child::Server;

/// Longest that a broker may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// The broker.
#[derive(Debug)]
pub struct Mosquitto {
    folder: TempDir,
    /// The port it listens on.
    pub port: u16,
    server: Option<Server>,
}

impl Mosquitto {
    /// A broker that lets everybody in and keeps its queues on disk.
    pub fn start() -> Self {
        Self::with("allow_anonymous true\n")
    }

    /// A broker with further lines in its configuration.
    pub fn with(lines: &str) -> Self {
        Self::in_folder(tempfile::tempdir().expect("temporary folder"), |_| lines.to_owned())
    }

    /// A broker whose configuration lines mention files in its folder.
    pub fn in_folder(folder: TempDir, lines: impl FnOnce(&Path) -> String) -> Self {
        let port = free_port();
        let path = folder.path();
        let config = format!(
            "listener {port} 127.0.0.1\npersistence true\npersistence_location {}/\nautosave_interval 1\n\
             max_queued_messages 100000\nuser {}\n{}",
            path.display(),
            whoami(),
            lines(path)
        );
        std::fs::write(path.join("mosquitto.conf"), config).expect("configuration is written");
        let mut broker = Self { folder, port, server: None };
        broker.start_again();
        broker
    }

    /// Starts it after [`Self::stop`] or [`Self::kill`], on the same port and files.
    pub fn start_again(&mut self) {
        let config = self.folder.path().join("mosquitto.conf");
        let args = [OsStr::new("-c"), config.as_os_str()];
        self.server = Some(Server::start(&program(), &args, &self.log()));
        let deadline = Instant::now() + STARTS_WITHIN;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.log()).unwrap_or_default();
            assert!(Instant::now() < deadline, "mosquitto does not listen (is it installed?): {}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it in order: its queues are saved.
    pub fn stop(&mut self) {
        self.server.take().expect("broker runs").stop();
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.server.take().expect("broker runs").kill();
    }

    /// Its address for the site file.
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("mosquitto.log")
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    listener.local_addr().expect("bound").port()
}

/// Debian puts it where only root's PATH looks.
fn program() -> String {
    if let Ok(path) = std::env::var("TIPBUCKET_TEST_MOSQUITTO") {
        return path;
    }
    let there = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto"].into_iter().find(|p| Path::new(p).exists());
    there.unwrap_or("mosquitto").to_owned()
}

/// mosquitto gives up root for a user of its own, which could not write into our folder.
fn whoami() -> String {
    std::env::var("USER").unwrap_or_else(|_| "root".to_owned())
}
