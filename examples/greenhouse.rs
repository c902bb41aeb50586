//! A greenhouse that does not exist, for `make demo`: a Modbus RTU meter and a device that prints text lines, each on a
//! real pseudo-terminal, and, where a broker's port is given, bench sensors that publish JSON over MQTT.
//!
//! It ends after `--seconds`, on Ctrl-C or on SIGTERM, and takes its links with it.
#![allow(clippy::print_stdout)]

use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Parser;
use rumqttc::{AsyncClient, EventLoop, MqttOptions, QoS};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, QueueSelector};
use tokio::signal::unix::{SignalKind, signal};

/// The meter's address on its line.
const UNIT_ID: u8 = 1;
/// A Modbus RTU request for functions 1 to 6: unit, function, two words, CRC.
const REQUEST_BYTES: usize = 8;
/// What is kept of a line that never becomes a request.
const MAX_PENDING_BYTES: usize = 256;
/// How often the meter looks for a request: well below a character's time-out at 9600 baud.
const POLL_PAUSE: Duration = Duration::from_millis(5);
/// The benches that publish over MQTT.
const BENCHES: [&str; 4] = ["bench-north", "bench-south", "seedlings", "propagator"];

#[derive(Parser)]
struct Args {
    /// Where the links ttyModbus and ttyLines are made.
    #[arg(long, default_value = "target/demo")]
    dir: PathBuf,
    /// Publish to a broker on this port of the loopback address.
    #[arg(long)]
    mqtt_port: Option<u16>,
    /// End after so many seconds.
    #[arg(long, default_value_t = 86_400)]
    seconds: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    fs::create_dir_all(&args.dir).with_context(|| format!("cannot make folder {}", args.dir.display()))?;
    let modbus = Terminal::open(&args.dir.join("ttyModbus"))?;
    let lines = Terminal::open(&args.dir.join("ttyLines"))?;
    println!("meter on {}, text lines on {}", modbus.link.display(), lines.link.display());
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = serve_meter(&modbus) => ended.context("the Modbus meter ended"),
        ended = print_lines(&lines) => ended.context("the line device ended"),
        ended = publish_benches(args.mqtt_port) => ended.context("the MQTT benches ended"),
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminated.recv() => Ok(()),
        () = tokio::time::sleep(Duration::from_secs(args.seconds)) => Ok(()),
    }
}

/// A pseudo-terminal with a link to its far end. The far end is kept open here, so that a reader may come and go.
struct Terminal {
    near: OwnedFd,
    far: OwnedFd,
    link: PathBuf,
}

impl Terminal {
    fn open(link: &Path) -> Result<Self> {
        let near = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("cannot open a terminal")?;
        rustix::pty::grantpt(&near)?;
        rustix::pty::unlockpt(&near)?;
        let name: CString = rustix::pty::ptsname(&near, Vec::new())?;
        let far = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let mut settings = rustix::termios::tcgetattr(&far)?;
        settings.make_raw();
        rustix::termios::tcsetattr(&far, OptionalActions::Now, &settings)?;
        rustix::io::ioctl_fionbio(&near, true)?;
        let _ = fs::remove_file(link);
        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(name.as_bytes()), link)
            .with_context(|| format!("cannot make link {}", link.display()))?;
        Ok(Self { near, far, link: link.to_owned() })
    }

    /// Asks again and again rather than waiting for readiness: that would take unsafe code.
    async fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match rustix::io::read(&self.near, &mut *buffer) {
                Err(rustix::io::Errno::AGAIN) => tokio::time::sleep(POLL_PAUSE).await,
                other => return Ok(other?),
            }
        }
    }

    /// Like a real line, this does not wait for a reader: what nobody took is thrown away.
    fn write(&self, bytes: &[u8]) -> Result<()> {
        match rustix::io::write(&self.near, bytes) {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::AGAIN) => Ok(rustix::termios::tcflush(&self.far, QueueSelector::IFlush)?),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.link);
    }
}

async fn serve_meter(terminal: &Terminal) -> Result<()> {
    let mut pending = Vec::new();
    let mut chunk = [0; 64];
    loop {
        let read = terminal.read(&mut chunk).await?;
        pending.extend_from_slice(&chunk[..read]);
        while pending.len() >= REQUEST_BYTES {
            let request = &pending[..REQUEST_BYTES];
            if crc(&request[..6]) != [request[6], request[7]] {
                pending.remove(0);
                continue;
            }
            if request[0] == UNIT_ID {
                terminal.write(&meter_reply(request, &Weather::now()))?;
            }
            pending.drain(..REQUEST_BYTES);
        }
        if pending.len() > MAX_PENDING_BYTES {
            pending.clear();
        }
    }
}

/// The meter's answer to a request whose CRC is right.
fn meter_reply(request: &[u8], weather: &Weather) -> Vec<u8> {
    let function = request[1];
    let first = usize::from(u16::from_be_bytes([request[2], request[3]]));
    let count = usize::from(u16::from_be_bytes([request[4], request[5]]));
    let registers = match function {
        3 => Ok(weather.holding_registers()),
        4 => Ok(weather.input_registers()),
        _ => Err(1), // illegal function
    };
    let words = registers.and_then(|all| all.get(first..first + count).map(<[u16]>::to_vec).ok_or(2)); // illegal address
    let mut reply = match words {
        Ok(words) => {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let length = u8::try_from(bytes.len()).unwrap_or(0);
            [vec![UNIT_ID, function, length], bytes].concat()
        }
        Err(exception) => vec![UNIT_ID, function | 0x80, exception],
    };
    reply.extend(crc(&reply));
    reply
}

/// CRC-16/MODBUS in the order in which it is sent.
fn crc(bytes: &[u8]) -> [u8; 2] {
    crc::Crc::<u16>::new(&crc::CRC_16_MODBUS).checksum(bytes).to_le_bytes()
}

async fn print_lines(terminal: &Terminal) -> Result<()> {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let weather = Weather::now();
        terminal.write(format!("temp={:.1} hum={:.1}\r\n", weather.temperature, weather.humidity).as_bytes())?;
    }
}

/// Publishes for ever; without a port it waits for ever.
async fn publish_benches(port: Option<u16>) -> Result<()> {
    let Some(port) = port else { return std::future::pending().await };
    let mut options = MqttOptions::new("greenhouse-benches", "127.0.0.1", port);
    options.set_keep_alive(Duration::from_secs(10));
    let (client, connection) = AsyncClient::new(options, 64);
    tokio::select! {
        () = drive(connection) => Ok(()),
        ended = publish(&client) => ended,
    }
}

async fn drive(mut connection: EventLoop) {
    loop {
        if connection.poll().await.is_err() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

async fn publish(client: &AsyncClient) -> Result<()> {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        for (place, bench) in BENCHES.iter().enumerate() {
            let weather = Weather::now();
            let payload = serde_json::json!({
                "temperature": round(weather.temperature + place as f64 * 0.7),
                "humidity": round(weather.humidity - place as f64 * 1.5),
                "ts": weather.epoch.as_millis() as u64,
            });
            client.publish(format!("sensors/{bench}/state"), QoS::AtLeastOnce, false, payload.to_string()).await?;
        }
    }
}

/// A day that passes in ten minutes, with some noise.
struct Weather {
    epoch: Duration,
    temperature: f64,
    humidity: f64,
    power: f64,
}

impl Weather {
    fn now() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let day = (epoch.as_secs_f64() / 600.0 * std::f64::consts::TAU).sin();
        let noise = || fastrand::f64() - 0.5;
        Self {
            epoch,
            temperature: 21.0 + 4.0 * day + 0.4 * noise(),
            humidity: 55.0 - 12.0 * day + noise(),
            power: 850.0 - 600.0 * day + 20.0 * noise(),
        }
    }

    /// f32, high word first: voltage at 0, current at 2, power at 4. u32 watt-hours at 6.
    fn input_registers(&self) -> Vec<u16> {
        let voltage = 230.0 + 2.0 * (fastrand::f64() - 0.5);
        let floats = [voltage, self.power / voltage, self.power].map(|value| (value as f32).to_bits());
        let energy = (self.epoch.as_secs() % 100_000_000) as u32;
        floats.into_iter().chain([energy]).flat_map(|wide| [(wide >> 16) as u16, wide as u16]).collect()
    }

    /// Tenths of a degree: the setpoint at 0, the boiler's flow at 1 (i16).
    fn holding_registers(&self) -> Vec<u16> {
        let flow = 45.0 + self.power / 100.0;
        vec![205, (flow * 10.0) as i16 as u16]
    }
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
