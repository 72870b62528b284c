//! Tests of the harness itself, against real control planes.
//!
//! They are never skipped: without binaries and without Go they fail and say what is missing.

mod disturbance;
mod federation;
mod jobs;
mod owner;
mod serving;
mod shared;
