//! Tests of the harness itself, against real control planes.
//!
//! They are never skipped: without binaries and without Go they fail and name what is missing.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy exempts test functions, but not what they share"
)]

mod answerer;
mod appwrapper;
mod architecture;
mod charts;
mod circles;
mod citations;
mod commons;
mod conformance;
mod demo;
mod disturbance;
mod duel;
mod federation;
mod gauges;
mod images;
mod install;
mod interop;
mod jobs;
mod kinds;
mod kubectl;
mod language;
mod lifecycle;
mod mlbatch;
mod nightly;
mod observer;
mod operator;
mod owner;
mod scenarios;
mod serving;
mod shared;
mod sync;
mod versions;
mod visibility;
mod webhooks;
mod world;
