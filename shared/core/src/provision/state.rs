//! The state of a check from its request: the table of `spec/provisioning.md 4.3`, first match wins.

use std::collections::BTreeMap;

use super::merge::Merged;
use super::{CLASS_ANNOTATION, CONSUME_ANNOTATION, Config, Current, Pass, names};
use crate::name::CheckName;
use crate::note::{Note, Severity};
use crate::status::{CheckPhase, PodSetUpdate};
use crate::words::{MESSAGE_MAX, cut};

impl Pass<'_> {
    /// Row 2 of the table.
    pub(super) fn not_needed(&mut self, name: &CheckName) {
        if self.phase(name) != Some(CheckPhase::Ready) {
            self.set(name, CheckPhase::Ready, "the provisioning request is not needed");
            self.edit(name, |state| state.updates.clear());
        }
    }

    /// Rows 4 to 13 of the table.
    pub(super) fn apply(
        &mut self,
        name: &CheckName,
        config: &Config,
        current: Current<'_>,
        pod_sets: &[Merged],
    ) {
        let said = |kind: &str| {
            current
                .request
                .conditions
                .when_true(kind)
                .map(|c| c.message.as_str())
        };
        let admitted = self.o.workload.is_admitted();
        if let Some(message) = said("Failed") {
            return self.fail(
                name,
                config,
                current.attempt,
                ("Retrying after failure: ", message),
            );
        }
        if let Some(message) = said("CapacityRevoked") {
            if self.o.workload.active {
                self.set(name, CheckPhase::Rejected, message);
            }
            return;
        }
        if let Some(message) = said("BookingExpired") {
            // A booking is expected to end while the Workload runs.
            if !admitted {
                let words = ("Retrying after booking expired: ", message);
                self.fail(name, config, current.attempt, words);
            }
            return;
        }
        if let Some(message) = said("Provisioned") {
            if self.phase(name) != Some(CheckPhase::Ready) {
                let updates = updates(self.o.suffix, config, current, pod_sets);
                self.set(name, CheckPhase::Ready, message);
                self.edit(name, |state| state.updates = updates);
            }
            return;
        }
        if said("Accepted").is_some() {
            if let Some(provisioned) = current.request.conditions.get("Provisioned") {
                self.set(name, CheckPhase::Pending, &provisioned.message);
            }
            return;
        }
        self.set(name, CheckPhase::Pending, "");
    }

    /// Rows 4, 5, 7 and 8 of the table.
    fn fail(&mut self, name: &CheckName, config: &Config, attempt: u32, words: (&str, &str)) {
        let (prefix, message) = words;
        if attempt > config.retry_limit {
            self.set(name, CheckPhase::Rejected, message);
            return self.edit(name, |state| state.requeue_after_secs = None);
        }
        let retries = self
            .plan
            .status
            .checks
            .get(name)
            .and_then(|state| state.retry_count);
        let retries = retries.unwrap_or(0);
        // Why: an older request must not cause a second retry, and a pass that finds Retry written must not move the delay.
        if attempt > retries && self.phase(name) != Some(CheckPhase::Retry) {
            let delay = config
                .backoff
                .delay_secs(retries.saturating_add(1), self.o.jitter);
            self.set(name, CheckPhase::Retry, &format!("{prefix}{message}"));
            self.edit(name, |state| state.requeue_after_secs = Some(delay));
        }
    }

    /// Sets the message and emits the Event of a creation that failed. *Source*: `spec/provisioning.md 4.4`.
    pub(super) fn report_failure(&mut self, name: &CheckName) {
        let Some(failure) = self.o.create_failures.get(name) else {
            return;
        };
        let message = format!(
            "Error creating {} \"{}\": {}",
            failure.kind, failure.name, failure.error
        );
        let message = cut(message, MESSAGE_MAX);
        let known = self
            .plan
            .status
            .checks
            .get(name)
            .is_some_and(|state| state.message == message);
        if !known {
            self.set(name, CheckPhase::Pending, &message);
            self.plan.notes.push(Note {
                severity: Severity::Warning,
                reason: "FailedCreate".into(),
                message,
            });
        }
    }

    /// Sets phase and message, when they differ. A new phase also emits an Event. *Source*: `spec/provisioning.md 7`.
    pub(super) fn set(&mut self, name: &CheckName, phase: CheckPhase, message: &str) {
        let now = self.now;
        let Some(state) = self.plan.status.checks.get_mut(name) else {
            return;
        };
        let before = state.phase;
        let kept = cut(message.to_owned(), MESSAGE_MAX);
        if before == phase && state.message == kept {
            return;
        }
        state.phase = phase;
        state.message = kept;
        state.since = now;
        if before != phase {
            let (from, to) = (before.as_str(), phase.as_str());
            let mut text = format!("Admission check {name} updated state from {from} to {to}");
            if !message.is_empty() {
                text.push_str(" with message: ");
                text.push_str(message);
            }
            self.plan.notes.push(Note {
                severity: Severity::Normal,
                reason: "AdmissionCheckUpdated".into(),
                message: text,
            });
        }
    }

    fn edit(&mut self, name: &CheckName, change: impl FnOnce(&mut crate::status::CheckState)) {
        if let Some(state) = self.plan.status.checks.get_mut(name) {
            change(state);
        }
    }

    fn phase(&self, name: &CheckName) -> Option<CheckPhase> {
        self.plan.status.checks.get(name).map(|state| state.phase)
    }
}

/// The updates that the pods get when they start. *Source*: `spec/provisioning.md 6.3`.
///
/// Unlike the anchor: every pod set that was merged into another gets its update too (`spec/provisioning.md` 16).
fn updates(
    suffix: names::Suffix,
    config: &Config,
    current: Current<'_>,
    pod_sets: &[Merged],
) -> Vec<PodSetUpdate> {
    let request = current.request;
    let annotations = BTreeMap::from([
        (CONSUME_ANNOTATION.to_owned(), request.name.clone()),
        (CLASS_ANNOTATION.to_owned(), request.class.clone()),
    ]);
    let details = config.node_selector.iter().filter_map(|(key, detail)| {
        let value = request.details.get(detail)?;
        Some((key.clone(), value.clone()))
    });
    let node_selector: BTreeMap<_, _> = details.collect();
    let asked_for = pod_sets.iter().filter(|set| {
        let template = names::template(&request.name, set.first.as_str(), suffix);
        request.templates.contains(&template)
    });
    let members = asked_for.flat_map(|set| &set.members);
    let update = members.map(|name| PodSetUpdate {
        name: name.clone(),
        labels: BTreeMap::new(),
        annotations: annotations.clone(),
        node_selector: node_selector.clone(),
        tolerations: Vec::new(),
    });
    update.collect()
}
