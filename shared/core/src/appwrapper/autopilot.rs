//! Autopilot: which nodes pods avoid, which nodes they leave, and how much quota a sick node takes away.
//!
//! Autopilot labels nodes; it sets no taints. *Source*: `spec/appwrapper.md 4`.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Amount;
use crate::name::ResourceName;
use crate::taint::Effect;

/// What the controller does about labelled nodes: `appwrapper.autopilot` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autopilot {
    /// `injectAntiAffinities`: whether pods avoid marked nodes.
    pub injects: bool,
    /// `monitorNodes`: whether running pods leave marked nodes, and whether the slack queue lends less.
    pub monitors: bool,
    /// `preferNoScheduleWeight`: weight of the preference against a node.
    pub weight: i32,
    /// `resourceTaints`: the labels that mark each resource.
    pub marks: BTreeMap<ResourceName, Vec<Mark>>,
}

/// A label that says something about a resource of a node; key and value must match exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Key of the label.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What the mark means for pods that use the resource, as a taint would.
    pub effect: Effect,
}

impl Default for Autopilot {
    fn default() -> Self {
        let mark = |value: &str, effect| Mark {
            key: "autopilot.ibm.com/gpuhealth".to_owned(),
            value: value.to_owned(),
            effect,
        };
        let gpu = vec![
            mark("WARN", Effect::PreferNoSchedule),
            mark("TESTING", Effect::NoSchedule),
            mark("EVICT", Effect::NoExecute),
        ];
        Self {
            injects: true,
            monitors: true,
            weight: 50,
            marks: BTreeMap::from([(ResourceName::from("nvidia.com/gpu"), gpu)]),
        }
    }
}

/// A node, as far as Autopilot looks at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether `spec.unschedulable` is set.
    pub cordoned: bool,
    /// The keys of its taints.
    pub taints: BTreeSet<String>,
    /// The resources in `status.capacity`.
    pub capacity: BTreeMap<ResourceName, Amount>,
    /// Whether it is being deleted.
    pub leaving: bool,
}

/// Label expressions that pods get: each key with the values that its nodes must not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Avoid {
    /// Values that the nodes must not have.
    pub required: BTreeMap<String, Vec<String>>,
    /// Values that the nodes should not have.
    pub preferred: BTreeMap<String, Vec<String>>,
}

/// Taints of a node that cannot be used at all.
const OUT_OF_SERVICE: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];

impl Autopilot {
    /// What pods that ask for these resources must and should avoid; nothing when injection is off.
    pub fn avoid<'r>(&self, resources: impl IntoIterator<Item = &'r ResourceName>) -> Avoid {
        let mut avoid = Avoid::default();
        if !self.injects {
            return avoid;
        }
        for mark in resources
            .into_iter()
            .filter_map(|resource| self.marks.get(resource))
            .flatten()
        {
            let place = match mark.effect {
                Effect::NoExecute | Effect::NoSchedule => &mut avoid.required,
                Effect::PreferNoSchedule => &mut avoid.preferred,
            };
            let values: &mut Vec<String> = place.entry(mark.key.clone()).or_default();
            if !values.contains(&mark.value) {
                values.push(mark.value.clone());
            }
        }
        avoid
    }

    /// The resources whose running pods must leave a node.
    pub fn evict(&self, node: &Node) -> BTreeSet<ResourceName> {
        let marked = |marks: &[Mark]| {
            let mut marks = marks.iter().filter(|mark| mark.is_on(node));
            marks.any(|mark| mark.effect == Effect::NoExecute)
        };
        let all = self.marks.iter().filter(|_| self.monitors && !node.leaving);
        all.filter(|(_, marks)| marked(marks))
            .map(|(resource, _)| resource.clone())
            .collect()
    }

    /// How much of a node cannot be used now. *Source*: `spec/appwrapper.md 4.4`.
    pub fn out_of_service(&self, node: &Node) -> BTreeMap<ResourceName, Amount> {
        if !self.monitors || node.leaving {
            return BTreeMap::new();
        }
        let whole = node.cordoned || OUT_OF_SERVICE.iter().any(|taint| node.taints.contains(*taint));
        let is_out = |resource: &ResourceName| {
            if whole {
                return resource.as_str() != "pods";
            }
            let marks = self.marks.get(resource).into_iter().flatten();
            marks
                .filter(|mark| mark.is_on(node))
                .any(|mark| match mark.effect {
                    Effect::NoExecute | Effect::NoSchedule => true,
                    Effect::PreferNoSchedule => false,
                })
        };
        let capacity = node
            .capacity
            .iter()
            .filter(|(resource, amount)| is_out(resource) && **amount != Amount::ZERO);
        capacity
            .map(|(resource, amount)| (resource.clone(), *amount))
            .collect()
    }
}

impl Mark {
    fn is_on(&self, node: &Node) -> bool {
        node.labels.get(&self.key) == Some(&self.value)
    }
}

/// How much of each resource the slack queue may lend, given its nominal quota and what is out of service; `None` means no limit.
///
/// *Source*: `spec/appwrapper.md 4.5`.
pub fn lending_limits(
    nominal: &BTreeMap<ResourceName, Amount>,
    out: &BTreeMap<ResourceName, Amount>,
) -> BTreeMap<ResourceName, Option<Amount>> {
    let limit = |(resource, quota): (&ResourceName, &Amount)| {
        let limit = out.get(resource).map(|out| quota.minus(*out).max(Amount::ZERO));
        (resource.clone(), limit)
    };
    nominal.iter().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTH: &str = "autopilot.ibm.com/gpuhealth";

    fn gpu() -> ResourceName {
        ResourceName::from("nvidia.com/gpu")
    }

    fn node(health: &str) -> Node {
        let capacity = [("nvidia.com/gpu", 8), ("cpu", 96_000), ("pods", 110)];
        Node {
            labels: BTreeMap::from([(HEALTH.to_owned(), health.to_owned())]),
            capacity: capacity
                .map(|(name, n)| (ResourceName::from(name), Amount::new(n)))
                .into(),
            ..Node::default()
        }
    }

    fn amounts(pairs: &[(&str, i64)]) -> BTreeMap<ResourceName, Amount> {
        pairs
            .iter()
            .map(|(name, n)| (ResourceName::from(*name), Amount::new(*n)))
            .collect()
    }

    /// Spec: appwrapper B111, B114.
    #[test]
    fn only_pods_with_a_marked_resource_avoid_nodes() {
        let autopilot = Autopilot::default();
        let avoid = autopilot.avoid([&gpu(), &ResourceName::from("cpu")]);
        let values = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            avoid.required,
            BTreeMap::from([(HEALTH.to_owned(), values(&["TESTING", "EVICT"]))])
        );
        assert_eq!(
            avoid.preferred,
            BTreeMap::from([(HEALTH.to_owned(), values(&["WARN"]))])
        );
        assert_eq!(autopilot.avoid([&ResourceName::from("cpu")]), Avoid::default());
        let off = Autopilot {
            injects: false,
            ..autopilot
        };
        assert_eq!(off.avoid([&gpu()]), Avoid::default());
    }

    /// Spec: appwrapper B116, B119, B120.
    #[test]
    fn pods_leave_a_node_only_for_a_mark_that_says_so() {
        let autopilot = Autopilot::default();
        assert_eq!(autopilot.evict(&node("EVICT")), BTreeSet::from([gpu()]));
        for health in ["WARN", "TESTING", "PASS", ""] {
            assert!(autopilot.evict(&node(health)).is_empty(), "{health}");
        }
        let leaving = Node {
            leaving: true,
            ..node("EVICT")
        };
        assert!(autopilot.evict(&leaving).is_empty());
        let off = Autopilot {
            monitors: false,
            ..Autopilot::default()
        };
        assert!(off.evict(&node("EVICT")).is_empty());
        let mark = Mark {
            key: "k".to_owned(),
            value: "bad".to_owned(),
            effect: Effect::NoExecute,
        };
        let npu = ResourceName::from("example.com/npu");
        let own = Autopilot {
            marks: BTreeMap::from([(npu.clone(), vec![mark])]),
            ..Autopilot::default()
        };
        let sick = Node {
            labels: BTreeMap::from([("k".to_owned(), "bad".to_owned())]),
            ..Node::default()
        };
        assert_eq!(own.evict(&sick), BTreeSet::from([npu.clone()]));
        assert_eq!(own.avoid([&npu]).required["k"], ["bad"]);
    }

    /// Spec: appwrapper B123.
    #[test]
    fn a_node_that_cannot_be_used_takes_all_but_its_pods_out() {
        let autopilot = Autopilot::default();
        let whole = amounts(&[("nvidia.com/gpu", 8), ("cpu", 96_000)]);
        let cordoned = Node {
            cordoned: true,
            ..node("PASS")
        };
        assert_eq!(autopilot.out_of_service(&cordoned), whole);
        for taint in OUT_OF_SERVICE {
            let tainted = Node {
                taints: BTreeSet::from([taint.to_owned()]),
                ..node("PASS")
            };
            assert_eq!(autopilot.out_of_service(&tainted), whole);
        }
        assert_eq!(
            autopilot.out_of_service(&node("EVICT")),
            amounts(&[("nvidia.com/gpu", 8)])
        );
        assert!(autopilot.out_of_service(&node("WARN")).is_empty());
    }

    /// Spec: appwrapper B121, B122.
    #[test]
    fn the_slack_queue_lends_what_is_left_and_never_less_than_nothing() {
        let nominal = amounts(&[("nvidia.com/gpu", 8), ("cpu", 100_000)]);
        let limits = |out: &[(&str, i64)]| {
            let limits = lending_limits(&nominal, &amounts(out));
            (
                limits[&gpu()].map(Amount::get),
                limits[&ResourceName::from("cpu")].map(Amount::get),
            )
        };
        assert_eq!(limits(&[]), (None, None));
        assert_eq!(limits(&[("nvidia.com/gpu", 4)]), (Some(4), None));
        assert_eq!(
            limits(&[("nvidia.com/gpu", 12), ("cpu", 96_000)]),
            (Some(0), Some(4_000))
        );
    }
}
