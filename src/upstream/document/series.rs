//! A sealed bucket as the measurements of a native time series collection.
//!
//! `_id` is no key to the server there, but it is one to us: four bytes of the sample's second, five of the bucket's content
//! hash, three of the sample's place in the bucket. The same sample of the same bucket has the same one for ever; another
//! bucket, or other content under the same identity, has others.

use mongodb::bson::RawDocumentBuf;
use mongodb::bson::oid::ObjectId;

use super::Context;
use super::write::{Builder, date, value};
use crate::model::SealedBucket;

/// The measurements in time order; none of a bucket that was thinned.
pub(super) fn measurements(bucket: &SealedBucket, hash: &str, context: &Context) -> Vec<RawDocumentBuf> {
    let names = &context.shape.names;
    let mut subject = Builder::new();
    subject.put(&names.site, context.site.as_str());
    subject.put(&names.sensor, bucket.sensor.as_str());
    let rows = bucket.samples.iter().zip(0_u32..).map(|(sample, place)| {
        let mut row = Builder::new();
        row.put("_id", id(sample.at.as_millis().div_euclid(1000), hash, place));
        row.put(&names.samples_t, date(sample.at));
        row.put(&names.meta, subject.0.clone());
        for (field, v) in &sample.fields {
            // The name of the metaField is taken, as that of the time is.
            row.put_beside(&names.field(field.as_str()), value(v));
        }
        row.0
    });
    rows.collect()
}

fn id(second: i64, hash: &str, place: u32) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&(second as u32).to_be_bytes());
    for (byte, digits) in bytes[4..9].iter_mut().zip(hash.as_bytes().chunks(2)) {
        *byte = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
    }
    bytes[9..].copy_from_slice(&place.to_be_bytes()[1..]);
    ObjectId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::model::SiteName;
    use crate::model::samples::bucket;
    use crate::upstream::{Collections, Document, Form, Shape};

    fn ids(part: u32, values: &[(i64, f64)]) -> Vec<ObjectId> {
        let context = Context {
            site: SiteName::new("s").unwrap(),
            store: String::new(),
            retention: None,
            shape: Shape::default(),
            meta: Default::default(),
            collections: Collections::new("telemetry", "readings", None),
            form: Form::Series,
        };
        let document = Document::of(&bucket("a", 1_796_043_600, part, values), &context);
        document.rows.iter().map(|row| row.get_object_id("_id").unwrap()).collect()
    }

    #[test]
    fn a_measurement_has_one_identity_and_no_other_has_it() {
        let one = ids(0, &[(0, 1.0), (0, 1.0), (5, 2.0)]);
        assert_eq!(one, ids(0, &[(0, 1.0), (0, 1.0), (5, 2.0)]));
        let all: HashSet<_> = [&one, &ids(1, &[(0, 1.0), (0, 1.0), (5, 2.0)]), &ids(0, &[(0, 1.5)])]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        assert_eq!(all.len(), 7, "another part, and another card's content, are others");
        assert_eq!(one[2].timestamp().timestamp_millis(), 1_796_043_605_000);
    }
}
