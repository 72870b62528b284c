//! Tests of the types as they appear on the wire.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod constants;
mod examples;
