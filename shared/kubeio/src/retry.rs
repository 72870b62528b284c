//! Pauses between attempts, spread so that many waiting tasks do not come back at the same moment.
//!
//! Invariant: [`RetryPolicy`] computes every pause; here are only its chance and the count of attempts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roadstead_core::retry::RetryPolicy;

/// Share of a pause by which it may grow.
const JITTER: f64 = 0.2;

static SEED: AtomicU64 = AtomicU64::new(0x5eed);

/// Restarts this process's random numbers from `seed`. Only for a simulation, whose runs must repeat.
pub fn reseed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// The random values of one user of pauses.
#[derive(Debug)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(ChaCha8Rng::seed_from_u64(SEED.fetch_add(1, Ordering::Relaxed)))
    }

    /// The pause after this failed attempt, counted from 1.
    pub(crate) fn pause(&mut self, policy: &RetryPolicy, attempt: u32) -> Duration {
        let delay = policy.delay(attempt, self.0.random_range(0.0..1.0));
        delay.unsigned_abs()
    }
}

/// Pauses that double from `first` to `longest`.
pub(crate) fn doubling(first: Duration, longest: Duration) -> RetryPolicy {
    let signed = |pause| SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
    RetryPolicy {
        base: signed(first),
        factor: 2,
        max: signed(longest),
        jitter: JITTER,
    }
}

/// Growing pauses for one thing that keeps failing.
#[derive(Debug)]
pub struct Backoff {
    policy: RetryPolicy,
    failed: u32,
    dice: Dice,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            policy: doubling(first, longest),
            failed: 0,
            dice: Dice::new(),
        }
    }

    /// The pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        self.failed = self.failed.saturating_add(1);
        self.dice.pause(&self.policy, self.failed)
    }

    /// Starts over after a success.
    pub const fn reset(&mut self) {
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Backoff;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let pauses: Vec<u128> = (0..4).map(|_| backoff.pause().as_millis()).collect();
        for (pause, base) in pauses.iter().zip([100, 200, 350, 350]) {
            assert!((base..=base * 12 / 10).contains(pause), "{pauses:?}");
        }
        backoff.reset();
        assert!(backoff.pause() < Duration::from_millis(121));
    }

    /// Spec: safety F31
    #[test]
    fn those_that_fail_at_the_same_moment_do_not_come_back_at_the_same_moment() {
        let pause = |_| Backoff::new(Duration::from_secs(10), Duration::from_secs(10)).pause();
        let mut pauses: Vec<Duration> = (0..20).map(pause).collect();
        pauses.sort();
        let spread = pauses[19].saturating_sub(pauses[0]);
        assert!(spread > Duration::from_secs(1), "{pauses:?}");
        assert!(pauses.is_sorted_by(|one, next| one < next), "{pauses:?}");
    }
}
