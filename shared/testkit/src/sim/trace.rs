//! What happened, as one number: two runs of a seed must have the same.

use std::fmt::Write as _;
use std::time::Duration;

/// The basis and the prime of FNV-1a, 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;
/// Lines that are kept at most.
const LINES_MAX: usize = 2_000_000;

/// Whether the lines are kept too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Only the number.
    Hash,
    /// The lines, to be read or compared.
    Lines,
}

/// The trace of a run.
#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    calls: u64,
    keep: Keep,
    lines: Vec<String>,
    line: String,
}

impl Trace {
    pub(super) fn new(keep: Keep) -> Self {
        Self {
            hash: BASIS,
            calls: 0,
            keep,
            lines: Vec::new(),
            line: String::new(),
        }
    }

    /// Adds one line: when, and what.
    pub(super) fn add(&mut self, at: Duration, what: std::fmt::Arguments<'_>) {
        self.calls += 1;
        self.line.clear();
        // Writing to a String cannot fail.
        let _ = write!(self.line, "{}.{:06} {what}", at.as_secs(), at.subsec_micros());
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
        if self.keep == Keep::Lines && self.lines.len() < LINES_MAX {
            self.lines.push(self.line.clone());
        }
    }

    pub(super) fn finish(self) -> (u64, u64, Vec<String>) {
        (self.hash, self.calls, self.lines)
    }
}
