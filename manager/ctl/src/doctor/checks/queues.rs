//! Checks of queues, flavors and admission checks.

use std::collections::BTreeSet;

use roadstead_api::constants::controllers::{MULTIKUEUE, PROVISIONING_REQUEST};
use roadstead_api::rights::Process;
use serde_json::Value;

use super::{
    Group, Seen, bad, condition, everywhere, first_of, good, items, name, names, none_of, on_manager,
    on_worker, those, warning, without_condition,
};
use crate::doctor::facts::{Facts, Unread};

pub(super) const QUEUES: Group = Group {
    name: "queues",
    checks: &[
        everywhere(
            "queues-present",
            "without a queue every job waits",
            queues_present,
        ),
        everywhere(
            "queues-active",
            "an inactive ClusterQueue admits nothing",
            queues_active,
        ),
        everywhere("queues-stopped", "a stopped queue admits nothing", queues_stopped),
        everywhere(
            "local-queues-lead-somewhere",
            "jobs in such a queue wait for ever",
            local_queues,
        ),
        everywhere(
            "flavors-exist",
            "a ClusterQueue with an unknown flavor is inactive",
            flavors_exist,
        ),
        on_worker(
            "flavors-match-nodes",
            "jobs of this flavor are admitted, and their pods stay pending",
            flavors_match_nodes,
        ),
        everywhere(
            "checks-exist",
            "a ClusterQueue with an unknown check is inactive",
            checks_exist,
        ),
        everywhere(
            "checks-active",
            "workloads wait for a check that is not active",
            checks_active,
        ),
        everywhere(
            "checks-handled",
            "no process answers for this controller",
            checks_handled,
        ),
        everywhere(
            "check-parameters",
            "a check without its parameters never becomes ready",
            check_parameters,
        ),
        on_manager(
            "dispatch",
            "jobs in a queue without a multikueue check are not sent to workers",
            dispatch,
        ),
        everywhere(
            "workloads-have-queues",
            "such a workload waits until its queue is made",
            workloads_have_queues,
        ),
    ],
};

fn queues_present(facts: &Facts) -> Result<Seen, Unread> {
    let (clusters, locals) = (facts.all("ClusterQueue")?.len(), facts.all("LocalQueue")?.len());
    let text = format!("{clusters} ClusterQueues, {locals} LocalQueues");
    Ok(if clusters == 0 || locals == 0 {
        warning(
            text,
            "make a ResourceFlavor, a ClusterQueue, and a LocalQueue in each namespace that submits",
        )
    } else {
        good(text)
    })
}

fn queues_active(facts: &Facts) -> Result<Seen, Unread> {
    let faulty = without_condition(facts.all("ClusterQueue")?, "Active");
    Ok(none_of(faulty, "all", |names| {
        bad(
            format!("inactive: {names}"),
            format!("kubectl describe clusterqueue {}", first_of(&names)),
        )
    }))
}

fn queues_stopped(facts: &Facts) -> Result<Seen, Unread> {
    let is_stopped = |queue: &&Value| {
        matches!(
            queue["spec"]["stopPolicy"].as_str(),
            Some("Hold" | "HoldAndDrain")
        )
    };
    let queues = facts.all("ClusterQueue")?.iter().chain(facts.all("LocalQueue")?);
    let faulty = queues.filter(is_stopped).map(name).collect();
    Ok(none_of(faulty, "none", |names| {
        warning(
            format!("stopped: {names}"),
            "set spec.stopPolicy to None when it may go on",
        )
    }))
}

fn local_queues(facts: &Facts) -> Result<Seen, Unread> {
    let there = names(facts.all("ClusterQueue")?);
    let leads_nowhere = |queue: &&Value| {
        !queue["spec"]["clusterQueue"]
            .as_str()
            .is_some_and(|name| there.contains(name))
    };
    let faulty = those(facts, "LocalQueue", leads_nowhere)?;
    Ok(none_of(faulty, "all", |names| {
        bad(
            format!("lead to no ClusterQueue: {names}"),
            "make the ClusterQueue that spec.clusterQueue names",
        )
    }))
}

/// Names in a list of each ClusterQueue whose objects do not exist.
fn dangling(
    facts: &Facts,
    there: &BTreeSet<&str>,
    of: fn(&Value) -> Vec<&str>,
) -> Result<Vec<String>, Unread> {
    let mut faulty = Vec::new();
    for queue in facts.all("ClusterQueue")? {
        let unknown = of(queue).into_iter().filter(|each| !there.contains(each));
        faulty.extend(unknown.map(|each| format!("{each} (in {})", name(queue))));
    }
    Ok(faulty)
}

fn flavors_of(queue: &Value) -> Vec<&str> {
    let groups = items(queue, "/spec/resourceGroups");
    groups
        .flat_map(|group| items(group, "/flavors"))
        .filter_map(|flavor| flavor["name"].as_str())
        .collect()
}

fn checks_of(queue: &Value) -> Vec<&str> {
    let strategy = items(queue, "/spec/admissionChecksStrategy/admissionChecks")
        .filter_map(|check| check["name"].as_str());
    let plain = items(queue, "/spec/admissionChecks").filter_map(Value::as_str);
    strategy.chain(plain).collect()
}

/// Judges whether every object of a kind exists that a ClusterQueue names.
fn exist(facts: &Facts, kind: &str, of: fn(&Value) -> Vec<&str>) -> Result<Seen, Unread> {
    let there = names(facts.all(kind)?);
    Ok(none_of(dangling(facts, &there, of)?, "all", |names| {
        bad(
            format!("unknown: {names}"),
            format!("make the {kind}, or take it out of the ClusterQueue"),
        )
    }))
}

fn flavors_exist(facts: &Facts) -> Result<Seen, Unread> {
    exist(facts, "ResourceFlavor", flavors_of)
}

fn flavors_match_nodes(facts: &Facts) -> Result<Seen, Unread> {
    let nodes = facts.all("Node")?;
    let fits = |node: &Value, labels: &Value| {
        let mut wanted = labels.as_object().into_iter().flatten();
        wanted.all(|(key, value)| node["metadata"]["labels"][key] == *value)
    };
    let matches_none = |flavor: &&Value| !nodes.iter().any(|node| fits(node, &flavor["spec"]["nodeLabels"]));
    let faulty = those(facts, "ResourceFlavor", matches_none)?;
    Ok(none_of(faulty, "every flavor has a node", |names| {
        warning(
            format!("match no node: {names}"),
            "kubectl get nodes --show-labels",
        )
    }))
}

fn checks_exist(facts: &Facts) -> Result<Seen, Unread> {
    exist(facts, "AdmissionCheck", checks_of)
}

fn checks_active(facts: &Facts) -> Result<Seen, Unread> {
    let faulty = without_condition(facts.all("AdmissionCheck")?, "Active");
    Ok(none_of(faulty, "all", |names| {
        bad(
            format!("inactive: {names}"),
            format!("kubectl describe admissioncheck {}", first_of(&names)),
        )
    }))
}

fn checks_handled(facts: &Facts) -> Result<Seen, Unread> {
    let ours = match facts.process() {
        Some(Process::Manager) => MULTIKUEUE,
        Some(Process::Worker) => PROVISIONING_REQUEST,
        None => return Err(Unread("there is no Deployment".to_owned())),
    };
    let is_foreign = |check: &&Value| check["spec"]["controllerName"] != ours;
    let with_controller = |check: &Value| {
        format!(
            "{} ({})",
            name(check),
            check["spec"]["controllerName"].as_str().unwrap_or_default()
        )
    };
    let faulty = facts
        .all("AdmissionCheck")?
        .iter()
        .filter(is_foreign)
        .map(with_controller)
        .collect();
    Ok(none_of(faulty, "all by this process", |names| {
        warning(
            format!("by other controllers: {names}"),
            format!(
                "see that the controllers in brackets run: kubectl describe admissioncheck {}",
                first_of(&names)
            ),
        )
    }))
}

fn check_parameters(facts: &Facts) -> Result<Seen, Unread> {
    let mut faulty = Vec::new();
    for check in facts.all("AdmissionCheck")? {
        let parameters = &check["spec"]["parameters"];
        let (kind, wanted) = (parameters["kind"].as_str(), parameters["name"].as_str());
        let is_there = match (kind, wanted) {
            (Some(kind @ ("MultiKueueConfig" | "ProvisioningRequestConfig")), Some(wanted)) => {
                facts.named(kind, wanted)?.is_some()
            }
            (Some(_), Some(_)) => true,
            _ => check["spec"]["controllerName"] != MULTIKUEUE,
        };
        if !is_there {
            faulty.push(format!("{} (names {})", name(check), wanted.unwrap_or("none")));
        }
    }
    Ok(none_of(faulty, "all exist", |names| {
        bad(
            format!("missing: {names}"),
            "make the object that spec.parameters names",
        )
    }))
}

fn dispatch(facts: &Facts) -> Result<Seen, Unread> {
    let checks = facts.all("AdmissionCheck")?;
    let dispatches = |queue: &Value| {
        checks_of(queue).iter().any(|wanted| {
            checks.iter().any(|check| {
                check["metadata"]["name"] == *wanted && check["spec"]["controllerName"] == MULTIKUEUE
            })
        })
    };
    let faulty = those(facts, "ClusterQueue", |queue| !dispatches(queue))?;
    Ok(none_of(faulty, "every ClusterQueue sends to workers", |names| {
        warning(
            format!("run their jobs on the management cluster: {names}"),
            "add a multikueue AdmissionCheck to them",
        )
    }))
}

fn workloads_have_queues(facts: &Facts) -> Result<Seen, Unread> {
    let queues: BTreeSet<String> = facts.all("LocalQueue")?.iter().map(name).collect();
    let waits_in_vain = |workload: &&Value| {
        let namespace = workload["metadata"]["namespace"].as_str().unwrap_or_default();
        let queue = workload["spec"]["queueName"].as_str().unwrap_or_default();
        let is_finished = condition(workload, "Finished").is_some_and(|(status, _)| status == "True");
        !is_finished && !queues.contains(&format!("{namespace}/{queue}"))
    };
    let faulty = those(facts, "Workload", waits_in_vain)?;
    Ok(none_of(faulty, "all", |names| {
        bad(
            format!("their LocalQueue does not exist: {names}"),
            "make the LocalQueue, or delete the job",
        )
    }))
}
