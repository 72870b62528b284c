//! Time as an argument.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::fmt::strtime;

/// The server's only source of time.
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

/// Whether a text is exactly what [`seconds`] or [`micros`] writes. False for days 29 to 31, which the caller must parse.
/// Why: most times that the server reads it has written itself, and this check is cheaper than parsing.
pub(crate) fn is_written(text: &str, micros: bool) -> bool {
    let shape: &[u8] = if micros {
        b"0000-00-00T00:00:00.000000Z"
    } else {
        b"0000-00-00T00:00:00Z"
    };
    let bytes = text.as_bytes();
    let fits = |(byte, like): (&u8, &u8)| {
        if *like == b'0' {
            byte.is_ascii_digit()
        } else {
            byte == like
        }
    };
    if bytes.len() != shape.len() || !bytes.iter().zip(shape).all(fits) {
        return false;
    }
    let within = |at: usize, from: &str, to: &str| (from..=to).contains(&&text[at..at + 2]);
    within(5, "01", "12")
        && within(8, "01", "28")
        && within(11, "00", "23")
        && within(14, "00", "59")
        && within(17, "00", "59")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{is_written, micros, seconds};

    #[test]
    fn what_is_written_is_known_and_what_is_not_is_read() {
        let time = Timestamp::new(1_767_225_600, 123_456_000).unwrap();
        assert!(is_written(&seconds(time), false) && !is_written(&seconds(time), true));
        assert!(is_written(&micros(time), true) && !is_written(&micros(time), false));
        for other in [
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01t00:00:00Z",
            "2026-01-01T00:00:00+00:00",
            "2026-01-01T00:00:61Z",
            "soon",
        ] {
            assert!(!is_written(other, false), "{other}");
        }
    }
}
