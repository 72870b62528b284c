//! Whether somebody took a cluster out of the federation who was told that it is lost: the word that its runs are lost.
//!
//! Why no times: that of a removal is told by no API for a cluster that is taken out of a config, a watch may tell of it at any
//! time after it, and clocks differ. What a look shows that began when the cluster was said to be lost is later than that; so
//! who took the cluster out since has done so later as well. What is not known, as after a restart, counts as no word: the
//! policy decides then. [`Waiting::WorkerLost`](super::Waiting) names the explicit way to give the word, `roadstead cluster give-up`.
//!
//! *Source*: `spec/safety.md 3.5`.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// What belonged to a cluster at some moment after people were told of its present loss.
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
    /// A look that began after people were told of the loss at `since` showed that these configs list it, and whether it is there and
    /// not deleted.
    ///
    /// Why not after the loss itself: nobody may be told of it for as long as an attempt to connect takes (seed 2908).
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

    /// What a look after the loss at `since` has shown of this config and of its MultiKueueCluster.
    pub fn stood(&self, since: Timestamp, config: Option<&str>) -> Stood {
        let is_of_this = self.since == Some(since);
        Stood {
            listed: is_of_this && config.is_some_and(|config| self.configs.contains(config)),
            stayed: is_of_this && self.stayed,
        }
    }
}

/// Whether a cluster belongs to the federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    /// It does.
    Listed,
    /// The config does not list it.
    Unlisted,
    /// It is being deleted.
    Leaving,
    /// Both.
    UnlistedAndLeaving,
}

/// What belonged to a lost cluster once it was said to be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stood {
    /// The config of the Workload's check listed it.
    pub listed: bool,
    /// Its MultiKueueCluster was not being deleted.
    pub stayed: bool,
}

impl Stood {
    /// Whether something of that has been taken away since, by somebody who was told of the loss; what it has `now` was not.
    pub(super) fn is_taken_away(self, now: Membership) -> bool {
        match now {
            Membership::Listed => false,
            Membership::Unlisted => self.listed,
            Membership::Leaving => self.stayed,
            Membership::UnlistedAndLeaving => self.listed || self.stayed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    const NOTHING: Stood = Stood {
        listed: false,
        stayed: false,
    };

    /// Spec: safety 3.5
    #[test]
    fn only_what_stood_after_this_loss_can_have_been_taken_away_knowing_of_it() {
        let mut witness = Witness::default();
        let stood = |witness: &Witness, second| witness.stood(at(second), Some("all"));
        assert_eq!(stood(&witness, 1), NOTHING);
        witness.saw(at(1), ["all".to_owned()], true);
        witness.saw(at(1), [], false);
        let both = Stood {
            listed: true,
            stayed: true,
        };
        assert_eq!(stood(&witness, 1), both);
        for elsewhere in [Some("other"), None] {
            assert!(!witness.stood(at(1), elsewhere).listed);
        }
        assert_eq!(stood(&witness, 9), NOTHING, "it was back in between");
        witness.saw(at(9), [], false);
        assert_eq!(stood(&witness, 9), NOTHING);
        witness.saw(at(9), ["all".to_owned()], false);
        assert!(stood(&witness, 9).listed, "it was taken in again and out");
    }

    /// A cluster that was deleted before it was lost and is listed all the time: nobody has said anything about its runs (seed
    /// 100129).
    ///
    /// Spec: safety 3.5
    #[test]
    fn what_still_stands_was_taken_away_by_nobody() {
        let said = |listed, stayed| {
            use Membership::{Leaving, Listed, Unlisted, UnlistedAndLeaving};
            let now = [Listed, Unlisted, Leaving, UnlistedAndLeaving];
            now.map(|now| Stood { listed, stayed }.is_taken_away(now))
        };
        assert_eq!(said(false, false), [false; 4]);
        assert_eq!(said(true, false), [false, true, false, true]);
        assert_eq!(said(false, true), [false, false, true, true]);
        assert_eq!(said(true, true), [false, true, true, true]);
    }
}
