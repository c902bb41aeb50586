//! Sparkplug B's protocol buffer, as far as it is read or written here (specification 3.0, section 6.4).
//!
//! Metrics stay bytes until each is looked at, and data sets and templates for ever: a metric that cannot be read costs one
//! metric. How many there are is counted before any memory is given to them.

use prost::bytes::Bytes;
use prost::{Message as _, decode_length_delimiter};

/// Most metrics in one payload: a large controller announces some thousands.
pub(super) const MAX_METRICS: usize = 10_000;

/// A payload.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Payload {
    #[prost(uint64, optional, tag = "1")]
    pub(super) timestamp: Option<u64>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) metrics: Vec<Bytes>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) seq: Option<u64>,
}

/// A metric.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Metric {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) alias: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) datatype: Option<u32>,
    #[prost(bool, optional, tag = "7")]
    pub(super) is_null: Option<bool>,
    #[prost(oneof = "Held", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18")]
    pub(super) held: Option<Held>,
}

/// A metric's value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Held {
    #[prost(uint32, tag = "10")]
    Int(u32),
    #[prost(uint64, tag = "11")]
    Long(u64),
    #[prost(float, tag = "12")]
    Float(f32),
    #[prost(double, tag = "13")]
    Double(f64),
    #[prost(bool, tag = "14")]
    Boolean(bool),
    #[prost(string, tag = "15")]
    String(String),
    #[prost(bytes = "bytes", tag = "16")]
    Bytes(Bytes),
    #[prost(bytes = "bytes", tag = "17")]
    DataSet(Bytes),
    #[prost(bytes = "bytes", tag = "18")]
    Template(Bytes),
}

/// Reads a payload, or says why it cannot be read; nothing is taken from one that is cut off.
pub(super) fn read(payload: &[u8]) -> Result<(Payload, Vec<Metric>), String> {
    let count = count(payload);
    if count > MAX_METRICS {
        return Err(format!("payload holds {count} metrics, at most {MAX_METRICS} are taken"));
    }
    let broken = |error: prost::DecodeError| format!("payload is not Sparkplug B: {error}");
    let payload = Payload::decode(Bytes::copy_from_slice(payload)).map_err(broken)?;
    let metrics = payload.metrics.iter().map(|bytes| Metric::decode(bytes.clone())).collect::<Result<_, _>>();
    Ok((payload, metrics.map_err(broken)?))
}

/// How many metrics the payload seems to hold, without reading any.
fn count(payload: &[u8]) -> usize {
    let mut rest = payload;
    let mut count = 0;
    // Reads a varint, which is what a length is.
    while let Ok(key) = decode_length_delimiter(&mut rest) {
        let skip = match key & 7 {
            0 => decode_length_delimiter(&mut rest).map(|_| 0),
            1 => Ok(8),
            2 => decode_length_delimiter(&mut rest),
            5 => Ok(4),
            _ => return count,
        };
        count += usize::from(key == 2 << 3 | 2);
        match skip.ok().and_then(|skip| rest.get(skip..)) {
            Some(after) if !after.is_empty() => rest = after,
            _ => return count,
        }
    }
    count
}

/// The command that asks an edge node to announce itself again.
pub(super) fn rebirth(millis: u64) -> Vec<u8> {
    /// Sparkplug's number for a boolean.
    const BOOLEAN: u32 = 11;
    let metric = Metric {
        name: Some("Node Control/Rebirth".to_owned()),
        timestamp: Some(millis),
        datatype: Some(BOOLEAN),
        held: Some(Held::Boolean(true)),
        ..Metric::default()
    };
    let metrics = vec![metric.encode_to_vec().into()];
    Payload { timestamp: Some(millis), metrics, seq: None }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let (payload, metrics) = read(&rebirth(1_772_366_400_000)).unwrap();
        assert_eq!((payload.timestamp, payload.seq), (Some(1_772_366_400_000), None));
        assert_eq!(metrics[0].name.as_deref(), Some("Node Control/Rebirth"));
        assert_eq!(metrics[0].held, Some(Held::Boolean(true)));
    }

    #[test]
    fn metrics_are_counted_before_they_cost_memory() {
        let many = [0x12, 0].repeat(MAX_METRICS + 1);
        assert_eq!(count(&many), MAX_METRICS + 1);
        assert!(read(&many).unwrap_err().contains("10001 metrics"));
        assert_eq!(read(&[0x12, 0].repeat(3)).unwrap().1.len(), 3);
    }

    #[test]
    fn a_payload_that_is_cut_off_gives_nothing() {
        let whole = rebirth(1_772_366_400_000);
        for length in 1..whole.len() {
            assert!(read(&whole[..length]).is_err() || length == 7, "{length}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
            let _ = count(&bytes);
        }
    }
}
