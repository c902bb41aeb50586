//! Messages of known software, and what is taken from each.

use super::*;

/// Readings as `sensor@time name=value …`, then `note`s and `! reason`s; or `refused: reason`.
fn told(preset: Preset, topic: &str, payload: &str) -> Vec<String> {
    let zone = times::zone("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
    let message = Message {
        topic,
        payload: payload.as_bytes(),
        arrival: Timestamp::from_millis(1_772_366_400_000).unwrap(),
        zone: Some(&zone),
        format: &Format::Auto,
        arrival_for_bad_time: false,
    };
    match Presets::default().decode(preset, &message) {
        Err(reason) => vec![format!("refused: {reason}")],
        Ok(decoded) => {
            let lines = decoded.readings.iter().map(|m| {
                let fields: Vec<_> = m.fields.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
                let at = m.at.map(|t| format!("@{t}")).unwrap_or_default();
                format!("{}{at} {}", m.sensor.clone().unwrap_or_default(), fields.join(" "))
            });
            lines.chain(decoded.refused.reasons().iter().map(|reason| format!("! {reason}"))).collect()
        }
    }
}

#[track_caller]
fn check(preset: Preset, topic: &str, payload: &str, expected: &[&str]) {
    assert_eq!(told(preset, topic, payload), expected, "{topic} {payload}");
}

#[test]
fn zigbee2mqtt_states_are_readings_and_its_bridge_is_not() {
    let z2m = Preset::Zigbee2mqtt;
    check(
        z2m,
        "zigbee2mqtt/hall/lamp",
        r#"{"state":"ON","mode":"off","v":1,"update":{"x":1}}"#,
        &["hall/lamp state=Bool(true) v=I64(1)"],
    );
    check(z2m, "z/k", r#"{"last_seen":1772366398000,"t":21.5}"#, &["k@2026-03-01T11:59:58.000Z t=F64(21.5)"]);
    check(z2m, "zigbee2mqtt/k/temperature", "21.5", &["k temperature=F64(21.5)"]);
    check(z2m, "zigbee2mqtt/bridge/state", r#"{"state":"online"}"#, &[]);
    check(z2m, "zigbee2mqtt/k/set", r#"{"state":"ON"}"#, &[]);
    check(z2m, "zigbee2mqtt/k/availability", "online", &["refused: `online` is not a plain number"]);
    check(z2m, "zigbee2mqtt/k", "online", &["refused: payload is not JSON: a value is expected (byte 0)"]);
}

#[test]
fn tasmota_times_are_local_and_power_is_a_state() {
    let tasmota = Preset::Tasmota;
    check(
        tasmota,
        "tele/desk/SENSOR",
        r#"{"Time":"2023-05-19T20:52:56","ENERGY":{"TotalStartTime":"2022-03-20T15:20:48","Power":[52,5]}}"#,
        &["desk@2023-05-19T18:52:56.000Z ENERGY_Power[0]=I64(52) ENERGY_Power[1]=I64(5)"],
    );
    check(tasmota, "stat/desk/POWER", "OFF", &["desk POWER=Bool(false)"]);
    check(
        tasmota,
        "stat/desk/STATUS8",
        r#"{"StatusSNS":{"Time":"2023-05-19T20:52:56","T":1}}"#,
        &["desk@2023-05-19T18:52:56.000Z T=I64(1)"],
    );
    check(tasmota, "tele/desk/INFO1", r#"{"Info1":{}}"#, &[]);
    check(tasmota, "cmnd/desk/POWER", "ON", &[]);
    check(tasmota, "tele/desk/LWT", "Online", &["refused: payload is not JSON: a value is expected (byte 0)"]);
}

#[test]
fn shelly_speaks_two_languages() {
    let shelly = Preset::Shelly;
    check(shelly, "shellies/s1/relay/0/power", "23.5", &["s1/relay/0 power=F64(23.5)"]);
    check(shelly, "shellies/s1/relay/0", "on", &["s1/relay/0 state=Bool(true)"]);
    check(shelly, "shellies/s1/relay/0", "overpower", &["refused: `overpower` is not a plain number"]);
    check(shelly, "shellies/s1/online", "true", &["s1 online=Bool(true)"]);
    check(shelly, "shellies/ht1/sensor/temperature", "21.5", &["ht1/sensor temperature=F64(21.5)"]);
    check(shelly, "shellies/announce", "{}", &[]);
    check(
        shelly,
        "home/events/rpc",
        r#"{"src":"s2","method":"NotifyStatus","params":{"ts":1652704957.52,"switch:0":{"id":0,"output":true,"aenergy":{"by_minute":[1],"minute_ts":1,"total":2.5}}}}"#,
        &["s2@2022-05-16T12:42:37.520Z switch:0_output=Bool(true) switch:0_aenergy_total=F64(2.5)"],
    );
    check(shelly, "home/events/rpc", r#"{"src":"s2","method":"NotifyEvent","params":{"ts":1}}"#, &[]);
    check(shelly, "home/status/switch:0", r#"{"id":0,"apower":1.5}"#, &["home switch:0_apower=F64(1.5)"]);
}

#[test]
fn statestream_values_come_quoted_or_bare() {
    let stream = Preset::HaStatestream;
    let topic = "homeassistant/sensor/office/state";
    for payload in ["\"21.5\"", "21.5", " 21.5\n"] {
        check(stream, topic, payload, &["homeassistant/sensor/office state=F64(21.5)"]);
    }
    check(stream, topic, "off", &["homeassistant/sensor/office state=Bool(false)"]);
    check(stream, topic, "\"unavailable\"", &["refused: `unavailable` says that there is no value"]);
    check(stream, topic, "null", &["refused: `null` says that there is no value"]);
    check(stream, topic, r#""\u00b0C""#, &["refused: `°C` is a text where a number or a state is expected"]);
    check(stream, topic, "[1]", &["refused: payload is a list or an object, not one value"]);
}

#[test]
fn lorawan_uplinks_hold_what_the_formatter_made() {
    check(
        Preset::TtsV3,
        "v3/a@t/devices/d/up",
        r#"{"end_device_ids":{"device_id":"d"},"received_at":"2022-08-25T21:12:53.828332832Z","uplink_message":{"f_cnt":7,"decoded_payload":{"t":28.77,"x":"FALSE","s":"OPEN"},"rx_metadata":[{"timestamp":2983740355,"rssi":-103,"snr":-4.75},{"snr":7.5}]}}"#,
        &["d@2022-08-25T21:12:53.828Z decoded_payload_t=F64(28.77) decoded_payload_x=Bool(false) f_cnt=I64(7) \
           rx_metadata[0]_rssi=I64(-103) rx_metadata[0]_snr=F64(-4.75) rx_metadata[1]_snr=F64(7.5)"],
    );
    check(
        Preset::TtsV3,
        "v3/a@t/devices/d/up",
        r#"{"end_device_ids":{"device_id":"d"},"uplink_message":{"frm_payload":"AA=="}}"#,
        &["d f_cnt=I64(0)", "! `decoded_payload` is missing: the application has no payload formatter"],
    );
    check(Preset::TtsV3, "v3/a@t/devices/d/join", "{}", &[]);
    let chirpstack = |event: &str, payload: &str, expected: &[&str]| {
        check(Preset::ChirpstackV4, &format!("application/a/device/1/event/{event}"), payload, expected);
    };
    chirpstack(
        "up",
        r#"{"deviceInfo":{"devEui":"1"},"time":"2025-11-03T15:30:00.123456+00:00","fCnt":9,"object":{"m":"61.0"},"rxInfo":[{"rssi":-70}]}"#,
        &["1@2025-11-03T15:30:00.123Z object_m=F64(61.0) fCnt=I64(9) rxInfo[0]_rssi=I64(-70)"],
    );
    chirpstack(
        "status",
        r#"{"deviceInfo":{"devEui":"1"},"margin":7,"batteryLevel":88.5}"#,
        &["1 margin=I64(7) batteryLevel=F64(88.5)"],
    );
    chirpstack("log", "{}", &[]);
    chirpstack(
        "up",
        "\u{a}\u{b}",
        &["refused: payload is not JSON (is the integration's marshaler protobuf? set it to JSON)"],
    );
}

#[test]
fn victron_and_owntracks_say_when_they_have_nothing() {
    check(Preset::Victron, "N/1/battery/0/Dc", r#"{"max":null,"value":12.5}"#, &["1/battery/0/Dc value=F64(12.5)"]);
    check(Preset::Victron, "N/1/battery/0/Dc", r#"{"value":null}"#, &[]);
    check(Preset::Victron, "N/1/battery/0/Dc", r#"{"value":[]}"#, &[]);
    check(Preset::Victron, "N/1/system/0/Serial", r#"{"value":"x"}"#, &["refused: value `x` is a text, not a number"]);
    check(Preset::Victron, "W/1/settings/0/x", r#"{"value":1}"#, &[]);
    let location = r#"{"_type":"location","lat":10.5,"doze":false,"tst":1489529135}"#;
    check(
        Preset::Owntracks,
        "owntracks/u/p",
        location,
        &["u/p@2017-03-14T22:05:35.000Z lat=F64(10.5) doze=Bool(false)"],
    );
    check(Preset::Owntracks, "owntracks/u/p", r#"{"_type":"lwt","tst":1}"#, &[]);
    check(
        Preset::Owntracks,
        "owntracks/u/p",
        r#"{"_type":"encrypted"}"#,
        &["refused: payload is encrypted: the gateway cannot read it"],
    );
}

#[test]
fn radio_repeats_are_one_reading_and_units_in_texts_none() {
    let event = r#"{"time":"2023-03-01 09:25:41","model":"M","id":18,"channel":2,"t":-0.4}"#;
    let one = "M/2/18@2023-03-01T08:25:41.000Z t=F64(-0.4)";
    check(Preset::Rtl433, "rtl_433/pi/events", &format!("{event}\n{event}\n"), &[one]);
    let other = event.replace("-0.4", "1.5");
    let second = "M/2/18@2023-03-01T08:25:41.000Z t=F64(1.5)";
    check(
        Preset::Rtl433,
        "rtl_433/pi/events",
        &format!("{event}\n{other}\n{{"),
        &[one, second, "! line 3: payload is not JSON: a key in double quotes is expected (byte 1)"],
    );
    check(
        Preset::Rtl433,
        "rtl_433/pi/events",
        r#"{"model":"M","id":1,"e":"0.7 kWh","n":1}"#,
        &["M/1 n=I64(1)", "! field `e` is a number with a unit in the text (`0.7 kWh`)"],
    );
    check(Preset::Rtl433, "rtl_433/pi/devices/M/2/18/temperature_C", "21.5", &["M/2/18 temperature_C=F64(21.5)"]);
    check(Preset::Rtl433, "rtl_433/pi/devices/M/2/18/mic", "CRC", &[]);
}

#[test]
fn ruuvi_tags_are_heard_through_their_gateway() {
    let payload =
        |data: &str| format!(r#"{{"gw_mac":"x","rssi":-58,"aoa":[],"ts":"1659365432","data":"{data}","coords":""}}"#);
    let invalid = payload("0201061BFF9904058000FFFFFFFF800080008000FFFFFFFFFF02005E000001");
    let told = told(Preset::Ruuvi, "ruuvi/GW/TAG", &invalid);
    assert_eq!(told[0], "TAG@2022-08-01T14:50:32.000Z rssi=I64(-58)");
    assert!(told[1].starts_with("! the tag says that it has no temperature, humidity"), "{told:?}");
    check(
        Preset::Ruuvi,
        "ruuvi/GW/TAG",
        r#"{"rssi":-71,"cnt":4242,"dataFormat":5,"temperature":21.5}"#,
        &["TAG rssi=I64(-71) cnt=I64(4242) temperature=F64(21.5)"],
    );
}

#[test]
fn envelopes_are_told_by_their_shape() {
    check(
        Preset::Cloud,
        "$aws/things/t1/shadow/update/accepted",
        r#"{"state":{"reported":{"t":21.5,"fan":{"rpm":1200},"mode":"auto"}},"metadata":{"reported":{"t":{"timestamp":1700000000},"fan":{"rpm":{"timestamp":1699990000}}}},"timestamp":1700000005}"#,
        &["t1@2023-11-14T22:13:20.000Z t=F64(21.5)", "t1@2023-11-14T19:26:40.000Z fan_rpm=I64(1200)"],
    );
    check(Preset::Cloud, "$aws/things/t1/shadow/update/delta", r#"{"state":{"t":1},"version":3}"#, &[]);
    check(
        Preset::Cloud,
        "x",
        r#"{"dev1":[{"ts":1772366400000,"values":{"t":21.5}}],"dev 2":[{"values":{"t":-1}},{"ts":true,"values":{"t":1}}]}"#,
        &["dev1@2026-03-01T12:00:00.000Z t=F64(21.5)", "dev 2 t=I64(-1)", "! [1]: at `/ts`: `true` is not a time"],
    );
    check(
        Preset::Cloud,
        "azure",
        r#"[{"subject":"devices/d1","eventTime":"2019-01-07T20:58:30.48Z","data":{"body":{"W":{"T":900}}}}]"#,
        &["d1@2019-01-07T20:58:30.480Z data_body_W_T=I64(900)"],
    );
    let base64 = told(Preset::Cloud, "azure", r#"[{"data":{"body":"eyJ9"}}]"#);
    assert!(base64[0].starts_with("refused: [0]: `data.body` is base64 text: let the device send"), "{base64:?}");
    check(
        Preset::Cloud,
        "x",
        r#"{"t":1}"#,
        &["refused: no envelope that is known here (AWS shadow, Azure event, ThingsBoard)"],
    );
}

#[test]
fn every_preset_has_a_name_of_its_own() {
    for (name, preset) in PRESETS {
        assert_eq!(preset.name(), name);
    }
}

proptest::proptest! {
    #[test]
    fn no_message_makes_a_preset_panic(
        topic in "(spBv1.0|tele|N|shellies|a)?(/[a-z]{0,4}){0,4}(/status|/rpc|/devices|/up)?(/x)?",
        bytes: Vec<u8>,
        text in r#"[\[\]{},:"\\ntsev0-9._]{0,60}"#,
    ) {
        let mut presets = Presets::default();
        for (_, preset) in PRESETS {
            for payload in [bytes.as_slice(), text.as_bytes()] {
                let message = Message {
                    topic: &topic, payload, arrival: Timestamp::EPOCH, zone: None, format: &Format::Auto, arrival_for_bad_time: true,
                };
                let _ = presets.decode(preset, &message);
            }
        }
    }
}
