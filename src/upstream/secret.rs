//! A connection string: it holds a password, so it is never printed whole.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A connection string. Every way of printing it shows user and password as `***`.
#[derive(Clone)]
pub struct Uri(SecretString);

impl Uri {
    /// Takes a connection string as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// The string with its secrets.
    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Whether the connection is to be encrypted: asked for, or the rule of `mongodb+srv`.
    pub(crate) fn speaks_tls(&self) -> bool {
        let options = self.expose().split_once('?').map_or("", |(_, options)| options).to_ascii_lowercase();
        let says = |word: &str| {
            options.split('&').any(|option| option == format!("tls={word}") || option == format!("ssl={word}"))
        };
        says("true") || (self.expose().starts_with("mongodb+srv:") && !says("false"))
    }

    /// Whatever of it must not turn up in an error message, longest first.
    fn secrets(&self) -> Vec<String> {
        let text = self.expose();
        let mut secrets = Vec::new();
        let Some((_, rest)) = text.split_once("://") else { return vec![text.to_owned()] };
        // The last `@`: an unencoded one, or a `/`, may stand in a password that was typed in carelessly.
        if let Some((login, _)) = rest.rsplit_once('@') {
            secrets.extend([text.to_owned(), login.to_owned()]);
            secrets.extend(login.split_once(':').map(|(_, password)| password.to_owned()));
        }
        for option in rest.split_once('?').map_or("", |(_, options)| options).split('&') {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            if ["password", "mechanismproperties"].iter().any(|secret| key.to_ascii_lowercase().contains(secret)) {
                secrets.push(value.to_owned());
            }
        }
        let plain: Vec<String> = secrets.iter().map(|secret| decoded(secret)).collect();
        secrets.extend(plain);
        secrets.retain(|secret| !secret.is_empty());
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
    }

    /// `message` without any secret of this connection string.
    pub(crate) fn scrub(&self, message: &str) -> String {
        let mut clean = message.to_owned();
        for secret in self.secrets() {
            clean = clean.replace(&secret, "***");
        }
        clean
    }
}

/// Percent-decoding; what is not well formed stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Percent-encoding of everything but letters, digits, `-`, `.`, `_` and `~`.
pub(super) fn encoded(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => safe.push(byte as char),
            other => safe.push_str(&format!("%{other:02X}")),
        }
    }
    safe
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.expose().split_once("://") else { return f.write_str("***") };
        let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("***@", rest));
        write!(f, "{scheme}://{login}{}", rest.split('?').next().unwrap_or(rest))
    }
}

impl fmt::Debug for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uri({self})")
    }
}

impl PartialEq for Uri {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Uri {}

impl<'de> Deserialize<'de> for Uri {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::new)
    }
}

impl Serialize for Uri {
    /// Without its secrets: what is serialised is shown to people.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str, shown: &str) {
        let uri = Uri::new(uri);
        assert_eq!(uri.to_string(), shown);
        assert_eq!(format!("{uri:?}"), format!("Uri({shown})"));
    }

    #[test]
    fn user_password_and_options_are_never_printed() {
        check("mongodb://127.0.0.1:27017", "mongodb://127.0.0.1:27017");
        check("mongodb://ann:s3cret@db:27017/x?authSource=admin", "mongodb://***@db:27017/x");
        check("mongodb://ann:s3@cr/et@a,b/?tls=true", "mongodb://***@a,b/");
        check("mongodb+srv://ann:s3cret@cluster.example.net", "mongodb+srv://***@cluster.example.net");
        check("ann:s3cret@db", "***");
    }

    #[test]
    fn it_says_whether_it_is_encrypted() {
        let of = |uri: &str| Uri::new(uri).speaks_tls();
        assert!(of("mongodb://db/?TLS=true") && of("mongodb://db/?w=1&ssl=true") && of("mongodb+srv://db"));
        assert!(!of("mongodb://db") && !of("mongodb://db/?tls=false") && !of("mongodb+srv://db/?tls=false"));
    }

    #[test]
    fn messages_are_scrubbed() {
        let uri = Uri::new("mongodb://ann:p%40ss%2Fword@db:27017");
        let dirty = "cannot use mongodb://ann:p%40ss%2Fword@db:27017: p@ss/word and p%40ss%2Fword";
        assert_eq!(uri.scrub(dirty), "cannot use ***: *** and ***");
        assert_eq!(Uri::new("mongodb://db").scrub("mongodb://db is away"), "mongodb://db is away");
        let keyed = Uri::new("mongodb://db/?tlsCertificateKeyFilePassword=open%20sesame");
        assert_eq!(keyed.scrub("bad: open sesame"), "bad: ***");
    }
}
