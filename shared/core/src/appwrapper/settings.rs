//! The timers and limits of the controller.
//!
//! The caller reads those that an `AppWrapper` sets in its annotations.
//!
//! *Source*: `spec/appwrapper.md 2.2`.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::duration;

/// The annotation that keeps the children of a failed `AppWrapper` for a while.
pub const DELETION_ON_FAILURE: &str =
    "workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration";

/// The administrator's settings: `appwrapper.faultTolerance` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `admissionGracePeriod`: time for all children to be created and all pods to exist.
    pub admission_grace: SignedDuration,
    /// `warmupGracePeriod`: time for all pods to run, counted from the same moment.
    pub warmup_grace: SignedDuration,
    /// `recoveryGracePeriod`: time to get back a pod that is lost after all were ready; `None` is the warm-up grace.
    pub recovery_grace: Option<SignedDuration>,
    /// `failureGracePeriod`: time for the child's own controller to replace a failed pod.
    pub failure_grace: SignedDuration,
    /// `resetPause`: pause between the last pod of an attempt and the first child of the next.
    pub retry_pause: SignedDuration,
    /// `retryLimit`: how many retries.
    pub retry_limit: i32,
    /// `deletionGracePeriod`: time after which deletion becomes forceful.
    pub deletion_grace: SignedDuration,
    /// `successTTLCeiling`: how long the children stay after success, at most.
    pub success_ttl: SignedDuration,
    /// `gracePeriodCeiling`: the upper bound of all periods.
    pub ceiling: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            admission_grace: SignedDuration::from_mins(1),
            warmup_grace: SignedDuration::from_mins(5),
            recovery_grace: None,
            failure_grace: SignedDuration::from_mins(1),
            retry_pause: SignedDuration::from_secs(90),
            retry_limit: 3,
            deletion_grace: SignedDuration::from_mins(10),
            success_ttl: SignedDuration::from_hours(168),
            ceiling: SignedDuration::from_hours(24),
        }
    }
}

impl Settings {
    /// The period, kept between 0 and [`Settings::ceiling`].
    pub fn clamped(&self, period: SignedDuration) -> SignedDuration {
        period.min(self.ceiling).max(SignedDuration::ZERO)
    }

    /// Why these settings cannot be used, each with its key below `appwrapper.faultTolerance`. Empty means that they can be used.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let bounded = [
            ("deletionGracePeriod", self.deletion_grace),
            ("resetPause", self.retry_pause),
            ("failureGracePeriod", self.failure_grace),
            ("admissionGracePeriod", self.admission_grace),
            ("warmupGracePeriod", self.warmup_grace),
            ("recoveryGracePeriod", self.recovery_grace.unwrap_or_default()),
        ];
        for (key, value) in bounded {
            if value.is_negative() || value > self.ceiling {
                let (value, ceiling) = (duration::print(value), duration::print(self.ceiling));
                problems.push((
                    key,
                    format!("{value} must lie between 0 and gracePeriodCeiling, {ceiling}"),
                ));
            }
        }
        if self.admission_grace > self.warmup_grace {
            let (value, most) = (
                duration::print(self.admission_grace),
                duration::print(self.warmup_grace),
            );
            let why = format!("{value} must not be longer than warmupGracePeriod, {most}");
            problems.push(("admissionGracePeriod", why));
        }
        if self.success_ttl <= SignedDuration::ZERO {
            let value = duration::print(self.success_ttl);
            problems.push(("successTTLCeiling", format!("{value} must be longer than 0")));
        }
        problems
    }
}

/// The timers and limits that apply to one `AppWrapper`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// Time for all children to be created and all pods to exist; see [`Settings::admission_grace`].
    pub admission_grace: SignedDuration,
    /// Time for all pods to run; see [`Settings::warmup_grace`].
    pub warmup_grace: SignedDuration,
    /// Time to get back a lost pod; see [`Settings::recovery_grace`].
    pub recovery_grace: SignedDuration,
    /// Time for a failed pod to be replaced; see [`Settings::failure_grace`].
    pub failure_grace: SignedDuration,
    /// Pause between two attempts; see [`Settings::retry_pause`].
    pub retry_pause: SignedDuration,
    /// The number of retries; see [`Settings::retry_limit`].
    pub retry_limit: i32,
    /// Time after which deletion becomes forceful; see [`Settings::deletion_grace`].
    pub force_after: SignedDuration,
    /// How long the children of a failed `AppWrapper` are kept.
    pub deletion_on_failure: SignedDuration,
    /// How long the children of a succeeded `AppWrapper` are kept.
    pub success_ttl: SignedDuration,
    /// Exit codes after which no retry helps; empty when not set.
    pub terminal_codes: BTreeSet<i32>,
    /// The only exit codes after which a retry may help; empty when not set.
    pub retryable_codes: BTreeSet<i32>,
}

impl Knobs {
    /// The knobs of an `AppWrapper` without annotations.
    pub fn of(settings: &Settings) -> Self {
        let clamped = |period| settings.clamped(period);
        Self {
            admission_grace: clamped(settings.admission_grace),
            warmup_grace: clamped(settings.warmup_grace),
            recovery_grace: clamped(settings.recovery_grace.unwrap_or(settings.warmup_grace)),
            failure_grace: clamped(settings.failure_grace),
            retry_pause: clamped(settings.retry_pause),
            retry_limit: settings.retry_limit,
            force_after: clamped(settings.deletion_grace),
            deletion_on_failure: SignedDuration::ZERO,
            success_ttl: settings.success_ttl,
            terminal_codes: BTreeSet::new(),
            retryable_codes: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: appwrapper B84.
    #[test]
    fn settings_that_contradict_each_other_are_named() {
        assert!(Settings::default().problems().is_empty());
        let check = |change: fn(&mut Settings), key: &str| {
            let mut settings = Settings::default();
            change(&mut settings);
            let found: Vec<_> = settings.problems().into_iter().map(|(key, _)| key).collect();
            assert_eq!(found, [key]);
        };
        check(
            |s| s.admission_grace = SignedDuration::from_mins(6),
            "admissionGracePeriod",
        );
        check(
            |s| s.warmup_grace = SignedDuration::from_hours(25),
            "warmupGracePeriod",
        );
        check(
            |s| s.failure_grace = SignedDuration::from_hours(25),
            "failureGracePeriod",
        );
        check(|s| s.retry_pause = SignedDuration::from_hours(25), "resetPause");
        check(
            |s| s.deletion_grace = SignedDuration::from_hours(25),
            "deletionGracePeriod",
        );
        check(|s| s.success_ttl = SignedDuration::ZERO, "successTTLCeiling");
    }
}
