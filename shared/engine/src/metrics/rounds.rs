//! How rounds of decisions count: a pure function from their outcome to updates.

use std::time::Duration;

use roadstead_core::state::CycleOutcome;

use super::board::{Change, Update};
use super::table::Metric;

/// The updates after rounds that took `took` together.
pub(super) fn of(outcome: &CycleOutcome, took: Duration) -> Vec<Update> {
    let mut updates = Vec::new();
    let mut add = |metric, labels: &[&str], change| {
        updates.push(Update {
            metric,
            labels: labels.iter().map(|label| (*label).into()).collect(),
            change,
        });
    };
    let rounds = outcome.successes.saturating_add(outcome.failures);
    #[expect(clippy::cast_precision_loss, reason = "rounds of one call are few")]
    let each = took.as_secs_f64() / rounds.max(1) as f64;
    for (result, count) in [("success", outcome.successes), ("inadmissible", outcome.failures)] {
        if count > 0 {
            add(Metric::AdmissionAttempts, &[result], Change::Add(count));
            add(
                Metric::AdmissionAttemptDuration,
                &[result],
                Change::ObserveTimes(each, count),
            );
        }
    }
    for (queue, count) in &outcome.preemption_skips {
        #[expect(clippy::cast_precision_loss, reason = "heads of one round are few")]
        let count = *count as f64;
        add(
            Metric::AdmissionCyclePreemptionSkips,
            &[queue.as_str()],
            Change::Set(count),
        );
    }
    for (queue, (successes, failures)) in &outcome.recomputations {
        for (result, count) in [("success", *successes), ("failure", *failures)] {
            if count > 0 {
                add(
                    Metric::PreemptionTargetRecomputations,
                    &[queue.as_str(), result],
                    Change::Add(count),
                );
            }
        }
    }
    updates
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: admission-engine B233.
    #[test]
    fn a_round_that_admits_nothing_counts_as_inadmissible() {
        let outcome = CycleOutcome {
            failures: 2,
            preemption_skips: [("p".into(), 3)].into(),
            recomputations: [("p".into(), (1, 0))].into(),
            ..CycleOutcome::default()
        };
        let update = |metric, labels: &[&str], change| Update {
            metric,
            labels: labels.iter().map(|label| (*label).into()).collect(),
            change,
        };
        assert_eq!(
            of(&outcome, Duration::from_secs(1)),
            [
                update(Metric::AdmissionAttempts, &["inadmissible"], Change::Add(2)),
                update(
                    Metric::AdmissionAttemptDuration,
                    &["inadmissible"],
                    Change::ObserveTimes(0.5, 2)
                ),
                update(Metric::AdmissionCyclePreemptionSkips, &["p"], Change::Set(3.0)),
                update(
                    Metric::PreemptionTargetRecomputations,
                    &["p", "success"],
                    Change::Add(1)
                ),
            ]
        );
        assert_eq!(of(&CycleOutcome::default(), Duration::ZERO), []);
    }
}
