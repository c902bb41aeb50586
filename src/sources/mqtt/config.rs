//! What `[sources.NAME]` with `type = "mqtt"` says, and what in it contradicts itself.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use secrecy::SecretString;
use serde::Deserialize;

use super::acks::MAX_OUTSTANDING;
use super::address::Address;
use super::route::Route;
use super::topic::Topic;
use super::topics::Filter;

/// Smallest and largest `max_payload`: below, ordinary messages are refused; above, one message fills a small gateway.
const PAYLOAD_BOUNDS: (ByteSize, ByteSize) = (ByteSize::kib(1), ByteSize::mib(64));
/// Shortest and longest `keep_alive`; the protocol counts it in 16 bits of seconds.
const KEEP_ALIVE_BOUNDS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(65_535));
/// Shortest and longest `session_expiry`; the protocol counts it in 32 bits of seconds, of which the last means for ever.
const SESSION_BOUNDS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(u32::MAX as u64));
/// How long the broker is to keep our session unless something else is said: longer than it takes to notice that a gateway
/// is dead, and to replace it.
const USUAL_SESSION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Shortest silence that can be told from the pauses of a network.
const LEAST_SILENCE: Duration = Duration::from_secs(1);
/// Most topic filters of one source.
const MAX_TOPICS: usize = 1_000;

/// One broker connection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `mqtt://HOST[:PORT]`, `mqtts://HOST[:PORT]`, `ws://HOST[:PORT][/PATH]` or `wss://HOST[:PORT][/PATH]`.
    pub url: String,
    /// The name of our session at the broker; must stay the same, or what waits there is lost.
    #[serde(default)]
    pub client_id: Option<String>,
    /// Version of the protocol: 4 is MQTT 3.1.1, 5 is MQTT 5.
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
    /// Certificates, for `mqtts://` and `wss://`.
    #[serde(default)]
    pub tls: Tls,
    /// How often a silent connection is probed.
    #[serde(default = "half_a_minute", with = "humantime_serde")]
    pub keep_alive: Duration,
    /// For MQTT 5: how long the broker is to keep our session, and what arrives for it, while we are away.
    #[serde(default, with = "humantime_serde::option")]
    pub session_expiry: Option<Duration>,
    /// For MQTT 5: most messages that the broker may send ahead of our acknowledgements.
    #[serde(default)]
    pub receive_maximum: Option<u16>,
    /// A source that gets no message for so long is told to be silent.
    #[serde(default, with = "humantime_serde::option")]
    pub silent_after: Option<Duration>,
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
                add("tls", "certificates are given, but the url is not mqtts:// or wss://".to_owned());
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
            4 => self.check_five_only(add),
            5 => {}
            other => add("protocol", format!("{other} is neither 4 (MQTT 3.1.1) nor 5")),
        }
        let (low, high) = KEEP_ALIVE_BOUNDS;
        if self.keep_alive < low || self.keep_alive > high {
            add("keep_alive", format!("must be between {}s and {}s", low.as_secs(), high.as_secs()));
        }
        if self.silent_after.is_some_and(|patience| patience < LEAST_SILENCE) {
            add("silent_after", "must be at least 1s".to_owned());
        }
        let (low, high) = SESSION_BOUNDS;
        if self.session_expiry.is_some_and(|expiry| expiry < low || expiry > high) {
            add("session_expiry", "must be between 1m and 136years".to_owned());
        }
        if self.receive_maximum.is_some_and(|most| most == 0 || usize::from(most) > MAX_OUTSTANDING) {
            add("receive_maximum", format!("must be between 1 and {MAX_OUTSTANDING}"));
        }
        let (low, high) = PAYLOAD_BOUNDS;
        if self.max_payload < low || self.max_payload > high {
            add("max_payload", format!("must be between {low} and {high}"));
        }
    }

    fn check_five_only(&self, add: &mut dyn FnMut(&str, String)) {
        for (key, is_there) in
            [("session_expiry", self.session_expiry.is_some()), ("receive_maximum", self.receive_maximum.is_some())]
        {
            if is_there {
                add(key, "has no meaning in MQTT 3.1.1: add protocol = 5, or leave it out".to_owned());
            }
        }
    }

    /// How long the broker is to keep our session.
    pub(super) fn session_expiry(&self) -> Duration {
        self.session_expiry.unwrap_or(USUAL_SESSION)
    }

    /// Most messages that the broker may send ahead of our acknowledgements.
    pub(super) fn receive_maximum(&self) -> u16 {
        self.receive_maximum.unwrap_or(MAX_OUTSTANDING as u16)
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
            if topic.silent_after.is_some_and(|patience| patience < LEAST_SILENCE) {
                add(&format!("topics[{i}].silent_after"), "must be at least 1s".to_owned());
            }
            match Route::new(topic) {
                Err(faults) => faults.into_iter().for_each(|(key, words)| add(&format!("topics[{i}].{key}"), words)),
                Ok(route) if self.protocol != 5 => route.needs_five().for_each(|key| {
                    add(&format!("topics[{i}].{key}"), "user properties come with MQTT 5: add protocol = 5".to_owned());
                }),
                Ok(_) => {}
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
