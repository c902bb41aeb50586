//! `_id`: which bucket this is, in text whose order is sensor, then time, then part.
//!
//! `site/sensor|window start|window seconds|part`. The start has a fixed width, so the `_id` index alone answers a
//! sensor's time range. The sensor's `%`, `|` and `/` are percent-encoded: two different buckets never share an `_id`.

use crate::model::{SealedBucket, SensorName, SiteName};

/// The `_id` of a bucket.
pub fn id(site: &SiteName, bucket: &SealedBucket) -> String {
    let start = bucket.window.start().basic();
    format!("{}|{start}|{}|{}", prefix(site, &bucket.sensor), bucket.window.length().seconds(), bucket.part)
}

/// What the `_id` of every bucket of one sensor begins with.
pub fn prefix(site: &SiteName, sensor: &SensorName) -> String {
    format!("{site}/{}", encoded(sensor))
}

/// A sensor's name with the characters encoded that mean something in an `_id`.
pub(super) fn encoded(sensor: &SensorName) -> String {
    let mut text = String::with_capacity(sensor.as_str().len());
    for c in sensor.as_str().chars() {
        match c {
            '%' => text.push_str("%25"),
            '/' => text.push_str("%2F"),
            '|' => text.push_str("%7C"),
            other => text.push(other),
        }
    }
    text
}

/// A sensor's name out of an `_id`.
pub(super) fn decoded(encoded: &str) -> String {
    // `%25` last: what it stands for must not be taken for the beginning of another.
    encoded.replace("%7C", "|").replace("%2F", "/").replace("%25", "%")
}

/// The `_id` under which a bucket is sent when its own one is taken by other content: first with the store's id, and
/// if that is taken as well, with the beginning of its hash.
pub(super) fn rekeyed(id: &str, store: &str, hash: &str, times: u8) -> String {
    match times {
        0 => id.to_owned(),
        1 => format!("{id}~{store}"),
        _ => format!("{id}~{store}-{}", hash.get(..8).unwrap_or(hash)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::bucket;

    fn check(sensor: &str, expected: &str) {
        let site = SiteName::new("greenhouse-7").unwrap();
        assert_eq!(id(&site, &bucket(sensor, 1_796_043_600, 0, &[(0, 1.0)])), expected);
    }

    #[test]
    fn an_id_names_site_sensor_window_and_part() {
        check("boiler-meter", "greenhouse-7/boiler-meter|20261130T130000.000Z|600|0");
        check("a/b|c%d é", "greenhouse-7/a%2Fb%7Cc%25d é|20261130T130000.000Z|600|0");
    }

    #[test]
    fn encoded_names_cannot_meet() {
        let site = SiteName::new("s").unwrap();
        let of = |name| prefix(&site, &SensorName::new(name).unwrap());
        assert_ne!(of("a/b"), of("a%2Fb"));
        assert_ne!(of("a|b"), of("a%7Cb"));
        for name in ["a/b|c%d é", "%2F", "a%257C", "%"] {
            assert_eq!(decoded(&encoded(&SensorName::new(name).unwrap())), name);
        }
    }

    #[test]
    fn a_taken_id_is_followed_by_two_others() {
        assert_eq!(rekeyed("x|0", "0badcafe", "0123456789abcdef", 1), "x|0~0badcafe");
        assert_eq!(rekeyed("x|0", "0badcafe", "0123456789abcdef", 2), "x|0~0badcafe-01234567");
    }
}
