//! The events of a run as one number: two runs of a seed must have the same.

use std::fmt::Write as _;
use std::time::Duration;

/// The basis and the prime of FNV-1a, 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;
/// Most events of a sound run. If a run has more, some process is looping.
const EVENTS_MAX: u64 = 200_000;

/// Whether the lines are kept too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Only the number.
    Hash,
    /// The lines, to be read or compared.
    Lines,
}

#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    events: u64,
    keep: Keep,
    lines: Vec<String>,
    line: String,
}

impl Trace {
    pub(super) fn new(keep: Keep) -> Self {
        Self {
            hash: BASIS,
            events: 0,
            keep,
            lines: Vec::new(),
            line: String::new(),
        }
    }

    /// Adds one line: when, and what.
    pub(super) fn add(&mut self, at: Duration, what: std::fmt::Arguments<'_>) {
        self.events += 1;
        self.line.clear();
        // Writing to a String cannot fail.
        let _ = write!(self.line, "{}.{:06} {what}", at.as_secs(), at.subsec_micros());
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
        if self.keep == Keep::Lines && !self.is_full() {
            self.lines.push(self.line.clone());
        }
    }

    /// Whether there are more events than a sound run has.
    pub(super) fn is_full(&self) -> bool {
        self.events >= EVENTS_MAX
    }

    /// The hash of the trace, how many events there were, and their lines if they were kept.
    pub(super) fn finish(self) -> (u64, u64, Vec<String>) {
        (self.hash, self.events, self.lines)
    }
}
