//! What the site file may say about a broker, and what it may not.

use super::*;

const GOOD: &str = "url = 'mqtt://broker'\nclient_id = 'g7'\n[[topics]]\nfilter = 'a/+'\nsensor = '{1}'\n";

fn config(text: &str) -> Config {
    toml::from_str(text).unwrap()
}

/// `GOOD` with one line replaced or added.
fn with(line: &str) -> String {
    let key = line.split(['=', ' ']).next().unwrap();
    let kept = GOOD.lines().filter(|l| l.split(['=', ' ']).next() != Some(key)).collect::<Vec<_>>().join("\n");
    format!("{line}\n{kept}")
}

fn check(text: &str, path: &str, words: &str) {
    let found = config(text).contradictions();
    assert!(found.iter().any(|(p, w)| p == path && w.contains(words)), "{text}\n{found:?}");
}

#[test]
fn a_plain_table_is_sound_and_has_defaults() {
    let config = config(GOOD);
    assert_eq!(config.contradictions(), []);
    assert_eq!((config.keep_alive.as_secs(), config.max_payload.as_u64(), config.protocol), (30, 1 << 20, 4));
    assert_eq!((config.topics[0].qos, config.topics[0].retained, config.topics[0].decode), (1, true, Decode::Json));
    let claims = config.claims();
    assert_eq!(claims.client, Some(("broker:1883".to_owned(), "g7".to_owned())));
    assert_eq!(claims.sensors, Vec::<String>::new());
}

#[test]
fn fixed_sensor_names_are_claimed() {
    let text = format!("{GOOD}[[topics]]\nfilter = 'b'\nsensor = 'roof'\n[[topics]]\nfilter = 'c'\nsensor = '/id'\n");
    assert_eq!(config(&text).claims().sensors, ["roof"]);
}

#[test]
fn contradictions_name_their_key() {
    check(&with("url = 'ws://broker/a b'"), "url", "percent-encoded");
    check(&with("url = 'http://broker'"), "url", "none of mqtt://, mqtts://, ws://, wss://");
    check(&with("url = 'broker'"), "url", "not a URL");
    check(&with("url = 'mqtt://me:secret@broker'"), "url", "do not belong into the URL");
    check(&with("url = 'mqtt://broker:99999'"), "url", "port");
    check(&with("url = 'mqtts://[::1]'"), "url", "host name");
    check(&GOOD.replace("client_id = 'g7'", ""), "client_id", "is missing");
    check(&with("client_id = ''"), "client_id", "is empty");
    check(&with("protocol = 3"), "protocol", "neither 4");
    check(&with("password = 'x'"), "user", "is missing");
    check(&with("user = 'u'\npassword = 'x'\npassword_file = '/x'"), "password_file", "give one of them");
    check(&with("tls = { ca_file = '/x' }"), "tls", "not mqtts://");
    check(&with("tls = { cert_file = '/x' }"), "tls", "belong together");
    check(&with("keep_alive = '1s'"), "keep_alive", "between 5s");
    check(&with("max_payload = '1GiB'"), "max_payload", "between");
    check("url = 'mqtt://b'", "topics", "is empty");
    check(&format!("{GOOD}[[topics]]\nfilter = 'a/+'\n"), "topics[1].filter", "`a/+` in topics[0] takes all");
    check(&format!("{GOOD}[[topics]]\nfilter = 'a/b'\n"), "topics[1].filter", "never gets a message");
    check(&with("unsubscribe = ['a/+']"), "unsubscribe[0]", "is wanted by topics[0]");
    check(&format!("{GOOD}[[topics]]\nfilter = 'b/#/c'\n"), "topics[1].filter", "`#`");
}

#[test]
fn what_only_mqtt_5_has_needs_it() {
    check(&with("session_expiry = '1h'"), "session_expiry", "add protocol = 5");
    check(&with("receive_maximum = 10"), "receive_maximum", "add protocol = 5");
    check(&with("protocol = 5\nsession_expiry = '1s'"), "session_expiry", "between 1m");
    check(&with("protocol = 5\nreceive_maximum = 0"), "receive_maximum", "between 1 and 4096");
    check(&with("protocol = 5\nreceive_maximum = 5000"), "receive_maximum", "between 1 and 4096");
    let topic = |line: &str| format!("{GOOD}[[topics]]\nfilter = 'b'\n{line}\n");
    check(&topic("sensor = '{property:id}'"), "topics[1].sensor", "add protocol = 5");
    check(&topic("field = '{property:id}'\ndecode = 'number'"), "topics[1].field", "add protocol = 5");
    check(&topic("properties = { fw = 'firmware' }"), "topics[1].properties", "add protocol = 5");
    check(&topic("field = '{name}'\ndecode = 'number'"), "topics[1].field", "from the topic or a property");
    let sound = format!("protocol = 5\n{}properties = {{ fw = 'firmware' }}\n", topic("sensor = '{property:id}'"));
    assert_eq!(config(&sound).contradictions(), []);
}

#[test]
fn unknown_keys_and_words_are_errors() {
    let error = |text: &str| toml::from_str::<Config>(text).unwrap_err().to_string();
    assert!(error(&with("clientid = 'x'")).contains("unknown field `clientid`"));
    assert!(error(&format!("{GOOD}decode = 'cbro'\n")).contains("unknown variant `cbro`"));
    assert!(error(&format!("{GOOD}fitler = 'x'\n")).contains("unknown field `fitler`"));
}

#[test]
fn a_table_that_cannot_be_read_names_the_key() {
    let read = |text: &str| {
        let file = ::config::File::from_str(text, ::config::FileFormat::Toml);
        let table = ::config::Config::builder().add_source(file).build().unwrap();
        let error = super::super::read::<Config>(::config::Value::new(None, table.cache.kind)).unwrap_err();
        format!("{}: {}", error.path, error.message)
    };
    let error = read(&format!("{GOOD}qos = 'high'\n"));
    assert!(error.starts_with("topics[0].qos: ") && error.contains("\"high\""), "{error}");
    let error = read(&format!("{GOOD}fitler = 'x'\n"));
    assert!(error.starts_with("topics[0].fitler: unknown field `fitler`"), "{error}");
    let error = read(&with("keep_alive = 'soon'"));
    assert!(error.starts_with("keep_alive: "), "{error}");
}

#[test]
fn secrets_are_not_printed() {
    let printed = format!("{:?}", config(&with("user = 'u'\npassword = 'hunter2'")));
    assert!(!printed.contains("hunter2"), "{printed}");
}
