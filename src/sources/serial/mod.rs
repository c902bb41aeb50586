//! Serial ports: opening one, telling what is wrong with it, and having it back after it was unplugged.
//!
//! A port has exactly one owner (opened exclusively) and is closed as soon as it fails: a file descriptor held on an
//! unplugged USB adapter makes the adapter come back under another name.

pub mod recording;
mod script;
mod stream;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_serial::{DataBits, ErrorKind, Parity, SerialPortBuilderExt, StopBits};

use self::recording::Recording;
use self::script::Script;
use self::stream::Inner;
pub(super) use self::stream::Stream;
use super::Intake;
use crate::model::backoff::Backoff;

/// The speed of a port whose settings name none.
pub(super) const DEFAULT_BAUD: u32 = 9600;
/// Slowest and fastest speeds that Linux drivers know.
const BAUD_RANGE: std::ops::RangeInclusive<u32> = 50..=4_000_000;
/// First and longest pause between two attempts to open a port: a re-plugged adapter is found within seconds.
const REOPEN_BASE: Duration = Duration::from_secs(1);
const REOPEN_CAP: Duration = Duration::from_secs(5);
/// How long a serial port that is elsewhere may take to be connected.
const CONNECT: Duration = Duration::from_secs(10);
/// What a port that is elsewhere begins with: a serial device server (ser2net, RFC 2217 is not spoken).
const NETWORK: &str = "tcp://";
/// Dead letters a source may write at once, and one more for each second after: a noisy line must not fill the disk.
const LETTERS_AT_ONCE: f64 = 100.0;

/// Data bits, parity and stop bits, as `8N1` or `7E1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Format {
    data: DataBits,
    parity: Parity,
    stop: StopBits,
}

impl Default for Format {
    fn default() -> Self {
        Self { data: DataBits::Eight, parity: Parity::None, stop: StopBits::One }
    }
}

impl TryFrom<String> for Format {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no format: data bits 5 to 8, parity N, E or O, stop bits 1 or 2, as \"8N1\"");
        let &[data, parity, stop] = text.as_bytes() else { return Err(wrong()) };
        let data = DataBits::try_from(data.wrapping_sub(b'0')).map_err(|()| wrong())?;
        let stop = StopBits::try_from(stop.wrapping_sub(b'0')).map_err(|()| wrong())?;
        let parity = match parity.to_ascii_uppercase() {
            b'N' => Parity::None,
            b'E' => Parity::Even,
            b'O' => Parity::Odd,
            _ => return Err(wrong()),
        };
        Ok(Self { data, parity, stop })
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parity = match self.parity {
            Parity::None => 'N',
            Parity::Even => 'E',
            Parity::Odd => 'O',
        };
        write!(f, "{}{parity}{}", u8::from(self.data), u8::from(self.stop))
    }
}

/// A port and how to speak on it.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) path: String,
    pub(super) baud: u32,
    pub(super) format: Format,
}

impl Port {
    /// What is wrong with the settings, as (key, words).
    pub(super) fn contradictions(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if self.path.is_empty() {
            found.push(("port".to_owned(), "is empty; name a device, as \"/dev/serial/by-id/…\"".to_owned()));
        }
        if let Some(address) = self.path.strip_prefix(NETWORK)
            && !is_address(address)
        {
            found.push((
                "port".to_owned(),
                format!("`{}` names no host and port, as \"tcp://10.0.0.7:4001\"", self.path),
            ));
        }
        if !BAUD_RANGE.contains(&self.baud) {
            let (low, high) = (BAUD_RANGE.start(), BAUD_RANGE.end());
            found.push(("baud".to_owned(), format!("{} is not between {low} and {high}", self.baud)));
        }
        found
    }

    /// How long one character takes on the line.
    pub(super) fn character(&self) -> Duration {
        let parity = u32::from(self.format.parity != Parity::None);
        let bits = 1 + u32::from(u8::from(self.format.data)) + parity + u32::from(u8::from(self.format.stop));
        Duration::from_secs(1) * bits / self.baud
    }

    async fn open(&self) -> Result<Inner, String> {
        if let Some(address) = self.path.strip_prefix(NETWORK) {
            return connect(address).await.map(Inner::Network);
        }
        let Format { data, parity, stop } = self.format;
        tokio_serial::new(&self.path, self.baud)
            .data_bits(data)
            .parity(parity)
            .stop_bits(stop)
            .exclusive(true)
            .open_native_async()
            .map(Inner::Port)
            .map_err(|error| format!("cannot open {}: {}", self.path, advice(&error)))
    }
}

/// Whether a text names a host and a port.
pub(super) fn is_address(text: &str) -> bool {
    let named = text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
    matches!(named, Some((host, Ok(1..))) if !host.is_empty() && !host.contains(['/', ' ']))
}

async fn connect(address: &str) -> Result<TcpStream, String> {
    let cannot = |why: String| format!("cannot connect to {address}: {why} (is the device on, and the address right?)");
    let stream = match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
        Err(_) => return Err(cannot(format!("no answer within {} s", CONNECT.as_secs()))),
        Ok(Err(error)) => return Err(cannot(error.to_string().to_lowercase())),
        Ok(Ok(stream)) => stream,
    };
    // A request is one small packet: it must not wait for another. If that cannot be set, it is only slower.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// The error with its likely remedy.
fn advice(error: &tokio_serial::Error) -> String {
    let text = error.description.to_lowercase();
    let remedy = match error.kind {
        ErrorKind::Io(io::ErrorKind::PermissionDenied) => "is the service in group dialout?",
        ErrorKind::Io(io::ErrorKind::NotFound) => "is the adapter plugged in? see /dev/serial/by-id",
        ErrorKind::NoDevice if text.contains("busy") || text.contains("lock") => "another program holds it",
        _ if text.contains("no such device") => "is the adapter plugged in? see /dev/serial/by-id",
        _ if text.contains("typewriter") || text.contains("ioctl") => "it is not a serial port",
        _ if text.contains("invalid argument") => "the driver does not know this baud rate or format",
        _ => return text,
    };
    format!("{text} ({remedy})")
}

/// Keeps trying to have a port.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) port: Port,
    backoff: Backoff,
    opened: Option<Instant>,
    tried: bool,
    /// What is read instead of the port, once.
    recording: Option<(Recording, Arc<Notify>)>,
    is_replay: bool,
    /// Whether the source asks, or only listens.
    asks: bool,
}

impl Keeper {
    pub(super) fn new(port: Port) -> Self {
        Self {
            port,
            backoff: Backoff::new(REOPEN_BASE, REOPEN_CAP),
            opened: None,
            tried: false,
            recording: None,
            is_replay: false,
            asks: false,
        }
    }

    /// Reads a recording instead of the port; `over` is told when all of it was read. A source that asks gets what was recorded
    /// without any question as the answer to its first one.
    pub(super) fn replay(&mut self, recording: Recording, over: Arc<Notify>, asks: bool) {
        self.asks = asks;
        self.recording = Some((recording, over));
        self.is_replay = true;
    }

    /// The port, as soon as it can be opened; until then its condition says why not. Safe to drop.
    pub(super) async fn open(&mut self, intake: &Intake) -> Stream {
        if let Some((recording, over)) = self.recording.take() {
            let script = Script::new(recording, &intake.stats, over, self.asks);
            return Stream::new(Inner::Recording(Box::new(script)), &intake.stats);
        }
        if self.is_replay {
            // It was read once, and whoever started it knows.
            return std::future::pending().await;
        }
        loop {
            if self.tried {
                tokio::time::sleep(self.backoff.next_pause(fastrand::f64())).await;
            }
            self.tried = true;
            match self.port.open().await {
                Ok(inner) => {
                    self.opened = Some(Instant::now());
                    return Stream::new(inner, &intake.stats);
                }
                Err(words) => intake.stats.condition.down(intake.clock.now(), words),
            }
        }
    }

    /// The open port failed and was closed: says so, and makes the next attempt an early one if the port was good.
    pub(super) fn lost(&mut self, intake: &Intake, error: &io::Error) {
        if self.opened.take().is_some_and(|at| at.elapsed() > REOPEN_CAP) {
            self.backoff.reset();
        }
        let path = &self.port.path;
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof => "hung up".to_owned(),
            _ => error.to_string().to_lowercase(),
        };
        let words = format!("lost {path}: {why} (was the adapter unplugged? waiting for it to come back)");
        intake.stats.condition.down(intake.clock.now(), words);
    }

    /// What an open port is called.
    pub(super) fn describe(&self) -> String {
        if self.port.path.starts_with(NETWORK) {
            return self.port.path.clone();
        }
        format!("{} at {} baud {}", self.port.path, self.port.baud, self.port.format)
    }
}

/// The error that a read of no bytes means: Linux hangs up a line by it.
pub(super) fn hung_up() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Bounds how many dead letters a noisy line may cause; the rest is only counted.
#[derive(Debug)]
pub(super) struct Letters {
    left: f64,
    at: Option<Instant>,
}

impl Default for Letters {
    fn default() -> Self {
        Self { left: LETTERS_AT_ONCE, at: None }
    }
}

impl Letters {
    /// Whether one more may be written now.
    pub(super) fn may_write(&mut self, now: Instant) -> bool {
        let earned = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.at = Some(now);
        self.left = (self.left + earned).min(LETTERS_AT_ONCE);
        let yes = self.left >= 1.0;
        if yes {
            self.left -= 1.0;
        }
        yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(text: &str) -> Result<Format, String> {
        Format::try_from(text.to_owned())
    }

    #[test]
    fn formats_are_read_and_told_alike() {
        for text in ["8N1", "8E1", "7E1", "7O2", "5N2"] {
            assert_eq!(format(text).unwrap().to_string(), text);
        }
        for text in ["", "8N", "9N1", "8X1", "8N3", "8N1 ", "N81"] {
            assert!(format(text).unwrap_err().contains("8N1"), "{text}");
        }
    }

    #[test]
    fn a_character_takes_its_bits() {
        let port = Port { path: "p".into(), baud: 10_000, format: format("8E1").unwrap() };
        assert_eq!(port.character(), Duration::from_micros(1100));
    }

    #[test]
    fn a_port_that_cannot_be_opened_is_told_with_a_remedy() {
        let check = |path: &str, words: &str| {
            let port = Port { path: path.into(), baud: 9600, format: Format::default() };
            let error = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let error = error.block_on(async { port.open().await.unwrap_err() });
            assert!(error.contains(words), "{error}");
        };
        check("/nonexistent/ttyUSB0", "(is the adapter plugged in? see /dev/serial/by-id)");
        check("/dev/null", "not a serial port");
    }

    #[test]
    fn dead_letters_of_a_noisy_line_are_bounded() {
        let mut letters = Letters::default();
        let now = std::time::Instant::now().into();
        assert_eq!((0..500).filter(|_| letters.may_write(now)).count(), 100);
        assert!(letters.may_write(now + Duration::from_secs(2)));
    }
}
