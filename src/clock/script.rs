//! A clock of which everything can be told: when the wall clock is set, when the machine sleeps, when it is synchronised.
//! With it years of a gateway's life are simulated in milliseconds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Signs, millis};
use crate::model::Timestamp;

/// One boot of a simulated machine. Clones are the same machine.
#[derive(Clone, Debug)]
pub struct Script(Arc<Mutex<Play>>);

/// Times in milliseconds.
#[derive(Debug)]
struct Play {
    boot: Arc<str>,
    wall: i64,
    boot_time: i64,
    signs: Signs,
    /// Inside a runtime its time passes here too.
    origin: Option<tokio::time::Instant>,
}

impl Play {
    fn elapsed(&self) -> i64 {
        self.origin.map_or(0, |origin| millis(origin.elapsed()))
    }
}

impl Script {
    /// A machine that has just been started, whose wall clock says `wall`. Inside a tokio runtime it goes on with tokio's
    /// time, and otherwise only by [`Self::pass`].
    pub fn boot_at(boot: &str, wall: Timestamp) -> Self {
        let origin = tokio::runtime::Handle::try_current().is_ok().then(tokio::time::Instant::now);
        let signs = Signs { kernel: Some(false), ..Signs::default() };
        Self(Arc::new(Mutex::new(Play { boot: Arc::from(boot), wall: wall.as_millis(), boot_time: 0, signs, origin })))
    }

    /// Time passes.
    pub fn pass(&self, time: Duration) {
        let mut play = self.play();
        play.wall += millis(time);
        play.boot_time += millis(time);
    }

    /// The wall clock is set forward by so many milliseconds, or back.
    pub fn step(&self, millis: i64) {
        self.play().wall += millis;
    }

    /// The wall clock is set.
    pub fn set(&self, wall: Timestamp) {
        let mut play = self.play();
        play.wall = wall.as_millis() - play.elapsed();
    }

    /// The system says something else of its clock.
    pub fn tell(&self, signs: Signs) {
        self.play().signs = signs;
    }

    /// The wall clock is set right and synchronised.
    pub fn synchronise(&self, wall: Timestamp) {
        self.set(wall);
        self.tell(Signs { kernel: Some(true), ..Signs::default() });
    }

    pub(super) fn wall(&self) -> Timestamp {
        let play = self.play();
        Timestamp::clamped(play.wall + play.elapsed())
    }

    pub(super) fn boot_time(&self) -> i64 {
        let play = self.play();
        play.boot_time + play.elapsed()
    }

    pub(super) fn boot(&self) -> Arc<str> {
        Arc::clone(&self.play().boot)
    }

    pub(super) fn signs(&self) -> Signs {
        self.play().signs
    }

    fn play(&self) -> MutexGuard<'_, Play> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
