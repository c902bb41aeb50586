//! What the tests need of the world: servers, peers, proxies, ports.
#![allow(dead_code, reason = "each module serves some tests only")]

pub mod certificates;
pub mod child;
pub mod daemon;
pub mod emulator;
pub mod kinds;
pub mod mongo;
pub mod mosquitto;
pub mod mqtt_intake;
pub mod mqtt_peer;
pub mod proxy;
pub mod pty;
pub mod wire_peer;

/// A deadline, longer under emulation, where everything takes longer.
pub fn patience(usual: std::time::Duration) -> std::time::Duration {
    let emulated = std::env::var_os("TIPBUCKET_TEST_RUNNER").is_some_and(|runner| !runner.is_empty());
    if emulated { usual * 6 } else { usual }
}
