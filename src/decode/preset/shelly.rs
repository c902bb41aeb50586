//! Shelly: first generation `shellies/DEVICE/relay/0/power` with plain values, later ones `…/events/rpc` and
//! `…/status/switch:0` with JSON.
//!
//! A notification holds only what changed: what is absent is unchanged, not zero. Its `ts` is the reading's time;
//! `minute_ts` and `by_minute` have a time base of their own and are left out.

use super::{Decoded, Frame, Message, Names, Style};

const STYLE: Style = Style {
    skip: |path, key| {
        matches!(key, "ts" | "by_minute" | "unixtime" | "errors" | "timestamp")
            // Times of their own: when a minute, a timer, a movement began.
            || key.ends_with("_ts")
            || key.ends_with("_started_at")
            || (key == "id" && !path.is_empty())
            || (path == "sys"
                && matches!(key, "cfg_rev" | "kvs_rev" | "schedule_rev" | "webhook_rev" | "available_updates"))
    },
    ..Style::PLAIN
};

pub(super) fn decode(message: &Message<'_>, names: &mut Names) -> Result<Decoded, String> {
    let levels = message.levels();
    match levels.as_slice() {
        ["shellies", "announce" | "command"]
        | ["shellies", _, "announce" | "info" | "command"]
        | [.., "command"]
        | [.., "debug", "log"] => Ok(Decoded::default()),
        ["shellies", device, path @ ..] if !path.is_empty() => first_generation(message, device, path, names),
        [prefix @ .., "status", component] => {
            let frame = Frame { sensor: Some(prefix.join("/")), at: None };
            let top = message.json()?;
            // The component's own number.
            let style = Style { skip: |_, key| key == "id" || (STYLE.skip)("", key), ..STYLE };
            Decoded::default().whole(frame, &top, component, style, names)
        }
        [prefix @ .., "online"] => Decoded::single(prefix.join("/"), "online", message.plain()?, names),
        [prefix @ .., _, "rpc"] | [prefix @ .., "rpc"] => notification(message, prefix, names),
        _ => Err("topic is not Shelly's (shellies/…, …/events/rpc, …/status/COMPONENT)".to_owned()),
    }
}

/// One channel of a device is a sensor, the last level its field: `relay/0` with `power` and `energy`. What stands on the
/// channel's own topic is its state, or the one value that it measures. Objects hold several fields: those of `status`
/// are the device's or channel's own.
fn first_generation(message: &Message<'_>, device: &str, path: &[&str], names: &mut Names) -> Result<Decoded, String> {
    if message.is_structured() {
        let (sensor, path) = match path.split_last() {
            Some((&"status", channel)) => ([&[device], channel].concat().join("/"), String::new()),
            _ => (device.to_owned(), path.join(".")),
        };
        let frame = Frame { sensor: Some(sensor), at: None };
        return Decoded::default().whole(frame, &message.json()?, &path, STYLE, names);
    }
    let channel = message.topic.strip_prefix("shellies/").unwrap_or(message.topic);
    match channel.rsplit_once('/') {
        Some((channel, field)) if field.parse::<u8>().is_err() => {
            Decoded::single(channel.to_owned(), field, message.plain()?, names)
        }
        _ => {
            let is_measured = path.first().is_some_and(|kind| kind.starts_with("ext_") || *kind == "adc");
            let field = if is_measured { "value" } else { "state" };
            Decoded::single(channel.to_owned(), field, message.plain()?, names)
        }
    }
}

fn notification(message: &Message<'_>, prefix: &[&str], names: &mut Names) -> Result<Decoded, String> {
    let top = message.json()?;
    let sensor = top.get("src").and_then(|src| src.text()).map_or_else(|| prefix.join("/"), str::to_owned);
    match top.get("method").and_then(|method| method.text()) {
        Some("NotifyStatus" | "NotifyFullStatus") => {}
        Some(_) => return Ok(Decoded::default()),
        None if top.get("result").is_some() || top.get("error").is_some() => return Ok(Decoded::default()),
        None => return Err("payload is no notification (it has no `method`)".to_owned()),
    }
    let params = top.get("params").ok_or("notification without `params`")?;
    let mut decoded = Decoded::default();
    let at = message.time(params.get("ts"), &mut decoded).map_err(|e| format!("at `/params/ts`: {e}"))?;
    decoded.whole(Frame { sensor: Some(sensor), at }, params, "", STYLE, names)
}
