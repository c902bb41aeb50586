//! Which collection takes a document: one for all, one for each sensor, or one of its own for overflow.

use std::sync::Arc;

use super::identity;
use crate::model::{SensorName, SiteName};

/// Longest `database.collection` in bytes that every server generation takes.
pub(super) const MAX_NAMESPACE_BYTES: usize = 120;
/// What stands in a template for the names of site and sensor.
pub(super) const PLACEHOLDERS: [&str; 2] = ["{site}", "{sensor}"];

/// Names of the collections for documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collections {
    main: Arc<str>,
    overflow: Option<Arc<str>>,
    /// Longest name in bytes.
    longest: usize,
}

impl Collections {
    /// Collections of a database; each name may hold `{site}` and `{sensor}`. `overflow` takes a window's parts after
    /// the first.
    pub fn new(database: &str, main: &str, overflow: Option<&str>) -> Self {
        let longest = MAX_NAMESPACE_BYTES.saturating_sub(database.len() + 1);
        Self { main: main.into(), overflow: overflow.map(Into::into), longest }
    }

    /// The collection for one part of one of a sensor's windows.
    pub fn of(&self, site: &SiteName, sensor: &SensorName, part: u32) -> Arc<str> {
        let template = self.overflow.as_ref().filter(|_| part > 0).unwrap_or(&self.main);
        if !PLACEHOLDERS.iter().any(|placeholder| template.contains(placeholder)) {
            return Arc::clone(template);
        }
        // What `_id` writes as %2F and the like cannot stand in a collection's name either; neither can `$`.
        let name = identity::encoded(sensor).replace('$', "%24");
        bounded(template.replace("{site}", site.as_str()).replace("{sensor}", &name), self.longest).into()
    }
}

/// A name that is too long is cut, and told from others that begin alike by a hash.
fn bounded(name: String, longest: usize) -> String {
    if name.len() <= longest {
        return name;
    }
    let hash = format!("~{:016x}", xxhash_rust::xxh3::xxh3_64(name.as_bytes()));
    let mut end = longest.saturating_sub(hash.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].trim_end_matches('.').to_owned() + &hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, sensor: &str, part: u32, expected: &str) {
        let (site, sensor) = (SiteName::new("greenhouse-7").unwrap(), SensorName::new(sensor).unwrap());
        let collections = Collections::new("telemetry", template, Some("overflow"));
        assert_eq!(&*collections.of(&site, &sensor, part), expected);
    }

    #[test]
    fn a_sensor_may_have_a_collection_of_its_own() {
        check("buckets", "boiler", 0, "buckets");
        check("buckets", "boiler", 1, "overflow");
        check("{site}.{sensor}", "boiler", 0, "greenhouse-7.boiler");
        check("r_{sensor}", "a/b|c$d%", 0, "r_a%2Fb%7Cc%24d%25");
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let (site, collections) = (SiteName::new("s").unwrap(), Collections::new("telemetry", "r_{sensor}", None));
        let of = |end: &str| {
            collections.of(&site, &SensorName::new(&format!("{}{end}", "é".repeat(60))).unwrap(), 0).to_string()
        };
        assert!(of("a").len() <= 110 && of("a") != of("b"), "{}", of("a"));
    }
}
