//! What the tests need of the world: servers, peers, proxies, ports.
#![allow(dead_code, reason = "each module serves some tests only")]

pub mod child;
pub mod kinds;
pub mod mongo;
pub mod mosquitto;
pub mod mqtt_intake;
pub mod mqtt_peer;
pub mod proxy;
pub mod pty;
pub mod wire_peer;
