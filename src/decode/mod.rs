//! Payload and frame decoders: bytes in, values out. Pure, bounded, and they never panic whatever the bytes.

pub mod line;
pub mod modbus;
