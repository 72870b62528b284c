//! What follows from a failure: whether to try again, and, where a decision says when, after what pause.
//!
//! Invariant: the random value is an argument, so the same attempt and the same jitter give the same delay on every machine.

use jiff::SignedDuration;

/// Limit: more steps than this change nothing, because every sensible maximum is reached long before.
const STEPS_MAX: u32 = 64;

/// What must happen after a failure before the same attempt can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing but time: no answer, a busy server, a conflict.
    Retry,
    /// An object, a right or a setting must change. A change that is watched causes the next attempt; other changes are found by
    /// later attempts.
    WaitForChange,
    /// Nothing helps as long as the object stays as it is.
    GiveUp,
}

/// Exponential back-off.
///
/// *Limits*: `max` caps every delay but the first, which is `base` whatever `max` says (`spec/provisioning.md 8`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Delay after the first failed attempt.
    pub base: SignedDuration,
    /// The factor by which the delay grows with each further failed attempt.
    pub factor: i32,
    /// The longest delay before jitter.
    pub max: SignedDuration,
    /// How much jitter may add, as a part of the delay (0.1 = up to a tenth more).
    pub jitter: f64,
}

impl RetryPolicy {
    /// How long to wait after failed attempt number `attempt` (from 1; 0 counts as 1).
    ///
    /// `jitter` is a random value in `0.0..1.0`; a value outside is clamped to that range.
    pub fn delay(&self, attempt: u32, jitter: f64) -> SignedDuration {
        let mut delay = self.base;
        for _ in 1..attempt.min(STEPS_MAX) {
            delay = delay.saturating_mul(self.factor).min(self.max);
        }
        let extra = delay.as_secs_f64() * self.jitter * jitter.clamp(0.0, 1.0);
        let extra = SignedDuration::try_from_secs_f64(extra).unwrap_or(SignedDuration::ZERO);
        delay.saturating_add(extra)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::RetryPolicy;

    fn delays(base: i64, max: i64, attempts: u32) -> Vec<i64> {
        let policy = RetryPolicy {
            base: SignedDuration::from_secs(base),
            factor: 2,
            max: SignedDuration::from_secs(max),
            jitter: 0.0,
        };
        (1..=attempts).map(|n| policy.delay(n, 0.5).as_secs()).collect()
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        assert_eq!(delays(60, 1800, 7), [60, 120, 240, 480, 960, 1800, 1800]);
    }

    /// Spec: provisioning 8 and 15.34
    #[test]
    fn the_cap_applies_from_the_second_step_on() {
        assert_eq!(delays(60, 100, 3), [60, 100, 100]);
        assert_eq!(delays(60, 10, 2), [60, 10]);
    }

    #[test]
    fn attempts_without_end_stay_at_the_maximum() {
        let policy = RetryPolicy {
            base: SignedDuration::from_secs(1),
            factor: 2,
            max: SignedDuration::from_secs(300),
            jitter: 0.1,
        };
        assert_eq!(policy.delay(u32::MAX, 0.0).as_secs(), 300);
        assert_eq!(policy.delay(u32::MAX, 1.0).as_secs(), 330);
        assert_eq!(policy.delay(u32::MAX, 7.0).as_secs(), 330);
        assert_eq!(policy.delay(0, 0.0).as_secs(), 1);
    }
}
