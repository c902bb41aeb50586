//! The content hash: the same bucket gives the same hash for ever, whatever stored or carried it in between.
//!
//! SHA-256 over a canonical form of identity and samples, first 32 hex digits. Not covered: store id, units, tags,
//! expiry, names of document fields, rollups (they follow from the samples). The form, integers big-endian, texts with
//! a 16-bit length before them: `tipbucket1`, site, sensor, window start (ms, 64 bits), window seconds (32), part (32),
//! number of samples (32); per sample its time (ms, 64), number of fields (16) and, sorted by name, each field: name,
//! type tag (8), value. Values: 1 double as its bits (64), 2 signed (64), 3 unsigned (64), 4 bool (8), 5 text.

use sha2::{Digest, Sha256};

use super::{FieldName, SealedBucket, SiteName, Value};

/// The hash of identity and samples: 32 lower-case hex digits.
pub(super) fn hash(site: &SiteName, bucket: &SealedBucket) -> String {
    let mut sum = Sum::new();
    sum.update(b"tipbucket1");
    text(&mut sum, site.as_str());
    text(&mut sum, bucket.sensor.as_str());
    sum.update(bucket.window.start().as_millis().to_be_bytes());
    sum.update(bucket.window.length().seconds().to_be_bytes());
    sum.update(bucket.part.to_be_bytes());
    sum.update((bucket.samples.len() as u32).to_be_bytes());
    let mut sorted: Vec<&(FieldName, Value)> = Vec::new();
    for sample in &bucket.samples {
        sum.update(sample.at.as_millis().to_be_bytes());
        sum.update((sample.fields.len() as u16).to_be_bytes());
        sorted.clear();
        sorted.extend(sample.fields.iter());
        if sorted.len() > 1 {
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
        }
        for (name, value) in &sorted {
            text(&mut sum, name.as_str());
            field(&mut sum, value);
        }
    }
    sum.finish()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Gathers small pieces: the digest takes whole blocks much faster.
struct Sum {
    digest: Sha256,
    pieces: Vec<u8>,
}

impl Sum {
    /// Bytes that are gathered: 64 blocks.
    const GATHERED: usize = 4096;

    fn new() -> Self {
        // The longest piece is a name or a text.
        Self { digest: Sha256::new(), pieces: Vec::with_capacity(Self::GATHERED + 256) }
    }

    fn update(&mut self, piece: impl AsRef<[u8]>) {
        self.pieces.extend_from_slice(piece.as_ref());
        if self.pieces.len() >= Self::GATHERED {
            self.digest.update(&self.pieces);
            self.pieces.clear();
        }
    }

    fn finish(mut self) -> [u8; 32] {
        self.digest.update(&self.pieces);
        self.digest.finalize().into()
    }
}

fn field(sum: &mut Sum, value: &Value) {
    match value {
        Value::F64(v) => {
            sum.update([1]);
            sum.update(v.to_bits().to_be_bytes());
        }
        Value::I64(v) => {
            sum.update([2]);
            sum.update(v.to_be_bytes());
        }
        Value::U64(v) => {
            sum.update([3]);
            sum.update(v.to_be_bytes());
        }
        Value::Bool(v) => sum.update([4, u8::from(*v)]),
        Value::Text(v) => {
            sum.update([5]);
            text(sum, v);
        }
    }
}

/// Names and texts are at most 256 bytes (see `model`), so 16 bits hold every length.
fn text(sum: &mut Sum, text: &str) {
    sum.update((text.len() as u16).to_be_bytes());
    sum.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{bucket, sample};
    use crate::{SealReason, Timestamp};

    fn site() -> SiteName {
        SiteName::new("s").unwrap()
    }

    #[test]
    fn the_hash_of_a_known_bucket_never_changes() {
        // Buckets stored upstream carry this value: a change here turns every resend into a conflict.
        assert_eq!(hash(&site(), &bucket("a", 1_796_043_600, 0, &[(0, 21.5)])), "47888cd28a015679769e926cd7c02f3d");
    }

    #[test]
    fn content_changes_it_and_nothing_else_does() {
        let one = bucket("a", 1_796_043_600, 0, &[(0, 21.5), (5, 22.0)]);
        let same = hash(&site(), &one);
        let mut other = one.clone();
        other.sealed = SealReason::Samples;
        other.late = true;
        assert_eq!(hash(&site(), &other), same);
        let changes: [fn(&mut SealedBucket); 5] = [
            |b| b.part = 1,
            |b| b.samples[0].at = b.samples[0].at.plus(std::time::Duration::from_millis(1)),
            |b| b.samples[0].fields[0].1 = Value::F64(-0.0),
            |b| b.samples[0].fields[0].1 = Value::I64(21),
            |b| drop(b.samples.pop()),
        ];
        for change in changes {
            let mut other = one.clone();
            change(&mut other);
            assert_ne!(hash(&site(), &other), same);
        }
    }

    #[test]
    fn the_order_of_fields_does_not_matter() {
        let mut one = bucket("a", 1_796_043_600, 0, &[]);
        let at = Timestamp::from_millis(1_796_043_600_000).unwrap().as_millis();
        let (x, y) = (("x", Value::I64(1)), ("y", Value::Bool(true)));
        one.samples = vec![sample(at, &[x.clone(), y.clone()])];
        let mut two = one.clone();
        two.samples = vec![sample(at, &[y, x])];
        assert_eq!(hash(&site(), &one), hash(&site(), &two));
    }
}
