//! The status page: one plain HTML page without scripts that renews itself.

use bytesize::ByteSize;
use maud::{DOCTYPE, Markup, html};

use super::Status;
use super::status::ConditionStatus;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.4rem 0 .3rem}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .7rem .2rem 0;border-bottom:1px solid #ddd;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.up{color:#106b21}.down{color:#b00020;font-weight:600}.unknown{color:#666}
@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#161616}td,th{border-color:#3a3a3a}.up{color:#6fd483}.down{color:#ff8a94}.unknown{color:#aaa}}";

pub(super) fn render(status: &Status) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                meta http-equiv="refresh" content="5";
                title { (status.site) " · tipbucket" }
                style { (maud::PreEscaped(STYLE)) }
            }
            body {
                h1 { (status.site) }
                p { "tipbucket " (status.version) " · up " (duration(status.uptime_s)) " · " (status.now) }
                h2 { "Sources" }
                (sources(status))
                h2 { "Clock" }
                (clock(status))
                h2 { "Store" }
                (store(status))
                h2 { "Upstream" }
                (upstream(status))
                p { a href="/status.json" { "status.json" } " · " a href="/metrics" { "metrics" } " · " a href="/healthz" { "healthz" } }
            }
        }
    }
}

fn sources(status: &Status) -> Markup {
    html! {
        table {
            tr { th { "name" } th { "type" } th { "state" } th.n { "messages" } th.n { "readings" } th.n { "refused" } th.n { "restarts" } }
            @for source in &status.sources {
                tr {
                    td { (source.name) }
                    td { (source.kind) }
                    td { (condition(&source.condition)) @if source.silent_sensors > 0 { br; (source.silence) } }
                    td.n { (source.messages) }
                    td.n { (source.readings) }
                    td.n { (source.refused) }
                    td.n { (source.restarts) }
                }
            }
        }
    }
}

fn clock(status: &Status) -> Markup {
    let clock = &status.clock;
    html! {
        table {
            tr { td { "state" } td { (condition(&clock.condition)) } }
            @if clock.held > 0 { (row("samples that wait for it", clock.held)) }
            @if clock.restamped > 0 { (row("samples put right", clock.restamped)) }
            @if clock.unsynced > 0 { (row("samples marked as unsynced", clock.unsynced)) }
        }
    }
}

fn store(status: &Status) -> Markup {
    let store = &status.store;
    let lost = store.ledger.values().sum::<i64>();
    let size = |bytes: i64| ByteSize::b(u64::try_from(bytes).unwrap_or(0)).display().iec().to_string();
    html! {
        table {
            tr { td { "state" } td { (condition(&store.condition)) } }
            (row("readings on disk", store.readings))
            (row("sensors", store.sensors))
            (row("open buckets", store.open_buckets))
            (row("sealed buckets", store.sealed))
            (row("waiting for delivery", store.backlog_buckets))
            tr {
                td { "disk" }
                td.down[store.alarm_percent > 0] {
                    (size(store.bytes)) " of " (size(store.max_bytes)) " · " (store.fill_percent) " % used"
                }
            }
            tr { td { "written to the card" } td { (ByteSize::b(store.written_bytes).display().iec()) } }
            tr {
                td { "readings accepted" }
                td { (store.accepted) " = " (store.delivered) " delivered + " (store.stored) " stored + " (lost) " lost" }
            }
            (row("dead letters", store.dead_letters))
            @if store.thinned > 0 { tr { td { "samples thinned for want of room" } td.down { (store.thinned) } } }
            @if store.evicted > 0 { tr { td { "evicted for want of room" } td.down { (store.evicted) } } }
            @if store.refused_by_sensor_limit > 0 { tr { td { "refused: too many sensors" } td.down { (store.refused_by_sensor_limit) } } }
            (row("came twice, kept once", store.duplicates + store.redelivered))
            tr { td { "last commit" } td { (store.last_commit.as_deref().unwrap_or("none yet")) } }
        }
    }
}

fn upstream(status: &Status) -> Markup {
    let upstream = &status.upstream;
    html! {
        table {
            tr { td { "state" } td { (condition(&upstream.condition)) } }
            @if let Some(live) = &upstream.live {
                tr { td { "open buckets" } td { (condition(live)) } }
                (row("readings shown live", upstream.live_readings))
            }
            (row("buckets delivered", upstream.buckets))
            (row("readings delivered", upstream.readings))
            (row("attempts that failed", upstream.failures))
            @if upstream.conflicts > 0 { (row("sent under a second _id", upstream.conflicts)) }
            @if upstream.refused > 0 { tr { td { "refused for good" } td.down { (upstream.refused) } } }
            @if let Some(left) = upstream.drained_in_s {
                tr { td { "backlog drained in about" } td { (left) " s" } }
            }
            tr { td { "last delivery" } td { (upstream.last_delivery.as_deref().unwrap_or("none yet")) } }
        }
    }
}

fn row(name: &str, value: impl maud::Render) -> Markup {
    html! { tr { td { (name) } td { (value) } } }
}

fn condition(condition: &ConditionStatus) -> Markup {
    html! {
        span class=(condition.state) { (condition.state) }
        @if !condition.detail.is_empty() { " · " (condition.detail) }
    }
}

fn duration(seconds: u64) -> String {
    humantime::format_duration(std::time::Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Subject, metrics};
    use super::*;
    use crate::clock::Clock;
    use crate::model::{SiteName, SourceName, Timestamp};
    use crate::stats::Stats;

    fn subject() -> Subject {
        let stats = Stats::default();
        let source = stats.source(&SourceName::new("boiler").unwrap(), "modbus-rtu");
        source.condition.down(Timestamp::EPOCH, "<script>alert(1)</script>");
        source.readings.inc_by(3);
        Subject {
            site: SiteName::new("greenhouse-7").unwrap(),
            started: Timestamp::EPOCH,
            stats,
            clock: Clock::system(),
        }
    }

    #[test]
    fn the_page_escapes_what_it_shows() {
        let page = render(&Status::of(&subject())).into_string();
        assert!(page.contains("greenhouse-7") && page.contains("boiler"));
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"));
    }

    #[test]
    fn the_metrics_name_sources_and_end_as_open_metrics_must() {
        let text = metrics::render(&Arc::new(subject())).unwrap();
        assert!(text.contains("tipbucket_source_readings_total{source=\"boiler\",type=\"modbus-rtu\"} 3"), "{text}");
        assert!(text.contains("tipbucket_source_up{source=\"boiler\",type=\"modbus-rtu\"} 0"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
