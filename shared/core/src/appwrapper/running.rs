//! Health: what the children and pods of a running `AppWrapper` mean. *Source*: `spec/appwrapper.md 2.3 T9-T19, 2.6, 8.2`.

use std::collections::BTreeSet;

use super::observed::{Child, Component, Nature, Origin, Pod, PodPhase, Role, Verdict};
use super::status::{
    FINISHED, PODS_ENDED, PODS_READY, Phase, QUOTA_RESERVED, RESOURCES_DEPLOYED, SUCCEEDED, UNHEALTHY,
};
use super::{Hope, Pass, Toll};
use crate::condition::Truth;
use crate::moment::later;
use crate::name::Uid;

/// How many pods there are of each sort. *Source*: `spec/appwrapper.md 2.6`.
#[derive(Clone, Copy, Debug, Default)]
struct Census {
    pending: u32,
    running: u32,
    succeeded: u32,
}

impl Census {
    fn of<'p>(pods: impl Iterator<Item = &'p Pod>) -> Self {
        let mut census = Self::default();
        for pod in pods {
            let place = match pod.phase {
                PodPhase::Pending => &mut census.pending,
                PodPhase::Running if !pod.leaving => &mut census.running,
                PodPhase::Succeeded => &mut census.succeeded,
                PodPhase::Running | PodPhase::Failed | PodPhase::Unknown => continue,
            };
            *place = place.saturating_add(1);
        }
        census
    }

    const fn ready(self) -> u32 {
        self.running.saturating_add(self.succeeded)
    }
}

impl<'a> Pass<'a> {
    /// Transitions T9 to T19.
    pub(super) fn running(&mut self) {
        if self.o.suspended {
            return self.suspend();
        }
        self.plan.problems.extend(self.unread());
        let (true, Some(pods)) = (self.plan.problems.is_empty(), self.pods()) else {
            return;
        };
        self.note_finished(pods);
        let works = self.has_work();
        if self.lacks_components(works, pods) || self.has_failed_components(pods) {
            return;
        }
        if !works {
            return self.wind_down(pods);
        }
        if self.has_failed_pods(pods) || self.must_move(pods) {
            return;
        }
        self.judge_readiness(pods);
    }

    /// Marks the components whose work is done.
    fn note_finished(&mut self, pods: &[Pod]) {
        let unsure = pods
            .iter()
            .any(|pod| pod.origin == Origin::Unknown && pod.is_live());
        let counted = self.counted_are_done(pods);
        for (index, component) in self.o.components.iter().enumerate() {
            let own = || {
                pods.iter()
                    .filter(move |pod| pod.origin == Origin::Component(index))
            };
            let lives = unsure || own().any(Pod::is_live);
            let Some(status) = self.plan.status.components.get_mut(index) else {
                continue;
            };
            let done = status.is_finished()
                || match component.nature {
                    Nature::Reports => component.child.verdict() == Some(Verdict::Succeeded),
                    Nature::Counted => counted || are_done(status.expected(), own()),
                    Nature::Endless => false,
                };
            let was = status.conditions.get(FINISHED).map(|c| c.reason.as_ref());
            if done && was != Some(PODS_ENDED) {
                let reason = if lives { SUCCEEDED } else { PODS_ENDED };
                status.conditions.set(FINISHED, Truth::True, reason, "", self.now);
            }
        }
    }

    /// Whether all components of nature [`Nature::Counted`] are done, when it is unknown which pods belong to which component.
    fn counted_are_done(&self, pods: &[Pod]) -> bool {
        let open = self.open();
        let counted: Vec<(usize, u32)> = open
            .into_iter()
            .filter(|(_, component, _)| component.nature == Nature::Counted)
            .map(|(index, _, expected)| (index, expected))
            .collect();
        let is_theirs = |origin: Origin| match origin {
            Origin::Component(of) => counted.iter().any(|(index, _)| *index == of),
            Origin::Unknown => true,
            Origin::Stray => false,
        };
        let expected = counted.iter().fold(0_u32, |sum, (_, n)| sum.saturating_add(*n));
        are_done(expected, pods.iter().filter(|pod| is_theirs(pod.origin)))
    }

    /// Components that have pods and are not done: index, component, expected pods.
    fn open(&self) -> Vec<(usize, &'a Component, u32)> {
        let statuses = self.plan.status.components.iter();
        let all = self.o.components.iter().zip(statuses).enumerate();
        all.filter(|(_, (_, status))| status.expected() > 0 && !status.is_finished())
            .map(|(index, (component, status))| (index, component, status.expected()))
            .collect()
    }

    /// Whether the end of the `AppWrapper` still waits for a component. An `AppWrapper` of services only waits for those.
    fn has_work(&self) -> bool {
        let statuses = self.plan.status.components.iter();
        let mut with_pods = self
            .o
            .components
            .iter()
            .zip(statuses)
            .filter(|(_, s)| s.expected() > 0);
        let has_member = with_pods.any(|(component, _)| component.role == Role::Member);
        let open = self.open();
        let mut open = open.iter();
        open.any(|(_, component, _)| !has_member || component.role == Role::Member)
    }

    /// Transition T11.
    fn lacks_components(&mut self, works: bool, pods: &[Pod]) -> bool {
        // Why: the child may be a pod itself, and the watch of pods may be ahead of the watch of children. A pod that is being deleted
        // ends as failed, which would cost a retry.
        let leaves: BTreeSet<&Uid> = pods
            .iter()
            .filter(|pod| pod.leaving)
            .map(|pod| &pod.uid)
            .collect();
        let is_there = |child: &Child| match child {
            Child::Present { uid, leaving, .. } => !leaving && !leaves.contains(uid),
            Child::Missing | Child::Foreign(_) | Child::Unread(_) => false,
        };
        let statuses = self.plan.status.components.iter();
        let there = self
            .o
            .components
            .iter()
            .zip(statuses)
            .filter(|(component, status)| {
                let exempt = status.is_finished() || (!works && component.role == Role::Service);
                exempt || is_there(&component.child)
            });
        let (found, expected) = (there.count(), self.o.components.len());
        if found == expected {
            return false;
        }
        let message = format!("Only found {found} deployed components, but was expecting {expected}");
        let text = format!("MissingComponent: {message}");
        self.unhealthy("MissingComponent", &message, text);
        self.reset_or_fail(Hope::Lost, Toll::Retry);
        true
    }

    /// Transition T12.
    fn has_failed_components(&mut self, pods: &[Pod]) -> bool {
        let statuses = self.plan.status.components.iter();
        let failed = self
            .o
            .components
            .iter()
            .zip(statuses)
            .filter(|(component, status)| {
                !status.is_finished() && component.child.verdict() == Some(Verdict::Failed)
            });
        let count = failed.count();
        if count == 0 {
            return false;
        }
        let message = format!("Found {count} failed components");
        let text = format!("FailedComponent: {message}");
        self.unhealthy("FailedComponent", &message, text);
        self.reset_or_fail(self.hope(pods), Toll::Retry);
        true
    }

    /// Transition T13.
    ///
    /// Unlike the anchor: components report their end where they can (`spec/appwrapper.md` 8.2). The quota is freed only when every pod has
    /// ended; components that keep pods running are stopped.
    fn wind_down(&mut self, pods: &[Pod]) {
        let live = || {
            pods.iter()
                .filter(|pod| pod.is_live() && pod.origin != Origin::Stray)
        };
        // Why also without a live pod: the controller of a service may make a pod at any time, which would run without quota.
        let open = self.open().into_iter();
        let mut stopped: BTreeSet<usize> = open
            .filter(|(_, component, _)| matches!(component.child, Child::Present { .. } | Child::Unread(_)))
            .map(|(index, _, _)| index)
            .collect();
        for pod in live() {
            let Origin::Component(index) = pod.origin else {
                continue;
            };
            let status = self.plan.status.components.get(index);
            let finished = status
                .and_then(|status| status.conditions.when_true(FINISHED))
                .map(|c| c.since);
            match finished.map(|since| later(since, self.o.knobs.failure_grace)) {
                // Why a grace: the component's own controller may be about to stop its pods.
                Some(due) if self.now < due => self.wake(due),
                Some(_) | None => {
                    stopped.insert(index);
                }
            }
        }
        if !stopped.is_empty() {
            self.delete(|index| stopped.contains(&index));
        }
        if !stopped.is_empty() || live().next().is_some() {
            return;
        }
        self.end_deletion();
        let succeeded = Census::of(counting(pods)).succeeded;
        let message = format!("{succeeded} pods succeeded and no running, pending, or failed pods");
        self.set(QUOTA_RESERVED, Truth::False, "Succeeded", message.clone());
        self.set(RESOURCES_DEPLOYED, Truth::True, "Succeeded", message);
        self.plan.status.phase = Phase::Succeeded;
    }

    /// Transitions T14, T15.
    fn has_failed_pods(&mut self, pods: &[Pod]) -> bool {
        let counts = |pod: &&Pod| match pod.origin {
            // Unlike the anchor: a component that reports its end replaces its own pods (`spec/appwrapper.md` N-27).
            Origin::Component(index) => {
                let nature = self.o.components.get(index).map(|component| component.nature);
                nature != Some(Nature::Reports) && !self.is_finished(index)
            }
            Origin::Unknown => true,
            Origin::Stray => false,
        };
        let failed = pods.iter().filter(|pod| pod.phase == PodPhase::Failed);
        let failed = failed.filter(counts).count();
        if failed == 0 {
            return false;
        }
        // Unlike the anchor: a fault of the last attempt does not use up the grace of this one (`spec/appwrapper.md` N-11).
        let (reason, attempt) = ("FoundFailedPods", self.since(RESOURCES_DEPLOYED));
        if self.is_true(UNHEALTHY) && self.since(UNHEALTHY) >= attempt {
            self.set(UNHEALTHY, Truth::True, reason, "");
        } else {
            self.begin(UNHEALTHY, Truth::True, reason, String::new());
        }
        let due = later(self.since(UNHEALTHY), self.o.knobs.failure_grace);
        if self.now < due {
            self.wake(due);
            return true;
        }
        self.unhealthy(reason, "", format!("FoundFailedPods: {failed} failed pods"));
        self.reset_or_fail(self.hope(pods), Toll::Retry);
        true
    }

    /// Transition T16.
    fn must_move(&mut self, pods: &[Pod]) -> bool {
        let runs = pods
            .iter()
            .filter(|pod| pod.phase == PodPhase::Running && !pod.leaving && pod.origin != Origin::Stray);
        let nodes: BTreeSet<&str> = runs
            .filter_map(|pod| {
                let node = pod.node.as_deref()?;
                let marked = self.o.evict.get(node)?;
                (!marked.is_disjoint(&pod.resources)).then_some(node)
            })
            .collect();
        if nodes.is_empty() {
            return false;
        }
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let nodes = nodes.join(", ");
        let message = format!("Workload contains pods using NoExecute resources on Nodes: {nodes}");
        self.unhealthy("AutopilotNoExecute", &message, message.clone());
        self.reset_or_fail(Hope::Left, Toll::Free);
        true
    }

    /// Transitions T17 to T19.
    fn judge_readiness(&mut self, pods: &[Pod]) {
        if self.is_true(UNHEALTHY) {
            self.set(UNHEALTHY, Truth::False, "FoundNoFailedPods", "");
        }
        let open = self.open();
        let expected = open.iter().fold(0_u32, |sum, (_, _, n)| sum.saturating_add(*n));
        let census = Census::of(counting(pods).filter(|pod| match pod.origin {
            Origin::Component(index) => !self.is_finished(index),
            Origin::Unknown => true,
            Origin::Stray => false,
        }));
        let Census {
            pending,
            running,
            succeeded,
        } = census;
        if census.ready() >= expected {
            if !self.is_true(PODS_READY) {
                let message = format!("{running} pods running; {succeeded} pods succeeded");
                self.set(PODS_READY, Truth::True, "SufficientPodsReady", message);
            }
            return;
        }
        let message = format!("{pending} pods pending; {running} pods running; {succeeded} pods succeeded");
        let reason = "InsufficientPodsReady";
        if self.is_true(PODS_READY) {
            self.set(PODS_READY, Truth::False, reason, message.clone());
        }
        let due = match self.condition(PODS_READY).filter(|c| c.reason == reason) {
            // Unlike the anchor: a pod that is lost later gets a grace, too (`spec/appwrapper.md` N-12).
            Some(lost) => later(lost.since, self.o.knobs.recovery_grace),
            None => {
                let exist = pending.saturating_add(census.ready()) >= expected;
                let knobs = self.o.knobs;
                let grace = if exist {
                    knobs.warmup_grace
                } else {
                    knobs.admission_grace
                };
                later(self.since(RESOURCES_DEPLOYED), grace)
            }
        };
        if self.now < due {
            return self.wake(due);
        }
        let text = format!("{reason}: {message}");
        self.unhealthy(reason, &message, text);
        self.reset_or_fail(Hope::Left, Toll::Retry);
    }

    fn is_finished(&self, component: usize) -> bool {
        let status = self.plan.status.components.get(component);
        status.is_some_and(super::ComponentStatus::is_finished)
    }

    /// Whether another attempt may help, from the exit codes of what has failed.
    fn hope(&self, pods: &[Pod]) -> Hope {
        let knobs = self.o.knobs;
        let failed = counting(pods).filter(|pod| pod.phase == PodPhase::Failed);
        let mut codes = failed.flat_map(|pod| &pod.exit_codes).filter(|code| **code != 0);
        let terminal = codes.any(|code| {
            let may_help = knobs.retryable_codes.is_empty() || knobs.retryable_codes.contains(code);
            knobs.terminal_codes.contains(code) || !may_help
        });
        if terminal { Hope::Lost } else { Hope::Left }
    }
}

fn counting(pods: &[Pod]) -> impl Iterator<Item = &Pod> {
    pods.iter().filter(|pod| pod.origin != Origin::Stray)
}

/// Whether all pods have succeeded, and there are as many as expected.
fn are_done<'p>(expected: u32, pods: impl Iterator<Item = &'p Pod>) -> bool {
    let mut succeeded = 0_u32;
    for pod in pods {
        match pod.phase {
            PodPhase::Succeeded => succeeded = succeeded.saturating_add(1),
            PodPhase::Pending | PodPhase::Running | PodPhase::Failed | PodPhase::Unknown => return false,
        }
    }
    expected > 0 && succeeded >= expected
}

impl Child {
    /// How the child ended, if it exists and reports that.
    pub(super) const fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Present { verdict, .. } => *verdict,
            Self::Missing | Self::Foreign(_) | Self::Unread(_) => None,
        }
    }
}
