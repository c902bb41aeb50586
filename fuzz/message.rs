//! A payload through a preset, on each of its kinds of topic, one after the other as one broker would send them.

use tipbucket::decode::preset::{Message, Preset, Presets};
use tipbucket::decode::times::Format;
use tipbucket::model::Timestamp;

/// What is found must be values that may be stored.
pub fn through(preset: Preset, topics: &[&str], payload: &[u8]) {
    let mut presets = Presets::default();
    let format = Format::Auto;
    for topic in topics {
        let arrival = Timestamp::clamped(1_772_366_400_000);
        let message = Message { topic, payload, arrival, zone: None, format: &format, arrival_for_bad_time: false };
        if let Ok(decoded) = presets.decode(preset, &message) {
            assert!(decoded.readings.iter().flat_map(|m| &m.fields).all(|(_, value)| value.is_sound()));
        }
    }
}
