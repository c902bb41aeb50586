//! The line seen from its only master: one request at a time, silence before it, its own reply and no other after it.
//!
//! Nothing in an RTU frame tells which request it answers. What is known: a device answers in order. So after a request
//! that got no answer in time, a reply to a later one of the same shape is doubtful. [`Bus::ask`] then waits whether a
//! second one follows: if so, the first was late. If not, it asks for something of another shape, whose reply proves
//! that nothing older will come, and then asks again. A lost frame costs one timeout that way, and never a wrong value.
//! A device that does not answer that either is left alone until whatever it owes is too old to come.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::owed::Owed;
use crate::decode::modbus::{Exception, Found, MAX_FRAME_BYTES, Request, explain, find, is_damaged_reply, tcp};
use crate::sources::serial::hung_up;

/// Bytes read at once.
const CHUNK: usize = 256;
/// Most bytes listened to for one answer: far above what 4 Mbaud bring in a second of noise.
const MAX_NOISE: usize = 1 << 20;

/// How requests are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// How long a device may take to answer, from the last byte of the request.
    pub(super) timeout: Duration,
    /// How long the line is silent before a request.
    pub(super) gap: Duration,
    /// How long one character takes on the line.
    pub(super) character: Duration,
    /// What frames look like.
    pub(super) framing: Framing,
}

/// How requests and replies are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// With a CRC, and no number.
    Rtu,
    /// Modbus TCP: with the number of the request, so that a late reply is told from a new one.
    Tcp,
}

/// A line with devices on it.
#[derive(Debug)]
pub(super) struct Bus<S> {
    stream: S,
    pace: Pace,
    quiet_since: Instant,
    /// What arrived and is not yet known to be noise; at most a frame and a chunk.
    heard: Vec<u8>,
    /// The beginning of all that arrived since the request, for the dead letter.
    first: Vec<u8>,
    /// How many bytes arrived since the request.
    heard_in_all: usize,
    /// The number of the last request, where requests have one.
    number: u16,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The data, and the frame that brought it.
    Data {
        /// As many bytes as were asked for.
        data: Vec<u8>,
        /// The whole frame.
        frame: Vec<u8>,
    },
    /// The device refuses.
    Exception {
        /// Why.
        code: Exception,
        /// The whole frame.
        frame: Vec<u8>,
    },
    /// Something came, but no answer; in words.
    Garbage {
        /// What it looks like.
        words: String,
        /// Its first bytes.
        bytes: Vec<u8>,
        /// Whether it looks like an answer that was damaged on its way.
        is_damaged: bool,
    },
    /// Nothing came.
    Silence,
}

impl Outcome {
    fn is_answer(&self) -> bool {
        matches!(self, Self::Data { .. } | Self::Exception { .. })
    }

    /// An answer that is not to be trusted.
    fn doubted(self) -> Self {
        match self {
            Self::Data { frame, .. } | Self::Exception { frame, .. } => {
                let words = "an answer that may belong to an earlier request".to_owned();
                Self::Garbage { words, bytes: frame, is_damaged: false }
            }
            other => other,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Bus<S> {
    /// The master's end of a line.
    pub(super) fn new(stream: S, pace: Pace) -> Self {
        let heard = Vec::with_capacity(MAX_FRAME_BYTES + CHUNK);
        let first = Vec::with_capacity(MAX_FRAME_BYTES);
        Self { stream, pace, quiet_since: Instant::now(), heard, first, heard_in_all: 0, number: 0 }
    }

    /// Asks one device once (again when the answer is doubtful). `owed` is what the device still owes.
    /// Fails when the line itself does. Dropped half-way, the device may owe an answer.
    pub(super) async fn ask(&mut self, request: &Request, owed: &mut Owed) -> io::Result<Outcome> {
        if self.pace.framing == Framing::Tcp {
            let deadline = self.send(request).await?;
            return self.listen(request, deadline).await;
        }
        owed.add(request);
        let deadline = self.send(request).await?;
        let mut outcome = self.listen(request, deadline).await?;
        if let Outcome::Garbage { is_damaged: true, .. } = outcome {
            owed.settle_oldest_like(request);
        }
        if !outcome.is_answer() {
            return Ok(outcome);
        }
        let doubts = owed.doubts(&outcome, request);
        if doubts == 0 {
            owed.settle(request);
            return Ok(outcome);
        }
        for _ in 1..doubts {
            // Some devices send an answer twice; that is one answer.
            let mut next = self.listen(request, deadline).await?;
            while next == outcome {
                next = self.listen(request, deadline).await?;
            }
            if !next.is_answer() {
                return self.ask_out_of_doubt(request, owed, outcome).await;
            }
            outcome = next;
        }
        owed.sent.clear();
        Ok(outcome)
    }

    /// Makes sure that nothing older is on its way, and asks again.
    async fn ask_out_of_doubt(&mut self, request: &Request, owed: &mut Owed, doubtful: Outcome) -> io::Result<Outcome> {
        if !self.is_all_answered(request, owed).await? {
            owed.is_hopeless = true;
            return Ok(doubtful.doubted());
        }
        owed.sent.clear();
        owed.add(request);
        let deadline = self.send(request).await?;
        let outcome = self.listen(request, deadline).await?;
        if outcome.is_answer() {
            owed.sent.clear();
        }
        Ok(outcome)
    }

    /// Asks for something that no owed answer can be taken for. Its answer comes after all others.
    async fn is_all_answered(&mut self, request: &Request, owed: &mut Owed) -> io::Result<bool> {
        for probe in [owed.unlike(request), Request { table: request.table.sibling(), count: 1, ..*request }] {
            // A refusal does not tell how much was asked for, only of which table.
            let refusal_is_clear = owed.sent.iter().all(|(sent, _)| sent.table != probe.table);
            let is_clear =
                refusal_is_clear || owed.sent.iter().all(|(sent, _)| sent.data_bytes() != probe.data_bytes());
            owed.add(&probe);
            let deadline = self.send(&probe).await?;
            loop {
                match self.listen(&probe, deadline).await? {
                    Outcome::Data { .. } if is_clear => return Ok(true),
                    Outcome::Exception { .. } if refusal_is_clear => return Ok(true),
                    Outcome::Data { .. } | Outcome::Exception { .. } => {}
                    Outcome::Garbage { .. } | Outcome::Silence => break,
                }
            }
        }
        Ok(false)
    }

    /// Reads, and throws away, whatever comes until `until`. Fails when the line hangs up. Safe to drop.
    pub(super) async fn idle_until(&mut self, until: Instant) -> io::Result<()> {
        while let Some(count) = self.read(until).await? {
            tracing::trace!(count, "bytes between two polls");
            self.heard.clear();
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Waits for silence, sends, and says until when the answer must have begun.
    async fn send(&mut self, request: &Request) -> io::Result<Instant> {
        let patience = Instant::now() + self.pace.timeout + self.pace.gap;
        loop {
            let until = (self.quiet_since + self.pace.gap).min(patience);
            if self.read(until).await?.is_none() || Instant::now() >= patience {
                break;
            }
            self.heard.clear();
        }
        self.heard.clear();
        self.first.clear();
        self.heard_in_all = 0;
        let frame = match self.pace.framing {
            Framing::Rtu => request.encode().to_vec(),
            Framing::Tcp => {
                self.number = self.number.wrapping_add(1);
                tcp::encode(request, self.number).to_vec()
            }
        };
        tracing::trace!(?frame, "request");
        let sending = self.pace.character * frame.len() as u32;
        let written = timeout_at(Instant::now() + sending + self.pace.timeout, self.stream.write_all(&frame)).await;
        written.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the port takes no bytes"))??;
        self.quiet_since = Instant::now() + sending;
        Ok(self.quiet_since + self.pace.timeout)
    }

    /// Listens for the reply to `request`; one that has begun in time may end after `deadline`.
    async fn listen(&mut self, request: &Request, deadline: Instant) -> io::Result<Outcome> {
        let frame_time = self.pace.character * request.reply_bytes() as u32;
        loop {
            let found = match self.pace.framing {
                Framing::Rtu => find(request, &self.heard),
                Framing::Tcp => tcp::find(request, self.number, &self.heard),
            };
            let (outcome, end) = match found {
                Found::Data { data, frame, end } => (Outcome::Data { data: data.into(), frame: frame.into() }, end),
                Found::Exception { code, frame, end } => (Outcome::Exception { code, frame: frame.into() }, end),
                Found::Nothing { keep } => {
                    self.heard.drain(..keep);
                    let until = if self.heard.is_empty() { deadline } else { deadline + frame_time };
                    // A timeout looks at the clock only when there is nothing to read: a line that is never silent must
                    // not keep us for ever, but what came in time while we were busy is looked at.
                    if self.heard_in_all > MAX_NOISE
                        || Instant::now() > until + self.pace.timeout
                        || self.read(until).await?.is_none()
                    {
                        return Ok(self.nothing(request));
                    }
                    continue;
                }
            };
            self.heard.drain(..end);
            return Ok(outcome);
        }
    }

    fn nothing(&self, request: &Request) -> Outcome {
        let words = match self.pace.framing {
            Framing::Rtu => explain(request, &self.first),
            Framing::Tcp => tcp::explain(request, &self.first),
        };
        match words {
            None => Outcome::Silence,
            Some(words) => {
                let is_damaged = is_damaged_reply(request, &self.first);
                Outcome::Garbage { words, bytes: self.first.clone(), is_damaged }
            }
        }
    }

    /// Reads once; `None` if nothing came until `until`.
    async fn read(&mut self, until: Instant) -> io::Result<Option<usize>> {
        let mut chunk = [0; CHUNK];
        match timeout_at(until, self.stream.read(&mut chunk)).await {
            Err(_) => Ok(None),
            Ok(read) => match read? {
                0 => Err(hung_up()),
                count => {
                    self.quiet_since = Instant::now();
                    self.heard_in_all = self.heard_in_all.saturating_add(count);
                    self.heard.extend_from_slice(&chunk[..count]);
                    let room = MAX_FRAME_BYTES - self.first.len().min(MAX_FRAME_BYTES);
                    self.first.extend_from_slice(&chunk[..count.min(room)]);
                    Ok(Some(count))
                }
            },
        }
    }
}
