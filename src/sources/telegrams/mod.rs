//! `nmea`, `dsmr`, `sml`, `iec62056-21` and `binary`: devices that send telegrams, by themselves or when they are asked.
//!
//! One task owns the line. A decoder finds the telegrams, [`Taker`] makes readings of them. What a telegram says wrongly
//! costs only itself; it is counted, kept as a dead letter, and told when nothing else comes.

mod ask;
mod binary;
mod config;
mod kinds;
mod taker;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use self::ask::Ask;
pub(super) use self::kinds::{BINARY, DSMR, IEC, NMEA, SML};
use self::taker::Taker;
use super::serial::{Keeper, Stream, hung_up};
use super::{Intake, Source};
use crate::decode::telegram::{Context, Decoder, Telegram, line_advice};
use crate::decode::times::Local;
use crate::store::Closed;

/// Most bytes kept of what holds no telegram: enough to see what is wrong with the line.
const MAX_UNREAD_BYTES: usize = 256;
/// Bytes read at once.
const CHUNK: usize = 4096;

/// A line with a device that sends telegrams.
#[derive(Debug)]
struct Telegrams {
    keeper: Keeper,
    decoder: Box<dyn Decoder>,
    taker: Taker,
    ask: Option<Ask>,
    /// How long nothing may come before that is told.
    silent_after: Option<Duration>,
    /// The first bytes since the last telegram, and whether there ever was one.
    unread: Vec<u8>,
    has_telegram: bool,
}

/// Why reading ended.
#[derive(Debug)]
enum End {
    /// The line failed.
    Line(io::Error),
    /// The store has ended.
    Store(Closed),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Line(error)
    }
}

impl Source for Telegrams {
    fn run<'a>(&'a mut self, intake: &'a Intake) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let mut stream = self.keeper.open(intake).await;
                let name = self.keeper.describe();
                self.decoder.restart();
                self.taker.restart(name);
                if self.ask.is_none() {
                    self.taker.tell_up(intake);
                }
                let end = match &mut self.ask {
                    Some(_) => self.poll(&mut stream, intake).await,
                    None => self.listen(&mut stream, intake).await,
                };
                // The stream is dropped, and so closed, before anything else happens.
                drop(stream);
                match end {
                    End::Line(error) => self.keeper.lost(intake, &error),
                    End::Store(closed) => return Err(closed.into()),
                }
            }
        })
    }
}

impl Telegrams {
    /// Takes what comes by itself, until the line or the store ends.
    async fn listen(&mut self, stream: &mut Stream, intake: &Intake) -> End {
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match self.silent_after {
                None => stream.read(&mut chunk).await,
                Some(patience) => match tokio::time::timeout(patience, stream.read(&mut chunk)).await {
                    Ok(read) => read,
                    Err(_) => {
                        self.taker.tell_silence(patience, intake);
                        continue;
                    }
                },
            };
            let taken = match read {
                Ok(0) => {
                    // What was held when a line hangs up is nobody's fault; a recording shows it.
                    let mut out = Vec::new();
                    with_context(intake, |context| self.decoder.finish(context, &mut out));
                    if intake.stats.tap.is_replay() {
                        self.tell_unread(&out, intake);
                        let _ = self.taker.take(out, intake).await;
                    }
                    return End::Line(hung_up());
                }
                Ok(count) => self.push(&chunk[..count], intake).await,
                Err(error) => return End::Line(error),
            };
            if let Err(closed) = taken {
                return End::Store(closed);
            }
        }
    }

    /// Decodes and hands over; whether anything good came.
    async fn push(&mut self, bytes: &[u8], intake: &Intake) -> Result<bool, Closed> {
        let mut out = Vec::new();
        with_context(intake, |context| self.decoder.push(bytes, context, &mut out));
        if out.is_empty() {
            self.unread.extend(bytes.iter().take(MAX_UNREAD_BYTES.saturating_sub(self.unread.len())));
        } else {
            self.has_telegram = true;
            self.unread.clear();
        }
        self.taker.take(out, intake).await
    }

    /// A recording, or an answer, is over: what held no telegram at all is told.
    fn tell_unread(&mut self, last: &[Telegram], intake: &Intake) {
        let unread = std::mem::take(&mut self.unread);
        if !unread.is_empty() && last.is_empty() && !self.has_telegram {
            let advice = line_advice(&unread).unwrap_or("are type, baud and format those of the device?");
            intake.stats.tap.refused("stream", &format!("holds nothing that begins like a telegram ({advice})"));
        }
    }

    /// Asks again and again, until the line or the store ends.
    async fn poll(&mut self, stream: &mut Stream, intake: &Intake) -> End {
        loop {
            let Some(ask) = &mut self.ask else { return End::Line(hung_up()) };
            if let Err(error) = idle_until(stream, ask.due()).await {
                return End::Line(error);
            }
            if !intake.stats.tap.may_poll() {
                return End::Line(hung_up());
            }
            if let Err(end) = self.one_poll(stream, intake).await {
                return end;
            }
        }
    }

    /// One question and its answer.
    async fn one_poll(&mut self, stream: &mut Stream, intake: &Intake) -> Result<(), End> {
        let Some(ask) = &mut self.ask else { return Ok(()) };
        self.decoder.restart();
        self.has_telegram = false;
        let (first, patience) = ask.begin(stream).await?;
        let mut came = self.push(&first, intake).await.map_err(End::Store)?;
        let mut heard = first.len();
        let mut chunk = vec![0; CHUNK];
        // Silence ends an answer; a whole telegram ends it at once.
        while !came {
            let Ok(read) = tokio::time::timeout(patience, stream.read(&mut chunk)).await else { break };
            match read? {
                0 => return Err(hung_up().into()),
                count => {
                    heard += count;
                    came = self.push(&chunk[..count], intake).await.map_err(End::Store)?;
                }
            }
            if heard > ask::MAX_ANSWER_BYTES {
                break;
            }
        }
        if !came {
            let mut out = Vec::new();
            with_context(intake, |context| self.decoder.finish(context, &mut out));
            let nothing = out.is_empty();
            self.tell_unread(&out, intake);
            self.taker.take(out, intake).await.map_err(End::Store)?;
            self.taker.tell_no_answer(nothing && heard == 0, intake);
        }
        Ok(())
    }
}

/// Calls `work` with the time of arrival.
fn with_context(intake: &Intake, work: impl FnOnce(&Context<'_>)) {
    let local = Local { zone: intake.timezone.as_ref(), arrival: intake.clock.now() };
    work(&Context { local, admission: intake.admission });
}

/// Reads, and throws away, whatever comes until `until`.
async fn idle_until(stream: &mut Stream, until: Instant) -> io::Result<()> {
    let mut chunk = [0; 256];
    while let Ok(read) = tokio::time::timeout_at(until, stream.read(&mut chunk)).await {
        if read? == 0 {
            return Err(hung_up());
        }
        if Instant::now() >= until {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
