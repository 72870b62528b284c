//! Moments: sums that stop at the ends of time.

use jiff::{SignedDuration, Timestamp};

/// `at` plus `by`; a result beyond the first or last possible moment is that moment.
pub fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    let end = if by.is_negative() {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    at.checked_add(by).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_stops_at_the_ends_of_time() {
        let second = SignedDuration::from_secs(1);
        assert_eq!(
            later(Timestamp::UNIX_EPOCH, second),
            Timestamp::from_second(1).unwrap()
        );
        assert_eq!(later(Timestamp::MAX, second), Timestamp::MAX);
        assert_eq!(later(Timestamp::MIN, -second), Timestamp::MIN);
    }
}
