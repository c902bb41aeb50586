//! `[upstream.names]`: what the fields of a document are called.
//!
//! Existing collections and dashboards keep their words. An empty name leaves the field out. `_id` is MongoDB's and
//! cannot be renamed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Longest name of a field in bytes.
const MAX_NAME_BYTES: usize = 128;

macro_rules! names {
    ($($(#[$doc:meta])* $key:ident: $level:ident = $default:literal,)*) => {
        /// The name of every field of a document. Each key is the name the field has by default (`stats_…` inside a
        /// rollup, `samples_t` inside a sample). Empty: the field is left out.
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Names {
            $($(#[$doc])* pub $key: String,)*
        }

        impl Default for Names {
            fn default() -> Self {
                Self { $($key: $default.to_owned(),)* }
            }
        }

        impl Names {
            fn all(&self) -> Vec<(&'static str, Level, &str)> {
                vec![$((stringify!($key), Level::$level, self.$key.as_str()),)*]
            }

            /// These names; where they are the usual ones, those of `base`.
            pub(super) fn over(&self, base: &Self) -> Self {
                let usual = Self::default();
                Self { $($key: if self.$key == usual.$key { &base.$key } else { &self.$key }.clone(),)* }
            }
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    Stats,
    Samples,
    Summary,
}

names! {
    /// Name of the site.
    site: Top = "site",
    /// Name of the sensor.
    sensor: Top = "sensor",
    /// Number of the part.
    part: Top = "part",
    /// Start of the window.
    start: Top = "start",
    /// End of the window.
    end: Top = "end",
    /// Time of the first sample.
    first: Top = "first",
    /// Time of the last sample.
    last: Top = "last",
    /// Number of samples.
    count: Top = "count",
    /// Rollups by field.
    stats: Top = "stats",
    /// Samples held this field.
    stats_count: Stats = "count",
    /// Sum.
    stats_sum: Stats = "sum",
    /// Smallest.
    stats_min: Stats = "min",
    /// Largest.
    stats_max: Stats = "max",
    /// Mean; usually left out, it is sum by count.
    stats_avg: Stats = "",
    /// Earliest value.
    stats_first: Stats = "first",
    /// Latest value.
    stats_last: Stats = "last",
    /// Rollups of shorter intervals inside the window.
    summary: Top = "summary",
    /// Start of such an interval.
    summary_start: Summary = "start",
    /// The samples.
    samples: Top = "samples",
    /// Time of a sample.
    samples_t: Samples = "t",
    /// Value of a sample's main field; empty: the field's own name.
    samples_value: Samples = "",
    /// Why the bucket was closed.
    sealed: Top = "sealed",
    /// Whether it holds late readings.
    late: Top = "late",
    /// Whether it was cut by a cap, so that the window goes on in another part; usually left out, `sealed` tells it.
    overflow: Top = "",
    /// Whether its samples were given up for want of room.
    thinned: Top = "thinned",
    /// Units and tags.
    meta: Top = "meta",
    /// Whether the gateway's clock was right.
    clock: Top = "clock",
    /// Hash of the content.
    hash: Top = "hash",
    /// While a bucket is open and live: how many samples its document holds.
    last_seq: Top = "lastSeq",
    /// Id of the gateway's store.
    store: Top = "store",
    /// Version of the document's form.
    schema: Top = "schema",
    /// When the database may delete it.
    expire_at: Top = "expireAt",
}

impl Names {
    /// Names that cannot be used, each as (key, words). `flat`: rollups stand at the top of the document.
    pub(crate) fn contradictions(&self, flat: bool) -> Vec<(String, String)> {
        let level = |level: Level| if flat && level == Level::Stats { Level::Top } else { level };
        let all: Vec<_> = self.all().into_iter().map(|(key, l, name)| (key, level(l), name)).collect();
        // In the flat style the rollups' own count and name of the group are not written.
        let unused = |key: &str| flat && matches!(key, "stats" | "stats_count" | "stats_first" | "stats_last");
        let mut found = Vec::new();
        for (i, &(key, level, name)) in all.iter().enumerate() {
            let mut say = |words: String| found.push((key.to_owned(), words));
            let is_needed = matches!(key, "samples" | "samples_t" | "summary" | "summary_start");
            if name.is_empty() && !is_needed {
                continue;
            }
            if name.is_empty() || name.starts_with('$') || name.contains(['.', '\0']) || name.len() > MAX_NAME_BYTES {
                let rule = "1 to 128 bytes, no `.` or NUL, no `$` in front";
                say(format!("`{}` cannot name a field ({rule})", name.escape_debug()));
            } else if level == Level::Top && name == "_id" {
                say("`_id` is the bucket's identity and cannot name another field".to_owned());
            } else if !unused(key)
                && let Some((other, ..)) = all[..i].iter().find(|&&(k, l, n)| l == level && n == name && !unused(k))
            {
                say(format!("`{name}` already names `{other}`: choose another name"));
            } else if key == "samples_value" && (meets(name, &self.samples_t) || meets(&self.samples_t, name)) {
                say(format!("`{name}` could meet the time's name `{}`: choose another name", self.samples_t));
            }
        }
        found
    }

    /// Whether a field of the document itself has this name.
    pub(crate) fn is_top(&self, name: &str) -> bool {
        name == "_id" || self.all().iter().any(|(_, level, known)| *level == Level::Top && *known == name)
    }

    /// The key of a sensor's field inside `samples`, `stats` and `meta.units`. One that is called like a sample's time
    /// or value gets a `_`, and one that is called like that gets another: no two can meet.
    pub(crate) fn field<'a>(&self, field: &'a str) -> Cow<'a, str> {
        let is_taken =
            meets(field, &self.samples_t) || (!self.samples_value.is_empty() && meets(field, &self.samples_value));
        if is_taken { format!("{field}_").into() } else { field.into() }
    }

    /// The key of a field inside a sample: the main field may have a name that is the same for all sensors.
    pub(crate) fn value<'a>(&'a self, field: &'a str, is_main: bool) -> Cow<'a, str> {
        if is_main && !self.samples_value.is_empty() { self.samples_value.as_str().into() } else { self.field(field) }
    }
}

/// Whether `name` is `reserved`, perhaps with `_` behind it.
fn meets(name: &str, reserved: &str) -> bool {
    name.strip_prefix(reserved).is_some_and(|rest| rest.bytes().all(|b| b == b'_'))
}

/// The name of a rollup that stands beside those of other fields: `{field}` and `{Field}` in it become the field's name.
/// Without them the main field has the name as it is, and every other field's has `_` and the field behind it.
pub(crate) fn rollup_name(template: &str, field: &str, is_main: bool) -> String {
    if template.contains("{field}") || template.contains("{Field}") {
        let mut letters = field.chars();
        let capital: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        template.replace("{field}", field).replace("{Field}", &capital)
    } else if is_main {
        template.to_owned()
    } else {
        format!("{template}_{field}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_called_like_the_time_key_steps_aside() {
        let names = Names::default();
        let keys: Vec<_> = ["t", "t_", "temp", "t__", "ts"].iter().map(|f| names.field(f)).collect();
        assert_eq!(keys, ["t_", "t__", "temp", "t___", "ts"]);
        let names = Names { samples_value: "v".into(), ..Names::default() };
        let keys: Vec<_> = ["v", "t", "v_"].iter().map(|f| names.value(f, false)).collect();
        assert_eq!((keys, names.value("temp", true)), (vec!["v_".into(), "t_".into(), "v__".into()], "v".into()));
    }

    #[test]
    fn names_that_cannot_be_used_are_told() {
        let bad = Names {
            site: "a.b".into(),
            sensor: "_id".into(),
            hash: "store".into(),
            stats_min: "sum".into(),
            samples: "".into(),
            samples_value: "t_".into(),
            ..Names::default()
        };
        let keys: Vec<_> = bad.contradictions(false).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["site", "sensor", "stats_min", "samples", "samples_value", "store"]);
        assert_eq!(Names::default().contradictions(false), []);
        assert_eq!(Names::default().contradictions(true), []);
        let flat = Names { stats_sum: "count".into(), ..Names::default() };
        assert_eq!(flat.contradictions(true)[0].0, "stats_sum", "it would stand beside the number of samples");
    }

    #[test]
    fn rollups_of_several_fields_can_stand_side_by_side() {
        assert_eq!(rollup_name("sum{Field}", "temp", false), "sumTemp");
        assert_eq!(rollup_name("{field}_max", "temp", true), "temp_max");
        assert_eq!(
            (rollup_name("min", "temp", true), rollup_name("min", "hum", false)),
            ("min".into(), "min_hum".into())
        );
    }

    #[test]
    fn names_of_ones_own_win_over_a_presets() {
        let base = Names { sensor: "sensorId".into(), hash: "".into(), ..Names::default() };
        let own = Names { sensor: "device".into(), ..Names::default() }.over(&base);
        assert_eq!((own.sensor.as_str(), own.hash.as_str(), own.site.as_str()), ("device", "", "site"));
    }
}
