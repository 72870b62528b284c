//! The `AppWrapper` controller: several resources as one job, with retries, limits and a certain end.
//!
//! [`plan`] takes one `AppWrapper`, its children, its pods and the time. It returns the status to write and what to create and delete. The
//! caller plans again after each plan was carried out, until a plan changes nothing.
//!
//! Invariant: `QuotaReserved` becomes False only when every pod is gone or has ended. Children of the next attempt are created only after
//! the children and all pods of the previous attempt are gone.
//!
//! *Source*: `spec/appwrapper.md 2, 6`. Section 2.7 lists timers of the reference that Roadstead does not keep; where ours differ, a
//! comment says so.

use jiff::{SignedDuration, Timestamp};

use crate::condition::{Condition, Truth};
use crate::moment::later;
use crate::name::Uid;
use crate::note::Note;

pub mod autopilot;
mod deletion;
pub mod duration;
pub mod observed;
mod running;
pub mod settings;
pub mod status;

use observed::{Child, Created, Observed, Pod, Pods, Stranger};
use status::{
    ComponentStatus, DELETING, FINISHED, Identity, PODS_READY, Phase, QUOTA_RESERVED, RESOURCES_DEPLOYED,
    Status, UNHEALTHY,
};

/// The delay before a failed creation is tried again. *Source*: `spec/appwrapper.md 2.3 T6`.
const CREATE_AGAIN: SignedDuration = SignedDuration::from_secs(1);
/// The delay before a deletion is checked again. *Source*: `spec/appwrapper.md 6`.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// What to do about one `AppWrapper` now, in this order: add the finalizer, write the status, create, delete, remove the
/// finalizer. When a step fails, those after it are not done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What happens to the finalizer.
    pub finalizer: Finalizer,
    /// The status to write; it is not written when it equals the stored one.
    pub status: Status,
    /// Components whose children are to be created, in order, until a creation fails.
    pub create: Vec<usize>,
    /// Objects to delete.
    pub remove: Vec<Removal>,
    /// Events to emit once the status is written.
    pub notes: Vec<Note>,
    /// When to plan again if nothing changes before.
    pub wake: Option<Timestamp>,
    /// Objects that could not be read, so that nothing can be decided; the caller tries again soon.
    pub problems: Vec<String>,
}

/// What happens to the finalizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finalizer {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is added, before anything else.
    Add,
    /// It is removed, after everything else.
    Remove,
}

/// An object to delete, with its UID as a precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The child of a component.
    Child {
        /// The component.
        component: usize,
        /// The UID of the child.
        uid: Uid,
        /// How to delete it.
        how: How,
    },
    /// A pod, with a grace period of 0.
    Pod {
        /// Its name.
        name: String,
        /// Its UID.
        uid: Uid,
    },
}

/// How a child is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// With background propagation.
    Gracefully,
    /// With a grace period of 0.
    AtOnce,
}

/// Decides what to do about one `AppWrapper`. *Source*: `spec/appwrapper.md 2.3`.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan {
    let mut pass = Pass {
        o: *observed,
        now,
        plan: Plan {
            status: observed.status.clone(),
            ..Plan::default()
        },
    };
    pass.run();
    pass.plan
}

struct Pass<'a> {
    o: Observed<'a>,
    now: Timestamp,
    plan: Plan,
}

impl<'a> Pass<'a> {
    fn run(&mut self) {
        if self.o.deleting {
            return self.terminate();
        }
        if self.plan.status.components.len() != self.o.components.len() {
            self.initialise();
        }
        match self.plan.status.phase {
            Phase::Empty => self.plan.status.phase = Phase::Suspended,
            Phase::Suspended => self.suspended(),
            Phase::Resuming => self.resuming(),
            Phase::Running => self.running(),
            Phase::Suspending => self.suspending(),
            Phase::Resetting => self.resetting(),
            Phase::Succeeded => self.succeeded(),
            Phase::Failed => self.failed(),
            Phase::Terminating => {}
        }
    }

    /// Records what the components are. Why in the status: an object that the user applies again must not collide with it.
    fn initialise(&mut self) {
        let components = self.o.components.iter().map(|component| ComponentStatus {
            pod_sets: component.pod_sets.clone(),
            ..ComponentStatus::default()
        });
        self.plan.status.components = components.collect();
    }

    /// Transitions T2, T3.
    fn suspended(&mut self) {
        if self.o.suspended {
            return;
        }
        // Why: a slow controller may have made a pod after all pods were gone, and pods of two attempts must not overlap.
        let ran_before = self.condition(RESOURCES_DEPLOYED).is_some();
        if ran_before && !self.delete_all() {
            return;
        }
        if !self.o.finalizer {
            self.plan.finalizer = Finalizer::Add;
        }
        for (kind, truth) in [
            (QUOTA_RESERVED, Truth::True),
            (RESOURCES_DEPLOYED, Truth::True),
            (PODS_READY, Truth::False),
            (UNHEALTHY, Truth::False),
        ] {
            self.set(kind, truth, "Resuming", "Suspend is false");
        }
        self.begin_attempt();
    }

    /// Names all children before the first is created.
    ///
    /// Unlike the anchor: all names are written at once. After a crash the names tell which children to look for.
    fn begin_attempt(&mut self) {
        for (component, planned) in self.plan.status.components.iter_mut().zip(self.o.components) {
            component.identity = planned.identity.clone();
            component.conditions.remove(FINISHED);
            let reason = "ComponentCreationInitiated";
            component
                .conditions
                .set(RESOURCES_DEPLOYED, Truth::Unknown, reason, "", self.now);
        }
        self.plan.status.phase = Phase::Resuming;
    }

    /// Transitions T4 to T8.
    fn resuming(&mut self) {
        if self.o.suspended {
            return self.suspend();
        }
        for (index, component) in self.o.components.iter().enumerate() {
            if self.is_deployed(index) {
                continue;
            }
            let created = match (self.o.created.get(&index), &component.child) {
                (Some(created), _) => created.clone(),
                (None, Child::Missing) => {
                    self.plan.create.push(index);
                    continue;
                }
                // Why before the rest: children are created in order.
                (None, _) if !self.plan.create.is_empty() => return,
                (None, Child::Present { leaving: false, .. }) => Created::Done,
                (None, Child::Present { leaving: true, .. }) => {
                    let name = &component.identity.name;
                    Created::Retryable(format!("resource {name} is still being deleted"))
                }
                (None, Child::Foreign(stranger)) => foreign(*stranger, &component.identity),
                (None, Child::Unread(why)) => Created::Unclear(why.clone()),
            };
            match created {
                Created::Done => self.deployed(index, Truth::True, "ComponentCreatedSuccessfully", ""),
                Created::Retryable(why) => {
                    self.deployed(index, Truth::False, "ComponentCreationErrored", &why);
                    return self.creation_failed(&why, Hope::Left);
                }
                Created::Unclear(why) => return self.creation_failed(&why, Hope::Left),
                Created::Fatal(why) => {
                    self.deployed(index, Truth::False, "ComponentCreationErrored", &why);
                    return self.creation_failed(&why, Hope::Lost);
                }
            }
        }
        if self.plan.create.is_empty() {
            self.plan.status.phase = Phase::Running;
        }
    }

    fn creation_failed(&mut self, why: &str, hope: Hope) {
        self.plan.create.clear();
        let due = later(self.since(RESOURCES_DEPLOYED), self.o.knobs.admission_grace);
        if hope == Hope::Left && self.now < due {
            self.wake(later(self.now, CREATE_AGAIN));
            return;
        }
        let message = format!("error creating components: {why}");
        let text = format!("CreateFailed: {message}");
        self.unhealthy("CreateFailed", &message, text);
        self.reset_or_fail(hope, Toll::Retry);
    }

    /// Transitions T4, T9, T22.
    fn suspend(&mut self) {
        let phase = self.plan.status.phase.as_str();
        let text = format!("Externally suspended while in the {phase} phase");
        self.plan.notes.push(Note::normal("Suspending", text));
        self.plan.status.phase = Phase::Suspending;
    }

    fn unhealthy(&mut self, reason: &'static str, message: &str, text: String) {
        self.set(UNHEALTHY, Truth::True, reason, message);
        self.plan.notes.push(Note::normal("Unhealthy", text));
    }

    /// The only place where another attempt is granted or refused.
    fn reset_or_fail(&mut self, hope: Hope, toll: Toll) {
        let status = &mut self.plan.status;
        if hope == Hope::Left && status.retries < self.o.knobs.retry_limit {
            if toll == Toll::Retry && !bug!(self.o, RetriesUncounted) {
                status.retries = status.retries.saturating_add(1);
            }
            status.phase = Phase::Resetting;
        } else {
            self.fail();
        }
    }

    fn fail(&mut self) {
        let status = &mut self.plan.status;
        status.phase = Phase::Failed;
        let retries = status.retries;
        let why = self.condition(UNHEALTHY).map_or("", |c| c.reason.as_ref());
        let text = format!("Failed after {retries} retries: {why}");
        self.plan.notes.push(Note::warning("Failed", text));
        // Unlike the anchor: the condition does not stay ready, and the delay is counted from here (`spec/appwrapper.md` N-9, N-13).
        self.set(PODS_READY, Truth::False, "Failed", "");
        if !self.o.knobs.deletion_on_failure.is_zero() {
            self.begin(DELETING, Truth::False, "DeletionPaused", String::new());
        }
    }

    /// The pods, if they could be listed.
    fn pods(&self) -> Option<&'a [Pod]> {
        match self.o.pods {
            Pods::Known(pods) => Some(pods),
            Pods::Unread(_) => None,
        }
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.plan.status.conditions.get(kind)
    }

    fn is_true(&self, kind: &str) -> bool {
        self.plan.status.conditions.is_true(kind)
    }

    /// When a condition last changed; the present time when it is missing.
    fn since(&self, kind: &str) -> Timestamp {
        self.condition(kind).map_or(self.now, |condition| condition.since)
    }

    fn set(&mut self, kind: &'static str, truth: Truth, reason: &'static str, message: impl Into<String>) {
        let now = self.now;
        self.plan.status.conditions.set(kind, truth, reason, message, now);
    }

    /// Sets a condition and restarts its time, even if its truth value stays the same.
    fn begin(&mut self, kind: &'static str, truth: Truth, reason: &'static str, message: String) {
        let condition = Condition {
            truth,
            reason: reason.into(),
            message,
            since: self.now,
            observed_generation: None,
        };
        self.plan.status.conditions.insert(kind, condition);
    }

    fn is_deployed(&self, component: usize) -> bool {
        let component = self.plan.status.components.get(component);
        component.is_some_and(|component| component.conditions.is_true(RESOURCES_DEPLOYED))
    }

    fn deployed(&mut self, component: usize, truth: Truth, reason: &'static str, message: &str) {
        let now = self.now;
        if let Some(component) = self.plan.status.components.get_mut(component) {
            component
                .conditions
                .set(RESOURCES_DEPLOYED, truth, reason, message, now);
        }
    }

    /// Plans again at `at` or earlier.
    fn wake(&mut self, at: Timestamp) {
        self.plan.wake = Some(self.plan.wake.map_or(at, |known| known.min(at)));
    }
}

/// Whether another attempt may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hope {
    Left,
    Lost,
}

/// Whether another attempt counts as a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Toll {
    Retry,
    Free,
}

/// Unlike the anchor: the controller is recognized by its UID, and children of a predecessor are waited for (`spec/appwrapper.md` N-4).
fn foreign(stranger: Stranger, identity: &Identity) -> Created {
    let why = format!(
        "resource {} exists, but is not controlled by appwrapper",
        identity.name
    );
    match stranger {
        Stranger::Predecessor => Created::Retryable(why),
        Stranger::Other => Created::Fatal(why),
    }
}

#[cfg(test)]
mod tests;
