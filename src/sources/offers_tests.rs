//! Times on the wire that set the clock, whatever kind of source they come by.

use super::*;
use crate::clock::{Config, Script, Trust};
use crate::model::{FieldName, Reading, SensorName, Value};
use crate::stats::Stats;

const TRUTH: i64 = 1_796_043_600_000;

/// Delivers readings a second apart, each with what its device says of the time (`None`: it is stamped); whether the clock
/// is trusted then.
async fn check(sets_clock: bool, told: &[Option<i64>], expected: Trust) {
    let name = SourceName::new("gps").unwrap();
    let script = Script::boot_at("a", Timestamp::EPOCH);
    let clock = Clock::scripted(&script, Config::default());
    let intake = Intake {
        clock: clock.for_arrivals(sets_clock.then(|| name.clone())),
        stats: Stats::default().source(&name, "test"),
        name,
        admission: Admission { max_future: Duration::from_secs(600), max_age: None },
        timezone: None,
        inlet: crate::store::inlet().0,
    };
    for told in told {
        let now = intake.clock.now();
        assert!(now.is_unsynced() || clock.look().is_trusted());
        let at = told.map_or(now, |seconds| Timestamp::clamped(TRUTH + seconds * 1000));
        assert_eq!(intake.admission.check(at.plain().max(Timestamp::clamped(TRUTH)), now), Ok(()));
        let fields = [(FieldName::new("v").unwrap(), Value::I64(1))].into_iter().collect();
        let readings = vec![Reading::new(SensorName::new("s").unwrap(), at, fields).unwrap()];
        // Nobody takes it out at the other end.
        let delivery = Delivery { stamped: told.is_none(), ..Delivery::of(readings) };
        assert_eq!(intake.deliver(delivery).await, Err(Closed));
        script.pass(Duration::from_secs(1));
    }
    assert_eq!(clock.look().trust, expected, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn two_times_that_confirm_each_other_set_the_clock() {
    check(true, &[Some(0), Some(1)], Trust::Source).await;
    check(true, &[Some(0)], Trust::Unsynced).await;
    check(false, &[Some(0), Some(1), Some(2)], Trust::Unsynced).await;
}

#[tokio::test(start_paused = true)]
async fn stamps_and_replayed_memories_do_not() {
    check(true, &[None, None, None], Trust::Unsynced).await;
    check(true, &[Some(0), Some(60), Some(120), Some(180)], Trust::Unsynced).await;
    check(true, &[Some(0), Some(60), None, Some(62)], Trust::Source).await;
}
