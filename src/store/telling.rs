//! What the writer tells after each commit: counters, conditions, alarms.

use std::time::Duration;

use super::engine::{Engine, Report};
use super::room::Level;
use super::writer::Writer;
use crate::model::LossReason;

impl Writer {
    pub(super) fn tell(&mut self, engine: &Engine, level: Option<Level>, report: Report, took: Duration) {
        let stats = self.stats.store();
        let now = self.clock.now();
        stats.condition.up(now, format_args!("writing {}", self.setup.path.display()));
        let refused =
            report.lost[LossReason::TooManySensors as usize] + report.lost[LossReason::TooManyFields as usize];
        if refused > 0 {
            let most = self.setup.max_sensors;
            let words = format_args!(
                "site.max_sensors ({most}) is reached, or there are too many field names: readings with further names are \
                 refused and stand in the ledger"
            );
            stats.sensor_condition.lost(now, words);
            stats.sensor_limit.inc_by(refused);
        }
        if report.thinned > 0 {
            let words = format_args!(
                "store.max_bytes is nearly used up: the oldest undelivered buckets keep their rollups only, {} samples went now",
                report.thinned
            );
            stats.room_condition.lost(now, words);
            stats.thinned.inc_by(report.thinned);
        }
        if report.evicted > 0 {
            let words = format_args!(
                "store.max_bytes is used up: the oldest undelivered buckets are deleted, {} now; the ledger tells of which times",
                report.evicted
            );
            stats.room_condition.lost(now, words);
        }
        if report.lost[LossReason::StoreFull as usize] > 0 {
            let words = format_args!(
                "nothing could be stored for too long: {} readings of sources that cannot send again are lost; the ledger has them",
                report.lost[LossReason::StoreFull as usize]
            );
            stats.room_condition.lost(now, words);
        }
        stats.readings.inc_by(report.readings);
        stats.duplicates.inc_by(report.duplicates);
        stats.redelivered.inc_by(report.redelivered);
        stats.sealed.inc_by(report.sealed);
        stats.late.inc_by(report.late);
        stats.dead_letters.inc_by(report.dead_letters);
        stats.evicted.inc_by(report.evicted);
        stats.written.inc_by(report.written);
        stats.restamped.inc_by(report.restamped);
        stats.unsynced.inc_by(report.unsynced);
        if report.committed {
            tracing::debug!("committed {} readings, {} sealed buckets in {took:.1?}", report.readings, report.sealed);
            stats.commits.inc();
            stats.commit_us.set(i64::try_from(took.as_micros()).unwrap_or(i64::MAX));
            stats.last_commit_ms.set(now.as_millis());
        }
        self.tell_level(engine, level);
    }

    /// Tells how things stand at the start.
    pub(super) fn tell_opened(mut self) -> Self {
        if let Some(engine) = self.engine.take() {
            self.tell_level(&engine, engine.level().ok());
            self.engine = Some(engine);
        }
        self
    }

    /// Tells how things stand, whether or not anything was committed. Without a level the next commit meets the trouble
    /// that there was with it, and reports that.
    pub(super) fn tell_level(&mut self, engine: &Engine, level: Option<Level>) {
        let (now, stats) = (self.clock.now(), self.stats.store());
        engine.tell(stats);
        let Some(Level { fill, bytes }) = level else { return };
        stats.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        let alarm = self.alarm.update(fill, |before, alarm| match (before, alarm) {
            (_, 0) => tracing::info!("store: {} % of store.max_bytes are used: there is room again", fill.percent()),
            (before, alarm) if alarm < before => {
                tracing::info!("store: {} % of store.max_bytes are used, less than before", fill.percent());
            }
            (_, 70) => tracing::warn!(
                "store: {} % of store.max_bytes are used (is the upstream away? raise it, or see why nothing is delivered)",
                fill.percent()
            ),
            _ => tracing::error!(
                "store: {} % of store.max_bytes are used: at 95 % store.when_full decides what is lost (see why nothing is delivered)",
                fill.percent()
            ),
        });
        stats.alarm_percent.set(i64::try_from(alarm).unwrap_or(0));
        stats.fill_percent.set(i64::try_from(fill.percent()).unwrap_or(0));
        if !fill.is_high() && stats.room_condition.get().up == Some(false) {
            stats.room_condition.up(now, "there is room again");
        }
    }
}
