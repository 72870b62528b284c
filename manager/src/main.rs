//! The `roadstead-manager` process.
fn main() {}
