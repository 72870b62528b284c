//! Checks of the installed process.

use jiff::Timestamp;
use roadstead_api::install::owned;
use roadstead_api::rights::{self, Process};
use roadstead_kinds::{TABLE, rows};
use roadstead_serve::config;
use serde_json::Value;

use super::{
    CLOCK_SECS_MAX, Group, Seen, bad, everywhere, good, install, look_at_log, name, none_of, warning,
};
use crate::doctor::facts::{Facts, Unread};

pub(super) const PROCESS: Group = Group {
    name: "process",
    checks: &[
        everywhere(
            "deployment",
            "nothing decides about queues without the process",
            deployment,
        ),
        everywhere(
            "replicas",
            "with no ready replica nothing is admitted and every job is refused",
            replicas,
        ),
        everywhere(
            "image-version",
            "command and process of different versions may disagree",
            image_version,
        ),
        everywhere(
            "service-account",
            "pods without their account do not start",
            service_account,
        ),
        everywhere(
            "cluster-role",
            "without its rights the process cannot work",
            cluster_role,
        ),
        everywhere(
            "configuration",
            "a process with a wrong configuration does not start",
            configuration,
        ),
        everywhere("leader", "only the replica that leads decides", leader),
    ],
};

fn deployment(facts: &Facts) -> Result<Seen, Unread> {
    Ok(match facts.deployment()? {
        Some(found) => good(name(found)),
        None => bad(
            format!("nothing is installed in namespace {}", facts.namespace),
            install(facts),
        ),
    })
}

fn of_deployment(facts: &Facts, judge: impl FnOnce(&Value) -> Seen) -> Result<Seen, Unread> {
    match facts.deployment()? {
        Some(found) => Ok(judge(found)),
        None => Err(Unread("there is no Deployment".to_owned())),
    }
}

fn replicas(facts: &Facts) -> Result<Seen, Unread> {
    of_deployment(facts, |found| {
        let wanted = found["spec"]["replicas"].as_u64().unwrap_or(1);
        let ready = found["status"]["readyReplicas"].as_u64().unwrap_or(0);
        let text = format!("{ready} of {wanted} ready");
        let look = format!(
            "kubectl -n {} describe pods -l app.kubernetes.io/name={}",
            facts.namespace,
            found["metadata"]["name"].as_str().unwrap_or_default()
        );
        match ready {
            0 => bad(text, look),
            some if some < wanted => warning(text, look),
            _ => good(text),
        }
    })
}

fn image_version(facts: &Facts) -> Result<Seen, Unread> {
    of_deployment(facts, |found| {
        let version = found["metadata"]["labels"][owned::VERSION_LABEL]
            .as_str()
            .unwrap_or("unknown");
        if version == owned::VERSION {
            good(version)
        } else {
            warning(
                format!("installed is {version}, this command is {}", owned::VERSION),
                format!("use roadstead {version}, or: {}", install(facts)),
            )
        }
    })
}

fn service_account(facts: &Facts) -> Result<Seen, Unread> {
    let Some(found) = facts.deployment()? else {
        return Err(Unread("there is no Deployment".to_owned()));
    };
    let account = found["spec"]["template"]["spec"]["serviceAccountName"]
        .as_str()
        .unwrap_or(rights::ACCOUNT);
    Ok(match facts.named("ServiceAccount", account)? {
        Some(_) => good(account),
        None => bad(format!("no ServiceAccount {account}"), install(facts)),
    })
}

/// The rights of the process with the integrations and settings of its configuration.
fn wanted_rights(process: Process, facts: &Facts) -> Vec<Value> {
    let (config, here) = (facts.config(), &facts.namespace);
    let mut wanted = rights::manifests(process, here, rights::BY_DEFAULT);
    let enabled = TABLE.enabled(&config.integrations.frameworks).into_iter();
    for kind in enabled.filter(|kind| !rights::BY_DEFAULT.contains(kind)) {
        wanted.extend(rights::of_integration(process, here, kind));
        if kind == &rows::APP_WRAPPER && process == Process::Worker {
            wanted.extend(rights::appwrapper(here));
        }
    }
    if config.roadstead.virtual_nodes && process == Process::Manager {
        wanted.extend(rights::virtual_nodes(here));
    }
    wanted
}

fn cluster_role(facts: &Facts) -> Result<Seen, Unread> {
    let Some(process) = facts.process() else {
        return Err(Unread("there is no Deployment".to_owned()));
    };
    let wanted = wanted_rights(process, facts);
    let roles: Vec<&Value> = wanted
        .iter()
        .filter(|object| object["kind"] == "ClusterRole")
        .collect();
    let mut faulty = Vec::new();
    for role in &roles {
        let role_name = role["metadata"]["name"].as_str().unwrap_or_default();
        let same = facts
            .named("ClusterRole", role_name)?
            .is_some_and(|found| found["rules"] == role["rules"]);
        if !same {
            faulty.push(role_name.to_owned());
        }
    }
    Ok(none_of(faulty, "as installed", |names| {
        bad(format!("missing or changed: {names}"), install(facts))
    }))
}

fn configuration(facts: &Facts) -> Result<Seen, Unread> {
    let maps = facts.all("ConfigMap")?;
    let Some(map) = maps.iter().find(|map| owned::by(map).is_some()) else {
        return Ok(bad("there is no ConfigMap of the installation", install(facts)));
    };
    let text = map["data"]["config.yaml"].as_str().unwrap_or_default();
    Ok(match config::parse(&name(map), text, &[], &facts.namespace) {
        Ok(config) if config.warnings.is_empty() => good("can be used"),
        Ok(config) => warning(config.warnings.join("; "), "take these keys out of the values"),
        Err(error) => bad(
            error.to_string(),
            "correct the values, then install again with --values",
        ),
    })
}

fn leader(facts: &Facts) -> Result<Seen, Unread> {
    let election = facts.config().leader_election;
    if !election.leader_elect {
        return Ok(good("leaderElection is off"));
    }
    if let Some(elsewhere) = election
        .resource_namespace
        .filter(|name| *name != facts.namespace)
    {
        return Err(Unread(format!(
            "the Lease is in namespace {elsewhere}, which is not read: kubectl -n {elsewhere} get lease {}",
            election.resource_name
        )));
    }
    let lease = election.resource_name;
    let Some(found) = facts.named("Lease", &lease)? else {
        return Ok(bad(
            format!("no replica has ever led (Lease {lease})"),
            look_at_log(facts),
        ));
    };
    let spec = &found["spec"];
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    let lasts = spec["leaseDurationSeconds"].as_i64().unwrap_or(15);
    let renewed = spec["renewTime"]
        .as_str()
        .and_then(|time| time.parse::<Timestamp>().ok());
    let age = renewed.map(|renewed| {
        facts
            .server_now
            .unwrap_or(facts.now)
            .duration_since(renewed)
            .as_secs()
    });
    Ok(match age {
        _ if holder.is_empty() => bad("no replica leads", look_at_log(facts)),
        Some(age) if age > 2 * lasts + CLOCK_SECS_MAX => bad(
            format!("{holder} has not renewed its lease for {age} s"),
            look_at_log(facts),
        ),
        Some(_) | None => good(holder),
    })
}
