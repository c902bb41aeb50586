//! Serial sources on real terminals. (Emulators of user space cannot open a terminal: `--skip serial` there.)

mod corpus;
mod inputs;
mod lines;
mod main_job;
mod modbus;
mod oracle;
mod pymodbus;
mod samples;
mod sniff;
mod variants;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tipbucket::clock::Clock;
use tipbucket::model::{Admission, DeadLetter, Reading, SourceName, Value};
use tipbucket::sources::{Intake, KINDS, SourceConfig, supervise};
use tipbucket::stats::{SourceStats, Stats};
use tipbucket::store::{Deliveries, inlet};
use tokio::task::JoinHandle;

/// Far longer than anything here takes on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// A source at work under its supervisor, and all that it delivered.
struct Running {
    task: JoinHandle<()>,
    deliveries: Deliveries,
    stats: Arc<SourceStats>,
    readings: Vec<Reading>,
    letters: Vec<DeadLetter>,
}

impl Running {
    fn start(kind: &str, settings: serde_json::Value) -> Self {
        let kind = KINDS.iter().find(|k| k.name == kind).unwrap();
        let config = (kind.read)(serde_json::from_value(settings).unwrap()).unwrap();
        assert_eq!(config.contradictions(), []);
        Self::of(kind.name, config, Clock::system(), None)
    }

    /// A source with these settings, at this time and place.
    fn of(
        kind: &'static str,
        config: Box<dyn SourceConfig>,
        clock: Clock,
        timezone: Option<jiff::tz::TimeZone>,
    ) -> Self {
        let name = SourceName::new("line").unwrap();
        let stats = Stats::default().source(&name, kind);
        let (inlet, deliveries) = inlet();
        let admission = Admission { max_future: Duration::from_secs(600), max_age: None };
        let intake = Intake { name, clock, stats: Arc::clone(&stats), admission, timezone, inlet };
        let task = tokio::spawn(supervise(config.build(), intake));
        Self { task, deliveries, stats, readings: Vec::new(), letters: Vec::new() }
    }

    /// Waits until it holds.
    async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < DEADLINE, "{what} does not come true: {:?} {:?}", self.state(), self.letters);
            if let Ok(Some((delivery, weight))) =
                tokio::time::timeout(Duration::from_millis(5), self.deliveries.next()).await
            {
                self.deliveries.release(weight as usize);
                self.readings.extend(delivery.readings);
                self.letters.extend(delivery.dead_letters);
            }
        }
    }

    async fn until_readings(&mut self, count: usize) {
        self.until(&format!("{count} readings"), |running| running.readings.len() >= count).await;
    }

    fn state(&self) -> tipbucket::stats::State {
        self.stats.condition.get()
    }

    fn is_down(&self, words: &str) -> bool {
        let state = self.state();
        state.up == Some(false) && state.detail.contains(words)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A field of a reading.
fn value(reading: &Reading, field: &str) -> Option<Value> {
    reading.fields.iter().find(|(name, _)| name.as_str() == field).map(|(_, value)| value.clone())
}
