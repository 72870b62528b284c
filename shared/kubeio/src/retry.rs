//! Pauses between attempts. The only place that names the `backoff` crate.
//!
//! Invariant: pauses grow by a factor of two up to the longest one, and are spread by a seeded jitter of at most 20 %, so
//! that many waiting tasks do not come back at the same moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Share of a pause by which it may grow.
const JITTER: f64 = 0.2;
/// Keys whose failures are remembered by one [`Failures`] at most.
const KEYS_MAX: usize = 100_000;

static SEED: AtomicU64 = AtomicU64::new(0x5eed);

/// Restarts this process's random numbers from `seed`. Only for a simulation, whose runs must repeat.
pub fn reseed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// Growing pauses for one thing that keeps failing.
#[derive(Debug)]
pub struct Backoff {
    policy: ExponentialBackoff,
    dice: ChaCha8Rng,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let policy = ExponentialBackoff {
            current_interval: first,
            initial_interval: first,
            max_interval: longest,
            multiplier: 2.0,
            // Why zero and None: the crate would use its own random numbers and give up by wall clock; Roadstead decides both.
            randomization_factor: 0.0,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        Self {
            policy,
            dice: ChaCha8Rng::seed_from_u64(SEED.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.policy.next_backoff().unwrap_or(self.policy.max_interval);
        pause.mul_f64(1.0 + self.dice.random_range(0.0..JITTER))
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.policy.reset();
    }
}

/// Growing pauses for many things, by key.
#[derive(Debug)]
pub struct Failures<K> {
    first: Duration,
    longest: Duration,
    by_key: Mutex<BTreeMap<K, Backoff>>,
}

impl<K: Ord> Failures<K> {
    /// Nothing has failed yet; pauses will go from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            by_key: Mutex::new(BTreeMap::new()),
        }
    }

    /// Notes a failure and returns how long to wait.
    pub fn failed(&self, key: K) -> Duration {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if by_key.len() >= KEYS_MAX {
            by_key.clear();
        }
        by_key
            .entry(key)
            .or_insert_with(|| Backoff::new(self.first, self.longest))
            .pause()
    }

    /// Notes a success.
    pub fn succeeded(&self, key: &K) {
        self.by_key
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Backoff, Failures};

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

    #[test]
    fn each_key_has_its_own_pauses() {
        let failures = Failures::new(Duration::from_millis(10), Duration::from_secs(1));
        failures.failed("a");
        assert!(failures.failed("a") >= Duration::from_millis(20));
        assert!(failures.failed("b") <= Duration::from_millis(12));
        failures.succeeded(&"a");
        assert!(failures.failed("a") <= Duration::from_millis(12));
    }
}
