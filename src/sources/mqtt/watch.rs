//! Notices what no longer sends: the whole source (`silent_after` beside its url), or single sensors (`silent_after` of a
//! topic). Told once, and once more when it is over; the status and the metrics say it as long as it lasts.
//!
//! A sensor is watched from its first reading on; one whose name the site file holds, from the start.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::config::Config;
use super::topic::Topic;
use super::topics::{Filter, Template};
use crate::model::SensorName;
use crate::sources::Intake;

/// Most sensors that are watched; a site has at most so many.
const MAX_WATCHED: usize = 10_000;
/// How often it is looked, at least and at most: a silence is noticed within a quarter of its limit.
const LOOKS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// How many silent sensors are named.
const NAMED: usize = 5;

/// What is watched, and when it last sent.
#[derive(Debug)]
pub(super) struct Watch {
    /// For the whole source.
    limit: Option<Duration>,
    /// For the sensors of each route.
    limits: Vec<Option<Duration>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the last message came.
    message: Instant,
    /// The source was told to be silent.
    is_silent: bool,
    sensors: HashMap<SensorName, Heard>,
    /// How many sensors were told to be silent.
    told: usize,
}

#[derive(Debug)]
struct Heard {
    at: Instant,
    limit: Duration,
    is_silent: bool,
}

impl Watch {
    /// What the site file wants to be watched, from now on.
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        let limits: Vec<Option<Duration>> = config.topics.iter().map(|topic| topic.silent_after).collect();
        let fixed = config.topics.iter().filter_map(|topic| {
            let limit = topic.silent_after?;
            Some((fixed_name(topic)?, Heard { at: now, limit, is_silent: false }))
        });
        let state = State { message: now, is_silent: false, sensors: fixed.collect(), told: 0 };
        Self { limit: config.silent_after, limits, state: Mutex::new(state) }
    }

    /// A connection begins: a silence counts from here, and the connection's own state is told anew.
    pub(super) fn begin(&self, now: Instant) {
        self.message(now);
    }

    /// A message came; whether that ends a silence of the source.
    pub(super) fn message(&self, now: Instant) -> bool {
        if self.limit.is_none() {
            return false;
        }
        let mut state = self.state();
        state.message = now;
        std::mem::take(&mut state.is_silent)
    }

    /// Readings of these sensors came by that route.
    pub(super) fn heard<'s>(&self, route: usize, sensors: impl Iterator<Item = &'s SensorName>, now: Instant) {
        let Some(limit) = self.limits.get(route).copied().flatten() else { return };
        let known = &mut self.state().sensors;
        for sensor in sensors {
            let heard = Heard { at: now, limit, is_silent: false };
            if let Some(earlier) = known.get_mut(sensor) {
                *earlier = heard;
            } else if known.len() < MAX_WATCHED {
                known.insert(sensor.clone(), heard);
            }
        }
    }

    /// Looks again and again.
    pub(super) async fn stand(&self, intake: &Intake, broker: &str) -> Infallible {
        let Some(least) = self.limits.iter().flatten().chain(&self.limit).min() else {
            return std::future::pending().await;
        };
        let pause = (*least / 4).clamp(LOOKS.0, LOOKS.1);
        loop {
            sleep(pause).await;
            self.look(intake, broker, Instant::now());
        }
    }

    fn look(&self, intake: &Intake, broker: &str, now: Instant) {
        let mut state = self.state();
        let condition = &intake.stats.condition;
        if let Some(limit) = self.limit
            && now.duration_since(state.message) >= limit
            && condition.get().up == Some(true)
        {
            // Where the connection fails, that is told instead.
            state.is_silent = true;
            let limit = humantime::format_duration(limit);
            let words =
                format!("connected to {broker}, but no message came for {limit} (do the devices send, and where?)");
            condition.down(intake.clock.now(), words);
        }
        self.look_at_sensors(&mut state, intake, now);
    }

    fn look_at_sensors(&self, state: &mut State, intake: &Intake, now: Instant) {
        let mut is_news = false;
        for heard in state.sensors.values_mut() {
            if !heard.is_silent && now.duration_since(heard.at) >= heard.limit {
                heard.is_silent = true;
                is_news = true;
            }
        }
        let mut silent: Vec<(&SensorName, &Heard)> = state.sensors.iter().filter(|(_, h)| h.is_silent).collect();
        let count = silent.len();
        if !is_news && count == state.told {
            return;
        }
        state.told = count;
        intake.stats.silent.set(i64::try_from(count).unwrap_or(i64::MAX));
        if count == 0 {
            return intake.stats.silences.up(intake.clock.now(), "every watched sensor sends again");
        }
        silent.sort_by_key(|(name, heard)| (heard.at, name.as_str()));
        let named = silent.iter().take(NAMED).map(|(name, heard)| {
            let since = Duration::from_secs(now.duration_since(heard.at).as_secs());
            format!("{name} for {}", humantime::format_duration(since))
        });
        let named: Vec<String> = named.collect();
        let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
        intake.stats.silences.down(intake.clock.now(), format_args!("nothing came from {}{more}", named.join(", ")));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is in it stays true whatever panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sensor of a topic, if its entry names it wholly.
fn fixed_name(topic: &Topic) -> Option<SensorName> {
    let text = topic.sensor.as_deref()?;
    let wildcards = Filter::new(&topic.filter).ok()?.wildcards();
    let is_fixed = !text.starts_with('/') && Template::new(text, wildcards).is_ok_and(|template| template.is_fixed());
    SensorName::new(text).ok().filter(|_| is_fixed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::model::{Admission, SourceName, Timestamp};
    use crate::stats::Stats;

    fn intake() -> Intake {
        let name = SourceName::new("broker").expect("name");
        Intake {
            stats: Stats::default().source(&name, "mqtt"),
            name,
            clock: Clock::virtual_from(Timestamp::EPOCH),
            admission: Admission::default(),
            timezone: None,
            inlet: crate::store::inlet().0,
        }
    }

    fn watch(text: &str) -> (Watch, Intake, Instant) {
        let config: Config = toml::from_str(&format!("url = 'mqtt://b'\nclient_id = 'g'\n{text}")).expect("table");
        assert_eq!(config.find_contradictions(), []);
        let now = Instant::now();
        (Watch::new(&config, now), intake(), now)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_silent_source_is_told_once_and_a_message_ends_it() {
        let (watch, intake, _) = watch("silent_after = '10m'\n[[topics]]\nfilter = 's'\n");
        let condition = &intake.stats.condition;
        condition.up(Timestamp::EPOCH, "connected");
        let look = async {
            sleep(MINUTE * 9).await;
            assert_eq!(condition.get().up, Some(true));
            sleep(MINUTE * 2).await;
            assert_eq!(
                condition.get().detail,
                "connected to b, but no message came for 10m (do the devices send, and where?)"
            );
            sleep(MINUTE * 60).await;
            assert_eq!(condition.get().failures, 1);
            assert!(watch.message(Instant::now()) && !watch.message(Instant::now()));
            condition.down(Timestamp::EPOCH, "no route");
            sleep(MINUTE * 60).await;
            assert_eq!(condition.get().detail, "no route", "a failed connection is told, not what follows from it");
        };
        tokio::select! {
            () = look => {}
            never = watch.stand(&intake, "b") => match never {},
        }
    }

    #[test]
    fn silent_sensors_are_counted_and_named_and_come_back() {
        let topics = "[[topics]]\nfilter = 'r'\nsensor = 'roof'\nsilent_after = '1h'\n\
                      [[topics]]\nfilter = 's/+'\nsensor = '{1}'\nsilent_after = '5m'\n[[topics]]\nfilter = 'x'\n";
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("runtime");
        let _time = runtime.enter();
        let (watch, intake, start) = watch(topics);
        let look = |minutes| watch.look(&intake, "b", start + MINUTE * minutes);
        let (kitchen, other) = (SensorName::new("kitchen").expect("name"), SensorName::new("other").expect("name"));
        let told = || (intake.stats.silent.get(), intake.stats.silences.get().up, intake.stats.silences.get().failures);
        watch.heard(1, [&kitchen].into_iter(), start);
        watch.heard(2, [&other].into_iter(), start);
        look(4);
        assert_eq!(told(), (0, None, 0));
        look(6);
        look(7);
        assert_eq!(told(), (1, Some(false), 1));
        look(61);
        assert_eq!(told(), (2, Some(false), 2));
        assert_eq!(intake.stats.silences.get().detail, "nothing came from kitchen for 1h 1m, roof for 1h 1m");
        watch.heard(1, [&kitchen].into_iter(), start + MINUTE * 62);
        look(62);
        assert_eq!(told(), (1, Some(false), 3));
        watch.heard(0, [&SensorName::new("roof").expect("name")].into_iter(), start + MINUTE * 63);
        look(63);
        assert_eq!(told(), (0, Some(true), 0));
    }

    #[test]
    fn what_is_watched_is_bounded() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("runtime");
        let _time = runtime.enter();
        let (watch, _, start) = watch("[[topics]]\nfilter = 's/+'\nsilent_after = '5m'\n");
        for i in 0..MAX_WATCHED + 5 {
            watch.heard(0, [&SensorName::new(&format!("s{i}")).expect("name")].into_iter(), start);
        }
        assert_eq!(watch.state().sensors.len(), MAX_WATCHED);
    }
}
