//! Random configurations and histories.

use std::collections::BTreeMap;

use proptest::prelude::{Just, any, prop_oneof};
use proptest::strategy::Strategy as Generator;

use super::super::fixtures::{cluster_queue, cohort, flavor, group};
use super::super::{Event, Pace};
use super::Step;
use crate::name::{CohortName, Key};
use crate::queue::{
    BorrowWithinCohort, Check, LocalQueue, PreemptionPolicy, Reclaim, Selector, StopPolicy, Strategy,
    WithinClusterQueue,
};
use crate::rules::PreemptionRules;
use crate::workload::{Operator, Requirement};

pub(super) fn preemption() -> impl Generator<Value = PreemptionPolicy> {
    let within = prop_oneof![
        Just(WithinClusterQueue::Never),
        Just(WithinClusterQueue::LowerPriority),
        Just(WithinClusterQueue::LowerOrNewerEqualPriority)
    ];
    let reclaim = prop_oneof![
        Just(Reclaim::Never),
        Just(Reclaim::LowerPriority),
        Just(Reclaim::Any)
    ];
    let borrow = prop_oneof![
        Just(BorrowWithinCohort::Never),
        Just(BorrowWithinCohort::LowerPriority { max_priority: None })
    ];
    (within, reclaim, borrow).prop_map(|(within_cluster_queue, reclaim_within_cohort, borrow)| {
        PreemptionPolicy {
            within_cluster_queue,
            reclaim_within_cohort,
            borrow_within_cohort: match reclaim_within_cohort {
                Reclaim::Never => BorrowWithinCohort::Never,
                Reclaim::LowerPriority | Reclaim::Any => borrow,
            },
        }
    })
}

pub(super) fn rules() -> impl Generator<Value = PreemptionRules> {
    prop_oneof![
        Just(PreemptionRules::Classical),
        Just(PreemptionRules::fair_sharing())
    ]
}

pub(super) fn configuration() -> impl Generator<Value = Event> {
    let cluster = (
        0..2_u8,
        0..9_i64,
        0..9_i64,
        any::<bool>(),
        0..8_u8,
        0..6_u8,
        0..4_u8,
        preemption(),
    )
        .prop_map(|(name, first, second, strict, odd, rest, cohort, preemption)| {
            let flavors: [(&str, &[(&str, i64)]); 2] = [
                ("f1", &[("cpu", first * 1_000)]),
                ("f2", &[("cpu", second * 1_000)]),
            ];
            let mut queue = cluster_queue(&format!("cq{name}"), vec![group(&flavors)]);
            if strict {
                queue.strategy = Strategy::StrictFifo;
            }
            queue.preemption = preemption;
            if cohort > 0 {
                queue.cohort = Some(format!("c{}", cohort % 2).into());
            }
            if odd == 0 {
                queue.namespaces = Some(Selector(vec![Requirement {
                    key: "team".to_owned(),
                    operator: Operator::Exists,
                    values: Vec::new(),
                }]));
            }
            if rest == 0 {
                queue.stop = StopPolicy::Hold;
            }
            if rest == 1 {
                queue.checks = vec![super::super::fixtures::rule("check")];
            }
            Event::ClusterQueue(Box::new(queue))
        });
    let local = (0..3_u8, any::<bool>(), 0..2_u8, 0..6_u8).prop_map(|(name, even, cluster, stop)| {
        Event::LocalQueue(LocalQueue {
            key: Key::new(if even { "even" } else { "odd" }, format!("lq{name}")),
            cluster_queue: format!("cq{cluster}").into(),
            stop: if stop == 0 {
                StopPolicy::Hold
            } else {
                StopPolicy::None
            },
            weight: crate::queue::Weight::ONE,
        })
    });
    let flavor = (1..3_u8, any::<bool>()).prop_map(|(name, labelled)| {
        let mut flavor = flavor(&format!("f{name}"));
        if labelled {
            flavor.node_labels.insert("type".to_owned(), "x".to_owned());
        }
        Event::Flavor(flavor)
    });
    let check = any::<bool>().prop_map(|active| {
        Event::Check(Check {
            name: "check".into(),
            controller: "example.com/check".to_owned(),
            active,
        })
    });
    let namespace = (any::<bool>(), any::<bool>()).prop_map(|(even, labelled)| Event::Namespace {
        name: if even { "even" } else { "odd" }.into(),
        labels: if labelled {
            [("team".to_owned(), "a".to_owned())].into()
        } else {
            BTreeMap::new()
        },
    });
    let cohort = (0..2_u8, 0..3_u8).prop_map(|(name, parent)| {
        let parent = (parent < 2).then(|| format!("c{parent}"));
        cohort(&format!("c{name}"), parent.as_deref())
    });
    prop_oneof![4 => cluster, 4 => local, 2 => flavor, 1 => check, 1 => namespace, 1 => cohort]
}

pub(super) fn step() -> impl Generator<Value = Step> {
    let number = || 0..10_u8;
    let create =
        (number(), 0..3_u8, 0..12_u8, 1..4_u8, 0..3_i8).prop_map(|(number, queue, cpu, count, priority)| {
            Step::Create {
                number,
                queue,
                cpu,
                count,
                priority,
            }
        });
    let gone = prop_oneof![
        (0..2_u8).prop_map(|n| Event::ClusterQueueGone(format!("cq{n}").into())),
        (0..3_u8).prop_map(|n| Event::LocalQueueGone(Key::new("even", format!("lq{n}")))),
        (0..2_u8).prop_map(|n| Event::CohortGone(CohortName::from(format!("c{n}")))),
        (1..3_u8).prop_map(|n| Event::FlavorGone(format!("f{n}").into())),
        Just(Event::CheckGone("check".into())),
        Just(Event::NamespaceGone("odd".into())),
        Just(Event::Paused(Pace::Paused)),
        Just(Event::Paused(Pace::Running)),
    ];
    prop_oneof![
        8 => create,
        3 => configuration().prop_map(Step::Tell),
        1 => gone.prop_map(Step::Tell),
        1 => number().prop_map(Step::Delete),
        2 => number().prop_map(Step::Finish),
        2 => number().prop_map(Step::Release),
        3 => Just(Step::Stop),
        1 => (number(), 0..30_u8).prop_map(|(n, s)| Step::Backoff(n, s)),
        1 => number().prop_map(Step::Reclaim),
        1 => number().prop_map(Step::Toggle),
        1 => number().prop_map(Step::Gate),
        2 => number().prop_map(Step::Admit),
        1 => Just(Step::Resync),
        6 => Just(Step::Cycle),
        4 => Just(Step::Write),
        1 => Just(Step::Fail),
        1 => (0..20_u8).prop_map(Step::Wait),
    ]
}

/// Workloads of one queue come and go.
pub(super) fn comings() -> impl Generator<Value = Step> {
    let number = || (0..40_u8).prop_map(|number| number * 2);
    prop_oneof![
        5 => (number(), 1..9_u8, 1..3_u8, 0..3_i8).prop_map(|(number, cpu, count, priority)| Step::Create {
            number,
            queue: 0,
            cpu,
            count,
            priority,
        }),
        3 => number().prop_map(Step::Finish),
        1 => number().prop_map(Step::Delete),
    ]
}

/// A configuration under which most things can be admitted.
pub(super) fn ground() -> Vec<Step> {
    let flavors: [(&str, &[(&str, i64)]); 2] = [("f1", &[("cpu", 6_000)]), ("f2", &[("cpu", 4_000)])];
    let mut events = vec![Event::Flavor(flavor("f1")), Event::Flavor(flavor("f2"))];
    for name in ["cq0", "cq1"] {
        events.push(Event::ClusterQueue(Box::new(cluster_queue(
            name,
            vec![group(&flavors)],
        ))));
    }
    for (namespace, name, cluster) in [
        ("even", "lq0", "cq0"),
        ("odd", "lq0", "cq0"),
        ("even", "lq1", "cq1"),
        ("odd", "lq2", "cq1"),
    ] {
        events.push(Event::LocalQueue(LocalQueue {
            key: Key::new(namespace, name),
            cluster_queue: cluster.into(),
            ..LocalQueue::default()
        }));
    }
    events.push(Event::Synced);
    events.into_iter().map(Step::Tell).collect()
}
