//! `[web]` of the site file.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Where the status page, `/status.json`, `/metrics` and `/healthz` are served.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether they are served at all.
    pub enabled: bool,
    /// Address and port. There is no password: beyond loopback everybody who reaches it can read it.
    pub listen: SocketAddr,
}

impl Default for Config {
    fn default() -> Self {
        Self { enabled: true, listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8780)) }
    }
}

impl Config {
    /// Whether others than this machine can reach it.
    pub fn is_open(&self) -> bool {
        self.enabled && !self.listen.ip().is_loopback()
    }
}
