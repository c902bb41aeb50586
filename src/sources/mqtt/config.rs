//! What `[sources.NAME]` with `type = "mqtt"` says, and what in it contradicts itself.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use secrecy::SecretString;
use serde::Deserialize;

use super::route::Route;
use super::topic::Topic;
use super::topics::Filter;

/// Smallest and largest `max_payload`: below, ordinary messages are refused; above, one message fills a small gateway.
const PAYLOAD_BOUNDS: (ByteSize, ByteSize) = (ByteSize::kib(1), ByteSize::mib(64));
/// Shortest and longest `keep_alive`; the protocol counts it in 16 bits of seconds.
const KEEP_ALIVE_BOUNDS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(65_535));
/// Most topic filters of one source.
const MAX_TOPICS: usize = 1_000;

/// One broker connection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `mqtt://HOST[:PORT]` or `mqtts://HOST[:PORT]`.
    pub url: String,
    /// The name of our session at the broker; must stay the same, or what waits there is lost.
    #[serde(default)]
    pub client_id: Option<String>,
    /// Protocol version.
    #[serde(default = "four")]
    pub protocol: u8,
    /// User name.
    #[serde(default)]
    pub user: Option<String>,
    /// Password, if it may stand in the site file.
    #[serde(default)]
    pub password: Option<SecretString>,
    /// A file that holds the password; read again at each connect.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Certificates, for `mqtts://`.
    #[serde(default)]
    pub tls: Tls,
    /// How often a silent connection is probed.
    #[serde(default = "half_a_minute", with = "humantime_serde")]
    pub keep_alive: Duration,
    /// Longest payload that is decoded; a longer one is refused and put aside.
    #[serde(default = "one_mib")]
    pub max_payload: ByteSize,
    /// Filters of earlier times that our session at the broker may still hold: they are ended at each connect.
    #[serde(default)]
    pub unsubscribe: Vec<String>,
    /// Whether Sparkplug's edge nodes are asked for a new birth when messages of theirs were lost.
    #[serde(default = "yes")]
    pub ask_for_births: bool,
    /// What to subscribe to.
    #[serde(default)]
    pub topics: Vec<Topic>,
    /// Only listens, under a name of its own that the broker forgets.
    #[serde(skip)]
    pub is_listening: bool,
}

/// Certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Who signs the broker's certificate (PEM); without it the system's certificate authorities are believed.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate (PEM), if the broker wants one.
    pub cert_file: Option<PathBuf>,
    /// The key to it (PEM).
    pub key_file: Option<PathBuf>,
}

fn four() -> u8 {
    4
}
fn yes() -> bool {
    true
}
fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}
fn one_mib() -> ByteSize {
    ByteSize::mib(1)
}

/// Where the broker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) tls: bool,
    /// An IPv6 address keeps its brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Reads a URL; the reason why not otherwise.
    pub(super) fn new(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or(format!("`{url}` is not a URL such as mqtt://broker:1883"))?;
        let (tls, standard) = match scheme {
            "mqtt" | "tcp" => (false, 1883),
            "mqtts" | "ssl" => (true, 8883),
            "ws" | "wss" => return Err(format!("{scheme}:// is not built yet; use mqtt:// or mqtts://")),
            other => return Err(format!("`{other}://` is neither mqtt:// nor mqtts://")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(
                "user and password do not belong into the URL: use the keys `user` and `password_file`".to_owned()
            );
        }
        if rest.contains(['/', '?', '#', ' ']) {
            return Err(format!("`{url}` holds more than host and port"));
        }
        let colon = rest.rfind(':').filter(|&i| !rest[i..].contains(']'));
        let (host, port) = match colon {
            Some(i) => (&rest[..i], rest[i + 1..].parse().ok().filter(|&p| p > 0)),
            None => (rest, Some(standard)),
        };
        let port = port.ok_or_else(|| format!("`{url}` has no valid port number"))?;
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || (host.contains(':') && !bracketed) {
            return Err(format!("`{url}` has no valid host (an IPv6 address stands in brackets)"));
        }
        if tls && bracketed {
            return Err("mqtts:// needs a host name or an IPv4 address".to_owned());
        }
        Ok(Self { tls, host: host.to_owned(), port })
    }
}

impl Config {
    /// See [`crate::sources::SourceConfig::contradictions`].
    pub(super) fn find_contradictions(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut add = |path: &str, words: String| found.push((path.to_owned(), words));
        self.check_session(&mut add);
        self.check_secrets(&mut add);
        self.check_filters(&mut add);
        found
    }

    fn check_session(&self, add: &mut dyn FnMut(&str, String)) {
        match Address::new(&self.url) {
            Err(reason) => add("url", reason),
            Ok(address) if !address.tls && self.tls != Tls::default() => {
                add("tls", "certificates are given, but the url is not mqtts://".to_owned());
            }
            Ok(_) => {}
        }
        match self.client_id.as_deref() {
            None => add(
                "client_id",
                "is missing: the broker keeps messages for us under this name while we are away, so it must be given and \
                 stay the same (the site's name is a good one)"
                    .to_owned(),
            ),
            Some("") => add("client_id", "is empty: the broker would forget us at every disconnection".to_owned()),
            Some(id) if id.len() > 65_535 || id.contains(char::is_control) => {
                add("client_id", "holds a control character or is too long".to_owned());
            }
            Some(_) => {}
        }
        match self.protocol {
            4 => {}
            5 => add(
                "protocol",
                "protocol 5 is not built yet; brokers that speak it speak 4 (MQTT 3.1.1) too".to_owned(),
            ),
            other => add("protocol", format!("{other} is neither 4 (MQTT 3.1.1) nor 5")),
        }
        let (low, high) = KEEP_ALIVE_BOUNDS;
        if self.keep_alive < low || self.keep_alive > high {
            add("keep_alive", format!("must be between {}s and {}s", low.as_secs(), high.as_secs()));
        }
        let (low, high) = PAYLOAD_BOUNDS;
        if self.max_payload < low || self.max_payload > high {
            add("max_payload", format!("must be between {low} and {high}"));
        }
    }

    fn check_secrets(&self, add: &mut dyn FnMut(&str, String)) {
        if self.password.is_some() && self.password_file.is_some() {
            add("password_file", "stands beside `password`: give one of them".to_owned());
        }
        if self.user.is_none() && (self.password.is_some() || self.password_file.is_some()) {
            add("user", "is missing: a password is given without it".to_owned());
        }
        if self.tls.cert_file.is_some() != self.tls.key_file.is_some() {
            add("tls", "cert_file and key_file belong together: give both or neither".to_owned());
        }
    }

    fn check_filters(&self, add: &mut dyn FnMut(&str, String)) {
        if self.topics.is_empty() {
            add("topics", "is empty: nothing would ever arrive".to_owned());
        }
        if self.topics.len() > MAX_TOPICS {
            add("topics", format!("has {} filters, at most {MAX_TOPICS} are allowed", self.topics.len()));
        }
        for (i, old) in self.unsubscribe.iter().enumerate() {
            let path = format!("unsubscribe[{i}]");
            if let Err(reason) = Filter::new(old) {
                add(&path, reason);
            }
            if let Some(wanted) = self.topics.iter().position(|topic| topic.filter == *old) {
                add(&path, format!("`{old}` is wanted by topics[{wanted}]"));
            }
        }
        for (i, topic) in self.topics.iter().enumerate() {
            if let Err(faults) = Route::new(topic) {
                faults.into_iter().for_each(|(key, words)| add(&format!("topics[{i}].{key}"), words));
            }
            let Ok(filter) = Filter::new(&topic.filter) else { continue };
            let earlier = self.topics[..i].iter().enumerate().find_map(|(j, earlier)| {
                Filter::new(&earlier.filter).ok().filter(|earlier| earlier.covers(&filter)).map(|earlier| (j, earlier))
            });
            if let Some((j, earlier)) = earlier {
                let path = format!("topics[{i}].filter");
                add(
                    &path,
                    format!("`{filter}` never gets a message: `{earlier}` in topics[{j}] takes all of them first"),
                );
            }
        }
    }
}
