//! Pauses after writes that nothing waits for.
//!
//! Why: an API server's work for jobs goes before its work for reports about them. A slow API server is busy, and may share its
//! machine with others.

use std::ops::RangeInclusive;
use std::time::Duration;

/// How long to pause after a batch of writes: `per_work` times the batch's time, multiplied by how much slower its writes were
/// than the quickest.
#[derive(Debug)]
pub struct Rest {
    per_work: u32,
    limits: RangeInclusive<Duration>,
    /// The time of the quickest write, slowly forgotten: a connection may become slower for good.
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

    /// The pause after `writes` writes that took `took` together.
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
