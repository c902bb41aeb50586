//! Payloads and what is taken from them.

use super::*;

/// `fields` as `name=pointer`, `time` and `sensor` as `@time=…` and `@sensor=…`.
fn decoder(spec: &[&str]) -> Decoder {
    let mut shape = Shape::default();
    for part in spec {
        let (name, pointer) = part.split_once('=').unwrap();
        let pointer = Pointer::new(pointer).unwrap();
        match name {
            "@time" => shape.time = Some(pointer),
            "@each" => shape.each = Some(pointer),
            "@format" => shape.format = Format::new(pointer.as_str().trim_start_matches('/')).unwrap(),
            "@sensor" => shape.sensor = Some(pointer),
            "@text" => shape.texts.push(FieldName::new(pointer.as_str().trim_start_matches('/')).unwrap()),
            field => shape.fields.push((FieldName::new(field).unwrap(), pointer)),
        }
    }
    Decoder::new(shape)
}

/// Readings as `sensor@time name=value …`, one a line, then `! reasons`; or `refused: reason`.
fn told(decoder: &mut Decoder, payload: &str) -> String {
    match decoder.json(payload.as_bytes(), Timestamp::EPOCH) {
        Err(reason) => format!("refused: {reason}"),
        Ok(decoded) => {
            let mut lines: Vec<String> = decoded.readings.iter().map(line).collect();
            if !decoded.refused.is_empty() {
                lines.push(format!("! {}", decoded.refused));
            }
            lines.join("\n")
        }
    }
}

fn line(measured: &Measured) -> String {
    let mut words = Vec::new();
    words.extend(measured.sensor.clone().map(|s| format!("{s}:")));
    words.extend(measured.at.map(|t| format!("@{t}")));
    words.extend(measured.fields.iter().map(|(name, value)| format!("{name}={value:?}")));
    words.join(" ")
}

fn check(spec: &[&str], payload: &str, expected: &str) {
    assert_eq!(told(&mut decoder(spec), payload), expected, "{payload}");
}

#[test]
fn pointers_name_the_fields() {
    check(
        &["temp=/t", "hum=/d/h", "state=/s", "none=/n", "@text=/state"],
        r#"{"t":21.5,"d":{"h":44},"s":"ok","n":null,"x":1}"#,
        r#"temp=F64(21.5) hum=I64(44) state=Text("ok")"#,
    );
    check(&["a=/v/0", "b=/v/1"], r#"{"v":[1,18446744073709551615]}"#, "a=I64(1) b=U64(18446744073709551615)");
    check(&["v="], "21.5", "v=F64(21.5)");
}

#[test]
fn a_text_where_a_field_is_declared_is_what_it_stands_for() {
    check(&["t=/t"], r#"{"t":" 21.5 "}"#, "t=F64(21.5)");
    check(&["t=/t"], r#"{"t":"ON"}"#, "t=Bool(true)");
    check(&["t=/t", "@text=/t"], r#"{"t":"21.5"}"#, r#"t=Text("21.5")"#);
    for text in ["nan", "unavailable", "", "21,5", "21.5 °C", "heating"] {
        let told = told(&mut decoder(&["t=/t", "h=/h"]), &format!(r#"{{"t":"{text}","h":1}}"#));
        assert!(told.starts_with("h=I64(1)\n! field `t` at `/t` is a text:"), "{told}");
    }
    let long = told(&mut decoder(&["t=/t"]), &format!(r#"{{"t":"{}"}}"#, "9".repeat(300)));
    assert!(long.contains("beyond 64 bits"), "{long}");
}

#[test]
fn without_pointers_every_number_and_boolean_is_taken() {
    check(
        &[],
        r#"{"t":1,"on":true,"s":"x","n":null,"in":{"a":0.5,"b":[1,2]}}"#,
        "t=I64(1) on=Bool(true) in_a=F64(0.5) in_b[0]=I64(1) in_b[1]=I64(2)",
    );
    check(&["@time=/ts", "@sensor=/id"], r#"{"ts":1772366400,"id":7,"t":1}"#, "7: @2026-03-01T12:00:00.000Z t=I64(1)");
    check(&[], r#"{"s":"x"}"#, "refused: payload holds no number and no boolean");
}

#[test]
fn one_bad_field_costs_one_field() {
    check(&["a=/a", "b=/b"], r#"{"a":{"x":1},"b":2}"#, "b=I64(2)\n! field `a` at `/a` is an object, not a value");
    check(
        &[],
        r#"{"a":1e400,"b":18446744073709551616,"c":1}"#,
        "c=I64(1)\n! field `a` (`1e400`) is beyond the range of a double; \
         field `b` (`18446744073709551616`) is a whole number beyond 64 bits",
    );
    check(&[], r#"{"a.b":2,"a":{"b":3}}"#, "a_b=I64(2)\n! two values for one field `a_b`: the first is kept");
    check(&["a=/a"], r#"{"a":null,"b":2}"#, "");
    check(&["a=/a", "b=/b"], r#"{"a":null}"#, "");
    check(&[], r#"{"a":null,"b":{"c":null}}"#, "");
    check(&["a=/a"], r#"{"b":2}"#, "refused: nothing at `/a` for field `a`");
    check(&["a=/a"], r#"{"a":[]}"#, "refused: field `a` at `/a` is an array, not a value; no field is left");
}

#[test]
fn an_array_of_readings_with_times_is_a_batch() {
    check(
        &["@time=/ts"],
        r#"[{"ts":1772366390000,"t":21.5},{"ts":"bad","t":1},{"t":2},42,null]"#,
        "@2026-03-01T11:59:50.000Z t=F64(21.5)\nt=I64(2)\n! [1]: at `/ts`: `bad` is not a time (RFC 3339, or a number \
         since 1970); [3]: a number where an object is expected; [4]: null where an object is expected",
    );
    check(&["@time=/ts"], "[]", "");
    check(&["@sensor=/id", "t=/t"], r#"[{"id":"a","t":1},{"id":"b","t":2}]"#, "a: t=I64(1)\nb: t=I64(2)");
    check(&["first=/0/t"], r#"[{"t":1},{"t":2}]"#, "first=I64(1)");
    let huge = format!("[{}1]", "1,".repeat(MAX_BATCH));
    check(&["@time=/ts"], &huge, "refused: payload holds 10001 readings, at most 10000 are taken");
}

#[test]
fn readings_that_stand_deeper_are_found_by_each() {
    check(
        &["@each=/*/*", "@time=/ts", "t=/values/t", "h=/values/h"],
        r#"{"dev1":[{"ts":1772366400000,"values":{"t":21.5,"h":44}},{"ts":1772366340000,"values":{"t":21.4}}],"dev 2":[{"ts":1772366400000,"values":{"t":-1}}]}"#,
        "dev1: @2026-03-01T12:00:00.000Z t=F64(21.5) h=I64(44)\ndev1: @2026-03-01T11:59:00.000Z t=F64(21.4)\n\
         dev 2: @2026-03-01T12:00:00.000Z t=I64(-1)",
    );
    check(
        &["@each=/data/*"],
        r#"{"data":[{"t":1},{"x":"y"}]}"#,
        "t=I64(1)\n! [1]: payload holds no number and no boolean",
    );
    check(&["@each=/data/*"], r#"{"t":1}"#, "refused: nothing at `/data/*`");
}

#[test]
fn a_star_in_a_pointer_fills_the_name() {
    check(
        &["*_temp=/sensors/*/t", "v*=/v/*"],
        r#"{"sensors":{"a":{"t":1},"b":{"t":2},"c":{}},"v":[7,8]}"#,
        "a_temp=I64(1) b_temp=I64(2) v0=I64(7) v1=I64(8)",
    );
}

#[test]
fn a_declared_form_of_the_time_is_the_only_one() {
    check(&["@time=/ts", "@format=/unix_ms"], r#"{"ts":1772366400123,"t":1}"#, "@2026-03-01T12:00:00.123Z t=I64(1)");
    check(
        &["@time=/ts", "@format=/unix_s"],
        r#"{"ts":1772366400123,"t":1}"#,
        "refused: at `/ts`: time `1772366400123` is beyond the year 9999",
    );
}

#[test]
fn cbor_is_read_like_json() {
    let payload = [0xa2, 0x61, b't', 0xfb, 0x40, 0x35, 0x80, 0, 0, 0, 0, 0, 0x01, 0x18, 44];
    let decoded = decoder(&[]).cbor(&payload, Timestamp::EPOCH).unwrap();
    assert_eq!(line(&decoded.readings[0]), "t=F64(21.5) 1=I64(44)");
    let decoded = decoder(&["h=/1"]).cbor(&payload, Timestamp::EPOCH).unwrap();
    assert_eq!(line(&decoded.readings[0]), "h=I64(44)");
}

#[test]
fn reasons_and_fields_are_bounded() {
    let many: String = (0..300).map(|i| format!("\"f{i}\":1,")).collect();
    let told = told(&mut decoder(&[]), &format!("{{{many}\"z\":1}}"));
    assert!(told.contains("field `f256` is one of more than 256"), "{told}");
    assert!(told.ends_with("and 37 more"), "{told}");
}

#[test]
fn other_payloads_are_refused_by_name() {
    check(&[], "\u{feff}{\"t\":1}", "t=I64(1)");
    check(
        &[],
        "\"ON\"",
        "refused: payload is a string where an object is expected (bare numbers: decode = \"number\")",
    );
    check(&[], "{\"t\":NaN}", "refused: payload is not JSON: NaN and Infinity are not JSON (byte 5)");
    assert_eq!(
        decoder(&[]).json(b"\x1f\x8b\x08", Timestamp::EPOCH).unwrap_err(),
        "payload is gzip-compressed, not text"
    );
    assert_eq!(
        decoder(&[]).json(b"{\"t\":\"caf\xe9\"}", Timestamp::EPOCH).unwrap_err(),
        "payload is not UTF-8 text (byte 9)"
    );
}

/// Any number or boolean as JSON writes it.
fn scalar() -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
    use proptest::prelude::*;
    prop_oneof![
        any::<i64>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
    ]
}

/// Whether a value is the very number that was written.
fn is_the_same(value: &Value, written: &serde_json::Value) -> bool {
    match value {
        Value::I64(v) => written.as_i64() == Some(*v),
        Value::U64(v) => written.as_u64() == Some(*v),
        Value::F64(v) => written.as_f64().map(f64::to_bits) == Some(v.to_bits()),
        Value::Bool(v) => written.as_bool() == Some(*v),
        Value::Text(_) => false,
    }
}

proptest::proptest! {
    #[test]
    fn what_is_written_as_json_is_read_back(written in proptest::collection::btree_map("[a-z]{1,8}", scalar(), 1..20)) {
        let payload = serde_json::to_vec(&written).unwrap();
        let decoded = decoder(&[]).json(&payload, Timestamp::EPOCH).unwrap();
        let fields = &decoded.readings[0].fields;
        proptest::prop_assert_eq!(fields.len(), written.len());
        for (name, value) in fields {
            proptest::prop_assert!(is_the_same(value, &written[name.as_str()]), "{} {:?}", name, value);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(payload: Vec<u8>, text in r#"[\[\]{},:"\\ntse0-9.]{0,40}"#) {
        let mut decoder = decoder(&["@time=/t"]);
        let _ = decoder.json(&payload, Timestamp::EPOCH);
        let _ = decoder.json(text.as_bytes(), Timestamp::EPOCH);
    }
}
