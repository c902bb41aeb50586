//! One device: when it is asked, what came of it, and how long it is left alone when it is dead.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::bus::{Bus, Outcome};
use super::owed::Owed;
use super::plan::{Block, as_recorded};
use crate::decode::damp::Damper;
use crate::decode::modbus::{Absent, Exception, Request};
use crate::decode::shape::Options;
use crate::model::backoff::Backoff;
use crate::model::{FieldName, Fields, Reading, SensorName, Timestamp, Value};
use crate::sources::Intake;
use crate::sources::serial::Letters;
use crate::store::Delivery;

/// Polls without any answer after which a device is taken for dead.
const FAILURES_UNTIL_DEAD: u32 = 3;
/// Longest pause between two questions to a dead device.
const DEAD_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Shortest pause, in timeouts: a dead device takes at most a tenth of the line's time.
const DEAD_PAUSE_TIMEOUTS: u32 = 10;
/// Requests that may run into the timeout, in a poll without any answer, before the rest is given up.
const SILENCES_PER_POLL: u32 = 2;

/// A device on the line.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) sensor: SensorName,
    /// When it is asked next.
    pub(super) due: Instant,
    unit: u8,
    every: Duration,
    fields: Vec<FieldName>,
    blocks: Vec<Block>,
    owes: Owed,
    failures: u32,
    pause: Backoff,
    trouble: Option<String>,
    /// Where a poll begins: at a request that was answered, if there is one.
    start: usize,
    /// Which fields were refused at the last poll: only the first of a row of refusals is kept as a dead letter.
    refused: Vec<bool>,
    letters: Letters,
    /// Fields of which it depends on earlier values what becomes of one.
    memory: HashMap<FieldName, Options>,
    damper: Damper,
}

/// What one poll brings together.
struct Poll {
    at: Option<Timestamp>,
    values: Vec<Option<Value>>,
    delivery: Delivery,
    /// Refused fields that are only counted.
    uncounted: u64,
    /// The first request that was answered, and the first that was not.
    answered: Option<usize>,
    silent: Option<usize>,
    trouble: Option<String>,
    /// How long the device must be left alone.
    rest: Option<Duration>,
}

impl Device {
    pub(super) fn new(
        sensor: SensorName,
        unit: u8,
        every: Duration,
        timeout: Duration,
        fields: Vec<FieldName>,
        blocks: Vec<Block>,
    ) -> Self {
        let refused = vec![false; fields.len()];
        let points = blocks.iter().flat_map(|block| &block.points);
        let with_memory = points.filter(|(_, point)| point.shape.options.has_memory());
        let memory = with_memory.map(|(field, point)| (fields[*field].clone(), point.shape.options.clone())).collect();
        let base = every.max(timeout * DEAD_PAUSE_TIMEOUTS);
        let pause = Backoff::new(base, DEAD_PAUSE_MAX.max(base));
        Self {
            sensor,
            due: Instant::now(),
            unit,
            every,
            fields,
            blocks,
            owes: Owed::default(),
            failures: 0,
            pause,
            trouble: None,
            start: 0,
            refused,
            letters: Letters::default(),
            memory,
            damper: Damper::default(),
        }
    }

    /// Asks for its registers as they were asked for in a recording, if all of them were.
    pub(super) fn plan_as_recorded(&mut self, recorded: &[Request]) {
        if let Some(blocks) = as_recorded(self.unit, &self.blocks, recorded) {
            self.blocks = blocks;
        }
    }

    /// The port was opened (again): whatever was wrong may be over.
    pub(super) fn start_anew(&mut self, now: Instant) {
        self.due = now;
        self.owes = Owed::default();
        self.failures = 0;
        self.pause.reset();
    }

    /// Why its last poll did not bring everything.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Whether its last poll brought no answer at all.
    pub(super) fn is_silent(&self) -> bool {
        self.failures > 0
    }

    /// Asks for everything, and says what is to be delivered. Fails when the line does.
    pub(super) async fn poll<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        bus: &mut Bus<S>,
        retries: u32,
        intake: &Intake,
    ) -> io::Result<Delivery> {
        let suspect = self.failures >= FAILURES_UNTIL_DEAD;
        let mut poll = Poll {
            at: None,
            values: vec![None; self.fields.len()],
            delivery: Delivery::default(),
            uncounted: 0,
            answered: None,
            silent: None,
            trouble: None,
            rest: None,
        };
        let mut silences = 0;
        let count = self.blocks.len();
        for i in (self.start..self.start + count).map(|i| i % count) {
            // A recording holds the repetitions that were made.
            let once = suspect && poll.answered.is_none() || intake.stats.tap.is_replay();
            let tries = if once { 1 } else { 1 + retries };
            let outcome = self.ask(bus, i, tries).await?;
            silences += u32::from(outcome == Outcome::Silence);
            if outcome == Outcome::Silence {
                intake.stats.tap.refused(&self.place(), &format!("no answer, asked for {}", self.asked(i)));
            }
            self.take(i, outcome, &mut poll, intake);
            poll.rest = self.owes.rest();
            if poll.rest.is_some() {
                break;
            }
            if poll.answered.is_none() && (suspect || silences >= SILENCES_PER_POLL) {
                // There are devices that are silent about some registers only: begin with others the next time.
                self.start = (i + 1) % count;
                break;
            }
        }
        self.start = poll.answered.unwrap_or(self.start);
        if let (None, Some(silent)) = (&poll.trouble, poll.silent) {
            poll.trouble = Some(match poll.answered {
                None => "no answer".to_owned(),
                Some(_) => format!("no answer, asked for {}", self.asked(silent)),
            });
        }
        intake.stats.refused.inc_by(poll.uncounted);
        let at = poll.at.unwrap_or_else(|| intake.clock.now());
        let values = self.fields.iter().cloned().zip(poll.values);
        let fields: Fields = values.filter_map(|(name, value)| Some((name, value?))).collect();
        let memory = &self.memory;
        let fields = intake.damped(&mut self.damper, fields, (&self.sensor, at), |name| memory.get(name));
        if let Ok(reading) = Reading::new(self.sensor.clone(), at, fields) {
            poll.delivery.readings.push(reading);
        }
        self.settle(poll.answered.is_some(), poll.trouble);
        if let Some(rest) = poll.rest {
            self.due = self.due.max(Instant::now() + rest);
        }
        poll.delivery.stamped = true;
        Ok(poll.delivery)
    }

    async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        bus: &mut Bus<S>,
        block: usize,
        tries: u32,
    ) -> io::Result<Outcome> {
        let request = &self.blocks[block].request;
        let mut outcome = Outcome::Silence;
        for _ in 0..tries {
            let next = bus.ask(request, &mut self.owes).await?;
            // Something that came tells more than a silence after it.
            if !(next == Outcome::Silence && matches!(outcome, Outcome::Garbage { .. })) {
                outcome = next;
            }
            match outcome {
                Outcome::Data { .. } => break,
                // 5 and 6: the device is busy and asks to be asked again.
                Outcome::Exception { code: Exception(5 | 6), .. } | Outcome::Garbage { .. } | Outcome::Silence => {}
                Outcome::Exception { .. } => break,
            }
        }
        Ok(outcome)
    }

    fn take(&mut self, block: usize, outcome: Outcome, poll: &mut Poll, intake: &Intake) {
        let now = intake.clock.now();
        match outcome {
            Outcome::Data { data, frame } => {
                poll.answered.get_or_insert(block);
                poll.at.get_or_insert(now);
                self.take_values(block, &data, &frame, poll, intake);
            }
            Outcome::Exception { code, frame } => {
                poll.answered.get_or_insert(block);
                let words = format!("device answered {code}, asked for {}", self.asked(block));
                self.refuse_block(block, words, &frame, poll, intake);
            }
            Outcome::Garbage { words, bytes, .. } => {
                let words = format!("{words}, asked for {}", self.asked(block));
                if self.may_write_letter() {
                    let letter = intake.letter(now, &self.place(), &words, &bytes);
                    poll.delivery.dead_letters.push(letter);
                } else {
                    poll.uncounted += 1;
                    intake.stats.tap.refused(&self.place(), &words);
                }
                poll.trouble.get_or_insert(words);
            }
            Outcome::Silence => {
                poll.silent.get_or_insert(block);
            }
        }
    }

    fn take_values(&mut self, block: usize, data: &[u8], frame: &[u8], poll: &mut Poll, intake: &Intake) {
        let mut reasons = Vec::new();
        let block = &self.blocks[block];
        for (field, point) in &block.points {
            let value = if block.request.table.is_bits() { point.bit(data) } else { point.value(data) };
            let was_refused = std::mem::take(&mut self.refused[*field]);
            match value {
                Ok(value) => poll.values[*field] = Some(value),
                Err(Absent::Declared) => {
                    intake.stats.tap.refused(self.fields[*field].as_str(), "its content is declared to mean no value");
                }
                Err(Absent::Refused(words)) => {
                    self.refused[*field] = true;
                    let words = format!("field {}: {words}", self.fields[*field]);
                    poll.trouble.get_or_insert_with(|| words.clone());
                    if was_refused {
                        poll.uncounted += 1;
                        intake.stats.tap.refused(&self.sensor.to_string(), &words);
                    } else {
                        reasons.push(words);
                    }
                }
            }
        }
        if !reasons.is_empty() {
            let letter = intake.letter(intake.clock.now(), &self.place(), reasons.join("; "), frame);
            poll.delivery.dead_letters.push(letter);
            poll.uncounted += reasons.len() as u64 - 1;
        }
    }

    fn refuse_block(&mut self, block: usize, words: String, frame: &[u8], poll: &mut Poll, intake: &Intake) {
        let points = &self.blocks[block].points;
        let known = points.iter().all(|(field, _)| self.refused[*field]);
        for (field, _) in points {
            self.refused[*field] = true;
        }
        if known {
            poll.uncounted += 1;
            intake.stats.tap.refused(&self.place(), &words);
        } else {
            let letter = intake.letter(intake.clock.now(), &self.place(), &words, frame);
            poll.delivery.dead_letters.push(letter);
        }
        poll.trouble.get_or_insert(words);
    }

    /// Decides, once the poll is over, when the next one is.
    fn settle(&mut self, answered: bool, trouble: Option<String>) {
        let now = Instant::now();
        self.trouble = trouble;
        if answered {
            self.failures = 0;
            self.pause.reset();
        } else {
            self.failures = self.failures.saturating_add(1);
        }
        self.due = if self.failures >= FAILURES_UNTIL_DEAD {
            now + self.pause.next_pause(1.0)
        } else {
            next_tick(self.due, self.every, now)
        };
    }

    fn may_write_letter(&mut self) -> bool {
        self.letters.may_write(Instant::now())
    }

    fn asked(&self, block: usize) -> String {
        let request = &self.blocks[block].request;
        let (first, last) = (request.address, u32::from(request.address) + u32::from(request.count) - 1);
        format!("{} {first} to {last}", format!("{:?}", request.table).to_lowercase())
    }

    fn place(&self) -> String {
        format!("{} (unit {})", self.sensor, self.unit)
    }
}

/// The first tick of a steady rhythm after `now`; those that were missed are skipped.
fn next_tick(due: Instant, every: Duration, now: Instant) -> Instant {
    let late = now.saturating_duration_since(due);
    let missed = late.as_nanos() / every.as_nanos().max(1);
    due + every * u32::try_from(missed + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_are_skipped_and_the_rhythm_is_kept() {
        let start: Instant = std::time::Instant::now().into();
        let at = |ms| start + Duration::from_millis(ms);
        let every = Duration::from_secs(1);
        assert_eq!(next_tick(at(0), every, at(0)), at(1000));
        assert_eq!(next_tick(at(0), every, at(999)), at(1000));
        assert_eq!(next_tick(at(0), every, at(1000)), at(2000));
        assert_eq!(next_tick(at(0), every, at(5300)), at(6000));
    }
}
