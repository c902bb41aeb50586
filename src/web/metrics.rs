//! `/metrics` in the OpenMetrics text format, which Prometheus reads.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Subject;
use crate::model::LossReason;
use crate::stats::{Condition, SourceStats, StoreStats};

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn render(subject: &Arc<Subject>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tipbucket");
    registry.register_collector(Box::new(Facts(Arc::clone(subject))));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// Reads one count of a source.
type Count = fn(&SourceStats) -> u64;

#[derive(Debug)]
struct Facts(Arc<Subject>);

impl Collector for Facts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (store, upstream) = (self.0.stats.store(), self.0.stats.upstream());
        let counters = [
            ("store_readings", "Readings on disk", store.readings.get()),
            ("store_duplicates", "Readings that were there already", store.duplicates.get()),
            ("store_redelivered", "Messages delivered again by a broker and recognised", store.redelivered.get()),
            ("store_sensor_limit", "Readings of sensors beyond site.max_sensors", store.sensor_limit.get()),
            ("store_commits", "Transactions committed", store.commits.get()),
            ("store_written_bytes", "Bytes written to the card by commits and checkpoints", store.written.get()),
            ("store_sealed_buckets", "Buckets sealed", store.sealed.get()),
            ("store_late_buckets", "Buckets opened for late readings", store.late.get()),
            ("store_thinned_samples", "Samples replaced by rollups for want of room", store.thinned.get()),
            ("store_evicted_buckets", "Buckets deleted undelivered for want of room", store.evicted.get()),
            ("store_dead_letters", "Dead letters written", store.dead_letters.get()),
            ("clock_restamped_samples", "Samples whose times were put right", store.restamped.get()),
            ("clock_unsynced_samples", "Samples stamped by a clock that was not trusted", store.unsynced.get()),
            ("upstream_buckets", "Buckets delivered", upstream.buckets.get()),
            ("upstream_readings", "Readings delivered", upstream.readings.get()),
            ("upstream_bytes", "Bytes of documents delivered", upstream.bytes.get()),
            ("upstream_failures", "Delivery attempts that failed as a whole", upstream.failures.get()),
            ("upstream_conflicts", "Buckets sent under a second _id", upstream.conflicts.get()),
            ("upstream_refused_buckets", "Buckets the database refused for good", upstream.refused.get()),
            ("upstream_live_updates", "Updates of open buckets", upstream.live_updates.get()),
            ("upstream_live_readings", "Readings that they showed first", upstream.live_readings.get()),
        ];
        for (name, help, value) in counters {
            one(&mut encoder, name, help, &ConstCounter::new(value))?;
        }
        let gauges = [
            ("store_accepted_readings", "Taken charge of since the file was born", store.accepted.get()),
            ("store_delivered_readings", "Of these, proven stored upstream", store.delivered.get()),
            ("store_stored_readings", "Of these, in open or sealed buckets", store.stored.get()),
            ("store_sensors", "Sensors known", store.sensors.get()),
            ("store_open_buckets", "Buckets that are open", store.open_buckets.get()),
            ("store_backlog_buckets", "Sealed buckets not yet delivered", store.backlog_buckets.get()),
            ("store_backlog_segments", "Segments they lie in", store.backlog_segments.get()),
            ("store_bytes", "Bytes in use on disk", store.bytes.get()),
            ("store_max_bytes", "Bytes that may be used on disk", store.max_bytes.get()),
            ("store_fill_percent", "How much of it is used up", store.fill_percent.get()),
            ("store_alarm_percent", "The alarm that stands: 70, 90, or 0 for none", store.alarm_percent.get()),
            ("store_commit_microseconds", "How long the last commit took", store.commit_us.get()),
            ("store_up", "1 if the store can write", up(&store.condition)),
            ("clock_trusted", "1 if the time is believed", up(&store.clock_condition)),
            ("clock_held_samples", "Samples that wait for a trusted clock", store.held.get()),
            ("clock_offset_milliseconds", "From the steady line to the time told", store.clock_offset_ms.get()),
            ("upstream_up", "1 if the upstream can be reached", up(&upstream.condition)),
            ("upstream_live", "1 if open buckets are sent", up(&upstream.live)),
            (
                "upstream_last_delivery_milliseconds",
                "When the last bucket was delivered",
                upstream.last_delivery_ms.get(),
            ),
            (
                "upstream_drained_in_seconds",
                "Until the backlog is drained; -1 if there is none",
                upstream.drained_in_s.get(),
            ),
            ("uptime_seconds", "Since the daemon was started", self.uptime()),
        ];
        for (name, help, value) in gauges {
            one(&mut encoder, name, help, &ConstGauge::new(value))?;
        }
        losses(&mut encoder, store)?;
        per_source(&mut encoder, &self.0.stats.sources())
    }
}

impl Facts {
    fn uptime(&self) -> i64 {
        i64::try_from(self.0.clock.now().since(self.0.started).as_secs()).unwrap_or(i64::MAX)
    }
}

/// What every source has counted.
fn per_source(encoder: &mut DescriptorEncoder<'_>, sources: &[Arc<SourceStats>]) -> fmt::Result {
    let counters: [(&str, &str, Count); 6] = [
        ("source_messages", "Messages, frames or lines", |s| s.messages.get()),
        ("source_readings", "Readings handed to the store", |s| s.readings.get()),
        ("source_refused", "What could not be taken", |s| s.refused.get()),
        ("source_left_out", "Values left out by a deadband or minimum interval", |s| s.left_out.get()),
        ("source_rollovers", "Counters that fell", |s| s.rollovers.get()),
        ("source_restarts", "New starts after an error", |s| s.restarts.get()),
    ];
    for (name, help, value) in counters {
        family(encoder, name, help, sources, |source| ConstCounter::new(value(source)))?;
    }
    let silent = "Watched sensors that send nothing any more";
    family(encoder, "source_silent_sensors", silent, sources, |s| ConstGauge::new(s.silent.get()))?;
    family(encoder, "source_up", "1 if its line or connection is up", sources, |s| ConstGauge::new(up(&s.condition)))
}

/// The accounts' last part: what is lost, by reason.
fn losses(encoder: &mut DescriptorEncoder<'_>, store: &StoreStats) -> fmt::Result {
    let help = "Of those taken charge of, in the loss ledger";
    let mut lost = encoder.encode_descriptor("store_lost_readings", help, None, MetricType::Gauge)?;
    for (reason, gauge) in LossReason::ALL.iter().zip(&store.lost) {
        gauge.encode(lost.encode_family(&[("reason", reason.word())])?)?;
    }
    Ok(())
}

fn one(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    sources: &[Arc<SourceStats>],
    metric: impl Fn(&SourceStats) -> M,
) -> fmt::Result {
    let Some(first) = sources.first() else { return Ok(()) };
    let mut encoder = encoder.encode_descriptor(name, help, None, metric(first).metric_type())?;
    for source in sources {
        let labels = [("source", source.name.as_str()), ("type", source.kind)];
        metric(source).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

fn up(condition: &Condition) -> i64 {
    i64::from(condition.get().up == Some(true))
}
