//! Random valid objects of every kind in `v1beta2`, with all fields that differ between the versions.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::API;

pub(super) fn any_object() -> impl Strategy<Value = Value> {
    prop_oneof![
        cluster_queue(),
        local_queue(),
        cohort(),
        workload(),
        multi_kueue_cluster(),
        unchanging(),
    ]
}

/// A queue with and without each field that differs between the versions.
pub(super) fn cluster_queue() -> impl Strategy<Value = Value> {
    let policy = json!({"migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "f"}}});
    let spec = all(vec![
        field("cohortName", name().prop_map(Value::from)),
        field(
            "admissionChecksStrategy",
            vec(name(), 1..4).prop_map(|names| {
                let rules = names.iter().map(|name| json!({"name": name, "onFlavors": ["f"]}));
                json!({"admissionChecks": rules.collect::<Vec<_>>()})
            }),
        ),
        field("concurrentAdmissionPolicy", Just(policy)),
        field("flavorFungibility", fungibility()),
        unknown(),
    ]);
    let sharing = json!({"pendingWorkloads": 3, "fairSharing": {"weightedShare": 7}});
    object("ClusterQueue", spec, Just(sharing))
}

fn fungibility() -> impl Strategy<Value = Value> {
    let word = prop_oneof![Just("MayStopSearch"), Just("TryNextFlavor")];
    (word.clone(), word)
        .prop_map(|(borrow, preempt)| json!({"whenCanBorrow": borrow, "whenCanPreempt": preempt}))
}

pub(super) fn local_queue() -> impl Strategy<Value = Value> {
    let usage = vec(name(), 0..3).prop_map(|names| {
        let flavors = names.iter().map(|name| json!({"name": name, "resources": []}));
        json!({"flavorsUsage": flavors.collect::<Vec<_>>(), "flavorsReservation": []})
    });
    object(
        "LocalQueue",
        name().prop_map(|name| json!({"clusterQueue": name})),
        usage,
    )
}

pub(super) fn cohort() -> impl Strategy<Value = Value> {
    let spec = field("parentName", name().prop_map(Value::from));
    object("Cohort", spec, Just(json!({"fairSharing": {"weightedShare": 1}})))
}

pub(super) fn multi_kueue_cluster() -> impl Strategy<Value = Value> {
    let spec = prop_oneof![
        name().prop_map(|name| json!({"kubeConfig": {"location": name, "locationType": "Path"}})),
        name().prop_map(|name| json!({"clusterProfileRef": {"name": name}})),
    ];
    object(
        "MultiKueueCluster",
        spec.prop_map(|source| json!({"clusterSource": source})),
        Just(json!({"conditions": []})),
    )
}

/// A kind whose versions differ in limits and defaults only.
fn unchanging() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::select(vec![
        "ResourceFlavor",
        "AdmissionCheck",
        "Topology",
        "WorkloadPriorityClass",
        "MultiKueueConfig",
        "ProvisioningRequestConfig",
    ]);
    (kinds, unknown()).prop_map(|(kind, spec)| json!({"apiVersion": format!("{API}/v1beta2"), "kind": kind, "spec": spec, "value": 3}))
}

pub(super) fn workload() -> impl Strategy<Value = Value> {
    let class = prop_oneof![
        name().prop_map(
            |name| json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name})
        ),
        name().prop_map(|name| json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name})),
    ];
    let gate = json!({"name": "multikueue"});
    let spec = all(vec![
        field("priorityClassRef", class),
        field("preemptionGates", vec(Just(gate), 1..3).prop_map(Value::from)),
        pod_sets().boxed(),
        unknown(),
    ]);
    let state =
        json!({"name": "multikueue", "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = all(vec![
        field(
            "accumulatedPastExecutionTimeSeconds",
            any::<u16>().prop_map(Value::from),
        ),
        field("preemptionGates", Just(json!([state]))),
        field("admission", admission()),
        unknown(),
    ]);
    object("Workload", spec, status)
}

fn pod_sets() -> impl Strategy<Value = Value> {
    let layers = json!([{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}]);
    let request = field("podsetSliceRequiredTopologyConstraints", Just(layers));
    let template = json!({"spec": {"containers": [{"name": "c", "fieldOfTheFuture": [1.5]}]}});
    vec(option::of(request), 1..4).prop_map(move |requests| {
        let sets = requests.into_iter().enumerate().map(|(index, request)| {
            let mut set = json!({"count": 4, "template": template});
            // Why: the first pod set has the default name.
            if index > 0 {
                set["name"] = format!("set-{index}").into();
            }
            if let Some(request) = request {
                set["topologyRequest"] = request;
            }
            set
        });
        json!({"podSets": sets.collect::<Vec<_>>()})
    })
}

fn admission() -> impl Strategy<Value = Value> {
    vec(option::of(assignment()), 0..3).prop_map(|sets| {
        let sets = sets.into_iter().map(|assignment| match assignment {
            Some(assignment) => json!({"name": "main", "topologyAssignment": assignment}),
            None => json!({"name": "other", "count": 1}),
        });
        json!({"clusterQueue": "q", "podSetAssignments": sets.collect::<Vec<_>>()})
    })
}

/// An assignment column by column, in any legal cut.
pub(super) fn assignment() -> impl Strategy<Value = Value> {
    (1..4_usize).prop_flat_map(|levels| {
        vec(slice(levels), 0..4).prop_map(move |slices| {
            let levels: Vec<_> = (0..levels).map(|level| format!("level-{level}")).collect();
            json!({"levels": levels, "slices": slices})
        })
    })
}

fn slice(levels: usize) -> impl Strategy<Value = Value> {
    (1..6_usize).prop_flat_map(move |count| {
        let part = || option::of("[a-zé-]{0,3}");
        let individual = (part(), part(), vec("[a-z0-9é.-]{0,4}", count));
        let column = prop_oneof![
            "[a-z]{1,3}".prop_map(|value| json!({"universal": value})),
            individual.prop_map(|(prefix, suffix, roots)| {
                let mut column = json!({"roots": roots});
                for (end, text) in [("prefix", prefix), ("suffix", suffix)] {
                    if let Some(text) = text {
                        column[end] = text.into();
                    }
                }
                json!({"individual": column})
            }),
        ];
        let pods = prop_oneof![
            (1..9).prop_map(|pods| json!({"universal": pods})),
            vec(1..9, count).prop_map(|pods| json!({"individual": pods})),
        ];
        (vec(column, levels), pods).prop_map(move |(columns, pods)| {
            json!({"domainCount": count, "valuesPerLevel": columns, "podCounts": pods})
        })
    })
}

/// Domains as `v1beta1` writes them.
pub(super) fn domains() -> impl Strategy<Value = Value> {
    (1..4_usize).prop_flat_map(|levels| {
        let domain = (vec("(n-)?[a-zé]{0,2}(-z)?", levels), 1..4);
        vec(domain, 0..8).prop_map(move |domains| {
            let levels: Vec<_> = (0..levels).map(|level| format!("level-{level}")).collect();
            let domains = domains
                .into_iter()
                .map(|(values, count)| json!({"values": values, "count": count}));
            json!({"levels": levels, "domains": domains.collect::<Vec<_>>()})
        })
    })
}

/// Any JSON, with the converted names in places where they may or may not belong.
pub(super) fn garbage() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "metadata",
        "annotations",
        super::CARRIED,
        "spec",
        "status",
        "cohort",
        "cohortName",
        "parent",
        "admissionChecks",
        "flavorFungibility",
        "whenCanBorrow",
        "concurrentAdmissionPolicy",
        "fairSharing",
        "flavorUsage",
        "podSets",
        "topologyRequest",
        "priorityClassRef",
        "priorityClassSource",
        "name",
        "preemptionGates",
        "admission",
        "podSetAssignments",
        "topologyAssignment",
        "levels",
        "slices",
        "domains",
        "domainCount",
        "valuesPerLevel",
        "podCounts",
        "universal",
        "individual",
        "roots",
        "clusterSource",
        "kubeConfig",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!("{}")),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((word.clone(), inner), 0..6).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    "[a-z]{1,8}"
}

/// An object with or without one field.
fn field(name: &'static str, value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
    option::of(value)
        .prop_map(move |value| match value {
            Some(value) => json!({name: value}),
            None => json!({}),
        })
        .boxed()
}

fn unknown() -> BoxedStrategy<Value> {
    field("fieldOfTheFuture", Just(json!({"deep": [null, {"x": 1}]})))
}

fn all(parts: Vec<BoxedStrategy<Value>>) -> impl Strategy<Value = Value> {
    parts.prop_map(|parts| parts.into_iter().fold(json!({}), merged))
}

fn merged(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn object(
    kind: &'static str,
    spec: impl Strategy<Value = Value>,
    status: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    let annotations = field("annotations", Just(json!({"a": "b"})));
    (annotations, spec, option::of(status)).prop_map(move |(annotations, spec, status)| {
        let metadata = merged(
            json!({"name": "x", "uid": "u", "managedFields": [{"manager": "m"}]}),
            annotations,
        );
        let mut object =
            json!({"apiVersion": format!("{API}/v1beta2"), "kind": kind, "metadata": metadata, "spec": spec});
        if let Some(status) = status {
            object["status"] = status;
        }
        object
    })
}
