//! How quickly a worker takes copies, and whether it is late with one now.
//!
//! Why: a worker with a hanging API server differs from a busy worker only in comparison with its own usual speed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A creation is late after the first times the usual time, but never before the second nor after the third.
const LATE: (u32, Duration, Duration) = (10, Duration::from_millis(200), Duration::from_secs(2));
/// The newest answer weighs one part in so many of the usual time.
const MEMORY: u32 = 8;

/// The usual time of creations on one worker, and how many are late now.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    usual: Mutex<Option<Duration>>,
    late: AtomicU32,
}

/// A creation that is late, until it is answered or given up.
#[derive(Debug)]
pub(crate) struct Late<'a>(&'a Pace);

impl Pace {
    /// After which time without an answer a creation is late.
    pub(crate) fn late_after(&self) -> Duration {
        let usual = *self.usual.lock().unwrap_or_else(PoisonError::into_inner);
        usual.map_or(LATE.2, |usual| (usual * LATE.0).clamp(LATE.1, LATE.2))
    }

    /// Records how long a creation took.
    pub(crate) fn answered(&self, took: Duration) {
        let mut usual = self.usual.lock().unwrap_or_else(PoisonError::into_inner);
        *usual = Some(usual.map_or(took, |usual| (usual * (MEMORY - 1) + took) / MEMORY));
    }

    /// Records that a creation is late; returns whether it is the only one now.
    pub(crate) fn late(&self) -> (Late<'_>, bool) {
        let before = self.late.fetch_add(1, Ordering::Relaxed);
        (Late(self), before == 0)
    }

    /// Whether a creation is late now.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.late.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LATE, Pace};

    /// Spec: multikueue 4.3
    #[test]
    fn what_is_late_depends_on_what_is_usual() {
        let (pace, ms) = (Pace::default(), Duration::from_millis);
        assert_eq!(pace.late_after(), LATE.2, "nothing is known yet");
        pace.answered(ms(4));
        assert_eq!(pace.late_after(), LATE.1);
        for _ in 0..50 {
            pace.answered(ms(100));
        }
        let after = pace.late_after();
        assert!(after > ms(950) && after <= ms(1000), "{after:?}");
        for _ in 0..50 {
            pace.answered(ms(3000));
        }
        assert_eq!(pace.late_after(), LATE.2);
    }

    #[test]
    fn it_is_late_as_long_as_one_is() {
        let pace = Pace::default();
        let (first, is_first) = pace.late();
        let (second, is_second_first) = pace.late();
        assert!(is_first && !is_second_first && pace.is_late());
        drop(first);
        assert!(pace.is_late());
        drop(second);
        assert!(!pace.is_late());
    }
}
