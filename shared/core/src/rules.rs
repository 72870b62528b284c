//! The configuration that admission depends on.

/// Whether a feature is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The feature is on.
    On,
    /// The feature is off.
    Off,
}

/// What to do with a requested resource that no group of the queue covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Undeclared {
    /// Refuse the workload (`BlockUndeclared`).
    #[default]
    Refuse,
    /// Treat it as not requested (`IgnoreUndeclared`).
    Ignore,
}

/// A test of a victim under fair sharing. *Source*: `spec/admission-engine.md 2.8.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairStrategy {
    /// The preemptor's side may not end above the victim's side.
    LessThanOrEqualToFinalShare,
    /// The preemptor's side must end below what the victim's side was.
    LessThanInitialShare,
}

/// Which kind of preemption applies.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum PreemptionRules {
    /// Without fair sharing (2.7).
    #[default]
    Classical,
    /// With fair sharing (2.8).
    FairSharing {
        /// The strategies, tried in this order. Without any, no victims are found in other queues whose shares must be compared.
        strategies: Vec<FairStrategy>,
    },
}

impl PreemptionRules {
    /// Fair sharing with the default strategies. *Source*: `spec/api.md`, `fairSharing.preemptionStrategies`.
    pub fn fair_sharing() -> Self {
        Self::FairSharing {
            strategies: vec![
                FairStrategy::LessThanOrEqualToFinalShare,
                FairStrategy::LessThanInitialShare,
            ],
        }
    }
}

/// The rules of admission. The default follows the defaults of the gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What to do with resources that a queue does not cover.
    pub undeclared: Undeclared,
    /// Which kind of preemption applies.
    pub preemption: PreemptionRules,
    /// Gate `PartialAdmission`.
    pub partial_admission: Switch,
    /// Gate `FlavorFungibility`.
    pub flavor_fungibility: Switch,
    /// Gate `FairSharingPreemptWithinNominal`.
    pub fair_within_nominal: Switch,
    /// Gate `FairSharingPrioritizeNonBorrowing`.
    pub fair_prioritize_non_borrowing: Switch,
    /// Gate `PrioritySortingWithinCohort`.
    pub priority_in_cohort: Switch,
    /// Gate `PrioritizePreemptorWorkloads`.
    pub prioritize_preemptor: Switch,
    /// Gate `RecomputeAssignmentUponPreemptionTargetsOverlap`; only the cycle reads it.
    pub recompute_overlap: Switch,
    /// Gate `TopologyAwareScheduling`: whether requests for places by topology count.
    pub topology: Switch,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            undeclared: Undeclared::default(),
            preemption: PreemptionRules::default(),
            partial_admission: Switch::On,
            flavor_fungibility: Switch::On,
            fair_within_nominal: Switch::On,
            fair_prioritize_non_borrowing: Switch::On,
            priority_in_cohort: Switch::On,
            prioritize_preemptor: Switch::Off,
            recompute_overlap: Switch::On,
            topology: Switch::On,
        }
    }
}
