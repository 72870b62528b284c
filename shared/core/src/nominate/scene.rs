//! Scenes for tests of nominations: queues, holders of quota, and a head that asks. Every nomination is audited.

use std::collections::{BTreeMap, BTreeSet};

use super::{CompiledQueue, Facts, Head, Mode, Nomination, Progress, Restriction, nominate};
use crate::flavor::Placement;
use crate::ground::{Footprint, Ground};
use crate::hierarchy::{FlavorResource, NodeId};
use crate::holders::{Holder, Holders};
use crate::name::FlavorName;
use crate::queue::{ClusterQueue, Cohort, Flavor, FlavorQuota, Quota, ResourceGroup, Weight};
use crate::rules::{PreemptionRules, Rules};
use crate::state::fixtures::{at, cluster_queue, flavor, pod_set, workload};
use crate::workload::Workload;
use crate::{amount::Amount, name::Key};

/// Nominal quota, borrowing limit, lending limit, of `cpu` in flavor `default`. *Units*: millicores.
pub(crate) type Limits = (i64, Option<i64>, Option<i64>);

#[derive(Default)]
pub(crate) struct Scene {
    pub(crate) ground: Ground,
    pub(crate) holders: Holders,
    pub(crate) flavors: BTreeMap<FlavorName, Flavor>,
    pub(crate) rules: Rules,
    queues: BTreeMap<String, (CompiledQueue, NodeId)>,
    /// Seconds; grows with every holder.
    clock: i64,
}

pub(crate) fn quota(limits: Limits) -> Quota {
    Quota {
        nominal: Amount::new(limits.0),
        borrowing_limit: limits.1.map(Amount::new),
        lending_limit: limits.2.map(Amount::new),
    }
}

pub(crate) fn cpu_group(flavors: &[(&str, Limits)]) -> ResourceGroup {
    ResourceGroup {
        covered: vec!["cpu".into()],
        flavors: flavors
            .iter()
            .map(|(name, limits)| FlavorQuota {
                name: (*name).into(),
                quotas: [("cpu".into(), quota(*limits))].into(),
            })
            .collect(),
    }
}

/// A queue with `cpu` in flavor `default`; no cohort when `cohort` is empty.
pub(crate) fn queue(name: &str, cohort: &str, limits: Limits) -> ClusterQueue {
    let mut queue = cluster_queue(name, vec![cpu_group(&[("default", limits)])]);
    queue.cohort = (!cohort.is_empty()).then(|| cohort.into());
    queue
}

pub(crate) const fn own(nominal: i64) -> Limits {
    (nominal, None, None)
}

/// A workload of one pod: `cpu` millicores.
pub(crate) fn asks(name: &str, priority: i32, cpu: i64) -> Workload {
    let mut workload = workload(name, 0, vec![pod_set("main", 1, &[("cpu", cpu)])]);
    workload.priority = priority;
    workload
}

impl Scene {
    pub(crate) fn fair() -> Self {
        Self::default().rules(|rules| rules.preemption = PreemptionRules::fair_sharing())
    }

    pub(crate) fn rules(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.rules);
        self
    }

    pub(crate) fn queue(mut self, queue: &ClusterQueue) -> Self {
        for quota in queue.groups.iter().flat_map(|group| &group.flavors) {
            let name = quota.name.as_str();
            self.flavors
                .entry(quota.name.clone())
                .or_insert_with(|| flavor(name));
        }
        let compiled = CompiledQueue::of(&mut self.ground, queue);
        let node = self.ground.put_queue(queue);
        self.queues
            .insert(queue.name.as_str().to_owned(), (compiled, node));
        self
    }

    pub(crate) fn cohort(mut self, name: &str, parent: &str, limits: Limits, weight: Weight) -> Self {
        self.ground.put_cohort(&Cohort {
            name: name.into(),
            parent: (!parent.is_empty()).then(|| parent.into()),
            groups: vec![cpu_group(&[("default", limits)])],
            weight,
        });
        self
    }

    pub(crate) fn node(&self, queue: &str) -> NodeId {
        self.queues[queue].1
    }

    pub(crate) fn pair(&self, flavor: &str, resource: &str) -> FlavorResource {
        let pair = self.ground.quotas().known_pair(&flavor.into(), &resource.into());
        pair.unwrap()
    }

    /// A holder of `cpu` in flavor `default`; each one is created, and reserves, a second after the one before.
    pub(crate) fn holds(self, queue: &str, name: &str, priority: i64, cpu: i64) -> Self {
        self.holds_of("default", queue, name, priority, cpu)
    }

    pub(crate) fn holds_of(mut self, flavor: &str, queue: &str, name: &str, priority: i64, cpu: i64) -> Self {
        self.clock += 1;
        let pair = self.pair(flavor, "cpu");
        let holder = Holder {
            key: Key::new("ns", name),
            uid: format!("uid-{name}").into(),
            node: self.node(queue),
            local: Key::new("ns", "lq"),
            priority,
            queue_time: at(self.clock),
            reserved_at: at(self.clock),
            evicted: false,
            usage: vec![(pair, i128::from(cpu))],
            past: None,
        };
        self.admit(holder);
        self
    }

    /// Several holders of one core each, named `<name>0`, `<name>1`, ...
    pub(crate) fn units(self, queue: &str, name: &str, priority: i64, count: usize) -> Self {
        (0..count).fold(self, |scene, index| {
            scene.holds(queue, &format!("{name}{index}"), priority, 1_000)
        })
    }

    pub(crate) fn admit(&mut self, holder: Holder) {
        self.ground.take(holder.footprint());
        self.holders.insert(holder);
    }

    pub(crate) fn release(&mut self, name: &str) -> Holder {
        let holder = self.holders.remove(&format!("uid-{name}").into()).unwrap();
        self.ground.give(holder.footprint());
        Holder::clone(&holder)
    }

    pub(crate) fn edit(mut self, name: &str, change: impl FnOnce(&mut Holder)) -> Self {
        let mut holder = self.release(name);
        change(&mut holder);
        self.admit(holder);
        self
    }

    pub(crate) fn nominate(&mut self, queue: &str, workload: &Workload) -> Nomination {
        self.nominate_with(queue, workload, None, None)
    }

    pub(crate) fn nominate_with(
        &mut self,
        queue: &str,
        workload: &Workload,
        progress: Option<&Progress>,
        restriction: Option<&Restriction<'_>>,
    ) -> Nomination {
        let (compiled, node) = self.queues[queue].clone();
        let head = Head {
            workload,
            queue: &compiled,
            node,
            placement: Placement::Here,
            priority: i64::from(workload.priority),
            queue_time: workload.created,
            progress,
        };
        let before = format!("{:?}", self.ground);
        let mut once = || {
            let mut facts = Facts {
                ground: &mut self.ground,
                holders: &self.holders,
                flavors: &self.flavors,
                rules: &self.rules,
            };
            nominate(&mut facts, &head, restriction)
        };
        let nomination = once();
        assert_eq!(nomination, once(), "the same input gives the same nomination");
        assert_eq!(
            before,
            format!("{:?}", self.ground),
            "the ground is left as found"
        );
        if restriction.is_none() {
            self.audit(node, &nomination);
        }
        nomination
    }

    /// The rules that hold for every nomination.
    fn audit(&mut self, node: NodeId, nomination: &Nomination) {
        let fits = |ground: &Ground| ground.fits(Footprint::of(node, &nomination.usage));
        let within = |ground: &Ground| {
            let mut usage = nomination.usage.iter();
            usage.all(|(p, v)| ground.quotas().within_quota(node, *p, *v))
        };
        assert_eq!(nomination.refusal.is_none(), nomination.mode == Mode::Fit);
        let is_target = matches!(nomination.mode, Mode::Preempt | Mode::Reclaim);
        assert_eq!(!nomination.targets.is_empty(), is_target);
        if nomination.mode == Mode::Fit {
            assert!(fits(&self.ground), "what fits fits");
            return;
        }
        if nomination.targets.is_empty() {
            return;
        }
        assert!(!fits(&self.ground), "no workload is preempted without need");
        let uids: BTreeSet<_> = nomination.targets.iter().map(|t| t.holder.uid.clone()).collect();
        assert_eq!(
            uids.len(),
            nomination.targets.len(),
            "no workload is preempted twice"
        );
        let mut change = |holder: &Holder, change: fn(&mut Ground, Footprint<'_>)| {
            change(&mut self.ground, holder.footprint());
            (fits(&self.ground), within(&self.ground))
        };
        let mut after = (false, false);
        for target in &nomination.targets {
            after = change(&target.holder, Ground::give);
        }
        assert!(after.0, "without its victims it fits");
        for target in &nomination.targets {
            let (fits, within) = change(&target.holder, Ground::take);
            // A pass in which the preemptor must not borrow needs more than a fit.
            assert!(!fits || (after.1 && !within), "no victim is superfluous");
            change(&target.holder, Ground::give);
        }
        for target in &nomination.targets {
            change(&target.holder, Ground::take);
        }
    }

    /// Victims of a workload, each as `name Reason`, sorted.
    pub(crate) fn victims(&mut self, queue: &str, priority: i32, cpu: i64) -> Vec<String> {
        let nomination = self.nominate(queue, &asks("incoming", priority, cpu));
        let line = |t: &crate::preempt::Target| format!("{} {}", t.holder.key.name, t.reason.as_str());
        let mut victims: Vec<String> = nomination.targets.iter().map(line).collect();
        victims.sort();
        victims
    }

    /// The flavors that one pod of `cpu` would get, and the mode.
    pub(crate) fn flavor_of(&mut self, queue: &str, workload: &Workload) -> (String, Mode) {
        let nomination = self.nominate(queue, workload);
        let given = nomination
            .pod_sets
            .iter()
            .filter_map(|a| a.flavors.get(&"cpu".into()));
        let names: Vec<_> = given.map(FlavorName::as_str).collect();
        (names.join(" "), nomination.mode)
    }
}
