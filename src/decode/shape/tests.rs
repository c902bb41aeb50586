//! What becomes of a value under the options of its field.

use super::*;

fn options(toml: &str) -> Options {
    let field: std::collections::BTreeMap<String, Field> = toml::from_str(&format!("f = {toml}")).unwrap();
    field["f"].0.clone()
}

fn text(text: &str) -> Value {
    Value::text(text).unwrap()
}

fn check(toml: &str, value: Value, expected: Result<Value, &str>) {
    let shown = format!("{toml} of {value:?}");
    match (options(toml).apply(value), expected) {
        (Outcome::Value(got), Ok(expected)) => assert_eq!(got, expected, "{shown}"),
        (Outcome::Absent, Err("absent")) => {}
        (Outcome::Refused(words), Err(expected)) => assert!(words.contains(expected), "{shown}: {words}"),
        (other, expected) => panic!("{shown}: {other:?} instead of {expected:?}"),
    }
}

#[test]
fn a_field_is_a_pointer_or_a_table() {
    assert_eq!(options("'/t'").pointer.as_deref(), Some("/t"));
    let full = options("{ pointer = '/t', unit = '°C', scale = 0.1, min_interval = '10s', words = { ON = true } }");
    assert_eq!((full.scale, full.min_interval), (Some(0.1), Some(Duration::from_secs(10))));
    let error = toml::from_str::<std::collections::BTreeMap<String, Field>>("f = { ponter = '/t' }").unwrap_err();
    assert!(error.to_string().contains("unknown field `ponter`"), "{error}");
    assert!(toml::from_str::<std::collections::BTreeMap<String, Field>>("f = 3").is_err());
}

#[test]
fn scaling_gives_the_decimal_number_meant() {
    check("{ scale = 0.1 }", Value::I64(217), Ok(Value::F64(21.7)));
    check("{ scale = 0.01 }", Value::I64(4480), Ok(Value::F64(44.8)));
    check("{ scale = 1.8, offset = 32 }", Value::F64(20.0), Ok(Value::F64(68.0)));
    check("{ offset = -273.15, decimals = 2 }", Value::F64(294.65), Ok(Value::F64(21.5)));
    check("{ unit = 'kWh' }", Value::U64(u64::MAX), Ok(Value::U64(u64::MAX)));
    check("{ scale = 1e300 }", Value::F64(1e300), Err("beyond a double"));
}

#[test]
fn implausible_values_are_refused_and_declared_ones_are_none() {
    check("{ min = -40, max = 80 }", Value::F64(327.67), Err("327.67 is above its max 80"));
    check("{ min = -40 }", Value::F64(-127.0), Err("below its min"));
    check("{ min = -40, max = 80 }", Value::I64(80), Ok(Value::I64(80)));
    check("{ invalid = [-127, 85] }", Value::F64(-127.0), Err("absent"));
    check("{ invalid = [-127, 85] }", Value::I64(85), Err("absent"));
    check("{ invalid = [65535], scale = 0.1 }", Value::I64(65_535), Err("absent"));
    check("{ invalid = ['err'] }", text("err"), Err("absent"));
    check("{ invalid = [-127], kind = 'number' }", text("-127.00"), Err("absent"));
}

#[test]
fn words_and_marks_in_texts_are_options() {
    check("{ words = { open = 1, closed = 0 } }", text("open"), Ok(Value::I64(1)));
    check("{ words = { ON = true } }", text(" ON "), Ok(Value::Bool(true)));
    check("{ kind = 'number' }", text("ON"), Err("`ON` is not a number"));
    check("{ kind = 'number' }", Value::Bool(true), Err("not a number"));
    check("{ kind = 'number' }", text("61.0"), Ok(Value::F64(61.0)));
    check("{ decimal = 'comma' }", text("21,5"), Ok(Value::F64(21.5)));
    check("{ decimal = 'comma' }", text("1.234,5"), Err("a point"));
    check("{ decimal = 'comma' }", text("1,2,3"), Err("not a number"));
    check("{ suffix = '°C' }", text("21.5 °C"), Ok(Value::F64(21.5)));
    check("{ suffix = '°C' }", text("21.5 °F"), Err("not a number"));
    check("{ kind = 'switch' }", Value::I64(1), Ok(Value::Bool(true)));
    check("{ kind = 'switch' }", Value::I64(2), Err("neither on nor off"));
    check("{ kind = 'text' }", Value::I64(2), Err("not a text"));
    check("'/t'", text("heating"), Ok(text("heating")));
    check("{ max = 9 }", text("18446744073709551616"), Err("beyond 64 bits"));
}

#[test]
fn contradictions_name_their_key() {
    let found = |toml: &str| options(toml).contradictions().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(found("{ scale = 0.1, min = 0, max = 5, decimals = 2, deadband = 0.1 }"), Vec::<&str>::new());
    assert_eq!(
        found("{ scale = 0, min = 2, max = 1, decimals = 16, deadband = 0 }"),
        ["scale", "min", "decimals", "deadband"]
    );
    assert_eq!(found("{ kind = 'text', max = 1 }"), ["kind"]);
    assert_eq!(found("{ counter = true, deadband = 1 }"), ["deadband"]);
    assert_eq!(found("{ scale = nan, max = inf }"), ["scale", "max"]);
}

#[test]
fn options_without_effect_on_values_are_plain() {
    assert!(options("{ pointer = '/t', unit = '°C' }").is_plain());
    assert!(!options("{ pointer = '/t', max = 1 }").is_plain());
    assert!(options("{ min_interval = '1s' }").has_memory() && !options("{ max = 1 }").has_memory());
}
