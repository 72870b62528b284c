//! Time as an argument.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::fmt::strtime;

/// Where the server takes the time from; it reads no other clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// A clock that asks a function.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// A clock that shows `start` now and runs with tokio's time, which a test may pause. Call inside a tokio runtime.
    pub fn tokio(start: Timestamp) -> Self {
        let origin = tokio::time::Instant::now();
        Self::new(move || start.saturating_add(origin.elapsed()).unwrap_or(start))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// RFC 3339 with whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    strtime::format("%Y-%m-%dT%H:%M:%SZ", time).unwrap_or_default()
}

/// RFC 3339 with microseconds.
pub(crate) fn micros(time: Timestamp) -> String {
    strtime::format("%Y-%m-%dT%H:%M:%S%.6fZ", time).unwrap_or_default()
}
