//! Obstacles to an installation, and its steps: decided from what was read.

use std::collections::BTreeSet;

use roadstead_api::constants::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use roadstead_api::install::owned;
use roadstead_api::rights::Process;
use roadstead_serve::config;
use serde_json::Value;

use crate::cluster::account::State;
use crate::engines::{APP_LABEL, Found, KUEUE_APP};
use crate::failure::{Code, Failure};

/// One object, and whether it must be applied.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) object: Value,
    /// Kind and name, as kubectl writes them.
    pub(super) title: String,
    pub(super) state: State,
    /// Why it is left as it is: another owner has made it, or the cluster does not serve its kind.
    pub(super) left: Option<&'static str>,
}

impl Step {
    pub(super) fn is_due(&self) -> bool {
        self.left.is_none() && self.state != State::Same
    }

    pub(super) fn is_definition(&self) -> bool {
        self.object["kind"] == "CustomResourceDefinition"
    }
}

/// Refuses if another engine would decide about the same queues.
pub(super) fn refuse_others(process: Process, namespace: &str, found: &[Found]) -> Result<(), Failure> {
    if let Some(kueue) = found.iter().find(|each| each.is_kueue()) {
        let Found {
            namespace: theirs,
            name,
            ..
        } = kueue;
        return Err(Failure::new(
            format!("Kueue runs in this cluster already: Deployment {theirs}/{name}"),
            "two engines would admit the same workloads, each without knowing of the other",
            format!(
                "stop it first: kubectl -n {theirs} scale deployment {name} --replicas=0; queues and workloads stay and are taken over. \
                 Then delete it: kubectl -n {theirs} delete deployment {name}"
            ),
        ));
    }
    let of_ours = |each: &&Found| {
        each.installed
            .as_deref()
            .is_some_and(|name| name != process.name() || each.namespace != namespace)
    };
    if let Some(other) = found.iter().find(of_ours) {
        let installed = other.installed.as_deref().unwrap_or_default();
        let part = installed.trim_start_matches("roadstead-");
        return Err(Failure::new(
            format!(
                "{installed} is installed in this cluster already, in namespace {}",
                other.namespace
            ),
            "a cluster has one engine: two would admit the same workloads",
            format!(
                "take it away first: roadstead uninstall {part} --namespace {}",
                other.namespace
            ),
        ));
    }
    Ok(())
}

/// Refuses if webhooks of an earlier engine would refuse the pods of this installation, or objects that its process never removes.
///
/// Why only then: the process takes entries over that ask a Service of its own namespace, which Kueue spares. Until then the API
/// server refuses jobs, which is better than to start them without a queue.
pub(super) fn refuse_webhooks(namespace: &str, configurations: &[Value]) -> Result<(), Failure> {
    let mut services = BTreeSet::new();
    let mut deletions = Vec::new();
    let mut names = Vec::new();
    for configuration in configurations {
        let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
        let is_known = [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS].contains(&name);
        let is_kueues = configuration["metadata"]["labels"][APP_LABEL] == KUEUE_APP;
        let entries = configuration["webhooks"].as_array().into_iter().flatten();
        let asked: BTreeSet<String> = entries
            .map(|entry| &entry["clientConfig"]["service"])
            .filter(|service| service.is_object())
            .filter(|service| {
                if is_known {
                    service["namespace"] != namespace
                } else {
                    is_kueues
                }
            })
            .map(|service| {
                let text = |field: &str| service[field].as_str().unwrap_or_default();
                format!("{}/{}", text("namespace"), text("name"))
            })
            .collect();
        if asked.is_empty() {
            continue;
        }
        let kind = configuration["kind"].as_str().unwrap_or_default().to_lowercase();
        services.extend(asked);
        names.push(format!("{kind}/{name}"));
        deletions.push(format!("kubectl delete {kind} {name}"));
    }
    if names.is_empty() {
        return Ok(());
    }
    let services: Vec<String> = services.into_iter().collect();
    Err(Failure::new(
        format!(
            "webhooks of an earlier installation are left: {}",
            names.join(", ")
        ),
        format!(
            "they ask Service {}, where nothing answers any more, so the API server would refuse the pods of this installation",
            services.join(", ")
        ),
        format!(
            "delete them: {}; then run the same command again at once, because jobs that are created meanwhile start without \
             waiting for their queue",
            deletions.join("; ")
        ),
    ))
}

/// Refuses a configuration with which the process would not start.
pub(super) fn refuse_configuration(namespace: &str, objects: &[Value]) -> Result<(), Failure> {
    let texts = objects
        .iter()
        .filter_map(|object| object["data"]["config.yaml"].as_str());
    for text in texts {
        config::parse("the configuration that the values give", text, &[], namespace).map_err(|error| {
            let next = "correct configuration or roadsteadConfiguration in the file that --values names";
            Failure::new(
                "the process would refuse its configuration",
                error.to_string(),
                next,
            )
            .code(Code::Usage)
        })?;
    }
    Ok(())
}

/// Refuses to put definitions of this version over those of a newer one.
pub(super) fn refuse_newer(name: &str, stands: &Value) -> Result<(), Failure> {
    let theirs = stands["metadata"]["labels"][owned::VERSION_LABEL]
        .as_str()
        .unwrap_or_default();
    if owned::by(stands).is_none() || numbers(theirs) <= numbers(owned::VERSION) {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "definition {name} was installed by {theirs}, and this is {}",
            owned::VERSION
        ),
        "fields that the newer version stores would be lost",
        format!("use roadstead {theirs} or newer"),
    ))
}

/// The numbers of a version such as `v1.2.3`.
fn numbers(version: &str) -> Vec<u64> {
    let parts = version.trim_start_matches('v').split(['.', '-']);
    parts.map_while(|part| part.parse().ok()).collect()
}

/// Refuses a namespace of another owner in which the pods could not start.
pub(super) fn refuse_namespace(wanted: &Value, stands: &Value) -> Result<(), Failure> {
    const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    if stands["metadata"]["deletionTimestamp"].is_string() {
        return Err(Failure::new(
            format!("namespace {name} is being deleted"),
            "nothing can be created in it any more",
            "wait until it is gone, then run the same command again",
        ));
    }
    let level = stands["metadata"]["labels"][ENFORCE].as_str();
    match level {
        None | Some("privileged" | "baseline" | "restricted") => Ok(()),
        Some(other) => Err(Failure::new(
            format!("namespace {name} has label {ENFORCE}={other}"),
            "that is no level of pod security, so the API server refuses every pod there",
            format!("kubectl label namespace {name} {ENFORCE}=restricted --overwrite"),
        )),
    }
}

/// The plan as text, for the user's consent.
pub(super) fn describe(process: Process, namespace: &str, steps: &[Step]) -> String {
    let mut lines = vec![format!(
        "plan for {} {} in namespace {namespace}",
        process.name(),
        owned::VERSION
    )];
    lines.extend(steps.iter().map(|step| match (step.left, step.state) {
        (Some(why), _) => format!("  leave  {} ({why})", step.title),
        (None, State::Missing) => format!("  create {}", step.title),
        (None, State::Different) => format!("  change {}", step.title),
        (None, State::Same) => format!("  keep   {}", step.title),
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use roadstead_api::install::manifests;
    use serde_json::json;

    use super::*;

    fn found(namespace: &str, installed: Option<&str>, image: &str) -> Found {
        Found {
            namespace: namespace.to_owned(),
            name: "kueue-controller-manager".to_owned(),
            installed: installed.map(str::to_owned),
            app: None,
            images: vec![image.to_owned()],
        }
    }

    #[test]
    fn a_configuration_that_the_process_would_refuse_is_refused_before_anything_is_installed() {
        let with = |values: Value| {
            let values = serde_json::from_value(values).unwrap();
            let objects = manifests(Process::Worker, "ours", &values).unwrap();
            refuse_configuration("ours", &objects)
        };
        with(json!({})).unwrap();
        let refused = with(json!({"configuration": {"waitForPodReady": {}}})).unwrap_err();
        assert!(refused.why.contains("waitForPodReady"), "{refused}");
        let limits = json!({"admissionGracePeriod": "10m", "warmupGracePeriod": "1m"});
        let section = json!({"appwrapper": {"faultTolerance": limits}});
        let refused = with(json!({"roadsteadConfiguration": section})).unwrap_err();
        assert!(refused.why.contains("admissionGracePeriod"), "{refused}");
    }

    #[test]
    fn a_cluster_that_runs_kueue_is_refused_with_what_to_do() {
        let kueue = found("kueue-system", None, "registry.k8s.io/kueue/kueue:v0.17.0");
        let refused = refuse_others(Process::Manager, "kueue-system", &[kueue]).unwrap_err();
        assert!(refused.what.contains("Kueue runs in this cluster"), "{refused}");
        assert!(refused.next.contains("--replicas=0"), "{refused}");
        let other = found("tools", None, "registry.example/kueueviz:v1");
        refuse_others(Process::Manager, "kueue-system", &[other]).unwrap();
    }

    #[test]
    fn webhooks_that_the_process_cannot_take_over_are_named_before_anything_is_installed() {
        let of = |name: &str, app: &str, namespace: &str| {
            json!({
                "kind": "MutatingWebhookConfiguration", "metadata": {"name": name, "labels": {APP_LABEL: app}},
                "webhooks": [
                    {"clientConfig": {"url": "https://elsewhere"}},
                    {"clientConfig": {"service": {"name": "kueue-webhook-service", "namespace": namespace}}},
                ],
            })
        };
        let empty = json!({"kind": "MutatingWebhookConfiguration", "metadata": {"name": MUTATING_WEBHOOKS}});
        let taken_over = of(MUTATING_WEBHOOKS, KUEUE_APP, "kueue-system");
        let others = of("jobset-mutating-webhook-configuration", "jobset", "jobset-system");
        refuse_webhooks("kueue-system", &[empty, taken_over.clone(), others]).unwrap();
        let refused = refuse_webhooks("queueing", &[taken_over]).unwrap_err();
        assert!(
            refused.why.contains("kueue-system/kueue-webhook-service"),
            "{refused}"
        );
        let delete = format!("kubectl delete mutatingwebhookconfiguration {MUTATING_WEBHOOKS}");
        assert!(refused.next.contains(&delete), "{refused}");
        let of_another_release = of(
            "batch-kueue-mutating-webhook-configuration",
            KUEUE_APP,
            "kueue-system",
        );
        refuse_webhooks("kueue-system", &[of_another_release]).unwrap_err();
    }

    #[test]
    fn a_second_installation_is_refused_and_the_same_one_again_is_not() {
        let ours = found(
            "ours",
            Some("roadstead-manager"),
            "roadstead/roadstead-manager:v1",
        );
        refuse_others(Process::Manager, "ours", std::slice::from_ref(&ours)).unwrap();
        for (process, namespace) in [(Process::Manager, "elsewhere"), (Process::Worker, "ours")] {
            let refused = refuse_others(process, namespace, std::slice::from_ref(&ours)).unwrap_err();
            assert_eq!(
                refused.next,
                "take it away first: roadstead uninstall manager --namespace ours"
            );
        }
    }

    #[test]
    fn definitions_of_a_newer_version_are_not_overwritten() {
        let stands = |version: &str| json!({"metadata": {"labels": {owned::LABEL: owned::DEFINITIONS, owned::VERSION_LABEL: version}}});
        refuse_newer("a", &stands("v0.0.9")).unwrap();
        refuse_newer("a", &stands(owned::VERSION)).unwrap();
        let refused = refuse_newer("a", &stands("v99.10.0")).unwrap_err();
        assert!(refused.what.contains("v99.10.0"), "{refused}");
        refuse_newer("a", &json!({"metadata": {}})).unwrap();
    }

    #[test]
    fn a_namespace_that_goes_or_refuses_every_pod_is_named() {
        let wanted = json!({"metadata": {"name": "ours"}});
        let level =
            |level: &str| json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        for good in [json!({}), level("baseline"), level("restricted")] {
            refuse_namespace(&wanted, &good).unwrap();
        }
        assert!(
            refuse_namespace(&wanted, &level("none"))
                .unwrap_err()
                .next
                .contains("kubectl label namespace ours")
        );
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(
            refuse_namespace(&wanted, &going)
                .unwrap_err()
                .what
                .contains("is being deleted")
        );
    }
}
