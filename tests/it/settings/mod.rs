//! The site file: bad ones are refused with the right words, good ones are layered and read right.

mod cases;
mod check_command;
mod devices;
mod docs;
mod examples;
mod layers;
mod mutations;
