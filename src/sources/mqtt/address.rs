//! Where a broker is, and how it is spoken to there.

/// What the `url` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) tls: bool,
    /// An IPv6 address keeps its brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// For WebSocket: what stands behind host and port, with its slash.
    pub(super) path: Option<String>,
}

/// Where brokers have their WebSocket if nothing else is said.
const USUAL_PATH: &str = "/mqtt";

impl Address {
    /// Reads a URL; the reason why not otherwise.
    pub(super) fn new(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or(format!("`{url}` is not a URL such as mqtt://broker:1883"))?;
        let (tls, web, standard) = match scheme {
            "mqtt" | "tcp" => (false, false, 1883),
            "mqtts" | "ssl" => (true, false, 8883),
            "ws" => (false, true, 80),
            "wss" => (true, true, 443),
            other => return Err(format!("`{other}://` is none of mqtt://, mqtts://, ws://, wss://")),
        };
        let (rest, path) = match rest.find('/').filter(|_| web) {
            Some(i) => (&rest[..i], &rest[i..]),
            None => (if web { rest } else { rest.strip_suffix('/').unwrap_or(rest) }, USUAL_PATH),
        };
        if rest.contains('@') {
            return Err(
                "user and password do not belong into the URL: use the keys `user` and `password_file`".to_owned()
            );
        }
        if rest.contains(['/', '?', '#', ' ']) {
            return Err(format!("`{url}` holds more than host and port"));
        }
        if !path.bytes().all(|b| b.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&b)) {
            return Err(format!("the path in `{url}` holds what a URL cannot (write it percent-encoded)"));
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
        if (tls || web) && bracketed {
            return Err(format!("{scheme}:// needs a host name or an IPv4 address"));
        }
        Ok(Self { tls, host: host.to_owned(), port, path: web.then(|| path.to_owned()) })
    }

    /// The URL of a WebSocket, with nothing left out.
    pub(super) fn url(&self) -> String {
        let scheme = if self.tls { "wss" } else { "ws" };
        format!("{scheme}://{}:{}{}", self.host, self.port, self.path.as_deref().unwrap_or_default())
    }

    /// The broker in words.
    pub(super) fn broker(&self) -> String {
        match &self.path {
            None => format!("broker {}:{}", self.host, self.port),
            // What stands behind a question mark may be a secret.
            Some(path) => {
                let path = path.split('?').next().unwrap_or_default();
                format!("broker {}:{}{path}", self.host, self.port)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: &str, broker: &str) {
        let address = Address::new(url).unwrap();
        assert_eq!((address.url().as_str(), address.broker().as_str()), (expected, broker), "{url}");
    }

    #[test]
    fn web_sockets_have_a_path() {
        check("ws://b", "ws://b:80/mqtt", "broker b:80/mqtt");
        check("wss://b/", "wss://b:443/", "broker b:443/");
        check("ws://b:9001/a/b?token=x", "ws://b:9001/a/b?token=x", "broker b:9001/a/b");
        assert!(Address::new("ws://b/a b").unwrap_err().contains("percent-encoded"));
        assert!(Address::new("wss://[::1]/").unwrap_err().contains("host name"));
        assert!(Address::new("ws://u:p@b/").unwrap_err().contains("do not belong"));
        assert!(Address::new("ws://b?x").unwrap_err().contains("more than host"));
    }

    #[test]
    fn ipv6_addresses_stand_in_brackets() {
        let address = Address::new("mqtt://[::1]:1884").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("[::1]", 1884));
        assert!(Address::new("mqtt://::1").is_err());
        assert_eq!(Address::new("mqtts://broker/").unwrap().port, 8883);
    }
}
