//! The configuration of admission, translated for core. *Source*: `spec/api.md API-13, API-14`.

use std::collections::BTreeSet;
use std::time::Duration;

use roadstead_api::config::{Config, FeatureGate, PreemptionStrategy, QuotaCheckStrategy, RequeueTimestamp};
use roadstead_convert::Shares;
use roadstead_core::afs::UsagePolicy;
use roadstead_core::name::ResourceName;
use roadstead_core::pending::RequeuingTimestamp;
use roadstead_core::rules::{FairStrategy, PreemptionRules, Rules, Switch, Undeclared};
use roadstead_core::state::{Blocking, Event, Pace, Settings, State};

use crate::clock::Clock;

/// A state set up by the configuration and `--controllers`. Without controller `admission` nothing new is admitted, but
/// everything else goes on: queues have their statuses, and pending Workloads say why they wait.
pub(crate) fn state(config: &Config, controllers: &BTreeSet<&'static str>, clock: &Clock) -> State {
    let timestamp = match config
        .wait_for_pods_ready
        .as_ref()
        .map(|wait| wait.requeuing.timestamp)
    {
        Some(RequeueTimestamp::Creation) => RequeuingTimestamp::Creation,
        Some(RequeueTimestamp::Eviction) | None => RequeuingTimestamp::Eviction,
    };
    let mut state = State::new(Settings {
        timestamp,
        rules: rules(config),
        blocking: match &config.wait_for_pods_ready {
            Some(wait) if wait.block_admission => Blocking::UntilPodsReady,
            Some(_) | None => Blocking::Never,
        },
        past_usage: past_usage(config),
    });
    let pace = if !controllers.contains("admission") {
        Pace::Elsewhere
    } else if config.roadstead.admission_paused {
        Pace::Paused
    } else {
        Pace::Running
    };
    state.apply(Event::Paused(pace), clock());
    state
}

pub(crate) const fn shares(config: &Config) -> Shares {
    match &config.fair_sharing {
        Some(_) => Shares::Shown,
        None => Shares::Hidden,
    }
}

/// The rules that decide between workloads. *Source*: `spec/api.md API-13, API-14`.
fn rules(config: &Config) -> Rules {
    let gate = |gate| {
        if config.feature_gates.enabled(gate) {
            Switch::On
        } else {
            Switch::Off
        }
    };
    let strategy = |strategy: &PreemptionStrategy| match strategy {
        PreemptionStrategy::LessThanOrEqualToFinalShare => FairStrategy::LessThanOrEqualToFinalShare,
        PreemptionStrategy::LessThanInitialShare => FairStrategy::LessThanInitialShare,
    };
    Rules {
        undeclared: match config.resources.quota_check_strategy {
            QuotaCheckStrategy::BlockUndeclared => Undeclared::Refuse,
            QuotaCheckStrategy::IgnoreUndeclared => Undeclared::Ignore,
        },
        preemption: match &config.fair_sharing {
            Some(sharing) if sharing.preemption_strategies.is_empty() => PreemptionRules::fair_sharing(),
            Some(sharing) => PreemptionRules::FairSharing {
                strategies: sharing.preemption_strategies.iter().map(strategy).collect(),
            },
            None => PreemptionRules::Classical,
        },
        partial_admission: gate(FeatureGate::PartialAdmission),
        flavor_fungibility: gate(FeatureGate::FlavorFungibility),
        fair_within_nominal: gate(FeatureGate::FairSharingPreemptWithinNominal),
        fair_prioritize_non_borrowing: gate(FeatureGate::FairSharingPrioritizeNonBorrowing),
        priority_in_cohort: gate(FeatureGate::PrioritySortingWithinCohort),
        prioritize_preemptor: gate(FeatureGate::PrioritizePreemptorWorkloads),
        recompute_overlap: gate(FeatureGate::RecomputeAssignmentUponPreemptionTargetsOverlap),
        topology: gate(FeatureGate::TopologyAwareScheduling),
    }
}

/// How past usage orders workloads, if configured.
fn past_usage(config: &Config) -> Option<UsagePolicy> {
    let sharing = config.admission_fair_sharing.as_ref()?;
    let on = config.feature_gates.enabled(FeatureGate::AdmissionFairSharing);
    // Why positive: the loader has refused all other values.
    let time = |span| Duration::try_from(span).unwrap_or(Duration::ZERO);
    let weights = sharing.resource_weights.iter();
    on.then(|| UsagePolicy {
        half_life: time(sharing.usage_half_life_time),
        sampling_interval: time(sharing.usage_sampling_interval),
        resource_weights: weights
            .map(|(name, weight)| (ResourceName::from(name.as_str()), *weight))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn without_controller_admission_nothing_new_is_admitted() {
        let clock: Clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let mut config = Config::without_file("ns");
        let pace = |config: &Config, controllers: &[&'static str]| {
            state(config, &controllers.iter().copied().collect(), &clock).pace()
        };
        assert_eq!(pace(&config, &["admission", "core"]), Pace::Running);
        assert_eq!(pace(&config, &["core"]), Pace::Elsewhere);
        config.roadstead.admission_paused = true;
        assert_eq!(pace(&config, &["admission"]), Pace::Paused);
    }
}
