//! The configuration of a Workload's life.

use jiff::SignedDuration;
use roadstead_api::config::{Config, FeatureGate, WaitForPodsReady};
use roadstead_core::lifecycle::{Core, FirstStatus, Orphans, Policy, Retention, WaitForPods, Words};

/// Reads the policy. *Source*: `spec/api.md API-13, API-14`.
pub(crate) fn policy(config: &Config, core: Core) -> Policy {
    let on = |gate| config.feature_gates.enabled(gate);
    Policy {
        orphans: if on(FeatureGate::FinishOrphanedWorkloads) {
            Orphans::Finish
        } else {
            Orphans::Release
        },
        reclaim: roadstead_convert::reclaim(config),
        pods_ready: config.wait_for_pods_ready.as_ref().map(wait),
        retention: Retention {
            after_finished: config.retention.after_finished,
            after_deactivated: config.retention.after_deactivated_by_kueue,
        },
        first_status: if on(FeatureGate::UnadmittedWorkloadsExplicitStatus) {
            FirstStatus::AtOnce
        } else {
            FirstStatus::WhenDecided
        },
        core,
        words: if on(FeatureGate::UnadmittedWorkloadsObservability) {
            Words::Granular
        } else {
            Words::Older
        },
    }
}

fn wait(wait: &WaitForPodsReady) -> WaitForPods {
    let requeuing = &wait.requeuing;
    // Negative numbers are refused when the configuration is read.
    let whole = |number: i32| u32::try_from(number).unwrap_or_default();
    WaitForPods {
        timeout: wait.timeout,
        recovery: Some(wait.recovery_timeout).filter(|time| *time != SignedDuration::ZERO),
        limit_count: requeuing.backoff_limit_count.map(whole),
        base_secs: whole(requeuing.backoff_base_seconds),
        max_secs: whole(requeuing.backoff_max_seconds),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_core::lifecycle::Reclaim;

    use super::{Config, Core, Orphans, SignedDuration, policy};

    /// Spec: api API-13; admission-engine B184.
    #[test]
    fn what_the_file_leaves_open_has_the_references_defaults() {
        let mut config = Config::without_file("ns");
        let read = policy(&config, Core::Runs);
        assert_eq!((read.orphans, read.reclaim), (Orphans::Finish, Reclaim::Count));
        assert_eq!(read.retention.after_finished, None);
        let wait = read.pods_ready.unwrap();
        assert_eq!(wait.timeout, SignedDuration::from_mins(30));
        assert_eq!(wait.recovery, Some(SignedDuration::from_mins(30)));
        assert_eq!(
            (wait.limit_count, wait.base_secs, wait.max_secs),
            (None, 60, 3600)
        );
        let written = config.wait_for_pods_ready.as_mut().unwrap();
        written.recovery_timeout = SignedDuration::ZERO;
        written.requeuing.backoff_limit_count = Some(0);
        let wait = policy(&config, Core::Runs).pods_ready.unwrap();
        assert_eq!((wait.recovery, wait.limit_count), (None, Some(0)));
    }
}
