//! What the gateway shows of itself over HTTP.

mod config;

pub use config::Config;
