//! An administrator's word that the runs on a lost cluster are lost: `roadstead cluster give-up`.
//!
//! Invariant: a word answers one loss, which it names by the time at which condition `Active` became False. A word about an earlier
//! loss is void: the cluster was back in between, and runs may have been sent there.
//!
//! *Source*: `spec/safety.md 3.5`.

use jiff::{SignedDuration, Timestamp};

use crate::moment::later;

/// Times of conditions have whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Whether the runs on a lost cluster are given up.
///
/// `word` is the time that the administrator has named. `shown` is the time at which condition `Active` became False, `None` while
/// it is True. The present loss began at `earliest` or later; an earlier `shown` belongs to an earlier loss.
pub fn is_given_up(word: Option<Timestamp>, shown: Option<Timestamp>, earliest: Timestamp) -> bool {
    word.is_some() && word == shown && shown >= Some(earliest)
}

/// The time that condition `Active` shows when it changes at `now` and has shown `last` before. It is always later than `last`, so
/// that no two losses have the same time.
pub fn turn_time(now: Timestamp, last: Option<Timestamp>) -> Timestamp {
    last.map_or(now, |last| now.max(later(last, SECOND)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fixtures::at;

    /// Spec: safety 3.5
    #[test]
    fn a_word_answers_the_loss_that_the_condition_shows_and_no_other() {
        let given_up = |word: Option<i64>, shown: Option<i64>, earliest| {
            is_given_up(word.map(at), shown.map(at), earliest)
        };
        assert!(given_up(Some(5), Some(5), at(5)));
        assert!(
            given_up(Some(5), Some(5), Timestamp::MIN),
            "the process is younger than the loss"
        );
        assert!(!given_up(Some(5), Some(9), at(9)), "it was back since");
        assert!(
            !given_up(Some(5), Some(5), at(6)),
            "what is shown is the loss before this one"
        );
        assert!(!given_up(None, Some(5), at(5)));
        assert!(!given_up(Some(5), None, at(5)));
        assert!(!given_up(None, None, Timestamp::MIN));
    }

    #[test]
    fn no_two_turns_have_the_same_time() {
        assert_eq!(turn_time(at(9), None), at(9));
        assert_eq!(turn_time(at(9), Some(at(5))), at(9));
        let within_the_second = at(9).checked_add(SignedDuration::from_millis(700)).unwrap();
        assert_eq!(turn_time(within_the_second, Some(at(9))), at(10));
    }
}
