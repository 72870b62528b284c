//! Checks of the cluster itself, and of the definitions in it.

use roadstead_api::install::owned;
use serde_json::Value;

use super::{
    CLOCK_SECS_MAX, Group, Seen, bad, everywhere, first_of, good, install, items, name, names, none_of,
    warning, without_condition,
};
use crate::doctor::facts::{Facts, Unread};

/// The oldest and the newest tested minor version of Kubernetes.
const MINORS: std::ops::RangeInclusive<u64> = 32..=36;

pub(super) const CLUSTER: Group = Group {
    name: "cluster",
    checks: &[
        everywhere(
            "kubernetes-version",
            "other versions were not tried",
            kubernetes_version,
        ),
        everywhere("no-kueue", "two engines would admit the same workloads", no_kueue),
        everywhere(
            "one-installation",
            "two engines would admit the same workloads",
            one_installation,
        ),
        everywhere(
            "clock",
            "credentials end and certificates begin at wrong times",
            clock,
        ),
    ],
};

pub(super) const DEFINITIONS: Group = Group {
    name: "definitions",
    checks: &[
        everywhere(
            "definitions-present",
            "a kind without a definition cannot be used",
            definitions_present,
        ),
        everywhere(
            "definitions-served",
            "the API server refuses objects of a kind that it does not serve",
            definitions_served,
        ),
        everywhere(
            "definitions-version",
            "fields of another version are dropped or unknown",
            definitions_version,
        ),
        everywhere(
            "conversion",
            "objects of older versions cannot be read without the conversion webhook",
            conversion,
        ),
    ],
};

#[expect(clippy::unnecessary_wraps, reason = "all checks have one shape")]
fn kubernetes_version(facts: &Facts) -> Result<Seen, Unread> {
    let minor = facts
        .version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse::<u64>().ok());
    let text = format!("Kubernetes {}", facts.version);
    Ok(match minor {
        Some(minor) if MINORS.contains(&minor) => good(text),
        Some(_) | None => warning(
            text,
            format!("use Kubernetes 1.{} to 1.{}", MINORS.start(), MINORS.end()),
        ),
    })
}

fn no_kueue(facts: &Facts) -> Result<Seen, Unread> {
    let is_kueue = |object: &&Value| {
        let by_image = |container: &Value| {
            let image = container["image"].as_str().unwrap_or_default();
            image
                .split(['@', ':'])
                .next()
                .is_some_and(|name| name.ends_with("/kueue"))
        };
        owned::by(object).is_none()
            && (object["metadata"]["labels"]["app.kubernetes.io/name"] == "kueue"
                || items(object, "/spec/template/spec/containers").any(by_image))
            && object["spec"]["replicas"] != 0
    };
    let kueue = facts.all("Deployment")?.iter().find(is_kueue);
    Ok(match kueue {
        None => good("Kueue does not run here"),
        Some(kueue) => bad(
            format!("Kueue runs here: Deployment {}", name(kueue)),
            format!(
                "kubectl -n {} scale deployment {} --replicas=0",
                kueue["metadata"]["namespace"].as_str().unwrap_or_default(),
                kueue["metadata"]["name"].as_str().unwrap_or_default()
            ),
        ),
    })
}

fn one_installation(facts: &Facts) -> Result<Seen, Unread> {
    let ours = facts
        .all("Deployment")?
        .iter()
        .filter(|object| owned::by(object).is_some());
    let names: Vec<String> = ours.map(name).collect();
    Ok(match names.as_slice() {
        [] => good("no other installation"),
        [one] => good(one.clone()),
        several => bad(
            several.join(", "),
            "keep one, remove the other: roadstead uninstall manager --namespace NAMESPACE (or: roadstead uninstall worker --namespace NAMESPACE)",
        ),
    })
}

fn clock(facts: &Facts) -> Result<Seen, Unread> {
    let Some(server) = facts.server_now else {
        return Err(Unread("the API server does not say what time it is".to_owned()));
    };
    let off = facts.now.duration_since(server).as_secs();
    Ok(if off.abs() <= CLOCK_SECS_MAX {
        good(format!(
            "this machine and the API server differ by {} s",
            off.abs()
        ))
    } else {
        warning(
            format!("this machine and the API server differ by {} s", off.abs()),
            "let both follow a time server",
        )
    })
}

fn wanted_definitions(facts: &Facts) -> Vec<String> {
    roadstead_api::install::objects::definitions(&facts.namespace)
        .iter()
        .filter_map(|definition| Some(definition["metadata"]["name"].as_str()?.to_owned()))
        .collect()
}

fn definitions(facts: &Facts) -> Result<Vec<&Value>, Unread> {
    let wanted = wanted_definitions(facts);
    let ours = |definition: &&Value| {
        wanted
            .iter()
            .any(|name| definition["metadata"]["name"] == name.as_str())
    };
    Ok(facts
        .all("CustomResourceDefinition")?
        .iter()
        .filter(ours)
        .collect())
}

fn definitions_present(facts: &Facts) -> Result<Seen, Unread> {
    let there = names(facts.all("CustomResourceDefinition")?);
    let wanted = wanted_definitions(facts);
    let count = wanted.len();
    let missing = wanted
        .into_iter()
        .filter(|name| !there.contains(name.as_str()))
        .collect();
    Ok(none_of(missing, format!("all {count}"), |names| {
        bad(format!("missing: {names}"), install(facts))
    }))
}

fn definitions_served(facts: &Facts) -> Result<Seen, Unread> {
    let there: Vec<Value> = definitions(facts)?.into_iter().cloned().collect();
    let faulty = without_condition(&there, "Established");
    Ok(none_of(faulty, "all", |names| {
        bad(
            format!("not served: {names}"),
            format!("kubectl describe crd {}", first_of(&names)),
        )
    }))
}

fn definitions_version(facts: &Facts) -> Result<Seen, Unread> {
    let differs = |definition: &&&Value| {
        owned::by(definition).is_some()
            && definition["metadata"]["labels"][owned::VERSION_LABEL] != owned::VERSION
    };
    let faulty = definitions(facts)?
        .iter()
        .filter(differs)
        .map(|each| name(each))
        .collect();
    Ok(none_of(faulty, owned::VERSION, |names| {
        warning(format!("not of {}: {names}", owned::VERSION), install(facts))
    }))
}

fn conversion(facts: &Facts) -> Result<Seen, Unread> {
    // Why: a certificate of the administrator may be of an authority that the API server trusts anyway.
    let needs_authority = facts.config().cert_management.enable;
    let leads_elsewhere = |definition: &&&Value| {
        let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
        let service = &client["service"];
        client.is_object()
            && (needs_authority && client["caBundle"].as_str().is_none_or(str::is_empty)
                || service.is_object() && service["namespace"] != facts.namespace.as_str())
    };
    let faulty = definitions(facts)?
        .iter()
        .filter(leads_elsewhere)
        .map(|each| name(each))
        .collect();
    Ok(none_of(faulty, "leads to this installation", |names| {
        bad(
            format!("no authority, or another namespace: {names}"),
            "the process corrects it within a minute of its start; see its log",
        )
    }))
}
