//! The only part that asks the operating system what time it is, and whether that can be believed. Everywhere else time
//! is an argument, or comes from here.
//!
//! Two lines of time. The *wall clock* is the system's: it can be set, and on a machine without a battery it starts
//! anywhere. The *steady line* goes on with the kernel's boot-time clock, through suspends and over every setting of the
//! wall clock; where it lies in the calendar is decided once in each boot, and kept over restarts of the program.
//! [`Clock::now`] is the wall clock once that is trusted, the steady line until then: so nothing jumps before, and the
//! difference between the two on the day of trust puts right what was stamped meanwhile.
//!
//! What must stay true: trust is given once in a boot and never taken back in it (a clock that was right goes on by the
//! same oscillator); it changes only in [`Clock::look`] and [`Clock::offer`]; stamps taken for arrivals say themselves
//! whether they are unsynced.

mod config;
mod script;
mod signs;
mod system;
#[cfg(test)]
mod tests;
mod timedated;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use config::{Belief, Config, WhenUnsynced};
pub use script::Script;
pub use signs::Signs;

use crate::model::{SourceName, Timestamp};

/// How often the system is asked anew whether its clock is synchronised: two calls that cost microseconds.
const LOOK_EVERY: i64 = 1000;
/// How far two corrections may differ and still confirm each other, in milliseconds: a sentence may wait in a buffer.
const AGREEMENT: i64 = 2000;
/// How far apart, in milliseconds of steady time, two offers must be: a device that replays its memory sends faster.
const OFFERS_APART: i64 = 1000;
/// By how much a source's time must differ, in milliseconds, before a clock that it has set is set again.
const SET_AGAIN: i64 = 500;

/// Where the time comes from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock {
    inner: Arc<Inner>,
    role: Role,
}

/// What a clone is for.
#[derive(Clone, Debug)]
enum Role {
    /// Tells the time.
    Plain,
    /// Stamps arrivals; and that source's times may set the clock.
    Arrivals(Option<SourceName>),
}

#[derive(Debug)]
struct Inner {
    kind: Kind,
    config: Config,
    line: Mutex<Line>,
}

#[derive(Clone, Debug)]
enum Kind {
    System(system::System),
    Virtual { start: Timestamp, origin: tokio::time::Instant },
    Script(Script),
    Fixed(Timestamp),
}

/// Whether the time is believed, and whose word that is. Grows within a boot and never shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// It is not.
    #[default]
    Unsynced,
    /// A source brought the time.
    Source,
    /// The system's clock is right.
    System,
}

/// The state of the two lines. Times in milliseconds.
#[derive(Debug, Default)]
struct Line {
    /// The steady line is this plus the boot-time clock.
    base: i64,
    trust: Trust,
    /// With [`Trust::Source`]: what must be added to the steady line.
    correction: i64,
    reason: String,
    /// When the system was last asked, on the boot-time clock.
    looked: Option<i64>,
    /// The newest time that was trusted in an earlier run.
    floor: Timestamp,
    /// The last offer: when on the steady line, and the correction that it means.
    offer: Option<(i64, i64)>,
}

/// One instant, as everything about the clock stands then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What time it is.
    pub now: Timestamp,
    /// The same instant on the steady line.
    pub steady: Timestamp,
    /// Whether `now` is believed.
    pub trust: Trust,
    /// Which boot of the machine this is.
    pub boot: Arc<str>,
    /// Where the steady line lies: it is this plus the boot-time clock, in milliseconds.
    pub base: i64,
}

impl Moment {
    /// What must be added to a stamp of the steady line, in milliseconds.
    pub const fn correction(&self) -> i64 {
        self.now.as_millis() - self.steady.as_millis()
    }

    /// Whether `now` is believed.
    pub fn is_trusted(&self) -> bool {
        self.trust > Trust::Unsynced
    }
}

/// What an earlier run left about the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The boot of that run.
    pub boot: String,
    /// Its steady line.
    pub base: i64,
    /// Its trust.
    pub trust: Trust,
    /// Its correction, once trusted.
    pub correction: i64,
    /// The newest time that was trusted, ever.
    pub trusted: Timestamp,
    /// The newest time of all.
    pub newest: Timestamp,
}

/// How the clock stands, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether the time is believed.
    pub trust: Trust,
    /// Why, or why not.
    pub reason: String,
    /// How far the time told is from the steady line, in milliseconds.
    pub offset_ms: i64,
}

impl Clock {
    /// The system's clock, believed as it is until [`Self::governed_by`] says otherwise.
    pub fn system() -> Self {
        Self::of(Kind::System(system::System::default()), Config::believing())
    }

    /// A clock that reads `start` now and goes on with tokio's own, so that paused time is virtual time.
    /// Must be called inside a runtime.
    pub fn virtual_from(start: Timestamp) -> Self {
        Self::of(Kind::Virtual { start, origin: tokio::time::Instant::now() }, Config::believing())
    }

    /// Always the same time: that at which a recording was made.
    pub fn fixed(at: Timestamp) -> Self {
        Self::of(Kind::Fixed(at), Config::believing())
    }

    /// A clock of which everything can be told, for simulations.
    pub fn scripted(script: &Script, config: Config) -> Self {
        Self::of(Kind::Script(script.clone()), config)
    }

    /// The same clock, believed as `config` says.
    pub fn governed_by(&self, config: Config) -> Self {
        Self::of(self.inner.kind.clone(), config)
    }

    /// The same clock, for stamping arrivals: while it is not trusted its times are unsynced stamps. If a source is
    /// named, the times that this source brings may set the clock.
    pub fn for_arrivals(&self, set_by: Option<SourceName>) -> Self {
        Self { inner: Arc::clone(&self.inner), role: Role::Arrivals(set_by) }
    }

    fn of(kind: Kind, config: Config) -> Self {
        let base = kind.wall().as_millis() - kind.boot_time();
        let trust = if config.trust == Belief::Always { Trust::System } else { Trust::Unsynced };
        let reason = if trust == Trust::System { signs::ALWAYS.to_owned() } else { String::new() };
        let line = Mutex::new(Line { base, trust, reason, ..Line::default() });
        Self { inner: Arc::new(Inner { kind, config, line }), role: Role::Plain }
    }

    /// How it is governed.
    pub fn config(&self) -> Config {
        self.inner.config
    }

    /// What time it is. A system clock before 1970 reads as 1970.
    pub fn now(&self) -> Timestamp {
        let line = self.line();
        let now = self.told(&line);
        match self.role {
            Role::Arrivals(_) if line.trust == Trust::Unsynced => now.unsynced(),
            _ => now,
        }
    }

    fn told(&self, line: &Line) -> Timestamp {
        match line.trust {
            Trust::System => self.inner.kind.wall(),
            Trust::Source => self.steady(line).shifted(line.correction),
            Trust::Unsynced => self.steady(line),
        }
    }

    fn steady(&self, line: &Line) -> Timestamp {
        Timestamp::clamped(line.base.saturating_add(self.inner.kind.boot_time()))
    }

    /// Begins where an earlier run ended: in the same boot the steady line and the trust go on; after another boot the
    /// line begins no earlier than anything that is known, so that boots come in their order.
    pub fn begin(&self, known: &Known) {
        let mut line = self.line();
        line.floor = known.trusted;
        if *known.boot == *self.inner.kind.boot() {
            line.base = known.base;
            if known.trust > line.trust {
                (line.trust, line.correction) = (known.trust, known.correction);
                line.reason = "it was trusted earlier in this boot".to_owned();
            }
        } else {
            let start = self.inner.kind.wall().max(known.newest.shifted(1));
            line.base = start.as_millis() - self.inner.kind.boot_time();
        }
    }

    /// Looks at everything, and asks the system now and then whether its clock is synchronised meanwhile.
    pub fn look(&self) -> Moment {
        let kind = &self.inner.kind;
        let (wall, boot_time) = (kind.wall(), kind.boot_time());
        let mut line = self.line();
        let is_time = line.looked.is_none_or(|last| boot_time - last >= LOOK_EVERY || boot_time < last);
        if line.trust < Trust::System && is_time {
            line.looked = Some(boot_time);
            match signs::judge(&kind.signs(), self.inner.config.trust, wall, line.floor) {
                Ok(reason) => (line.trust, line.reason) = (Trust::System, reason),
                Err(why) if line.trust == Trust::Unsynced => line.reason = why,
                Err(_) => {}
            }
        }
        let (now, steady) = (self.told(&line), self.steady(&line));
        Moment { now, steady, trust: line.trust, boot: kind.boot(), base: line.base }
    }

    /// Whether the times of this clone's source may set the clock, which still needs it.
    pub fn wants_offers(&self) -> bool {
        matches!(self.role, Role::Arrivals(Some(_))) && self.line().trust < Trust::System
    }

    /// A source that may set the clock says that it is `at`. Two that confirm each other are believed.
    pub fn offer(&self, at: Timestamp) {
        let Role::Arrivals(Some(source)) = &self.role else { return };
        let mut line = self.line();
        if line.trust == Trust::System || !signs::is_plausible(at, line.floor) {
            return;
        }
        let steady = self.steady(&line).as_millis();
        let correction = at.as_millis() - steady;
        match line.offer {
            Some((_, earlier)) if (earlier - correction).abs() > AGREEMENT => line.offer = Some((steady, correction)),
            Some((when, _)) if steady - when < OFFERS_APART => {}
            Some(_) => {
                line.offer = Some((steady, correction));
                if line.trust == Trust::Unsynced || (line.correction - correction).abs() > SET_AGAIN {
                    (line.trust, line.correction) = (Trust::Source, correction);
                    line.reason = format!("source {source} brought the time");
                }
            }
            None => line.offer = Some((steady, correction)),
        }
    }

    /// How it stands, for people.
    pub fn standing(&self) -> Standing {
        let line = self.line();
        let offset_ms = self.told(&line).as_millis() - self.steady(&line).as_millis();
        Standing { trust: line.trust, reason: line.reason.clone(), offset_ms }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // A poisoned lock means a panic between two assignments of plain values: nothing to protect from.
        self.inner.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kind {
    fn wall(&self) -> Timestamp {
        match self {
            Self::System(system) => system.wall(),
            Self::Virtual { start, origin } => start.plus(origin.elapsed()),
            Self::Script(script) => script.wall(),
            Self::Fixed(at) => *at,
        }
    }

    /// Milliseconds since the machine was started, those that it slept included.
    fn boot_time(&self) -> i64 {
        match self {
            Self::System(system) => system.boot_time(),
            Self::Virtual { origin, .. } => millis(origin.elapsed()),
            Self::Script(script) => script.boot_time(),
            Self::Fixed(_) => 0,
        }
    }

    fn boot(&self) -> Arc<str> {
        match self {
            Self::System(system) => system.boot(),
            Self::Virtual { .. } | Self::Fixed(_) => Arc::from("virtual"),
            Self::Script(script) => script.boot(),
        }
    }

    fn signs(&self) -> Signs {
        match self {
            Self::System(system) => system.signs(),
            // Whoever simulates time means it.
            Self::Virtual { .. } | Self::Fixed(_) => Signs { kernel: Some(true), ..Signs::default() },
            Self::Script(script) => script.signs(),
        }
    }
}

impl fmt::Display for Trust {
    /// `unsynced` or `synced`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Unsynced { "unsynced" } else { "synced" })
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
