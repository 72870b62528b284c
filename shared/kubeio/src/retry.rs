//! Pauses between attempts, spread so that many waiting tasks do not come back at the same moment. The only place that names the
//! crate `backoff`.
//!
//! Invariant: pauses double up to the longest one; a seeded jitter adds at most 20 %.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Share of a pause by which it may grow.
const JITTER: f64 = 0.2;
/// Limit: more steps than this change nothing, because every longest pause is reached long before.
const STEPS_MAX: u32 = 64;

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

    /// A little more than this pause.
    fn spread(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(1.0 + self.0.random_range(0.0..JITTER))
    }

    /// The pause after this failed attempt, counted from 1, where pauses double from `first` to `longest`.
    pub(crate) fn pause(&mut self, first: Duration, longest: Duration, attempt: u32) -> Duration {
        let mut pauses = doubling(first, longest);
        let mut pause = first;
        for _ in 0..attempt.min(STEPS_MAX) {
            pause = pauses.next_backoff().unwrap_or(longest);
        }
        self.spread(pause)
    }
}

fn doubling(first: Duration, longest: Duration) -> ExponentialBackoff {
    ExponentialBackoff {
        current_interval: first,
        initial_interval: first,
        max_interval: longest,
        multiplier: 2.0,
        // Why zero and None: the crate would use its own random numbers and give up by wall clock; Roadstead decides both.
        randomization_factor: 0.0,
        max_elapsed_time: None,
        ..ExponentialBackoff::default()
    }
}

/// Growing pauses for one thing that keeps failing.
#[derive(Debug)]
pub struct Backoff {
    pauses: ExponentialBackoff,
    dice: Dice,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            pauses: doubling(first, longest),
            dice: Dice::new(),
        }
    }

    /// The pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.pauses.next_backoff().unwrap_or(self.pauses.max_interval);
        self.dice.spread(pause)
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.pauses.reset();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Backoff, Dice};

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

    #[test]
    fn the_pause_after_an_attempt_is_the_one_that_so_many_failures_reach() {
        let pause = |attempt| {
            Dice::new()
                .pause(Duration::from_millis(100), Duration::from_millis(350), attempt)
                .as_millis()
        };
        for (attempt, base) in [(1, 100), (2, 200), (3, 350), (u32::MAX, 350)] {
            assert!((base..=base * 12 / 10).contains(&pause(attempt)), "{attempt}");
        }
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
