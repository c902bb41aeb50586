//! What the tests need of the world: servers, peers, proxies, ports.
#![allow(dead_code, reason = "each module serves some tests only")]

pub(crate) mod kinds;
pub(crate) mod mongo;
pub(crate) mod proxy;
pub(crate) mod wire_peer;
