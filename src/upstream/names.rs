//! `[upstream.names]`: what the fields of a document are called.
//!
//! Existing collections and dashboards keep their words. `_id` is MongoDB's and cannot be renamed.

use serde::{Deserialize, Serialize};

macro_rules! names {
    ($($(#[$doc:meta])* $key:ident: $level:ident = $default:literal,)*) => {
        /// The name of every field of a document. Each key is the name the field has by default (`stats_…` inside a
        /// rollup, `samples_t` inside a sample).
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
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    Stats,
    Samples,
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
    /// Earliest value.
    stats_first: Stats = "first",
    /// Latest value.
    stats_last: Stats = "last",
    /// The samples.
    samples: Top = "samples",
    /// Time of a sample.
    samples_t: Samples = "t",
    /// Why the bucket was closed.
    sealed: Top = "sealed",
    /// Whether it holds late readings.
    late: Top = "late",
    /// Whether its samples were given up for want of room.
    thinned: Top = "thinned",
    /// Units and tags.
    meta: Top = "meta",
    /// Whether the gateway's clock was right.
    clock: Top = "clock",
    /// Hash of the content.
    hash: Top = "hash",
    /// Id of the gateway's store.
    store: Top = "store",
    /// Version of the document's form.
    schema: Top = "schema",
    /// When the database may delete it.
    expire_at: Top = "expireAt",
}

impl Names {
    /// Names that cannot be used, each as (key, words).
    pub(crate) fn contradictions(&self) -> Vec<(String, String)> {
        let all = self.all();
        let mut found = Vec::new();
        for (i, &(key, level, name)) in all.iter().enumerate() {
            if name.is_empty() || name.starts_with('$') || name.contains(['.', '\0']) || name.len() > 128 {
                let rule = "1 to 128 bytes, no `.` or NUL, no `$` in front";
                found.push((key.to_owned(), format!("`{}` cannot name a field ({rule})", name.escape_debug())));
            } else if level == Level::Top && name == "_id" {
                found.push((key.to_owned(), "`_id` is the bucket's identity and cannot name another field".to_owned()));
            } else if let Some((other, ..)) = all[..i].iter().find(|&&(_, l, n)| l == level && n == name) {
                found.push((key.to_owned(), format!("`{name}` already names `{other}`: choose another name")));
            }
        }
        found
    }

    /// The key of a sensor's field inside `samples`, `stats` and `meta.units`. One that is called like a sample's time
    /// gets a `_`, and one that is called like that gets another: no two can meet.
    pub(crate) fn field<'a>(&self, field: &'a str) -> std::borrow::Cow<'a, str> {
        match field.strip_prefix(self.samples_t.as_str()) {
            Some(rest) if rest.bytes().all(|b| b == b'_') => format!("{field}_").into(),
            _ => field.into(),
        }
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
    }

    #[test]
    fn names_that_cannot_be_used_are_told() {
        let bad = Names {
            site: "a.b".into(),
            sensor: "_id".into(),
            hash: "store".into(),
            stats_min: "sum".into(),
            ..Names::default()
        };
        let keys: Vec<_> = bad.contradictions().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["site", "sensor", "stats_min", "store"]);
        assert_eq!(Names::default().contradictions(), []);
    }
}
