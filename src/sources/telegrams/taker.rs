//! Telegrams into deliveries: which quantities are wanted under which names, whose they are, and when they were true.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::decode::arithmetic::double;
use crate::decode::damp::Damper;
use crate::decode::shape::Options;
use crate::decode::telegram::{Measure, Refusal, Telegram, line_advice};
use crate::decode::units;
use crate::model::{FieldName, Fields, Reading, SensorName, Timestamp, TurnedAway, Value};
use crate::sources::Intake;
use crate::sources::serial::Letters;
use crate::store::{Closed, Delivery};

/// Refused telegrams in a row after which the source is told to be out of order.
const REFUSALS_UNTIL_DOWN: u32 = 5;
/// Polls without an answer after which it is.
const SILENCES_UNTIL_DOWN: u32 = 3;
/// Most quantities with a time of their own that are remembered, so that they are taken once.
const MAX_REMEMBERED: usize = 1024;
/// Most kinds of readings of which the last is remembered for `min_interval`.
const MAX_PACED: usize = 1024;

/// One field that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Its name.
    pub(super) field: FieldName,
    /// Its name in the telegram.
    pub(super) from: String,
    /// What is done to it; the unit is the one in which it is wanted.
    pub(super) options: Options,
}

/// What is taken of telegrams.
#[derive(Debug)]
pub(super) struct Taker {
    pub(super) sensor: SensorName,
    /// Names of the meters behind the meter; others are named after it.
    pub(super) meters: BTreeMap<u8, SensorName>,
    /// All quantities if empty.
    pub(super) wanted: Vec<Wanted>,
    /// Fields of which it depends on earlier values what becomes of one.
    pub(super) memory: HashMap<FieldName, Options>,
    damper: Damper,
    /// What the device says in a field until it has measured something.
    pub(super) start_values: Vec<(FieldName, f64)>,
    pub(super) min_interval: Duration,
    /// How long a start value may last.
    pub(super) warm_up: Duration,
    pub(super) place: String,
    state: State,
}

/// What became of a measure: nothing if it is declared to mean that there is no value.
type Outcome = Result<Option<Value>, Refusal>;

/// Which meter, and when: what is the same in all fields of a reading.
type Whose = (u8, Option<Timestamp>);

/// What is remembered while the line is open.
#[derive(Debug, Default)]
struct State {
    name: String,
    letters: Letters,
    /// Telegrams refused, or polls without an answer, since the last good one.
    refusals: u32,
    silences: u32,
    opened: Option<Instant>,
    /// Start values that the device has left behind.
    warm: Vec<FieldName>,
    hint: Option<&'static str>,
    /// Quantities with a time of their own: the last one taken.
    last: HashMap<(u8, FieldName), (Timestamp, Value)>,
    /// When the last reading with the same fields was: an instrument spreads its quantities over several sentences.
    paced: HashMap<(SensorName, Vec<FieldName>), Timestamp>,
}

impl Taker {
    pub(super) fn new(sensor: SensorName, wanted: Vec<Wanted>, place: String) -> Self {
        Self {
            sensor,
            meters: BTreeMap::new(),
            wanted,
            memory: HashMap::new(),
            damper: Damper::default(),
            start_values: Vec::new(),
            min_interval: Duration::ZERO,
            warm_up: Duration::ZERO,
            place,
            state: State::default(),
        }
    }

    /// The line was opened, under this name.
    pub(super) fn restart(&mut self, name: String) {
        let last = std::mem::take(&mut self.state.last);
        self.state = State { name, last, opened: Some(Instant::now()), ..State::default() };
    }

    /// Hands telegrams over; whether a good one was among them.
    pub(super) async fn take(&mut self, telegrams: Vec<Telegram>, intake: &Intake) -> Result<bool, Closed> {
        let mut any = false;
        for telegram in telegrams {
            let is_good = telegram.refused.is_empty() || !telegram.measures.is_empty();
            any |= is_good && !telegram.is_fragment;
            let delivery = self.delivery(telegram, intake);
            let is_empty = delivery.readings.is_empty() && delivery.refused.is_empty();
            if !is_empty || !delivery.dead_letters.is_empty() {
                intake.deliver(delivery).await?;
            }
        }
        Ok(any)
    }

    fn delivery(&mut self, mut telegram: Telegram, intake: &Intake) -> Delivery {
        let now = intake.clock.now();
        let tap = &intake.stats.tap;
        telegram.absent.iter().for_each(|absent| tap.refused(&absent.what, &absent.why));
        if telegram.is_fragment {
            telegram.refused.iter().for_each(|refusal| tap.refused(&refusal.what, &refusal.why));
            return Delivery::default();
        }
        let mut delivery =
            Delivery { stamped: telegram.measures.iter().all(|m| m.at.is_none()), ..Delivery::default() };
        let mut groups: Vec<(Whose, Fields)> = Vec::new();
        for measure in std::mem::take(&mut telegram.measures) {
            let key = (measure.channel, measure.at);
            match self.field(&measure, intake) {
                None => {}
                Some((_, Err(refusal))) => telegram.refused.push(refusal),
                Some((_, Ok(None))) => {
                    tap.refused(&measure.name, "its content is declared to mean no value");
                }
                Some((field, Ok(Some(value)))) => match groups.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, fields)) if fields.iter().any(|(known, _)| *known == field) => {
                        telegram.refuse(&measure.name, "stands twice: the first is kept");
                    }
                    Some((_, fields)) => fields.push((field, value)),
                    None => groups.push((key, Fields::from_iter([(field, value)]))),
                },
            }
        }
        for ((channel, at), fields) in groups {
            let at = at.unwrap_or(now);
            let made = self.sensor(channel).and_then(|sensor| {
                let fields = intake.damped(&mut self.damper, fields, (&sensor, at), |name| self.memory.get(name));
                if fields.is_empty() {
                    Ok(None)
                } else {
                    Reading::new(sensor, at, fields).map(Some).map_err(|e| e.to_string())
                }
            });
            match made {
                Ok(None) => {}
                Ok(Some(reading)) if self.is_too_soon(&reading) => {
                    tap.refused(reading.sensor.as_str(), "comes sooner than min_interval after the last");
                }
                Ok(Some(reading)) => delivery.readings.push(reading),
                Err(why) => telegram.refuse("reading", why),
            }
        }
        delivery.refused = self.turned_away(&mut telegram, intake);
        self.settle(&telegram, !delivery.readings.is_empty(), intake);
        if !telegram.refused.is_empty() {
            self.refuse(&telegram, intake, &mut delivery);
        }
        delivery
    }

    /// What is not taken because of its own time goes on record, once for each reading that it would have been.
    fn turned_away(&mut self, telegram: &mut Telegram, intake: &Intake) -> Vec<TurnedAway> {
        let mut away: Vec<TurnedAway> = Vec::new();
        for untimely in std::mem::take(&mut telegram.untimely) {
            let measure = untimely.measure;
            match (self.field(&measure, intake), self.sensor(measure.channel), measure.at) {
                (Some((_, Ok(Some(_)))), Ok(sensor), Some(at)) => {
                    telegram.refuse(&measure.name, untimely.why);
                    if !away.iter().any(|known| (&known.sensor, known.at) == (&sensor, at)) {
                        away.push(TurnedAway { sensor, at, reason: untimely.reason });
                    }
                }
                (Some((_, Err(refusal))), ..) => telegram.refused.push(refusal),
                (_, Err(why), _) => telegram.refuse("reading", why),
                _ => {}
            }
        }
        away
    }

    /// The field that a measure is, if it is wanted and new.
    fn field(&mut self, measure: &Measure, intake: &Intake) -> Option<(FieldName, Outcome)> {
        let wanted = self.wanted.iter().find(|wanted| wanted.from == measure.name);
        if wanted.is_none() && !self.wanted.is_empty() {
            return None;
        }
        let refusal = |why: String| Refusal { what: measure.name.clone(), why };
        let field = match wanted {
            Some(wanted) => wanted.field.clone(),
            None => match FieldName::new(&measure.name) {
                Ok(field) => field,
                Err(error) => return Some((self.fallback(), Err(refusal(error.to_string())))),
            },
        };
        if let Some(at) = measure.at {
            let key = (measure.channel, field.clone());
            if self.state.last.get(&key).is_some_and(|(last, value)| *last == at && *value == measure.value) {
                return None;
            }
            if self.state.last.len() < MAX_REMEMBERED || self.state.last.contains_key(&key) {
                self.state.last.insert(key, (at, measure.value.clone()));
            }
        }
        let value = match wanted {
            None => Ok(Some(measure.value.clone())),
            Some(wanted) => wanted.value(measure),
        };
        if let Ok(Some(read)) = &value
            && self.is_start_value(&field, read)
        {
            intake.stats.tap.refused(&measure.name, "is what the device says until it has measured something");
            return None;
        }
        Some((field, value.map_err(refusal)))
    }

    /// Whether a value is the one a device shows while it warms up. Any other ends that.
    fn is_start_value(&mut self, field: &FieldName, value: &Value) -> bool {
        let Some((_, start)) = self.start_values.iter().find(|(name, _)| name == field) else { return false };
        let over = self.state.opened.is_none_or(|opened| opened.elapsed() >= self.warm_up);
        if over || self.state.warm.contains(field) {
            return false;
        }
        let is = double(value) == Some(*start);
        if !is {
            self.state.warm.push(field.clone());
        }
        is
    }

    fn fallback(&self) -> FieldName {
        FieldName::new("value").expect("a plain word is a name")
    }

    fn sensor(&self, channel: u8) -> Result<SensorName, String> {
        match (channel, self.meters.get(&channel)) {
            (0, _) => Ok(self.sensor.clone()),
            (_, Some(named)) => Ok(named.clone()),
            (n, None) => SensorName::new(&format!("{}-mbus{n}", self.sensor)).map_err(|e| e.to_string()),
        }
    }

    fn is_too_soon(&mut self, reading: &Reading) -> bool {
        if self.min_interval.is_zero() {
            return false;
        }
        let fields = reading.fields.iter().map(|(name, _)| name.clone()).collect();
        let key = (reading.sensor.clone(), fields);
        let paced = &mut self.state.paced;
        let soon = paced.get(&key).is_some_and(|last| *last <= reading.at && reading.at < last.plus(self.min_interval));
        if !soon && (paced.len() < MAX_PACED || paced.contains_key(&key)) {
            paced.insert(key, reading.at);
        }
        soon
    }

    /// Notes how the line is.
    fn settle(&mut self, telegram: &Telegram, has_reading: bool, intake: &Intake) {
        if telegram.hint.is_some() && self.state.hint != telegram.hint {
            self.state.hint = telegram.hint;
            tracing::warn!("source {}: {}", intake.name, telegram.hint.unwrap_or_default());
        }
        if has_reading || telegram.refused.is_empty() {
            self.state.refusals = 0;
            self.state.silences = 0;
            self.tell_up(intake);
        }
    }

    fn refuse(&mut self, telegram: &Telegram, intake: &Intake, delivery: &mut Delivery) {
        let now = intake.clock.now();
        let words: Vec<String> = telegram.refused.iter().map(ToString::to_string).collect();
        let words = words.join("; ");
        if delivery.readings.is_empty() {
            self.state.refusals = self.state.refusals.saturating_add(1);
        }
        if self.state.refusals >= REFUSALS_UNTIL_DOWN {
            let advice = line_advice(&telegram.bytes).unwrap_or("are baud and format those of the device?");
            let count = self.state.refusals;
            intake
                .stats
                .condition
                .down(now, format!("the last {count} telegrams could not be read: {words} ({advice})"));
        }
        if self.state.letters.may_write(Instant::now()) {
            delivery.dead_letters.push(intake.letter(now, &self.place, words, &telegram.bytes));
        } else {
            intake.stats.refused.inc();
            intake.stats.tap.refused(&self.place, &words);
        }
    }

    pub(super) fn tell_up(&self, intake: &Intake) {
        let hint = self.state.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        intake.stats.condition.up(intake.clock.now(), format!("reads {}{hint}", self.state.name));
    }

    /// Nothing came for so long.
    pub(super) fn tell_silence(&self, patience: Duration, intake: &Intake) {
        let patience = humantime::format_duration(patience);
        let words = format!("nothing came from {} for {patience} (is the device on and connected?)", self.state.name);
        intake.stats.condition.down(intake.clock.now(), words);
    }

    /// A poll brought nothing good; `silence` if it brought nothing at all.
    pub(super) fn tell_no_answer(&mut self, silence: bool, intake: &Intake) {
        if silence {
            intake.stats.tap.refused("poll", "no answer");
        }
        self.state.silences = self.state.silences.saturating_add(1);
        if self.state.silences >= SILENCES_UNTIL_DOWN {
            let words = if silence {
                "does not answer (is it on and connected, and are baud and format right?)"
            } else {
                "does not answer as it should"
            };
            intake.stats.condition.down(intake.clock.now(), format!("the device on {} {words}", self.state.name));
        }
    }
}

impl Wanted {
    fn value(&self, measure: &Measure) -> Result<Option<Value>, String> {
        let value = match (&measure.unit, &self.options.unit) {
            (Some(from), Some(to)) if from != to => units::convert(measure.value.clone(), from, to)?,
            _ => measure.value.clone(),
        };
        self.options.take(value)
    }
}
