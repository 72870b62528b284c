//! Pauses after writes that nothing waits for.
//!
//! Why: what an API server does for jobs goes before what it does for news of them. One that answers slowly is busy, and may
//! share its machine with others of its kind.

use std::ops::RangeInclusive;
use std::time::Duration;

/// How long to pause after a batch of writes: as many times what it took as was asked for, and as many times more as a write
/// took longer than one does when nothing else goes on.
#[derive(Debug)]
pub struct Rest {
    per_work: u32,
    limits: RangeInclusive<Duration>,
    /// What one write took at best, forgotten little by little: a connection may become slower for good.
    quickest: Option<Duration>,
}

impl Rest {
    /// A pause of `per_work` times the work, never outside of `limits`.
    pub const fn new(per_work: u32, limits: RangeInclusive<Duration>) -> Self {
        Self {
            per_work,
            limits,
            quickest: None,
        }
    }

    /// How long to pause after so many writes that took so long.
    pub fn after(&mut self, took: Duration, writes: u32) -> Duration {
        let Some(each) = took.checked_div(writes) else {
            return *self.limits.start();
        };
        let each = each.max(Duration::from_millis(1));
        let quickest = self.quickest.map_or(each, |known| each.min(known + known / 64));
        self.quickest = Some(quickest);
        let pause = (took * self.per_work).mul_f64(each.div_duration_f64(quickest));
        pause.clamp(*self.limits.start(), *self.limits.end())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Rest;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_slow_api_server_is_left_alone_for_longer() {
        let mut rest = Rest::new(9, ms(10)..=ms(5000));
        assert_eq!(rest.after(ms(4), 1), ms(36));
        assert_eq!(
            rest.after(ms(40), 10),
            ms(360),
            "ten that took as long as one each"
        );
        let busy = rest.after(ms(8), 1);
        assert!(busy > ms(8) * 9 * 19 / 10, "{busy:?}");
        assert_eq!(rest.after(ms(400), 1), ms(5000));
        assert_eq!(rest.after(ms(1), 1), ms(10));
        assert_eq!(rest.after(ms(1), 0), ms(10), "nothing was written");
    }

    #[test]
    fn one_that_is_farther_away_for_good_is_not_busy() {
        let mut rest = Rest::new(9, Duration::ZERO..=ms(5000));
        assert_eq!(rest.after(Duration::ZERO, 1), Duration::ZERO);
        let far = (0..300).map(|_| rest.after(ms(50), 1)).last();
        assert_eq!(far, Some(ms(450)));
    }
}
