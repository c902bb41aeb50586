//! The decoder against tables, samples and arbitrary bytes.

use proptest::prelude::*;

use super::*;
use crate::decode::shape::Plain;

fn utc() -> Local<'static> {
    Local { zone: None, arrival: Timestamp::EPOCH }
}

fn rules(form: Form) -> Rules {
    Rules {
        form,
        skip: vec![],
        strip: vec![],
        sensor_field: None,
        time_field: None,
        text_fields: vec![],
        decimal: Decimal::Point,
        suffixes: vec![],
        hex_fields: vec![],
        options: HashMap::new(),
    }
}

fn regex(patterns: &[&str]) -> Rules {
    rules(Form::Regex(patterns.iter().map(|p| Regex::new(p).unwrap()).collect()))
}

fn csv(columns: &[&str], separator: char) -> Rules {
    let columns = columns.iter().map(|c| (*c != "_").then(|| (*c).to_owned())).collect();
    rules(Form::Csv { columns, separator })
}

fn key_value(pairs: &str, wanted: &[(&str, &str)]) -> Rules {
    let wanted = wanted.iter().map(|(n, k)| ((*n).to_owned(), (*k).to_owned())).collect();
    rules(Form::KeyValue { pairs: pairs.chars().collect(), assign: vec!['=', ':'], wanted })
}

fn json(wanted: &[(&str, &str)]) -> Rules {
    rules(Form::Json { wanted: wanted.iter().map(|(n, k)| ((*n).to_owned(), (*k).to_owned())).collect() })
}

/// What a line gives: `name=value` for each field, `!name` for each refused one; the reason when all of it is refused.
fn told(rules: &Rules, line: &str) -> String {
    match rules.decode(line, utc()) {
        Err(reason) => format!("refused: {reason}"),
        Ok(None) => "nothing".to_owned(),
        Ok(Some(decoded)) => {
            let fields = decoded.fields.iter().map(|(name, value)| match value {
                Value::F64(v) => format!("{name}={v:?}"),
                Value::I64(v) => format!("{name}={v}"),
                Value::U64(v) => format!("{name}={v}u"),
                Value::Bool(v) => format!("{name}={v}"),
                Value::Text(v) => format!("{name}={:?}", &**v),
            });
            let refused = decoded.refused.iter().map(|words| {
                let name = words.strip_prefix("field ").and_then(|w| w.split(':').next()).unwrap_or(words);
                format!("!{name}")
            });
            let sensor = decoded.sensor.iter().map(|s| format!("@{s}"));
            sensor.chain(fields).chain(refused).collect::<Vec<_>>().join(" ")
        }
    }
}

fn check(rules: &Rules, cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        let got = told(rules, line);
        let matches = match expected.strip_suffix('…') {
            Some(start) => got.starts_with(start),
            None => got == *expected,
        };
        assert!(matches, "{line:?} gives {got:?} instead of {expected:?}");
    }
}

#[test]
fn named_groups_are_fields() {
    let mut rules = regex(&["^T=(?<temp>[-0-9.]+)(?:,H=(?<hum>[-0-9.]+))?$", "^P (?<p>\\S+)$"]);
    rules.skip.push(Regex::new("^#").unwrap());
    check(
        &rules,
        &[
            ("T=21.5,H=44", "temp=21.5 hum=44"),
            ("T=-0.5", "temp=-0.5"),
            ("P 1013.2", "p=1013.2"),
            ("P ----", "!p"),
            ("T=..", "!temp"),
            ("# boot", "nothing"),
            ("   ", "nothing"),
            ("Failed to read!", "refused: line does not match the pattern"),
        ],
    );
}

#[test]
fn columns_are_fields() {
    check(
        &csv(&["temp", "_", "hum"], ','),
        &[
            ("21.5,x,44", "temp=21.5 hum=44"),
            (" 21.5 , , \"44\" ", "temp=21.5 hum=44"),
            ("21.5,\"a,b\",44", "temp=21.5 hum=44"),
            ("21.5,,", "temp=21.5 !hum"),
            ("21.5,1", "refused: line has 2 columns instead of 3"),
            ("21.5,1,2,3", "refused: line has 4 columns instead of 3"),
            ("temp,x,hum", "!temp !hum"),
        ],
    );
    check(&csv(&["a", "_"], ';'), &[("1", "a=1"), ("1;2", "a=1"), ("on;", "a=true")]);
}

#[test]
fn keys_are_fields() {
    check(
        &key_value(" ,;\t", &[]),
        &[
            ("temp=21.5 hum=44", "temp=21.5 hum=44"),
            ("T:21.5;H:44", "T=21.5 H=44"),
            ("T=21.5,H=nan,P=1013.2", "T=21.5 P=1013.2 !H"),
            ("temp: 21.5, hum : 44", "temp=21.5 hum=44"),
            ("temp =21.5 hum= 44", "temp=21.5 hum=44"),
            ("a=1 a=2 b=3", "b=3 !a"),
            ("a= b=3", "b=3 !a"),
            ("relay=ON", "relay=true"),
            ("hello world", "refused: line holds no pair of key and value"),
            ("a.b=1", "a_b=1"),
        ],
    );
    check(
        &key_value(" ", &[("temp", "T"), ("hum", "H")]),
        &[
            ("T=21.5 H=44 x=9", "temp=21.5 hum=44"),
            ("t=21.5", "temp=21.5"),
            ("x=9", "refused: line holds none of the wanted keys"),
            ("T=21.5,H=44", "!temp"),
        ],
    );
}

#[test]
fn numbers_of_an_object_are_fields() {
    check(
        &json(&[]),
        &[
            (r#"{"temp":21.5,"n":3,"on":true,"name":"x","in":{"a":1},"l":[1,2]}"#, "in_a=1 l_0=1 l_1=2 n=3 temp=21.5"),
            (r#"{"big":18446744073709551615}"#, "big=18446744073709551615u"),
            (r#"{"name":"x"}"#, "refused: line holds none of the wanted values"),
            ("[1]", "refused: line is JSON, but no object"),
            (r#"{"temp":21"#, "refused: no JSON…"),
            (r#"{"temp":NaN}"#, "refused: no JSON…"),
        ],
    );
    let mut rules = json(&[("temp", "/t/0"), ("on", "/s")]);
    rules.sensor_field = Some("id".into());
    check(
        &rules,
        &[
            (r#"{"id":"k1","t":[21.5],"s":"OFF"}"#, "@k1 temp=21.5 on=false"),
            (r#"{"id":7,"t":["x"]}"#, "@7 !temp"),
            (r#"{"t":[1]}"#, "refused: line names no sensor (`id`)"),
        ],
    );
}

#[test]
fn declared_values_are_absent_and_implausible_ones_refused() {
    let mut rules = regex(&["^(?<id>[0-9A-F]+): (?<v>[-0-9.]+)$"]);
    rules.sensor_field = Some("id".into());
    let invalid = vec![Plain::Decimal(-127.0), Plain::Decimal(85.0)];
    let options = Options { invalid, min: Some(-55.0), max: Some(125.0), ..Options::default() };
    rules.options.insert("v".into(), options);
    check(&rules, &[("28FF: 21.5", "@28FF v=21.5"), ("28FF: -127.00", "@28FF"), ("28FF: 126", "@28FF !v")]);
}

#[test]
fn texts_are_kept_where_they_are_wanted() {
    let mut rules = csv(&["state", "n"], ',');
    rules.text_fields.push("state".into());
    check(&rules, &[("idle,1", "state=\"idle\" n=1"), ("on,1", "state=\"on\" n=1"), (",1", "n=1 !state")]);
}

#[test]
fn a_time_in_the_line_is_the_time_of_the_reading() {
    let mut rules = csv(&["at", "v"], ',');
    rules.time_field = Some("at".into());
    let at = rules.decode("2026-11-30T13:00:00Z,1", utc()).unwrap().unwrap().time;
    assert_eq!(at, Timestamp::from_millis(1_796_043_600_000));
    check(&rules, &[("soon,1", "refused: `at`: `soon` is not a time…")]);
    let amsterdam = times::zone("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
    let local = Local { zone: Some(&amsterdam), arrival: Timestamp::EPOCH };
    let at = rules.decode("2026-11-30 14:00:00,1", local).unwrap().unwrap().time;
    assert_eq!(at, Timestamp::from_millis(1_796_043_600_000), "a local time is one of the site's zone");
}

proptest! {
    #[test]
    fn arbitrary_lines_never_panic(line in "\\PC{0,80}|[=:,; a-c0-9.\"{}-]{0,40}") {
        for rules in [regex(&["(?<a>.*)(?<b>[0-9]*)"]), csv(&["a", "_", "b"], ','), key_value(" ,;", &[]), json(&[])] {
            if let Ok(Some(decoded)) = rules.decode(&line, utc()) {
                prop_assert!(decoded.fields.iter().all(|(_, value)| value.is_sound()));
            }
        }
    }
}
