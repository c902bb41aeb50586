//! `tipbucket check`: is the configuration sound, and what will it cost.

use std::io::Write;
use std::time::Duration;

use bytesize::ByteSize;
use clap::Args;
use serde_json::json;

use super::{ConfigArg, Format, durability};
use crate::settings::Settings;
use crate::settings::sizes::{self, BucketSizes, Ends, Load, SiteSizes};
use crate::store::{self, Depth};

/// Assumed where nothing better is known.
const USUAL_EVERY: &str = "10s";
/// Sensors with a policy of their own that are shown; the rest is counted.
const MAX_ROWS: usize = 20;

/// Checks the site file, its drop-ins and the environment, and explains what they will cost.
///
/// Nothing is contacted or written: this can run beside a running gateway, or on another machine. If the store is here,
/// its journal and its accounts are looked over.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct Check {
    #[command(flatten)]
    config: ConfigArg,
    /// How many sensors to assume [default: as many as the sources name].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sensors: Option<u64>,
    /// How often each sensor is assumed to send.
    #[arg(long, value_name = "TIME", default_value = USUAL_EVERY, value_parser = interval)]
    every: Duration,
    /// Compares choices of store.commit_every: what each writes to the card, and what it can lose.
    #[arg(long)]
    explain: bool,
    /// How it is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

const EXAMPLE: &str = "Problems are printed one per line as file:line: words, and the exit code is then 1.

Example:
  tipbucket check --config /etc/tipbucket/site.toml
  tipbucket check --config site.toml --explain
  tipbucket check --config site.toml --sensors 200 --every 1m --format json";

fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(every) if every >= Duration::from_millis(1) => Ok(every),
        Ok(_) => Err("shorter than 1ms".to_owned()),
        Err(error) => Err(format!("{error} (write for example 10s or 1m)")),
    }
}

impl Check {
    pub(super) fn execute(self, out: &mut impl Write) -> anyhow::Result<()> {
        let settings = self.config.load()?;
        for warning in &settings.warnings {
            writeln!(std::io::stderr(), "warning: {warning}")?;
        }
        look_into_the_store(&settings)?;
        self.explain(&settings, out)
    }

    fn explain(&self, settings: &Settings, out: &mut impl Write) -> anyhow::Result<()> {
        let named = named_sensors(settings);
        let sizes = sizes::of(settings, Load::new(self.sensors.unwrap_or(named), self.every));
        match self.format {
            Format::Table => {
                table(out, &self.config, settings, &sizes, self.sensors.is_some())?;
                if self.explain {
                    durability::table(out, settings, sizes.load)?;
                }
                Ok(())
            }
            Format::Json => {
                let mut value = as_json(settings, &sizes);
                if self.explain {
                    value["durability"] = durability::as_json(settings, sizes.load);
                }
                Ok(writeln!(out, "{value:#}")?)
            }
        }
    }
}

/// Tells what is wrong with the store, if there is one; the site file is sound all the same.
fn look_into_the_store(settings: &Settings) -> anyhow::Result<()> {
    let path = &settings.store.path;
    if !path.exists() {
        return Ok(());
    }
    let mut err = std::io::stderr();
    match store::verify(path, Depth::Quick) {
        Ok(verdict) => {
            for fault in &verdict.faults {
                writeln!(err, "warning: {}: {}: {} ({})", path.display(), fault.what, fault.why, fault.remedy)?;
            }
        }
        Err(error) => writeln!(err, "warning: the store could not be looked over: {error}")?,
    }
    Ok(())
}

/// How many sensors the sources and `[sensors]` name; those in topics are not known before they come.
fn named_sensors(settings: &Settings) -> u64 {
    let claimed = settings.sources.iter().flat_map(|source| source.config.claims().sensors);
    let noted = settings.policies.by_sensor.keys().chain(settings.notes.keys()).map(ToString::to_string);
    claimed.chain(noted).collect::<std::collections::HashSet<_>>().len() as u64
}

fn as_json(settings: &Settings, sizes: &SiteSizes) -> serde_json::Value {
    let sources: Vec<_> =
        settings.sources.iter().map(|source| json!({ "name": source.name.as_str(), "type": source.kind })).collect();
    let sensors: serde_json::Map<_, _> =
        sizes.sensors.iter().map(|(name, sizes)| (name.clone(), json!(sizes))).collect();
    json!({
        "ok": true,
        "site": settings.site.as_str(),
        "clock": settings.clock,
        "sources": sources,
        "warnings": settings.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "assumed": { "sensors": sizes.load.sensors, "every_ms": sizes.load.every_ms,
                     "stored_bytes_per_reading": sizes::STORED_BYTES_PER_READING },
        "readings_per_day": sizes.readings_per_day,
        "outage_days": sizes.outage_days,
        "flash_bytes_per_day": sizes.flash_bytes_per_day,
        "live": sizes.live,
        "bucket": sizes.bucket,
        "sensors": sensors,
    })
}

fn table(
    out: &mut impl Write,
    config: &ConfigArg,
    settings: &Settings,
    sizes: &SiteSizes,
    told: bool,
) -> anyhow::Result<()> {
    let sources: Vec<_> = settings.sources.iter().map(|s| format!("{} ({})", s.name, s.kind)).collect();
    writeln!(out, "{} is sound: site {}, sources {}", config.path.display(), settings.site, sources.join(", "))?;
    let load = sizes.load;
    let every = humantime::format_duration(Duration::from_millis(load.every_ms));
    let origin = if told { "" } else { " (those that are named; say --sensors N if more will come)" };
    writeln!(out, "\nAssuming {}{origin}, each one reading of two fields every {every}:\n", counted(load.sensors))?;
    let days = days(sizes.outage_days);
    let budget = settings.store.max_bytes;
    writeln!(out, "  readings per day      {:.0}", sizes.readings_per_day)?;
    let bytes = sizes::STORED_BYTES_PER_READING;
    writeln!(out, "  outage bridged        {days}   (store.max_bytes {budget}, {bytes} bytes per reading)")?;
    writeln!(out, "  written to the card   {} a day", ByteSize(sizes.flash_bytes_per_day))?;
    if let Some(live) = sizes.live {
        let (updates, bytes) = (live.updates_per_day, ByteSize(live.upload_bytes_per_day));
        let every = humantime::format_duration(settings.upstream.live_every);
        writeln!(
            out,
            "  open buckets upstream {updates:.0} updates a day, {bytes} before compression   (upstream.live_every {every})"
        )?;
    }
    writeln!(out, "  clock                 {}", settings.clock.explain())?;
    writeln!(
        out,
        "\n  {:<24} {:>11} {:>8} {:>12} {:>12}  ended by",
        "sensor", "buckets/day", "samples", "document", "at most"
    )?;
    row(out, "each, by [bucket]", &sizes.bucket)?;
    for (name, sizes) in sizes.sensors.iter().take(MAX_ROWS) {
        row(out, name, sizes)?;
    }
    if let Some(more) = sizes.sensors.len().checked_sub(MAX_ROWS).filter(|more| *more > 0) {
        writeln!(out, "  and {more} more with limits of their own")?;
    }
    Ok(())
}

fn row(out: &mut impl Write, name: &str, sizes: &BucketSizes) -> std::io::Result<()> {
    let ends = match sizes.ends {
        Ends::Window => "window",
        Ends::Samples => "max_samples",
        Ends::Bytes => "max_bytes",
    };
    let (document, most) = (ByteSize(sizes.document_bytes), ByteSize(sizes.full_document_bytes));
    let (document, most) = (document.to_string(), most.to_string());
    let (buckets, samples) = (sizes.buckets_per_day, sizes.samples);
    writeln!(out, "  {name:<24} {buckets:>11.0} {samples:>8} {document:>12} {most:>12}  {ends}")
}

fn counted(sensors: u64) -> String {
    if sensors == 1 { "1 sensor".to_owned() } else { format!("{sensors} sensors") }
}

fn days(days: f64) -> String {
    match days {
        d if d >= 3650.0 => "more than 10 years".to_owned(),
        d if d >= 10.0 => format!("{d:.0} days"),
        d if d >= 1.0 => format!("{d:.1} days"),
        d => format!("{:.1} hours", d * 24.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::load_with;
    use crate::sources::{Claims, Kind, Source, SourceConfig};

    #[derive(Debug)]
    struct Quiet;

    impl SourceConfig for Quiet {
        fn claims(&self) -> Claims {
            Claims { sensors: vec!["a".to_owned(), "tank".to_owned()], ..Claims::default() }
        }
        fn contradictions(&self) -> Vec<(String, String)> {
            Vec::new()
        }
        fn build(self: Box<Self>) -> Box<dyn Source> {
            unreachable!("only checked here")
        }
    }

    const KINDS: &[Kind] = &[Kind { name: "quiet", read: |_| Ok(Box::new(Quiet)) }];

    fn explained(sensors: Option<u64>, explain: bool, format: Format) -> String {
        of_a_site("", sensors, explain, format)
    }

    fn of_a_site(more: &str, sensors: Option<u64>, explain: bool, format: Format) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.toml");
        let site = "site.name = \"x\"\nsources.q.type = \"quiet\"\nsensors.tank.window = \"1h\"\n";
        std::fs::write(&path, format!("{site}{more}")).unwrap();
        let settings = load_with(KINDS, &path, []).unwrap();
        let config = ConfigArg { path: "site.toml".into() };
        let check = Check { config, sensors, every: Duration::from_secs(10), explain, format };
        let mut out = Vec::new();
        check.explain(&settings, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn people_get_a_table_with_its_assumptions() {
        assert_eq!(
            explained(None, false, Format::Table),
            "site.toml is sound: site x, sources q (quiet)

Assuming 2 sensors (those that are named; say --sensors N if more will come), each one reading of two fields every 10s:

  readings per day      17280
  outage bridged        more than 10 years   (store.max_bytes 2.0 GiB, 12 bytes per reading)
  written to the card   90.8 MiB a day
  clock                 believed once synchronised, or set by a real-time clock or a virtual machine's host; what is stamped before waits for that, 6h at most

  sensor                   buckets/day  samples     document      at most  ended by
  each, by [bucket]                144       60      3.6 KiB     50.4 KiB  window
  tank                              24      360     18.5 KiB     50.4 KiB  window
"
        );
    }

    #[test]
    fn programs_get_json() {
        let value: serde_json::Value = serde_json::from_str(&explained(Some(100), true, Format::Json)).unwrap();
        assert_eq!(value["ok"], true);
        assert_eq!(value["assumed"]["sensors"], 100);
        assert_eq!(value["readings_per_day"], 864_000.0);
        assert_eq!(value["sensors"]["tank"]["samples"], 360);
        assert_eq!(value["sources"][0]["type"], "quiet");
        assert_eq!(value["durability"]["sources"][0], serde_json::json!({ "name": "q", "resends": false }));
        let second = &value["durability"]["choices"][1];
        assert_eq!((&second["commit_every_ms"], &second["chosen"]), (&1000.into(), &true.into()));
        assert_eq!(second["readings_at_risk"], 100);
    }

    #[test]
    fn choices_of_the_commit_are_compared_where_that_is_asked_for() {
        let text = explained(None, true, Format::Table);
        let explained = text.split("ended by").nth(1).unwrap().split_once("\n\n").unwrap().1;
        assert!(explained.starts_with("What store.commit_every costs"), "{explained}");
        let rows: Vec<_> = explained.lines().filter(|line| line.ends_with("readings")).collect();
        assert_eq!(rows.len(), 6, "{explained}");
        assert!(rows[1].contains("1s") && rows[1].contains("as set"), "{}", rows[1]);
        assert!(explained.contains("q (quiet): what waits for its commit is lost"), "{explained}");
    }

    #[test]
    fn updates_of_open_buckets_are_counted_where_they_are_sent() {
        let live = "upstream.uri = \"mongodb://h\"\nupstream.mode = \"live\"\nupstream.live_every = \"20s\"\n";
        let text = of_a_site(live, None, false, Format::Table);
        assert!(text.contains("  open buckets upstream 8640 updates a day, "), "{text}");
        assert!(text.contains("   (upstream.live_every 20s)"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&of_a_site(live, Some(10), false, Format::Json)).unwrap();
        assert_eq!(value["live"]["updates_per_day"], 43_200.0);
        assert!(value["live"]["upload_bytes_per_day"].as_u64() > Some(1_000_000));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&explained(None, false, Format::Json)).unwrap()["live"],
            serde_json::Value::Null
        );
    }

    #[test]
    fn days_are_told_in_a_fitting_unit() {
        for (number, words) in
            [(0.5, "12.0 hours"), (2.345, "2.3 days"), (99.9, "100 days"), (4000.0, "more than 10 years")]
        {
            assert_eq!(days(number), words);
        }
    }

    #[test]
    fn intervals_are_checked() {
        assert_eq!(interval("1m"), Ok(Duration::from_secs(60)));
        assert!(interval("0s").is_err() && interval("x").is_err());
    }
}
