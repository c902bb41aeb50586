//! Devices that send only when they are asked: a fixed request, or the dialogue of IEC 62056-21 with its change of speed.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::Stream;
use crate::decode::readout::iec::{INITIAL_BAUD, Identification, REQUEST};
use crate::sources::serial::hung_up;

/// Most bytes listened to for one answer.
pub(super) const MAX_ANSWER_BYTES: usize = 1 << 20;
/// How long a meter may take to answer the request (IEC 62056-21, 1.5 s, and the time of its identification at 300 baud).
const IDENTIFICATION: Duration = Duration::from_secs(3);
/// What is waited between acknowledgement and change of speed: the meter needs 200 ms to answer.
const REACTION: Duration = Duration::from_millis(200);
/// Longest identification line.
const MAX_IDENTIFICATION_BYTES: usize = 256;

/// When and how a device is asked.
#[derive(Debug)]
pub(super) struct Ask {
    every: Duration,
    /// How long the line may be silent before the answer is over.
    timeout: Duration,
    how: How,
    due: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum How {
    /// These bytes.
    Request(Vec<u8>),
    /// `/?!`, the identification, the acknowledgement, and another speed of at most `max_baud`.
    Readout {
        /// Longest characters per second.
        max_baud: u32,
        /// Bytes sent before, to wake the meter up.
        wake_up: usize,
    },
}

impl Ask {
    pub(super) fn new(every: Duration, timeout: Duration, how: How) -> Self {
        Self { every, timeout, how, due: None }
    }

    /// When to ask next.
    pub(super) fn due(&self) -> Instant {
        self.due.unwrap_or_else(Instant::now)
    }

    /// Asks. Gives what was already heard, and how long silence may last.
    pub(super) async fn begin(&mut self, stream: &mut Stream) -> io::Result<(Vec<u8>, Duration)> {
        let now = Instant::now();
        let due = self.due.unwrap_or(now);
        self.due = Some((due + self.every).max(now));
        match &self.how {
            How::Request(bytes) => {
                send(stream, bytes, self.timeout).await?;
                Ok((Vec::new(), self.timeout))
            }
            How::Readout { max_baud, wake_up } => {
                stream.set_baud(INITIAL_BAUD)?;
                if *wake_up > 0 {
                    send(stream, &vec![0; *wake_up], self.timeout).await?;
                    // The standard's pause after the wake-up characters: at least 1.5 s.
                    tokio::time::sleep(Duration::from_millis(1700)).await;
                }
                send(stream, REQUEST, self.timeout).await?;
                let (heard, identification) = identification(stream).await?;
                let Some((acknowledgement, baud)) = identification.map(|id| id.acknowledgement(*max_baud)) else {
                    return Ok((heard, self.timeout));
                };
                tokio::time::sleep(REACTION).await;
                if let Some(acknowledgement) = acknowledgement {
                    send(stream, &acknowledgement, self.timeout).await?;
                    // The last character must be on the line before the speed changes: six of ten bits.
                    tokio::time::sleep(Duration::from_secs(1) * 60 / INITIAL_BAUD).await;
                }
                stream.set_baud(baud)?;
                Ok((heard, self.timeout))
            }
        }
    }
}

async fn send(stream: &mut Stream, bytes: &[u8], patience: Duration) -> io::Result<()> {
    let sent = timeout_at(Instant::now() + patience + IDENTIFICATION, stream.write_all(bytes)).await;
    sent.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the port takes no bytes"))?
}

/// Reads up to the line end of an identification; what else comes before it (an echo) is kept with it.
async fn identification(stream: &mut Stream) -> io::Result<(Vec<u8>, Option<Identification>)> {
    let deadline = Instant::now() + IDENTIFICATION;
    let mut heard = Vec::new();
    let mut byte = [0; 1];
    let mut line = 0;
    while heard.len() < MAX_IDENTIFICATION_BYTES {
        let Ok(read) = timeout_at(deadline, stream.read(&mut byte)).await else { break };
        if read? == 0 {
            return Err(hung_up());
        }
        heard.push(byte[0]);
        if byte[0] & 0x7f == b'\n' {
            // The echo of `/?!` names no manufacturer.
            if let Some(identification) = Identification::new(&heard[line..]) {
                return Ok((heard.split_off(line), Some(identification)));
            }
            line = heard.len();
        }
    }
    Ok((heard, None))
}
