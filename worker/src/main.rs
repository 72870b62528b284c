//! The `roadstead-worker` process.
fn main() {}
