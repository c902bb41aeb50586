//! The `tipbucket` program.

fn main() {}
