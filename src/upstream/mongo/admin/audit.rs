//! `audit`: our receipts beside what is stored, by one range scan of `_id` for each sensor.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use mongodb::bson::{RawDocumentBuf, doc};
use tokio::time::timeout;

use super::Admin;
use crate::model::{SensorName, Timestamp};
use crate::upstream::identity::decoded;
use crate::upstream::{Mode, Receipts};

/// How long the scan of one sensor may take.
const SCAN: Duration = Duration::from_secs(120);
/// Buckets named in one sensor's result; the rest is only counted.
const MAX_NAMED: usize = 20;

/// From when to when, by the start of a bucket's window.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    /// First instant.
    pub from: Timestamp,
    /// First instant that is not in it any more.
    pub to: Timestamp,
}

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// By sensor, in the order of their names.
    pub sensors: Vec<SensorAudit>,
}

/// What was found about one sensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SensorAudit {
    /// Its name.
    pub sensor: String,
    /// Buckets and samples for which there are receipts.
    pub receipts: (u64, u64),
    /// Buckets and samples that are stored.
    pub stored: (u64, u64),
    /// Buckets with a receipt that are not stored.
    pub missing: u64,
    /// Buckets whose content is another than we delivered.
    pub different: u64,
    /// Buckets that are stored without a receipt of ours: older than the receipts, or another gateway's.
    pub unknown: u64,
    /// The `_id`s of some that are missing or different.
    pub named: Vec<String>,
}

impl Period {
    /// Whether a bucket's `_id` begins inside.
    pub fn holds(&self, id: &str) -> bool {
        let (from, to) = (self.from.basic(), self.to.basic());
        start_of(id).is_some_and(|start| start >= from.as_str() && start < to.as_str())
    }
}

/// The start of the window in an `_id`.
fn start_of(id: &str) -> Option<&str> {
    id.split('|').nth(1)
}

impl Audited {
    /// Whether everything we have a receipt for is stored as it was.
    pub fn is_sound(&self) -> bool {
        self.sensors.iter().all(|sensor| sensor.missing + sensor.different == 0)
    }
}

impl Admin {
    /// Compares receipts with what is stored.
    pub async fn audit(&mut self, receipts: &Receipts, period: Period) -> anyhow::Result<Audited> {
        anyhow::ensure!(
            self.config.mode != Mode::Timeseries,
            "measurements of a time series collection have no bucket's identity: there is nothing to compare receipts with"
        );
        anyhow::ensure!(
            self.config.mode != Mode::Append,
            "documents of mode = \"append\" are not ours alone: there is nothing to compare receipts with"
        );
        let mut by_sensor: BTreeMap<&str, Receipts> = BTreeMap::new();
        for (id, receipt) in receipts.iter().filter(|(id, _)| period.holds(id)) {
            let prefix = id.split('|').next().unwrap_or(id);
            by_sensor.entry(prefix).or_default().insert(id.clone(), receipt.clone());
        }
        let mut audited = Audited::default();
        for (prefix, ours) in by_sensor {
            audited.sensors.push(self.sensor(prefix, &ours, period).await?);
        }
        Ok(audited)
    }

    async fn sensor(&mut self, prefix: &str, ours: &Receipts, period: Period) -> anyhow::Result<SensorAudit> {
        let encoded = prefix.strip_prefix(&format!("{}/", self.site)).unwrap_or(prefix);
        let sensor = decoded(encoded);
        let mut stored: HashMap<String, (u32, Option<String>)> = HashMap::new();
        let name = SensorName::new(&sensor)?;
        let mut collections =
            vec![self.collections.of(&self.site, &name, 0), self.collections.of(&self.site, &name, 1)];
        collections.dedup();
        for collection in collections {
            stored.extend(self.scan(&collection, prefix, period).await?);
        }
        let mut found = SensorAudit { sensor, ..SensorAudit::default() };
        for (id, receipt) in ours {
            found.receipts.0 += 1;
            found.receipts.1 += u64::from(receipt.samples);
            let is_sound = match stored.get(id) {
                None => {
                    found.missing += 1;
                    false
                }
                // A thinned bucket keeps count and hash; without a hash the number of samples is what there is.
                Some((count, hash)) => {
                    let same = hash.as_ref().map_or(*count == receipt.samples, |hash| hash.starts_with(&receipt.hash));
                    found.different += u64::from(!same);
                    same
                }
            };
            if !is_sound && found.named.len() < MAX_NAMED {
                found.named.push(id.clone());
            }
        }
        for (id, (count, _)) in &stored {
            found.stored.0 += 1;
            found.stored.1 += u64::from(*count);
            found.unknown += u64::from(!ours.contains_key(id));
        }
        Ok(found)
    }

    /// Number of samples and hash of what is stored of a sensor, by `_id`.
    async fn scan(
        &mut self,
        collection: &str,
        prefix: &str,
        period: Period,
    ) -> anyhow::Result<HashMap<String, (u32, Option<String>)>> {
        let names = self.shape.names.clone();
        let (from, to) = (format!("{prefix}|{}", period.from.basic()), format!("{prefix}|{}", period.to.basic()));
        let open = self.link.open().await.map_err(|problem| anyhow::anyhow!(problem.text))?;
        let uri = open.uri.clone();
        let mut wanted = doc! { "_id": 1 };
        for name in [&names.count, &names.hash].into_iter().filter(|name| !name.is_empty()) {
            wanted.insert(name.as_str(), 1);
        }
        let collection_there = open.collection(collection);
        let mut filter = doc! { "_id": { "$gte": from, "$lt": to } };
        if !names.last_seq.is_empty() {
            // Not what is still open.
            filter.insert(names.last_seq.as_str(), doc! { "$exists": false });
        }
        let find = collection_there.find(filter).projection(wanted);
        let read = async move {
            let mut cursor = find.await?;
            let mut found = HashMap::new();
            while cursor.advance().await? {
                let stored: RawDocumentBuf = cursor.current().to_owned();
                let Ok(id) = stored.get_str("_id") else { continue };
                let count = stored.get_i32(&names.count).ok().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
                found.insert(id.to_owned(), (count, stored.get_str(&names.hash).ok().map(str::to_owned)));
            }
            Ok::<_, mongodb::error::Error>(found)
        };
        match timeout(SCAN, read).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => anyhow::bail!(self.link.problem(&error, &uri).text),
            Err(_) => anyhow::bail!("the scan of {prefix} in {collection} took longer than {} s", SCAN.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_holds_buckets_that_begin_in_it() {
        let at = |s: i64| Timestamp::clamped(1_796_043_600_000 + s * 1000);
        let period = Period { from: at(0), to: at(600) };
        for (id, held) in [
            ("s/a|20261130T130000.000Z|600|0", true),
            ("s/a|20261130T130959.999Z|600|1~0badcafe", true),
            ("s/a|20261130T131000.000Z|600|0", false),
            ("s/a|20261130T125959.999Z|600|0", false),
            ("nonsense", false),
        ] {
            assert_eq!(period.holds(id), held, "{id}");
        }
    }
}
