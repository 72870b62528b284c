//! Checks of webhooks, their certificate, and the visibility API.

use jiff::Timestamp;
use roadstead_api::constants::names::{MUTATING_WEBHOOKS, REGISTRAR, VALIDATING_WEBHOOKS};
use roadstead_api::crd::WEBHOOK_SERVICE;
use roadstead_api::visibility;
use serde_json::{Value, json};

use super::{
    Group, Seen, bad, condition, everywhere, good, install, items, look_at_log, name, none_of, warning,
};
use crate::doctor::facts::{Facts, Unread};

pub(super) const WEBHOOKS: Group = Group {
    name: "webhooks and certificates",
    checks: &[
        everywhere(
            "mutating-webhooks",
            "jobs would start without waiting for their queue",
            mutating_webhooks,
        ),
        everywhere(
            "validating-webhooks",
            "wrong queues would be stored",
            validating_webhooks,
        ),
        everywhere(
            "certificate-authority",
            "the API server refuses every job that it cannot ask about",
            certificate_authority,
        ),
        everywhere(
            "lock-out",
            "a webhook on its own namespace could keep the process from coming back",
            lock_out,
        ),
        everywhere(
            "certificate",
            "the API server refuses webhooks with an expired certificate",
            certificate,
        ),
        everywhere(
            "webhook-service",
            "the API server reaches the webhooks through this Service",
            webhook_service,
        ),
        everywhere(
            "webhook-endpoints",
            "the API server finds no webhook without a ready endpoint",
            webhook_endpoints,
        ),
        everywhere(
            "visibility",
            "the order of waiting workloads cannot be shown",
            visibility_served,
        ),
    ],
};

fn registered(facts: &Facts, kind: &'static str, known: &str) -> Result<Seen, Unread> {
    let Some(found) = facts.named(kind, known)? else {
        return Ok(bad(format!("no {kind} {known}"), install(facts)));
    };
    let count = items(found, "/webhooks").count();
    if count == 0 {
        return Ok(bad(format!("{kind} {known} has no webhook"), look_at_log(facts)));
    }
    let fine = format!("{count} webhooks");
    // Why: then another tool writes the configurations, and its entries are the right ones.
    if !facts.config().roadstead.webhook.manage_configurations {
        return Ok(good(fine));
    }
    Ok(none_of(foreign(found), fine, |names| {
        bad(
            format!("{kind} {known} has entries of another installation: {names}"),
            format!(
                "the process removes them within a minute; if they come back, end what writes them: kubectl get {} {known} -o yaml \
                 --show-managed-fields",
                kind.to_lowercase()
            ),
        )
    }))
}

/// The entries that no process of ours has applied.
fn foreign(configuration: &Value) -> Vec<String> {
    let ours: Vec<&Value> = items(configuration, "/metadata/managedFields")
        .filter(|entry| entry["manager"] == REGISTRAR && entry["operation"] == "Apply")
        .map(|entry| &entry["fieldsV1"]["f:webhooks"])
        .collect();
    let names = items(configuration, "/webhooks").filter_map(|hook| hook["name"].as_str());
    let is_ours = |name: &str| {
        let key = format!("k:{}", json!({"name": name}));
        ours.iter().any(|fields| fields.get(&key).is_some())
    };
    names.filter(|name| !is_ours(name)).map(str::to_owned).collect()
}

fn mutating_webhooks(facts: &Facts) -> Result<Seen, Unread> {
    registered(facts, "MutatingWebhookConfiguration", MUTATING_WEBHOOKS)
}

fn validating_webhooks(facts: &Facts) -> Result<Seen, Unread> {
    registered(facts, "ValidatingWebhookConfiguration", VALIDATING_WEBHOOKS)
}

fn webhooks(facts: &Facts) -> Result<Vec<&Value>, Unread> {
    let mutating = facts.named("MutatingWebhookConfiguration", MUTATING_WEBHOOKS)?;
    let validating = facts.named("ValidatingWebhookConfiguration", VALIDATING_WEBHOOKS)?;
    let both = mutating.into_iter().chain(validating);
    Ok(both.flat_map(|found| items(found, "/webhooks")).collect())
}

fn certificate_authority(facts: &Facts) -> Result<Seen, Unread> {
    let config = facts.config().cert_management;
    let hooks = webhooks(facts)?;
    let authority_of = |hook: &Value| {
        hook["clientConfig"]["caBundle"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    // Those of the Secret; for a certificate of the administrator, or if the Secret cannot be read, those of the first webhook.
    let secret = if config.enable {
        facts.named("Secret", &config.webhook_secret_name).ok().flatten()
    } else {
        None
    };
    let served = secret
        .and_then(|secret| secret["data"]["ca.crt"].as_str())
        .map(str::to_owned);
    let wanted = served.or_else(|| hooks.first().map(|hook| authority_of(hook)));
    let faulty = |hook: &&&Value| {
        let found = authority_of(hook);
        (config.enable && found.is_empty()) || Some(found) != wanted
    };
    let hook_name = |hook: &&Value| hook["name"].as_str().unwrap_or_default().to_owned();
    let faulty = hooks.iter().filter(faulty).map(hook_name).collect();
    let fine = if wanted.as_ref().is_some_and(|wanted| !wanted.is_empty()) {
        "the same in every webhook"
    } else {
        "none: the API server must trust the authority of the administrator's certificate anyway"
    };
    Ok(none_of(faulty, fine, |names| {
        bad(
            format!("without authority, or with another one: {names}"),
            look_at_log(facts),
        )
    }))
}

fn lock_out(facts: &Facts) -> Result<Seen, Unread> {
    let covers_core = |hook: &&&Value| {
        let of_jobs = items(hook, "/rules")
            .any(|rule| items(rule, "/apiGroups").any(|group| group == "batch" || group == ""));
        let spared: Vec<&Value> = items(hook, "/namespaceSelector/matchExpressions")
            .filter(|each| each["operator"] == "NotIn")
            .flat_map(|each| items(each, "/values"))
            .collect();
        let spares = |namespace: &str| spared.iter().any(|value| **value == namespace);
        of_jobs && !(spares("kube-system") && spares(&facts.namespace))
    };
    let hook_name = |hook: &&Value| hook["name"].as_str().unwrap_or_default().to_owned();
    let faulty = webhooks(facts)?
        .iter()
        .filter(covers_core)
        .map(hook_name)
        .collect();
    Ok(none_of(
        faulty,
        "kube-system and the own namespace are left alone",
        |names| {
            bad(
                format!("asked about the own namespace too: {names}"),
                look_at_log(facts),
            )
        },
    ))
}

fn certificate(facts: &Facts) -> Result<Seen, Unread> {
    let config = facts.config();
    if !config.cert_management.enable {
        return Ok(good(format!(
            "the administrator's, in {} of the pods, which is not read",
            config.webhook.cert_dir.display()
        )));
    }
    let known = config.cert_management.webhook_secret_name;
    let Some(found) = facts.named("Secret", &known)? else {
        return Ok(bad(format!("no Secret {known}"), look_at_log(facts)));
    };
    let ends = found["data"]["tls.crt"].as_str().and_then(expiry);
    Ok(match ends {
        None => bad(
            format!("Secret {known} holds no certificate"),
            renew_certificate(facts, &known),
        ),
        Some(ends) if ends <= facts.now => bad(format!("ended at {ends}"), renew_certificate(facts, &known)),
        Some(ends) => good(format!("until {ends}")),
    })
}

fn renew_certificate(facts: &Facts, secret: &str) -> String {
    format!(
        "kubectl -n {} delete secret {secret}; the process makes a new one",
        facts.namespace
    )
}

/// When a certificate in base64 of PEM ends.
fn expiry(encoded: &str) -> Option<Timestamp> {
    use base64::Engine as _;
    let pem = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

fn webhook_service(facts: &Facts) -> Result<Seen, Unread> {
    let Some(service) = facts.named("Service", WEBHOOK_SERVICE)? else {
        return Ok(bad(format!("no Service {WEBHOOK_SERVICE}"), install(facts)));
    };
    let of_visibility = facts.named("Service", visibility::SERVICE)?;
    let faulty = [Some(service), of_visibility].into_iter().flatten();
    let faulty = { faulty.map(|service| elsewhere(facts, service)) }.collect::<Result<Vec<_>, _>>()?;
    let faulty = faulty.into_iter().flatten().collect();
    Ok(none_of(faulty, WEBHOOK_SERVICE, |names| {
        bad(
            format!("selects no pod of the installation: {names}"),
            format!(
                "kubectl -n {} delete service {WEBHOOK_SERVICE} {}; then install again as before (with Helm: helm upgrade)",
                facts.namespace,
                visibility::SERVICE
            ),
        )
    }))
}

/// A Service and those of its labels that no pod of the installation has. Helm keeps labels of Kueue's selector when it takes a
/// Service over.
fn elsewhere(facts: &Facts, service: &Value) -> Result<Option<String>, Unread> {
    let Some(deployment) = facts.deployment()? else {
        return Ok(None);
    };
    let pods = &deployment["spec"]["template"]["metadata"]["labels"];
    let selector = service["spec"]["selector"].as_object().into_iter().flatten();
    let foreign: Vec<String> = { selector.filter(|(key, value)| pods[key.as_str()] != **value) }
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    Ok((!foreign.is_empty()).then(|| format!("{} ({})", name(service), foreign.join(" and "))))
}

fn webhook_endpoints(facts: &Facts) -> Result<Seen, Unread> {
    let of_service =
        |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == WEBHOOK_SERVICE;
    let slices = facts.all("EndpointSlice")?.iter().filter(of_service);
    let ready = slices
        .flat_map(|slice| items(slice, "/endpoints"))
        .filter(|endpoint| endpoint["conditions"]["ready"] != false)
        .count();
    Ok(if ready > 0 {
        good(format!("{ready} ready"))
    } else {
        bad(
            "no endpoint is ready",
            format!("kubectl -n {} get pods", facts.namespace),
        )
    })
}

fn visibility_served(facts: &Facts) -> Result<Seen, Unread> {
    let mut faulty = Vec::new();
    for version in visibility::VERSIONS {
        let known = format!("{version}.{}", visibility::GROUP);
        match facts.named("APIService", &known)? {
            Some(found) if condition(found, "Available").is_some_and(|(status, _)| status == "True") => {}
            Some(found) => {
                let message =
                    condition(found, "Available").map_or("no condition yet", |(_, message)| message);
                faulty.push(format!("{known} ({message})"));
            }
            None => faulty.push(format!("{known} (missing)")),
        }
    }
    Ok(none_of(faulty, "served", |names| {
        warning(format!("not available: {names}"), "kubectl describe apiservice")
    }))
}
