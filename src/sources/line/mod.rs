//! `line`: delimited text from a serial port, one reading for each line.
//!
//! The first line after the port was opened may lack its beginning. It counts only if its first value can be read and
//! nothing is left over; otherwise it is dropped silently. A device whose lines look whole even when their beginning
//! is missing (bare numbers) should have `drop_first = true`.

mod config;
mod forms;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use self::config::Config;
use super::serial::{Keeper, Letters, hung_up};
use super::{Intake, Kind, Source};
use crate::decode::damp::Damper;
use crate::decode::line::{Piece, Rules, Splitter};
use crate::decode::shape::Options;
use crate::decode::telegram::line_advice;
use crate::decode::times::Local;
use crate::model::{FieldName, Reading, SensorName, Timestamp, TurnedAway};
use crate::store::{Closed, Delivery};

/// Refused lines in a row after which the source is told to be out of order.
const REFUSALS_UNTIL_DOWN: u32 = 10;
/// Bytes read at once.
const CHUNK: usize = 4096;

/// The kind's row.
pub(super) const KIND: Kind = Kind { name: "line", read: super::read::<Config> };

/// A port that lines come from.
#[derive(Debug)]
struct Line {
    keeper: Keeper,
    splitter: Splitter,
    reader: Reader,
    /// How long nothing may come before that is told.
    silent_after: Option<Duration>,
}

/// Lines into readings.
#[derive(Debug)]
struct Reader {
    rules: Rules,
    sensor: Option<SensorName>,
    drop_first: bool,
    place: String,
    letters: Letters,
    /// Lines refused since the last good one.
    refusals: u32,
    /// Fields of which it depends on earlier values what becomes of one.
    memory: HashMap<FieldName, Options>,
    damper: Damper,
}

/// Why reading ended.
#[derive(Debug)]
enum End {
    /// The line failed.
    Line(io::Error),
    /// The store has ended.
    Store(Closed),
}

impl Source for Line {
    fn run<'a>(&'a mut self, intake: &'a Intake) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let stream = self.keeper.open(intake).await;
                self.tell_up(intake);
                // The stream is dropped, and so closed, before anything else happens.
                match self.serve(stream, intake).await {
                    End::Line(error) => self.keeper.lost(intake, &error),
                    End::Store(closed) => return Err(closed.into()),
                }
            }
        })
    }
}

impl Line {
    /// Reads until the line or the store ends.
    async fn serve<S: AsyncRead + Unpin>(&mut self, mut stream: S, intake: &Intake) -> End {
        self.splitter.restart();
        let mut chunk = vec![0; CHUNK];
        loop {
            let bytes = match self.read(&mut stream, &mut chunk, intake).await {
                Ok(0) if intake.stats.tap.is_replay() => return self.last_line(intake).await,
                Ok(0) => return End::Line(hung_up()),
                Ok(count) => &chunk[..count],
                Err(error) => return End::Line(error),
            };
            if let Err(closed) = self.push(bytes, intake).await {
                return End::Store(closed);
            }
        }
    }

    /// Cuts lines and hands over what they say.
    async fn push(&mut self, bytes: &[u8], intake: &Intake) -> Result<(), Closed> {
        let now = intake.clock.now();
        let mut delivery = Delivery { stamped: !self.reader.rules.tells_time(), ..Delivery::default() };
        let mut lines = 0;
        let reader = &mut self.reader;
        self.splitter.push(bytes, |piece| lines += u64::from(reader.take(piece, now, intake, &mut delivery)));
        if lines == 0 {
            return Ok(());
        }
        if self.reader.refusals < REFUSALS_UNTIL_DOWN {
            self.tell_up(intake);
        }
        // `deliver` counts one message.
        intake.stats.messages.inc_by(lines - 1);
        intake.deliver(delivery).await
    }

    /// A recording may end without a delimiter. (A line that hangs up leaves a line that is not whole.)
    async fn last_line(&mut self, intake: &Intake) -> End {
        let delimiter = self.splitter.delimiter().to_vec();
        match self.push(&delimiter, intake).await {
            Ok(()) => End::Line(hung_up()),
            Err(closed) => End::Store(closed),
        }
    }

    /// Reads once, however long that takes; a long silence is told.
    async fn read<S>(&self, stream: &mut S, chunk: &mut [u8], intake: &Intake) -> io::Result<usize>
    where
        S: AsyncRead + Unpin,
    {
        let Some(patience) = self.silent_after else { return stream.read(chunk).await };
        loop {
            match tokio::time::timeout(patience, stream.read(chunk)).await {
                Ok(read) => return read,
                Err(_) => {
                    let (port, patience) = (&self.keeper.port.path, humantime::format_duration(patience));
                    let words = format!("nothing came from {port} for {patience} (is the device on and connected?)");
                    intake.stats.condition.down(intake.clock.now(), words);
                }
            }
        }
    }

    fn tell_up(&self, intake: &Intake) {
        intake.stats.condition.up(intake.clock.now(), format!("reads {}", self.keeper.describe()));
    }
}

impl Reader {
    /// Takes one line; whether it said anything.
    fn take(&mut self, piece: Piece<'_>, now: Timestamp, intake: &Intake, delivery: &mut Delivery) -> bool {
        let (bytes, is_first, result) = match piece {
            Piece::Line { is_first: true, .. } | Piece::TooLong { is_first: true, .. } if self.drop_first => {
                intake.stats.tap.refused("first line", "is dropped: its beginning may be missing (drop_first)");
                return false;
            }
            Piece::TooLong { head, is_first } => {
                (head, is_first, Err("line is longer than max_line; only its beginning is kept".to_owned()))
            }
            Piece::Line { bytes, is_first } => (bytes, is_first, self.read(bytes, now, intake)),
        };
        match result {
            Ok(None) => false,
            Ok(Some(read)) if is_first && read.is_cut => {
                let why = if read.refused.is_empty() { "something is left over" } else { &read.refused.join("; ") };
                intake.stats.tap.refused("first line", &format!("is dropped, its beginning may be missing: {why}"));
                false
            }
            Err(why) if is_first => {
                intake.stats.tap.refused("first line", &format!("is dropped, its beginning may be missing: {why}"));
                false
            }
            Ok(Some(read)) => {
                read.absent
                    .iter()
                    .for_each(|name| intake.stats.tap.refused(name, "its content is declared to mean no value"));
                if !read.refused.is_empty() {
                    self.refuse(&read.refused.join("; "), bytes, now, intake, delivery);
                }
                if read.reading.is_some() || read.refused.is_empty() {
                    self.refusals = 0;
                }
                delivery.readings.extend(read.reading.and_then(|reading| self.damped(reading, intake)));
                delivery.refused.extend(read.turned_away);
                true
            }
            Err(words) => {
                self.refuse(&words, bytes, now, intake, delivery);
                true
            }
        }
    }

    fn read(&self, bytes: &[u8], now: Timestamp, intake: &Intake) -> Result<Option<Read>, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let advice = line_advice(bytes).map(|advice| format!(" ({advice})")).unwrap_or_default();
            format!("line is not UTF-8 from byte {} on{advice}", error.valid_up_to())
        })?;
        let local = Local { zone: intake.timezone.as_ref(), arrival: now };
        let Some(decoded) = self.rules.decode(text, local)? else { return Ok(None) };
        let sensor = match (decoded.sensor, &self.sensor) {
            (Some(name), _) => SensorName::new(&name).map_err(|error| error.to_string())?,
            (None, Some(sensor)) => sensor.clone(),
            (None, None) => return Err("line names no sensor".to_owned()),
        };
        let mut refused = decoded.refused;
        let mut turned_away = None;
        if let Some(Err(why)) = decoded.time.map(|at| intake.admission.check(at, now)) {
            refused.push(why.to_string());
            let at = decoded.time.unwrap_or(now);
            turned_away =
                (!decoded.fields.is_empty()).then(|| TurnedAway { sensor: sensor.clone(), at, reason: why.reason() });
        }
        let mut reading = None;
        if !decoded.fields.is_empty() && turned_away.is_none() {
            let made = Reading::new(sensor, decoded.time.unwrap_or(now), decoded.fields);
            reading = Some(made.map_err(|error| error.to_string())?);
        }
        let is_cut = decoded.has_remains || decoded.is_first_refused;
        Ok(Some(Read { reading, turned_away, refused, absent: decoded.absent, is_cut }))
    }

    /// The reading without what is left out.
    fn damped(&mut self, mut reading: Reading, intake: &Intake) -> Option<Reading> {
        if !self.memory.is_empty() {
            let (sensor, fields) = (reading.sensor.clone(), std::mem::take(&mut reading.fields));
            let memory = &self.memory;
            reading.fields = intake.damped(&mut self.damper, fields, (&sensor, reading.at), |name| memory.get(name));
        }
        (!reading.fields.is_empty()).then_some(reading)
    }

    fn refuse(&mut self, words: &str, bytes: &[u8], now: Timestamp, intake: &Intake, delivery: &mut Delivery) {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals >= REFUSALS_UNTIL_DOWN {
            let advice = line_advice(bytes).unwrap_or("are baud, format and decode those of the device?");
            let words = format!("the last {} lines could not be read: {words} ({advice})", self.refusals);
            intake.stats.condition.down(now, words);
        }
        if self.letters.may_write(Instant::now()) {
            delivery.dead_letters.push(intake.letter(now, &self.place, words, bytes));
        } else {
            intake.stats.refused.inc();
            intake.stats.tap.refused(&self.place, words);
        }
    }
}

/// What a line gave.
struct Read {
    reading: Option<Reading>,
    /// Understood, and not taken because of its time.
    turned_away: Option<TurnedAway>,
    refused: Vec<String>,
    absent: Vec<String>,
    /// Its beginning may be missing: something is left over, or the first value cannot be read.
    is_cut: bool,
}

#[cfg(test)]
mod tests;
