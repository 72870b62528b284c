//! What holds for any history: an adversary moves children, pods, nodes and the user, and crashes the controller between any two
//! of its steps.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use proptest::prelude::*;

use super::world::{World, component};
use crate::appwrapper::observed::{Child, Created, Nature, Origin, PodPhase, Role, Verdict};
use crate::appwrapper::status::{ComponentStatus, Phase, PodSet};
use crate::name::ResourceName;

/// What the adversary does next.
#[derive(Clone, Debug)]
enum Move {
    /// The controller has its turn, but stops after so many of its steps.
    Pass {
        steps: usize,
    },
    /// The controller has its turns until it has no more to do.
    Settle,
    Time {
        secs: i64,
    },
    /// The controllers of the children make the pods that are missing.
    MakePods,
    Pods {
        pick: usize,
        phase: PodPhase,
    },
    Report {
        pick: usize,
        verdict: Verdict,
    },
    Vanish {
        pick: usize,
    },
    Hang {
        pick: usize,
    },
    Release,
    Stubborn {
        pick: usize,
    },
    LosePod {
        pick: usize,
    },
    Suspend(bool),
    Delete,
    Sicken(bool),
    Unread(bool),
    Refuse {
        pick: usize,
        fatal: bool,
    },
}

fn moves() -> impl Strategy<Value = Move> {
    let pick = 0..6_usize;
    let phase = prop::sample::select(vec![
        PodPhase::Running,
        PodPhase::Succeeded,
        PodPhase::Failed,
        PodPhase::Unknown,
        PodPhase::Pending,
    ]);
    let verdict = prop::sample::select(vec![Verdict::Succeeded, Verdict::Failed]);
    prop_oneof![
        4 => (0..4_usize).prop_map(|steps| Move::Pass { steps }),
        4 => Just(Move::Settle),
        4 => (1..400_i64).prop_map(|secs| Move::Time { secs }),
        5 => Just(Move::MakePods),
        5 => (pick.clone(), phase).prop_map(|(pick, phase)| Move::Pods { pick, phase }),
        2 => (pick.clone(), verdict).prop_map(|(pick, verdict)| Move::Report { pick, verdict }),
        1 => pick.clone().prop_map(|pick| Move::Vanish { pick }),
        1 => pick.clone().prop_map(|pick| Move::Hang { pick }),
        1 => Just(Move::Release),
        2 => pick.clone().prop_map(|pick| Move::Stubborn { pick }),
        1 => pick.clone().prop_map(|pick| Move::LosePod { pick }),
        2 => any::<bool>().prop_map(Move::Suspend),
        1 => Just(Move::Delete),
        1 => any::<bool>().prop_map(Move::Sicken),
        1 => any::<bool>().prop_map(Move::Unread),
        1 => (pick, any::<bool>()).prop_map(|(pick, fatal)| Move::Refuse { pick, fatal }),
    ]
}

/// The world with the book of its auditor.
struct Play {
    world: World,
    /// The attempt of each pod: how often its component had been created when the pod was made.
    attempts: BTreeMap<String, usize>,
}

impl Play {
    fn new() -> Self {
        let mut service = component(Nature::Endless, &[1]);
        service.role = Role::Service;
        let world = World::new([
            component(Nature::Counted, &[1]),
            component(Nature::Reports, &[2]),
            service,
            component(Nature::Endless, &[]),
        ]);
        Self {
            world,
            attempts: BTreeMap::new(),
        }
    }

    fn present(&self, pick: usize) -> Option<usize> {
        let index = pick % self.world.components.len();
        matches!(self.world.components[index].child, Child::Present { .. }).then_some(index)
    }

    fn play(&mut self, step: &Move) {
        if self.world.gone {
            return;
        }
        let world = &mut self.world;
        match step {
            Move::Pass { steps } => return self.interrupted_pass(*steps),
            Move::Settle => {
                for _ in 0..8 {
                    if !self.world.gone {
                        self.world.pass();
                        self.audit();
                    }
                }
                self.world.leave();
            }
            Move::Time { secs } => {
                world.now = world.now.checked_add(SignedDuration::from_secs(*secs)).unwrap();
            }
            Move::MakePods => self.make_pods(),
            Move::Pods { pick, phase } => {
                let count = world.pods.len().max(1);
                // Why: a pod that has ended stays ended.
                if let Some(pod) = world.pods.get_mut(pick % count).filter(|pod| pod.is_live()) {
                    pod.phase = *phase;
                }
            }
            Move::Report { pick, verdict } => {
                let silent = |child: &Child| child.verdict().is_none();
                if let Some(index) = self.present(*pick)
                    && self.world.components[index].nature == Nature::Reports
                    && silent(&self.world.components[index].child)
                {
                    self.world.report(index, *verdict);
                }
            }
            Move::Vanish { pick } => {
                if let Some(index) = self.present(*pick) {
                    self.world.components[index].child = Child::Missing;
                    self.world.orphans_leave(index);
                }
            }
            Move::Hang { pick } => {
                world.hung.insert(pick % world.components.len());
            }
            Move::Release => self.release(),
            Move::Stubborn { pick } => {
                let count = world.pods.len().max(1);
                let name = world.pods.get(pick % count).map(|pod| pod.name.clone());
                world.stubborn.extend(name);
            }
            Move::LosePod { pick } => {
                let count = world.pods.len().max(1);
                if let Some(pod) = world.pods.get_mut(pick % count) {
                    pod.leaving = true;
                }
            }
            Move::Suspend(suspended) => world.suspended = *suspended,
            Move::Delete => {
                world.deleting = true;
                world.gone |= !world.finalizer;
            }
            Move::Sicken(sick) => {
                world.evict.clear();
                if *sick {
                    let gpu = BTreeSet::from([ResourceName::from("gpu")]);
                    world.evict.insert("node".to_owned(), gpu);
                }
            }
            Move::Unread(unread) => world.unread = unread.then(|| "no answer".to_owned()),
            Move::Refuse { pick, fatal } => {
                let why = "refused".to_owned();
                let answer = if *fatal {
                    Created::Fatal(why)
                } else {
                    Created::Retryable(why)
                };
                world.answers.insert(pick % world.components.len(), answer);
            }
        }
        self.audit();
    }

    /// The controller stops after the status write, after each creation, or before it deletes.
    fn interrupted_pass(&mut self, steps: usize) {
        if self.world.gone {
            return;
        }
        let mut plan = self.world.plan_with(&BTreeMap::new());
        plan.remove.truncate(steps);
        let create: Vec<usize> = plan.create.iter().copied().take(steps).collect();
        if steps == 0 {
            return;
        }
        self.world.carry_out(&plan);
        self.world.create(&create);
        self.audit();
    }

    fn make_pods(&mut self) {
        let gpu = ResourceName::from("gpu");
        for index in 0..self.world.components.len() {
            let Child::Present { leaving, verdict, .. } = self.world.components[index].child else {
                continue;
            };
            // Why: a component that has done its work makes no more pods.
            let status = self.world.status.components.get(index);
            let finished = status.is_some_and(ComponentStatus::is_finished);
            if leaving || verdict.is_some() || finished {
                continue;
            }
            let sets = self.world.components[index].pod_sets.iter();
            let wanted: u32 = sets.map(PodSet::count).sum();
            let own = self
                .world
                .pods
                .iter()
                .filter(|pod| pod.origin == Origin::Component(index));
            let have = own.filter(|pod| pod.phase != PodPhase::Failed).count();
            let attempt = self
                .world
                .creations
                .iter()
                .filter(|created| **created == index)
                .count();
            for _ in have..wanted as usize {
                let pod = self.world.pod(index, PodPhase::Pending);
                pod.resources.insert(gpu.clone());
                let name = pod.name.clone();
                self.attempts.insert(name, attempt);
            }
        }
    }

    /// Everything that was stuck continues.
    fn release(&mut self) {
        let world = &mut self.world;
        world.hung.clear();
        world.stubborn.clear();
        for index in 0..world.components.len() {
            if matches!(
                world.components[index].child,
                Child::Present { leaving: true, .. }
            ) {
                world.components[index].child = Child::Missing;
                world.orphans_leave(index);
            }
        }
        world.leave();
    }

    fn audit(&self) {
        let world = &self.world;
        let live: Vec<_> = world.pods.iter().filter(|pod| pod.is_live()).collect();
        if !live.is_empty() {
            assert!(
                world.holds_quota(),
                "quota is free in phase {} while {live:?} runs",
                world.phase()
            );
            assert!(!world.gone, "the object is gone while {live:?} runs");
        }
        for index in 0..world.components.len() {
            let own = live.iter().filter(|pod| pod.origin == Origin::Component(index));
            let attempts: BTreeSet<_> = own.map(|pod| self.attempts[&pod.name]).collect();
            assert!(
                attempts.len() <= 1,
                "pods of two attempts of {index} at once: {live:?}"
            );
        }
        if world.gone {
            let left = world
                .components
                .iter()
                .any(|c| matches!(c.child, Child::Present { .. }));
            assert!(!left && world.pods.is_empty(), "something of it remains");
        }
    }

    /// The adversary rests: everything answers, pods do their work, time passes.
    fn finish(&mut self) {
        self.world.unread = None;
        self.world.evict.clear();
        self.world.answers.clear();
        self.world.suspended = false;
        for _ in 0..200 {
            self.release();
            if self.ended() {
                return;
            }
            let wake = self.world.settle();
            self.audit();
            self.make_pods();
            self.world.all_live_pods_succeed();
            self.world.settle();
            self.audit();
            for index in 0..self.world.components.len() {
                if self.present(index).is_some() && self.world.components[index].child.verdict().is_none() {
                    self.world.report(index, Verdict::Succeeded);
                }
            }
            let wake = self.world.settle().or(wake);
            if let Some(at) = wake {
                self.world.now = at.max(self.world.now);
            }
            self.audit();
        }
        panic!(
            "no end: {} {:#?}",
            self.world.phase(),
            self.world.status.conditions
        );
    }

    fn ended(&self) -> bool {
        self.world.gone
            || match self.world.status.phase {
                // Why: after a success the children may stay for a week.
                Phase::Succeeded => true,
                Phase::Failed => !self.world.status.conditions.is_true("ResourcesDeployed"),
                Phase::Empty
                | Phase::Suspended
                | Phase::Resuming
                | Phase::Running
                | Phase::Resetting
                | Phase::Suspending
                | Phase::Terminating => false,
            }
    }
}

impl World {
    fn all_live_pods_succeed(&mut self) {
        for pod in self.pods.iter_mut().filter(|pod| pod.is_live()) {
            pod.phase = PodPhase::Succeeded;
        }
    }
}

/// The only pod of a service fails while the last work ends, and its controller makes another one.
///
/// Spec: appwrapper 8.1
#[test]
fn a_service_whose_pod_failed_at_the_end_has_no_pod_without_quota() {
    let mut play = Play::new();
    let pods = |pick, phase| Move::Pods { pick, phase };
    let history = [
        Move::Settle,
        Move::Report {
            pick: 1,
            verdict: Verdict::Succeeded,
        },
        Move::MakePods,
        pods(0, PodPhase::Succeeded),
        pods(1, PodPhase::Failed),
        Move::Pass { steps: 1 },
        Move::MakePods,
    ];
    for step in &history {
        play.play(step);
    }
    play.finish();
    assert_eq!(play.world.phase(), "Succeeded");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Spec: appwrapper B59, 8.1.
    #[test]
    fn quota_is_held_for_every_live_pod_attempts_do_not_meet_and_it_ends(
        moves in prop::collection::vec(moves(), 1..80),
    ) {
        let mut play = Play::new();
        for step in &moves {
            play.play(step);
        }
        play.finish();
        play.world.deleting = true;
        for _ in 0..20 {
            if !play.world.gone && play.world.finalizer {
                play.release();
                play.world.settle();
                play.audit();
            }
        }
        prop_assert!(play.world.gone || !play.world.finalizer);
        prop_assert!(play.world.pods.is_empty() || !play.world.finalizer);
    }
}
