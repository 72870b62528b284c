//! One line per step of slow work, so that a user sees that a first build does not hang.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A sink for lines about slow work.
#[derive(Clone)]
pub struct Progress {
    sink: Arc<dyn Fn(&str) + Send + Sync>,
    started: Instant,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("elapsed", &self.started.elapsed())
            .finish_non_exhaustive()
    }
}

impl Progress {
    /// Writes lines to standard error, each with the seconds since this call.
    pub fn stderr() -> Self {
        Self::to(|line| {
            // Why: a closed standard error must not stop a build.
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        })
    }

    /// Drops lines.
    pub fn silent() -> Self {
        Self::to(|_| ())
    }

    /// Sends lines to `sink`, without a line break at the end.
    pub fn to(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            sink: Arc::new(sink),
            started: Instant::now(),
        }
    }

    /// Reports `text`, with the time since the start.
    pub fn step(&self, text: &str) {
        (self.sink)(&format!("[{:>6}] {text}", seconds(self.started.elapsed())));
    }
}

/// A duration as `12.3 s`.
pub(crate) fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}
