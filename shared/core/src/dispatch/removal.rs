//! Whether somebody took a cluster out of the federation who could know that it was lost: the word that its runs are lost.
//!
//! Why no times: that of a removal is told by no API for a cluster that is taken out of a config, a watch may tell of it at any
//! time after it, and clocks differ. What a look shows that began when the cluster was lost already is later than the loss; so
//! who took the cluster out since has done so later as well. What is not known, as after a restart, counts as no word: the
//! policy decides then, and [`Waiting::WorkerLost`](super::Waiting) tells how to give the word.
//!
//! *Source*: `spec/safety.md 3.5`.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// What belonged to a cluster at some moment after its present loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// Of which loss.
    since: Option<Timestamp>,
    /// The configs that listed it.
    configs: BTreeSet<String>,
    /// It was not being deleted.
    stayed: bool,
}

impl Witness {
    /// A look that began after the loss at `since` showed that these configs list it, and whether it is there and not deleted.
    pub fn saw(&mut self, since: Timestamp, configs: impl IntoIterator<Item = String>, stays: bool) {
        if self.since != Some(since) {
            *self = Self {
                since: Some(since),
                ..Self::default()
            };
        }
        self.configs.extend(configs);
        self.stayed |= stays;
    }

    /// Whether this config, which does not list it now, listed it after the loss at `since`.
    pub fn was_taken_out(&self, since: Timestamp, config: &str) -> bool {
        self.since == Some(since) && self.configs.contains(config)
    }

    /// Whether it, which is being deleted now, was not after the loss at `since`.
    pub fn was_deleted(&self, since: Timestamp) -> bool {
        self.since == Some(since) && self.stayed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Spec: safety 3.5
    #[test]
    fn only_what_stood_after_this_loss_can_have_been_taken_away_knowing_of_it() {
        let mut witness = Witness::default();
        assert!(!witness.was_deleted(at(1)) && !witness.was_taken_out(at(1), "all"));
        witness.saw(at(1), ["all".to_owned()], true);
        witness.saw(at(1), [], false);
        assert!(witness.was_deleted(at(1)) && witness.was_taken_out(at(1), "all"));
        assert!(!witness.was_taken_out(at(1), "other"));
        assert!(
            !witness.was_deleted(at(9)) && !witness.was_taken_out(at(9), "all"),
            "it was back in between"
        );
        witness.saw(at(9), [], false);
        assert!(!witness.was_deleted(at(9)) && !witness.was_taken_out(at(9), "all"));
        witness.saw(at(9), ["all".to_owned()], false);
        assert!(
            witness.was_taken_out(at(9), "all"),
            "it was taken in again and out"
        );
    }
}
