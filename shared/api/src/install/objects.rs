//! The objects of an installation.

use serde_json::{Value, json};

use super::owned::{self, DEFINITIONS};
use super::people::people;
use super::place::Place;
use super::values::{Refusal, Values};
use super::{visibility, webhooks};
use crate::crd::{self, WEBHOOK_SERVICE};
use crate::rights::{self, Process};
use roadstead_kinds::{Kind, TABLE, rows};

/// Where the configuration is mounted.
const CONFIG_DIR: &str = "/etc/roadstead";
/// Key of the configuration in its `ConfigMap`, and its file name.
pub const CONFIG_FILE: &str = "config.yaml";
/// The Service in front of the metrics, as the reference's installations name it.
const METRICS_SERVICE: &str = "kueue-controller-manager-metrics-service";
/// User and group of the process; the images name the same.
pub const USER: u32 = 65_532;
/// A process ends within five seconds of SIGTERM.
const GRACE_SECS: u32 = 10;
const PROBE_SECS: u32 = 10;
/// Definitions that another tool may have installed: existing ones are left unchanged.
const OTHERS: [&str; 2] = [
    "provisioningrequests.autoscaling.x-k8s.io",
    "appwrappers.workload.codeflare.dev",
];

/// When a group of objects is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In every cluster.
    Always,
    /// If `configuration.integrations.frameworks` names this one, or one that works through it.
    Integration(&'static Kind),
    /// If `roadsteadConfiguration.virtualNodes.enable`.
    VirtualNodes,
    /// If `podDisruptionBudget.enabled`.
    Budget,
    /// If `networkPolicy.enabled`.
    Network,
    /// If `serviceMonitor.enabled` and the cluster serves the kind.
    Monitor,
    /// If `rolesForPeople.enabled`.
    People,
    /// Unless `roadsteadConfiguration.webhook.manageConfigurations` is false.
    Webhooks,
}

/// Objects that are installed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name of the file in the chart, without its extension.
    pub name: String,
    /// When they are installed.
    pub when: When,
    /// The objects, in the order in which they are applied.
    pub objects: Vec<Value>,
}

/// All objects of a process with these values, with our labels, in the order in which they are applied; without the definitions,
/// see [`definitions`].
///
/// *Errors*: values that contradict each other.
pub fn manifests(process: Process, namespace: &str, values: &Values) -> Result<Vec<Value>, Refusal> {
    let place = Place::of(process, namespace, values)?;
    let frameworks: Vec<String> = { values.configuration.get("integrations").into_iter() }
        .flat_map(|section| section["frameworks"].as_array().into_iter().flatten())
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let is_wanted = |when: When| match when {
        When::Always => true,
        When::Integration(kind) => TABLE.enabled(&frameworks).contains(&kind),
        When::VirtualNodes => {
            let nodes = values.roadstead_configuration.get("virtualNodes");
            nodes.is_some_and(|section| section["enable"] == true)
        }
        When::Budget => values.pod_disruption_budget.enabled,
        When::Network => values.network_policy.enabled,
        When::Monitor => values.service_monitor.enabled,
        When::People => values.roles_for_people.enabled,
        When::Webhooks => {
            let webhook = values.roadstead_configuration.get("webhook");
            webhook.is_none_or(|section| section["manageConfigurations"] != false)
        }
    };
    let groups = groups(process, &place).into_iter();
    Ok(groups
        .filter(|group| is_wanted(group.when))
        .flat_map(|group| group.objects)
        .collect())
}

/// The objects of a process by group.
pub fn groups(process: Process, place: &Place) -> Vec<Group> {
    let group = |name: &str, when, mut objects: Vec<Value>| {
        for object in &mut objects {
            owned::mark(object, process.name());
        }
        let name = name.to_owned();
        Group { name, when, objects }
    };
    let rest = { TABLE.iter() }
        .filter(|kind| !rights::BY_DEFAULT.contains(kind))
        .map(|kind| {
            let mut objects = rights::of_integration(process, &place.namespace, kind);
            if kind == &rows::APP_WRAPPER && process == Process::Worker {
                objects.extend(rights::appwrapper(&place.namespace));
            }
            for object in &mut objects {
                rename_account(object, &place.account);
            }
            group(
                &format!("rights-{}", kind.plural),
                When::Integration(kind),
                objects,
            )
        });
    let mut groups = vec![group("rights", When::Always, rights(process, place))];
    groups.extend(rest);
    if process == Process::Manager {
        let mut objects = rights::virtual_nodes(&place.namespace);
        for object in &mut objects {
            rename_account(object, &place.account);
        }
        groups.push(group("rights-virtual-nodes", When::VirtualNodes, objects));
    }
    groups.extend([
        group("configuration", When::Always, vec![config_map(process, place)]),
        group("services", When::Always, services(process, place)),
        group("visibility", When::Always, visibility::manifests(place)),
        group("deployment", When::Always, vec![deployment(process, place)]),
        group("poddisruptionbudget", When::Budget, vec![budget(process, place)]),
        group(
            "networkpolicy",
            When::Network,
            vec![network_policy(process, place)],
        ),
        group("people", When::People, people()),
        group("servicemonitor", When::Monitor, vec![monitor(process, place)]),
        // Why last: `kubectl delete -f` deletes in this order, and a process that still runs could write them again.
        group("webhooks", When::Webhooks, webhooks::manifests()),
    ]);
    groups
}

/// The definitions of all kinds, with our labels; the conversion webhook is in `namespace`.
pub fn definitions(namespace: &str) -> Vec<Value> {
    let definitions = crd::all();
    definitions
        .iter()
        .filter_map(|definition| serde_json::to_value(definition).ok())
        .map(|mut definition| {
            if let Some(service) = definition.pointer_mut("/spec/conversion/webhook/clientConfig/service") {
                service["namespace"] = namespace.into();
            }
            owned::mark(&mut definition, DEFINITIONS);
            definition
        })
        .collect()
}

/// Whether another tool may have installed a definition, so that an existing one is left unchanged.
pub fn may_be_of_others(definition: &str) -> bool {
    OTHERS.contains(&definition)
}

/// The rights with the default integrations; those of the other integrations are in `deploy/rights`, a file for each.
fn rights(process: Process, place: &Place) -> Vec<Value> {
    let mut objects = rights::manifests(process, &place.namespace, rights::BY_DEFAULT);
    for object in &mut objects {
        if object["kind"] == "Namespace" {
            object["metadata"]["labels"] = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        }
        rename_account(object, &place.account);
    }
    objects
}

/// Gives a service account, and the subjects of bindings to it, the name of the place.
fn rename_account(object: &mut Value, name: &str) {
    if object["kind"] == "ServiceAccount" {
        object["metadata"]["name"] = name.into();
    }
    // Why not by index: indexing would add the key to objects without it.
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        subject["name"] = name.into();
    }
}

/// Labels by which the Services find the pods; the reference's installations select by `control-plane`.
fn selector(process: Process) -> Value {
    json!({"app.kubernetes.io/name": process.name(), "control-plane": "controller-manager"})
}

/// Name of the `ConfigMap` with the configuration of a process.
pub fn config_name(process: Process) -> String {
    format!("{}-config", process.name())
}

fn config_map(process: Process, place: &Place) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": config_name(process), "namespace": place.namespace},
        "data": {CONFIG_FILE: place.config},
    })
}

fn services(process: Process, place: &Place) -> Vec<Value> {
    let service = |name: &str, port: u16, target: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": name, "namespace": place.namespace, "labels": {"app.kubernetes.io/name": process.name()},
            },
            "spec": {
                "selector": selector(process),
                "ports": [{"name": target, "port": port, "protocol": "TCP", "targetPort": target}],
            },
        })
    };
    vec![
        service(WEBHOOK_SERVICE, 443, "webhook"),
        service(METRICS_SERVICE, 8443, "metrics"),
    ]
}

fn deployment(process: Process, place: &Place) -> Value {
    let name = process.name();
    let port = |name: &str, port: &Value| json!({"name": name, "containerPort": port, "protocol": "TCP"});
    let probe =
        |path: &str| json!({"httpGet": {"path": path, "port": "health"}, "periodSeconds": PROBE_SECS});
    let container = json!({
        "name": name,
        "image": place.image,
        "imagePullPolicy": place.pull_policy,
        "args": [
            format!("--config={CONFIG_DIR}/{CONFIG_FILE}"),
            format!("--controllers={}", place.controllers),
            format!("--log-format={}", place.log_format),
        ],
        // Why: a container that restarts in the same pod leads again at once.
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [
            port("webhook", &place.ports.webhook),
            port("metrics", &place.ports.metrics),
            port("health", &place.ports.health),
            port("visibility", &place.ports.visibility),
        ],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": place.resources,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{"name": "config", "mountPath": CONFIG_DIR, "readOnly": true}],
    });
    let apart = json!({
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(process)},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name, "namespace": place.namespace, "labels": {"app.kubernetes.io/name": name},
        },
        "spec": {
            "replicas": place.replicas,
            "selector": {"matchLabels": selector(process)},
            "template": {
                "metadata": {
                    "labels": selector(process),
                    "annotations": {"roadstead.dev/config": place.config_digest},
                },
                "spec": {
                    "serviceAccountName": place.account,
                    "priorityClassName": place.priority_class,
                    "terminationGracePeriodSeconds": GRACE_SECS,
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "nodeSelector": place.node_selector,
                    "tolerations": place.tolerations,
                    "topologySpreadConstraints": [apart],
                    "volumes": [{"name": "config", "configMap": {"name": config_name(process)}}],
                },
            },
        },
    })
}

fn budget(process: Process, place: &Place) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": process.name(), "namespace": place.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(process)}},
    })
}

fn network_policy(process: Process, place: &Place) -> Value {
    let served = ["webhook", "visibility", "metrics", "health"].map(|port| json!({"port": port}));
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": process.name(), "namespace": place.namespace},
        "spec": {
            "podSelector": {"matchLabels": selector(process)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": served}],
            "egress": [
                {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
                {"ports": place.api_servers},
            ],
        },
    })
}

fn monitor(process: Process, place: &Place) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
        "metadata": {"name": process.name(), "namespace": place.namespace},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": process.name()}},
            "endpoints": [{"port": "metrics", "path": "/metrics"}],
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn made(process: Process, values: Value) -> Vec<Value> {
        manifests(process, "ours", &from_value(values).unwrap()).unwrap()
    }

    fn of_kind(objects: &[Value], kind: &str) -> Vec<Value> {
        let found = objects.iter().filter(|object| object["kind"] == kind);
        found.cloned().collect()
    }

    /// Spec: safety S23
    #[test]
    fn pods_are_restricted_and_write_nowhere() {
        for process in Process::ALL {
            let deployment = &of_kind(&made(process, json!({})), "Deployment")[0];
            let pod = &deployment["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            let container = &pod["containers"][0]["securityContext"];
            assert_eq!(container["allowPrivilegeEscalation"], false);
            assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
            assert_eq!(container["readOnlyRootFilesystem"], true);
            let text = deployment.to_string();
            assert!(
                !text.contains("hostPath") && !text.contains("hostNetwork"),
                "{text}"
            );
        }
    }

    #[test]
    fn every_object_is_marked_and_lives_in_the_namespace_that_was_asked_for() {
        for process in Process::ALL {
            for object in made(process, json!({})) {
                assert_eq!(owned::by(&object), Some(process.name()), "{object}");
                assert!(!object.to_string().contains("kueue-system"), "{object}");
            }
        }
        for definition in definitions("ours") {
            assert_eq!(owned::by(&definition), Some(DEFINITIONS));
            assert!(!definition.to_string().contains("\"kueue-system\""));
        }
    }

    #[test]
    fn the_configuration_names_the_ports_of_the_deployment_and_what_was_merged() {
        let values = json!({
            "ports": {"webhook": 19443}, "configuration": {"leaderElection": {"leaseDuration": "20s"}},
            "roadsteadConfiguration": {"multiKueue": {"workerLostPolicy": "Wait"}},
        });
        let objects = made(Process::Manager, values);
        let text = of_kind(&objects, "ConfigMap")[0]["data"][CONFIG_FILE].clone();
        let (theirs, ours) = text.as_str().unwrap().split_once("\n---\n").unwrap();
        let (theirs, ours): (Value, Value) = (
            serde_json::from_str(theirs).unwrap(),
            serde_json::from_str(ours).unwrap(),
        );
        assert_eq!(theirs["webhook"]["port"], 19443);
        assert_eq!(
            theirs["leaderElection"],
            json!({"leaderElect": true, "leaseDuration": "20s"})
        );
        assert_eq!(ours["multiKueue"]["workerLostPolicy"], "Wait");
        let ports = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["ports"];
        assert_eq!(
            ports[0],
            json!({"name": "webhook", "containerPort": 19443, "protocol": "TCP"})
        );
    }

    #[test]
    fn another_account_is_the_one_that_everything_is_bound_to() {
        for process in Process::ALL {
            let objects = made(process, json!({"serviceAccount": "queuer"}));
            for object in &objects {
                let subjects = object["subjects"].as_array().into_iter().flatten();
                for subject in subjects {
                    assert_eq!(subject["name"], "queuer", "{object}");
                }
                let is_binding = object["kind"].to_string().contains("Binding");
                assert_eq!(object.get("subjects").is_some(), is_binding, "{object}");
            }
            assert_eq!(
                of_kind(&objects, "ServiceAccount")[0]["metadata"]["name"],
                "queuer"
            );
        }
    }

    /// Why without entries: an upgrade would remove those that the process has written.
    #[test]
    fn webhook_configurations_are_installed_last_and_without_entries() {
        for process in Process::ALL {
            let all = made(process, json!({}));
            let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
            let last: Vec<&Value> = all.iter().rev().take(2).rev().collect();
            for (object, kind) in last.into_iter().zip(kinds) {
                assert_eq!(object["kind"], kind);
                assert_eq!(object.get("webhooks"), None, "{object}");
            }
            let unmanaged = json!({"roadsteadConfiguration": {"webhook": {"manageConfigurations": false}}});
            assert!(of_kind(&made(process, unmanaged), kinds[0]).is_empty());
        }
    }

    #[test]
    fn what_is_switched_off_is_not_installed() {
        let off = json!({"enabled": false});
        let values = json!({
            "podDisruptionBudget": off, "networkPolicy": off, "serviceMonitor": off, "rolesForPeople": off,
        });
        for process in Process::ALL {
            let all = made(process, json!({}));
            let fewer = made(process, values.clone());
            for kind in ["PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"] {
                assert_eq!(of_kind(&all, kind).len(), 1, "{kind}");
                assert!(of_kind(&fewer, kind).is_empty(), "{kind}");
            }
        }
    }
}
