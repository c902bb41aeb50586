//! Serial lines without hardware: a pseudo-terminal whose master end a test plays.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// How long a turn of a loop over a non-blocking terminal takes when there is nothing to do.
const TURN: Duration = Duration::from_millis(1);

/// A plugged-in adapter. Dropping it unplugs it.
pub struct Pty {
    master: File,
    /// Held open, so that the master reads nothing instead of an error while nobody else has the terminal open.
    _slave: OwnedFd,
    path: PathBuf,
}

impl Pty {
    pub fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = PathBuf::from(std::ffi::OsString::from_vec(ptsname(&master, Vec::new()).unwrap().into_bytes()));
        let slave = rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let mut settings = tcgetattr(&slave).unwrap();
        settings.make_raw();
        tcsetattr(&slave, OptionalActions::Now, &settings).unwrap();
        fcntl_setfl(&master, OFlags::NONBLOCK).unwrap();
        Self { master: File::from(master), _slave: slave, path }
    }

    /// What a program opens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.master.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(TURN),
                Err(error) => panic!("cannot write to the terminal: {error}"),
            }
        }
    }

    /// Whatever has arrived.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut chunk = [0; 4096];
        match self.master.read(&mut chunk) {
            Ok(count) => chunk[..count].to_vec(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Vec::new(),
            Err(error) => panic!("cannot read from the terminal: {error}"),
        }
    }
}

/// A thread that plays something on a terminal until it is dropped, and then unplugs it.
pub struct Player {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Player {
    /// Calls `turn` again and again.
    pub fn new(mut turn: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                turn();
                std::thread::sleep(TURN);
            }
        });
        Self { stop, thread: Some(thread) }
    }

    /// Modbus devices: `answer` gets the number of the request and its eight bytes, and says what is sent after which
    /// pauses.
    pub fn modbus(
        mut pty: Pty,
        mut answer: impl FnMut(usize, &[u8]) -> Vec<(Duration, Vec<u8>)> + Send + 'static,
    ) -> Self {
        let mut heard = Vec::new();
        let mut number = 0;
        Self::new(move || {
            heard.extend(pty.receive());
            while heard.len() >= 8 {
                let request: Vec<u8> = heard.drain(..8).collect();
                for (pause, bytes) in answer(number, &request) {
                    std::thread::sleep(pause);
                    pty.send(&bytes);
                }
                number += 1;
            }
        })
    }

    /// A null-modem cable between two terminals.
    pub fn cable(mut one: Pty, mut other: Pty) -> Self {
        Self::new(move || {
            let (from_one, from_other) = (one.receive(), other.receive());
            other.send(&from_one);
            one.send(&from_other);
        })
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the player of the terminal panicked");
    }
}

/// A name under which an adapter is found, as in `/dev/serial/by-id`.
pub struct ById {
    dir: tempfile::TempDir,
}

impl ById {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("usb-adapter")
    }

    pub fn plug(&self, pty: &Pty) {
        self.unplug();
        std::os::unix::fs::symlink(pty.path(), self.path()).unwrap();
    }

    pub fn unplug(&self) {
        let _ = std::fs::remove_file(self.path());
    }
}
