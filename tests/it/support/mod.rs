//! What the tests need around the product.

pub mod child;
pub mod mosquitto;
pub mod mqtt_intake;
pub mod mqtt_peer;
