//! A cluster in which plans are carried out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::appwrapper::observed::{
    Child, Component, Created, Nature, Observed, Origin, Pod, PodPhase, Pods, Role, Verdict,
};
use crate::appwrapper::settings::{Knobs, Settings};
use crate::appwrapper::status::{Identity, Phase, PodSet, Status};
use crate::appwrapper::{Finalizer, How, Plan, Removal, plan};
use crate::condition::Truth;
use crate::name::{ResourceName, Uid};
use crate::note::Note;

/// A world that still changes after so many passes never settles.
const PASSES_MAX: usize = 50;

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact that a test sets by itself"
)]
#[derive(Default)]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) status: Status,
    pub(super) suspended: bool,
    pub(super) deleting: bool,
    pub(super) finalizer: bool,
    /// Whether the object itself is gone.
    pub(super) gone: bool,
    pub(super) components: Vec<Component>,
    pub(super) pods: Vec<Pod>,
    /// The answer to the creation of each child; creations that are not listed succeed.
    pub(super) answers: BTreeMap<usize, Created>,
    /// Children that stay when they are deleted.
    pub(super) hung: BTreeSet<usize>,
    /// Pods that stay when they are deleted with grace.
    pub(super) stubborn: BTreeSet<String>,
    /// Why pods cannot be listed.
    pub(super) unread: Option<String>,
    pub(super) evict: BTreeMap<String, BTreeSet<ResourceName>>,
    pub(super) knobs: Knobs,
    pub(super) notes: Vec<Note>,
    /// The names of all children and pods that were ever deleted.
    pub(super) deleted: Vec<String>,
    /// Creations that were asked for, by component.
    pub(super) creations: Vec<usize>,
    uids: u32,
}

pub(super) const fn secs(secs: i64) -> SignedDuration {
    SignedDuration::from_secs(secs)
}

pub(super) fn component(nature: Nature, replicas: &[i32]) -> Component {
    let set = |n: &i32| PodSet {
        path: "template".to_owned(),
        replicas: Some(*n),
        annotations: BTreeMap::new(),
    };
    Component {
        identity: Identity::default(),
        pod_sets: replicas.iter().map(set).collect(),
        nature,
        role: Role::Member,
        child: Child::Missing,
    }
}

impl Default for Knobs {
    fn default() -> Self {
        Self::of(&Settings::default())
    }
}

impl World {
    /// A world in which nothing exists and nothing is stuck.
    pub(super) fn new(components: impl IntoIterator<Item = Component>) -> Self {
        let mut components: Vec<Component> = components.into_iter().collect();
        for (index, component) in components.iter_mut().enumerate() {
            component.identity.name = format!("child-{index}");
        }
        Self {
            components,
            ..Self::default()
        }
    }

    pub(super) fn tuned(mut self, tune: impl FnOnce(&mut Knobs)) -> Self {
        tune(&mut self.knobs);
        self
    }

    pub(super) fn running() -> Self {
        let mut world = Self::new([component(Nature::Counted, &[1])]);
        world.settle();
        world.pod(0, PodPhase::Running);
        world.settle();
        world
    }

    pub(super) fn plan_with(&self, created: &BTreeMap<usize, Created>) -> Plan {
        let pods = match &self.unread {
            Some(why) => Pods::Unread(why),
            None => Pods::Known(&self.pods),
        };
        let observed = Observed {
            status: &self.status,
            suspended: self.suspended,
            deleting: self.deleting,
            finalizer: self.finalizer,
            components: &self.components,
            pods,
            evict: &self.evict,
            knobs: &self.knobs,
            created,
            #[cfg(feature = "bugbank")]
            bug: None,
        };
        plan(&observed, self.now)
    }

    pub(super) fn fresh_uid(&mut self) -> Uid {
        self.uids += 1;
        Uid::from(format!("uid-{}", self.uids))
    }

    /// Plans and carries out once; returns whether anything was done.
    pub(super) fn pass(&mut self) -> (bool, Option<Timestamp>) {
        let plan = self.plan_with(&BTreeMap::new());
        let creates = !plan.create.is_empty();
        let (mut acted, mut wake) = self.carry_out(&plan);
        if creates {
            let created = self.create(&plan.create);
            let plan = self.plan_with(&created);
            acted |= self.carry_out(&plan).0;
            wake = plan.wake;
        }
        (acted || creates, wake)
    }

    pub(super) fn create(&mut self, which: &[usize]) -> BTreeMap<usize, Created> {
        let mut created = BTreeMap::new();
        for index in which {
            self.creations.push(*index);
            let answer = self.answers.get(index).cloned().unwrap_or(Created::Done);
            let done = answer == Created::Done;
            created.insert(*index, answer);
            if !done {
                break;
            }
            assert_eq!(self.components[*index].child, Child::Missing, "created twice");
            let uid = self.fresh_uid();
            self.components[*index].child = Child::Present {
                uid,
                leaving: false,
                verdict: None,
            };
        }
        created
    }

    /// Carries out everything but the creations.
    pub(super) fn carry_out(&mut self, plan: &Plan) -> (bool, Option<Timestamp>) {
        let changed = plan.status != self.status || plan.finalizer != Finalizer::Keep;
        if plan.finalizer == Finalizer::Add {
            self.finalizer = true;
        }
        self.status = plan.status.clone();
        self.notes.extend(plan.notes.iter().cloned());
        let mut removed = false;
        for removal in &plan.remove {
            removed |= self.remove(removal);
        }
        if plan.finalizer == Finalizer::Remove {
            self.finalizer = false;
            self.gone = self.deleting;
        }
        (changed || removed, plan.wake)
    }

    fn remove(&mut self, removal: &Removal) -> bool {
        match removal {
            Removal::Child { component, uid, how } => {
                let hung = self.hung.contains(component);
                let name = self.components[*component].identity.name.clone();
                let child = &mut self.components[*component].child;
                let Child::Present {
                    uid: found, leaving, ..
                } = child
                else {
                    return false;
                };
                if found != uid || (*leaving && *how == How::Gracefully) {
                    return false;
                }
                self.deleted.push(name);
                let news = !*leaving;
                *leaving = true;
                if !hung {
                    *child = Child::Missing;
                    self.orphans_leave(*component);
                }
                news || !hung
            }
            Removal::Pod { name, uid } => {
                let before = self.pods.len();
                self.pods.retain(|pod| pod.name != *name || pod.uid != *uid);
                self.deleted.push(name.clone());
                before != self.pods.len()
            }
        }
    }

    /// The garbage collector deletes the pods of a child that is gone.
    pub(super) fn orphans_leave(&mut self, component: usize) {
        for pod in &mut self.pods {
            pod.leaving |= pod.origin == Origin::Component(component);
        }
    }

    /// Pods that are being deleted leave, except the stubborn ones.
    pub(super) fn leave(&mut self) -> bool {
        let before = self.pods.len();
        let stubborn = &self.stubborn;
        self.pods
            .retain(|pod| !pod.leaving || stubborn.contains(&pod.name));
        before != self.pods.len()
    }

    /// Passes until nothing changes at this moment; returns when to look again.
    pub(super) fn settle(&mut self) -> Option<Timestamp> {
        for _ in 0..PASSES_MAX {
            if self.gone {
                return None;
            }
            let (acted, wake) = self.pass();
            let left = self.leave();
            if !acted && !left {
                return wake;
            }
        }
        panic!("no rest in phase {}", self.phase());
    }

    /// Lets time pass and settles.
    pub(super) fn after(&mut self, secs: i64) -> Option<Timestamp> {
        self.now = self.now.checked_add(SignedDuration::from_secs(secs)).unwrap();
        self.settle()
    }

    pub(super) fn pod(&mut self, component: usize, phase: PodPhase) -> &mut Pod {
        let uid = self.fresh_uid();
        self.pods.push(Pod {
            name: format!("pod-{}", uid.as_str()),
            uid,
            phase,
            leaving: false,
            origin: self.components[component].origin(component),
            node: Some("node".to_owned()),
            resources: BTreeSet::new(),
            exit_codes: BTreeSet::new(),
        });
        self.pods.last_mut().unwrap()
    }

    pub(super) fn all_pods(&mut self, phase: PodPhase) {
        for pod in &mut self.pods {
            pod.phase = phase;
        }
    }

    pub(super) fn report(&mut self, component: usize, what: Verdict) {
        let Child::Present { verdict, .. } = &mut self.components[component].child else {
            panic!("component {component} has no child");
        };
        *verdict = Some(what);
    }

    /// The child disappears with its pods without our doing.
    pub(super) fn vanish(&mut self, component: usize) {
        self.components[component].child = Child::Missing;
        self.pods.retain(|pod| pod.origin != Origin::Component(component));
    }

    pub(super) fn phase(&self) -> &'static str {
        self.status.phase.as_str()
    }

    pub(super) fn is(&self, phase: Phase) {
        assert_eq!(self.status.phase, phase, "{:#?}", self.status.conditions);
    }

    /// `True/Reason/message` of a condition.
    pub(super) fn said(&self, kind: &str) -> String {
        self.status
            .conditions
            .get(kind)
            .map_or_else(String::new, |condition| {
                let truth = match condition.truth {
                    Truth::True => "True",
                    Truth::False => "False",
                    Truth::Unknown => "Unknown",
                };
                format!("{truth}/{}/{}", condition.reason, condition.message)
            })
    }

    pub(super) fn component_said(&self, component: usize) -> String {
        let conditions = &self.status.components[component].conditions;
        conditions
            .get("ResourcesDeployed")
            .map_or_else(String::new, |c| format!("{:?}/{}", c.truth, c.reason))
    }

    pub(super) fn told(&self, text: &str) -> bool {
        self.notes.iter().any(|note| note.message.contains(text))
    }

    pub(super) fn holds_quota(&self) -> bool {
        self.status.conditions.is_true("QuotaReserved")
    }
}
