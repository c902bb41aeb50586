//! A publisher in a process of its own, with as little work per message as possible: packets are laid out in one buffer and
//! written as they are, acknowledgements are only counted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Most messages on their way to the broker without an acknowledgement.
const WINDOW: usize = 2000;
/// Messages written at once when there is a pace to keep.
const PACED: usize = 50;
/// The first argument of a process that is a publisher.
const ROLE: &str = "--publish";

/// What to publish.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub port: u16,
    pub messages: usize,
    pub sensors: usize,
    /// Messages in a second; 0 for as fast as it goes.
    pub rate: usize,
}

impl Load {
    /// Starts a process that publishes this.
    pub fn start(self) -> Running {
        let Self { port, messages, sensors, rate } = self;
        let program = std::env::current_exe().expect("own path");
        let mut command = Command::new(program);
        command.arg(ROLE).args([port.into(), messages, sensors, rate].map(|n: usize| n.to_string()));
        Running(command.stdin(Stdio::null()).spawn().expect("publisher starts"))
    }

    /// Publishes all of it, in this process.
    fn run(self) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.write_all(&connect())?;
        stream.read_exact(&mut [0; 4])?;
        let begun = Instant::now();
        let (mut sent, mut acknowledged) = (0, 0);
        let mut unread = 0;
        let mut input = [0; 16 << 10];
        let mut output = Vec::new();
        while acknowledged < self.messages {
            output.clear();
            let mut most = (WINDOW - (sent - acknowledged)).min(self.messages - sent);
            if self.rate > 0 {
                let due = (begun.elapsed().as_secs_f64() * self.rate as f64) as usize;
                most = most.min(due.saturating_sub(sent)).min(PACED);
            }
            (sent..sent + most).for_each(|i| publish(i, self.sensors, &mut output));
            sent += most;
            stream.write_all(&output)?;
            if sent - acknowledged < WINDOW && sent < self.messages && most == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            if sent > acknowledged {
                // An acknowledgement has four bytes.
                unread += stream.read(&mut input)?;
                acknowledged += unread / 4;
                unread %= 4;
            }
        }
        Ok(())
    }
}

/// A publisher at work; it ends when it is dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Waits until the broker has everything.
    pub fn wait(mut self) {
        let status = self.0.wait().expect("publisher ends");
        assert!(status.success(), "publisher failed: {status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Publishes and ends, if this process was started for it.
pub fn take_role() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_none_or(|first| first != ROLE) {
        return;
    }
    let number = |i: usize| arguments[i].parse::<usize>().expect("number");
    let load = Load { port: number(1) as u16, messages: number(2), sensors: number(3), rate: number(4) };
    let done = load.run();
    std::process::exit(i32::from(done.is_err()));
}

fn connect() -> Vec<u8> {
    let id = format!("load-{}", std::process::id());
    let mut packet = vec![0x10, (12 + id.len()) as u8, 0, 4];
    packet.extend_from_slice(b"MQTT\x04\x02\x00\x00\x00");
    packet.push(id.len() as u8);
    packet.extend_from_slice(id.as_bytes());
    packet
}

/// Appends one PUBLISH with QoS 1 and 100 bytes of JSON.
fn publish(i: usize, sensors: usize, out: &mut Vec<u8>) {
    let topic = format!("s/sensor-{}", i % sensors);
    let begin = format!(
        r#"{{"temperature":{}.{},"humidity":{}.25,"battery":3021,"state":"ok","counter":{i},"note":""#,
        15 + i / sensors % 10,
        i % 10,
        40 + i % 7
    );
    let payload = format!(r#"{begin}{:x<1$}"}}"#, "", 98 - begin.len());
    let length = 2 + topic.len() + 2 + payload.len();
    out.extend_from_slice(&[0x32, length as u8 | 0x80, (length >> 7) as u8, 0, topic.len() as u8]);
    out.extend_from_slice(topic.as_bytes());
    out.extend_from_slice(&(((i % 65_535) + 1) as u16).to_be_bytes());
    out.extend_from_slice(payload.as_bytes());
}
