//! Checks of worker clusters of a manager, and their credentials.

use std::collections::BTreeSet;

use jiff::Timestamp;
use roadstead_core::dispatch::Cordon;
use roadstead_kubeconfigs::secret;
use serde_json::Value;

use super::{
    Group, Level, Seen, bad, first_of, good, items, name, names, none_of, on_manager, those, warning,
    without_condition,
};
use crate::doctor::facts::{Facts, Unread};

/// How many seconds before its end a credential must have been renewed.
const RENEW_SECS: i64 = 300;

pub(super) const WORKERS: Group = Group {
    name: "worker clusters",
    checks: &[
        on_manager(
            "clusters-registered",
            "without a worker cluster no job runs",
            clusters_registered,
        ),
        on_manager(
            "clusters-active",
            "no job is sent to a cluster that is not connected",
            clusters_active,
        ),
        on_manager(
            "clusters-listed",
            "a cluster in no MultiKueueConfig gets no jobs",
            clusters_listed,
        ),
        on_manager(
            "clusters-exist",
            "a name without a cluster is waited for in vain",
            clusters_exist,
        ),
        on_manager(
            "clusters-cordoned",
            "a cordoned cluster gets no new jobs",
            clusters_cordoned,
        ),
        on_manager(
            "fences",
            "a worker without a fence may run on while its jobs start elsewhere",
            fences,
        ),
        on_manager(
            "credentials-present",
            "without its Secret a cluster cannot be reached",
            credentials_present,
        ),
        on_manager(
            "credentials-age",
            "with an expired credential the connection ends",
            credentials_age,
        ),
    ],
};

fn clusters_registered(facts: &Facts) -> Result<Seen, Unread> {
    Ok(match facts.all("MultiKueueCluster")?.len() {
        0 => warning("none", "roadstead cluster join NAME --kubeconfig FILE"),
        count => good(format!("{count}")),
    })
}

fn clusters_active(facts: &Facts) -> Result<Seen, Unread> {
    let faulty = without_condition(facts.all("MultiKueueCluster")?, "Active");
    Ok(none_of(faulty, "all are connected", |names| {
        bad(format!("not connected: {names}"), "roadstead cluster list")
    }))
}

/// Names of clusters in all configs.
fn listed(facts: &Facts) -> Result<BTreeSet<&str>, Unread> {
    let configs = facts.all("MultiKueueConfig")?.iter();
    Ok(configs
        .flat_map(|config| items(config, "/spec/clusters"))
        .filter_map(Value::as_str)
        .collect())
}

fn clusters_listed(facts: &Facts) -> Result<Seen, Unread> {
    let listed = listed(facts)?;
    let there = names(facts.all("MultiKueueCluster")?);
    let faulty = there.difference(&listed).map(ToString::to_string).collect();
    Ok(none_of(
        faulty,
        "every cluster is in a MultiKueueConfig",
        |names| {
            warning(
                format!("in no MultiKueueConfig: {names}"),
                format!(
                    "roadstead cluster join {0} --kubeconfig FILE lists it; if it shall go: roadstead cluster leave {0} --kubeconfig FILE",
                    first_of(&names)
                ),
            )
        },
    ))
}

fn clusters_exist(facts: &Facts) -> Result<Seen, Unread> {
    let there = names(facts.all("MultiKueueCluster")?);
    let faulty = listed(facts)?
        .difference(&there)
        .map(ToString::to_string)
        .collect();
    Ok(none_of(faulty, "every name is a cluster", |names| {
        warning(
            format!("named in a MultiKueueConfig, but not registered: {names}"),
            format!(
                "roadstead cluster join {} --kubeconfig FILE, or take the name out of the MultiKueueConfig",
                first_of(&names)
            ),
        )
    }))
}

fn clusters_cordoned(facts: &Facts) -> Result<Seen, Unread> {
    let cordon = roadstead_api::constants::annotations::CORDON;
    let is_cordoned = |cluster: &&Value| {
        let annotation = cluster["metadata"]["annotations"][cordon].as_str();
        Cordon::read(annotation) != Cordon::Open
    };
    let faulty = those(facts, "MultiKueueCluster", is_cordoned)?;
    Ok(none_of(faulty, "none", |names| {
        warning(
            format!("cordoned: {names}"),
            format!("roadstead cluster uncordon {}", first_of(&names)),
        )
    }))
}

fn fences(facts: &Facts) -> Result<Seen, Unread> {
    let faulty = without_condition(facts.all("MultiKueueCluster")?, "WorkerFence");
    Ok(none_of(
        faulty,
        "every worker stops its jobs by itself when it is cut off",
        |names| {
            warning(
                format!("without a fence: {names}"),
                format!("kubectl describe multikueuecluster {}", first_of(&names)),
            )
        },
    ))
}

fn secret_of(cluster: &Value) -> Option<&str> {
    let source = cluster.pointer("/spec/clusterSource/kubeConfig")?;
    (source["locationType"] == "Secret").then(|| source["location"].as_str())?
}

fn credentials_present(facts: &Facts) -> Result<Seen, Unread> {
    let there = names(facts.all("Secret")?);
    let is_missing = |cluster: &&Value| secret_of(cluster).is_some_and(|secret| !there.contains(secret));
    let faulty = those(facts, "MultiKueueCluster", is_missing)?;
    Ok(none_of(faulty, "every Secret exists", |names| {
        bad(
            format!("without a Secret: {names}"),
            format!("roadstead cluster join {} --kubeconfig FILE", first_of(&names)),
        )
    }))
}

fn credentials_age(facts: &Facts) -> Result<Seen, Unread> {
    let now = facts.server_now.unwrap_or(facts.now);
    let mut late = Vec::new();
    let mut ended = false;
    for found in facts.all("Secret")? {
        let ends = found["metadata"]["annotations"][secret::EXPIRES_AT].as_str();
        let Some(ends) = ends.and_then(|time| time.parse::<Timestamp>().ok()) else {
            continue;
        };
        let left = ends.duration_since(now).as_secs();
        if left < RENEW_SECS {
            ended |= left <= 0;
            late.push(format!("{} (until {ends})", name(found)));
        }
    }
    Ok(none_of(late, "all were renewed in time", |names| Seen {
        level: if ended { Level::Failed } else { Level::Warning },
        ..bad(
            format!("not renewed: {names}"),
            "roadstead cluster join NAME --kubeconfig FILE makes a new one",
        )
    }))
}
