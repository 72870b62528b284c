//! Objects for traces.

use serde_json::{Value, json};

use super::trace::Dice;

/// A kind that scenes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) group_version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
}

const fn sample(
    group_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> Sample {
    Sample {
        group_version,
        plural,
        kind,
        namespaced,
    }
}

pub(crate) const CONFIG_MAP: Sample = sample("v1", "configmaps", "ConfigMap", true);
pub(crate) const POD: Sample = sample("v1", "pods", "Pod", true);
pub(crate) const JOB: Sample = sample("batch/v1", "jobs", "Job", true);
pub(crate) const WIDGET: Sample = sample("conformance.roadstead.dev/v1", "widgets", "Widget", true);
pub(crate) const WORKLOAD: Sample = sample("kueue.x-k8s.io/v1beta2", "workloads", "Workload", true);
/// Two versions of one kind, which a webhook converts.
pub(crate) const GADGET: Sample = sample("conformance.roadstead.dev/v2", "gadgets", "Gadget", true);
pub(crate) const GADGET_OLD: Sample = sample("conformance.roadstead.dev/v1", "gadgets", "Gadget", true);
const SECRET: Sample = sample("v1", "secrets", "Secret", true);
const ACCOUNT: Sample = sample("v1", "serviceaccounts", "ServiceAccount", true);
const LEASE: Sample = sample("coordination.k8s.io/v1", "leases", "Lease", true);
const TEMPLATE: Sample = sample("v1", "podtemplates", "PodTemplate", true);
const LIMITS: Sample = sample("v1", "limitranges", "LimitRange", true);
const EVENT: Sample = sample("v1", "events", "Event", true);
const ROLE: Sample = sample("rbac.authorization.k8s.io/v1", "roles", "Role", true);
const BINDING: Sample = sample(
    "rbac.authorization.k8s.io/v1",
    "rolebindings",
    "RoleBinding",
    true,
);
const PRIORITY: Sample = sample("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", false);
const RUNTIME: Sample = sample("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", false);
const NODE: Sample = sample("v1", "nodes", "Node", false);
const QUEUE: Sample = sample("kueue.x-k8s.io/v1beta2", "localqueues", "LocalQueue", true);
const CLUSTER_QUEUE: Sample = sample("kueue.x-k8s.io/v1beta2", "clusterqueues", "ClusterQueue", false);
const FLAVOR: Sample = sample(
    "kueue.x-k8s.io/v1beta2",
    "resourceflavors",
    "ResourceFlavor",
    false,
);
const CHECK: Sample = sample(
    "kueue.x-k8s.io/v1beta2",
    "admissionchecks",
    "AdmissionCheck",
    false,
);

/// All kinds that scenes use.
pub(crate) const SAMPLES: &[Sample] = &[
    CONFIG_MAP,
    POD,
    JOB,
    WIDGET,
    WORKLOAD,
    SECRET,
    ACCOUNT,
    LEASE,
    TEMPLATE,
    LIMITS,
    EVENT,
    ROLE,
    BINDING,
    PRIORITY,
    RUNTIME,
    NODE,
    QUEUE,
    CLUSTER_QUEUE,
    FLAVOR,
    CHECK,
];

impl Sample {
    /// The path of its list.
    pub(crate) fn list(self) -> String {
        let root = if self.group_version.contains('/') {
            "/apis"
        } else {
            "/api"
        };
        let namespace = if self.namespaced { "/namespaces/{ns}" } else { "" };
        format!("{root}/{}{namespace}/{}", self.group_version, self.plural)
    }

    pub(crate) fn at(self, name: &str) -> String {
        format!("{}/{name}", self.list())
    }

    /// A name that no other trace uses.
    pub(crate) fn name(self, dice: &mut Dice) -> String {
        let number = dice.below(1000);
        format!("{}-{}-{number}", dice.stem, self.plural)
    }

    /// A valid object.
    pub(crate) fn object(self, name: &str, dice: &mut Dice) -> Value {
        let mut object = body(self, dice);
        object["apiVersion"] = self.group_version.into();
        object["kind"] = self.kind.into();
        object["metadata"] = json!({"name": name});
        if self == JOB || dice.chance(50) {
            object["metadata"]["labels"] = json!({"team": *dice.pick(&["a", "b"]), "tier": "x"});
        }
        if dice.chance(20) {
            object["metadata"]["annotations"] = json!({"example.com/note": "yes"});
        }
        object
    }

    /// A change of metadata that is always allowed.
    pub(crate) fn harmless(dice: &mut Dice) -> Value {
        let label = *dice.pick(&["one", "two"]);
        json!({"metadata": {"labels": {"changed": label}}})
    }
}

/// The spec of a pod.
pub(crate) fn pod_spec(dice: &mut Dice, restart: &str) -> Value {
    let mut container = json!({"name": "main", "image": *dice.pick(&["busybox", "busybox:1.36", "registry.example/a/b:latest"])});
    if dice.chance(60) {
        container["resources"] =
            json!({"requests": {"cpu": *dice.pick(&["1", "1000m", "250m"]), "memory": "1Gi"}});
        if dice.chance(40) {
            container["resources"]["limits"] = json!({"cpu": "2", "memory": "2048Mi"});
        }
    }
    if dice.chance(30) {
        container["env"] = json!([{"name": "A", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    }
    if dice.chance(30) {
        container["ports"] =
            json!([{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP", "name": "u"}]);
    }
    let mut spec = json!({"containers": [container]});
    if !restart.is_empty() {
        spec["restartPolicy"] = restart.into();
    }
    if dice.chance(20) {
        spec["initContainers"] = json!([{"name": "init", "image": "busybox:1"}]);
    }
    if dice.chance(20) {
        spec["tolerations"] = json!([{"key": "gpu", "operator": "Exists"}]);
    }
    if dice.chance(20) {
        spec["nodeSelector"] = json!({"zone": "z1"});
    }
    if dice.chance(20) {
        spec["volumes"] = json!([{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "x"}}]);
    }
    if dice.chance(20) {
        spec["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    }
    spec
}

/// The spec of a job.
pub(crate) fn job_spec(dice: &mut Dice) -> Value {
    let restart = *dice.pick(&["Never", "OnFailure"]);
    let mut template = json!({"spec": pod_spec(dice, restart)});
    if dice.chance(30) {
        template["metadata"] = json!({"labels": {"app": "x"}, "annotations": {"example.com/a": "b"}});
    }
    let mut spec = json!({"template": template});
    if dice.chance(60) {
        spec["suspend"] = dice.chance(80).into();
    }
    if dice.chance(50) {
        spec["parallelism"] = (*dice.pick(&[1, 2, 3])).into();
    }
    if dice.chance(50) {
        spec["completions"] = (*dice.pick(&[1, 2, 3])).into();
        if dice.chance(40) {
            spec["completionMode"] = "Indexed".into();
        }
    }
    if dice.chance(20) {
        spec["backoffLimit"] = 0.into();
    }
    if dice.chance(20) {
        spec["managedBy"] = "kueue.x-k8s.io/multikueue".into();
    }
    spec
}

fn body(sample: Sample, dice: &mut Dice) -> Value {
    match sample.plural {
        "configmaps" => json!({"data": {"a": "1", "b": *dice.pick(&["", "2"])}}),
        "secrets" => match dice.below(3) {
            0 => json!({"stringData": {"key": "value"}}),
            1 => json!({"data": {"key": "dmFsdWU="}, "type": "example.com/kind"}),
            _ => json!({"data": {"key": "dmFsdWU="}, "immutable": true}),
        },
        "pods" => {
            let restart = *dice.pick(&["", "Never", "Always"]);
            json!({"spec": pod_spec(dice, restart)})
        }
        "jobs" => json!({"spec": job_spec(dice)}),
        "podtemplates" => {
            json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec(dice, "Never")}})
        }
        "widgets" => {
            json!({"spec": {"size": *dice.pick(&[1, 5, 10]), "color": *dice.pick(&["red", "blue"]), "parts": [{"name": "a", "count": 1}, {"name": "b"}]}})
        }
        "workloads" => {
            json!({"spec": {"queueName": *dice.pick(&["q", "r"]), "podSets": [{"name": "main", "count": *dice.pick(&[1, 2]), "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}]}})
        }
        "gadgets" => {
            let field = if sample == GADGET { "amount" } else { "size" };
            json!({"spec": {field: *dice.pick(&[1, 2])}})
        }
        "leases" => {
            json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z"}})
        }
        "limitranges" => {
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "500m"}}]}})
        }
        "events" => {
            json!({"involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"}, "reason": "Because", "message": "it happened", "type": "Normal", "source": {"component": "conformance"}, "count": 1, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"})
        }
        "roles" => json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}),
        "rolebindings" => {
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]})
        }
        "priorityclasses" => json!({"value": *dice.pick(&[1, 1000]), "description": "d"}),
        "runtimeclasses" => json!({"handler": "runc"}),
        "nodes" => json!({"spec": {"unschedulable": dice.chance(30)}}),
        "localqueues" => json!({"spec": {"clusterQueue": "cq"}}),
        "clusterqueues" => {
            json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": *dice.pick(&["1", "5"])}]}]}]}})
        }
        "resourceflavors" => json!({"spec": {"nodeLabels": {"a": "b"}}}),
        "admissionchecks" => json!({"spec": {"controllerName": "example.com/c"}}),
        _ => json!({}),
    }
}

/// Values that are rarely valid.
pub(crate) fn junk(dice: &mut Dice) -> Value {
    match dice.below(10) {
        0 => Value::Null,
        1 => "".into(),
        2 => 0.into(),
        3 => (-1).into(),
        4 => json!([]),
        5 => json!({}),
        6 => "A_".into(),
        7 => "x".repeat(70).into(),
        8 => true.into(),
        _ => "text".into(),
    }
}

/// The definition of the widgets.
pub fn widget_definition() -> Value {
    serde_json::from_str(include_str!("widgets.json")).unwrap_or_default()
}
