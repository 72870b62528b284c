//! Graceful and then forceful deletion, and the phases that wait for it. *Source*: `spec/appwrapper.md 2.3 T20-T34, 6`.

use super::observed::{Child, Origin, Pod, Pods};
use super::settings::DELETION_ON_FAILURE;
use super::status::{DELETING, PODS_READY, Phase, QUOTA_RESERVED, RESOURCES_DEPLOYED, UNHEALTHY};
use super::{Finalizer, How, LOOK_AGAIN, Pass, Removal, duration};
use crate::condition::Truth;
use crate::moment::later;
use crate::note::Note;

impl Pass<'_> {
    /// What could not be read. Children that were certainly never created need not be read.
    pub(super) fn unread(&self) -> Vec<String> {
        let all = self.o.components.iter().enumerate();
        let children = all.filter_map(|(index, component)| match &component.child {
            Child::Unread(why) => self.may_exist(index).then(|| why.clone()),
            Child::Missing | Child::Foreign(_) | Child::Present { .. } => None,
        });
        let pods = match self.o.pods {
            Pods::Unread(why) => Some(why.to_owned()),
            Pods::Known(_) => None,
        };
        children.chain(pods).collect()
    }

    /// Whether the child of a component may have been created and not be gone.
    fn may_exist(&self, component: usize) -> bool {
        let known = self.plan.status.components.get(component);
        let known = known.and_then(|status| status.conditions.get(RESOURCES_DEPLOYED));
        known.is_some_and(|condition| condition.truth != Truth::False)
    }

    /// Deletes everything; true when everything is gone.
    pub(super) fn delete_all(&mut self) -> bool {
        self.delete(|_| true)
    }

    /// Deletes the children of some components with their pods; true when they are gone.
    ///
    /// Only a child that has our UID as its controller is deleted, so a foreign object of the same name is never touched. A child that
    /// could not be read does not count as gone (`spec/appwrapper.md` N-26, N-32).
    pub(super) fn delete(&mut self, which: impl Fn(usize) -> bool) -> bool {
        let chosen: Vec<_> = self
            .o
            .components
            .iter()
            .enumerate()
            .filter(|(index, _)| which(*index))
            .collect();
        let present = |child: &Child| matches!(child, Child::Present { .. });
        let children = chosen.iter().any(|(_, component)| present(&component.child));
        let is_chosen = |pod: &&Pod| match pod.origin {
            Origin::Component(index) => which(index),
            Origin::Unknown | Origin::Stray => chosen.len() == self.o.components.len(),
        };
        let pods: Vec<&Pod> = self.pods().unwrap_or_default().iter().filter(is_chosen).collect();
        for (index, component) in &chosen {
            if self.may_exist(*index) && matches!(component.child, Child::Missing | Child::Foreign(_)) {
                // Wire: misspelt, as clients know it.
                self.deployed(*index, Truth::False, "CompononetDeleted", "");
            }
        }
        let unread = self.unread();
        if children || !pods.is_empty() || !unread.is_empty() {
            self.plan.problems.extend(unread);
            if !self.is_true(DELETING) {
                self.set(DELETING, Truth::True, "DeletionInitiated", "");
            }
            self.remove(
                chosen.iter().map(|(index, component)| (*index, &component.child)),
                &pods,
            );
            self.wake(later(self.now, LOOK_AGAIN));
            return false;
        }
        self.end_deletion();
        true
    }

    /// Says that no deletion is under way any more, if anything was ever deployed.
    pub(super) fn end_deletion(&mut self) {
        let was_deployed = self.condition(RESOURCES_DEPLOYED).is_some();
        let is_said = self
            .condition(DELETING)
            .is_some_and(|c| c.reason == "DeletionComplete");
        let begun = self.is_true(DELETING) || self.plan.status.phase != Phase::Running;
        if was_deployed && begun && !is_said {
            self.set(DELETING, Truth::False, "DeletionComplete", "");
        }
    }

    fn remove<'c>(&mut self, children: impl Iterator<Item = (usize, &'c Child)>, pods: &[&Pod]) {
        let force_at = later(self.since(DELETING), self.o.knobs.force_after);
        let forced = self.now >= force_at;
        if !forced {
            self.wake(force_at);
        }
        let mut survivors: Vec<String> = Vec::new();
        for (component, child) in children {
            let Child::Present { uid, leaving, .. } = child else {
                continue;
            };
            // Why pods first: once they are gone a child has no reason to stay.
            let at_once = forced && pods.is_empty();
            if at_once {
                survivors.extend(self.o.components.get(component).map(|c| c.identity.name.clone()));
            }
            if at_once || !leaving {
                let how = if at_once { How::AtOnce } else { How::Gracefully };
                self.plan.remove.push(Removal::Child {
                    component,
                    uid: uid.clone(),
                    how,
                });
            }
        }
        if forced {
            for pod in pods {
                survivors.push(pod.name.clone());
                self.plan.remove.push(Removal::Pod {
                    name: pod.name.clone(),
                    uid: pod.uid.clone(),
                });
            }
        }
        if !survivors.is_empty() {
            // Limit: the number of names in one message.
            survivors.truncate(10);
            let (after, names) = (duration::print(self.o.knobs.force_after), survivors.join(", "));
            let text = format!(
                "Still there {after} after their deletion began, now deleted with grace period 0: {names}"
            );
            self.plan.notes.push(Note::warning("ForcefulDeletion", text));
        }
    }

    /// Transitions T20, T21.
    pub(super) fn suspending(&mut self) {
        if !self.delete_all() {
            return;
        }
        let (reason, message) = ("Suspended", "Suspend is true");
        for kind in [RESOURCES_DEPLOYED, QUOTA_RESERVED] {
            self.set(kind, Truth::False, reason, message);
        }
        for kind in [PODS_READY, UNHEALTHY] {
            if self.is_true(kind) {
                self.set(kind, Truth::False, reason, message);
            }
        }
        self.plan.status.phase = Phase::Suspended;
    }

    /// Transitions T22 to T25.
    pub(super) fn resetting(&mut self) {
        if self.o.suspended {
            return self.suspend();
        }
        // Unlike the anchor: also when it is False, so that a loss in this attempt does not count as a loss in the next.
        self.set(PODS_READY, Truth::False, "Resetting", "");
        let waits = !bug!(self.o, ResetsAtOnce);
        if !self.delete_all() && waits {
            return;
        }
        if self.is_true(RESOURCES_DEPLOYED) {
            let message = "Resources deleted for resetting AppWrapper";
            self.set(RESOURCES_DEPLOYED, Truth::False, "Resetting", message);
        }
        // Unlike the anchor: the pause is counted from the moment when the last pod was gone (`spec/appwrapper.md` N-11).
        let due = later(self.since(RESOURCES_DEPLOYED), self.o.knobs.retry_pause);
        if waits && self.now < due {
            return self.wake(due);
        }
        self.set(
            RESOURCES_DEPLOYED,
            Truth::True,
            "Resuming",
            "Reset complete; resuming",
        );
        self.begin_attempt();
    }

    /// Transitions T26 to T28.
    pub(super) fn failed(&mut self) {
        if !self.is_true(RESOURCES_DEPLOYED) {
            return;
        }
        let delay = self.o.knobs.deletion_on_failure;
        let delayed = !delay.is_zero();
        if delayed && !self.o.suspended && !self.is_true(DELETING) {
            let message = format!("{DELETION_ON_FAILURE} has value {}", duration::print(delay));
            let paused = self
                .condition(DELETING)
                .is_some_and(|c| c.reason == "DeletionPaused");
            if paused {
                self.set(DELETING, Truth::False, "DeletionPaused", message);
            } else {
                self.begin(DELETING, Truth::False, "DeletionPaused", message);
            }
            let due = later(self.since(DELETING), delay);
            if self.now < due {
                return self.wake(due);
            }
        }
        if !self.delete_all() {
            return;
        }
        let message = if delayed && self.o.suspended {
            "Kueue forced resource deletion by suspending AppWrapper"
        } else {
            "Resources deleted for failed AppWrapper"
        };
        self.set(RESOURCES_DEPLOYED, Truth::False, "Failed", message);
        self.set(QUOTA_RESERVED, Truth::False, "Failed", "No resources deployed");
    }

    /// Transitions T29 to T31.
    pub(super) fn succeeded(&mut self) {
        if !self.is_true(RESOURCES_DEPLOYED) {
            return;
        }
        // Unlike the anchor: the time is counted from the success, which is when the quota was freed (`spec/appwrapper.md` N-10).
        let ttl = self.o.knobs.success_ttl;
        let due = later(self.since(QUOTA_RESERVED), ttl);
        if self.now < due {
            return self.wake(due);
        }
        if self.delete_all() {
            let message = format!("Time to live after success of {} expired", duration::print(ttl));
            self.set(RESOURCES_DEPLOYED, Truth::False, "Succeeded", message);
        }
    }

    /// Transitions T32 to T34.
    pub(super) fn terminate(&mut self) {
        if !self.o.finalizer {
            return;
        }
        if self.condition(RESOURCES_DEPLOYED).is_some() {
            self.plan.status.phase = Phase::Terminating;
            if !self.delete_all() {
                return;
            }
            for (kind, message) in [
                (RESOURCES_DEPLOYED, "Resources successfully deleted"),
                (QUOTA_RESERVED, "No resources deployed"),
            ] {
                if self.is_true(kind) {
                    self.set(kind, Truth::False, "Terminating", message);
                }
            }
        }
        self.plan.finalizer = Finalizer::Remove;
    }
}
