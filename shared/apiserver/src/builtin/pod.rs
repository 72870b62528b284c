//! Pods and their templates.

use roadstead_core::amount::Amount;
use roadstead_core::quantity;
use serde_json::{Value, json};

use super::Context;
use crate::failure::Cause;
use crate::json;
use crate::names;

const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

pub(super) fn default(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec") else { return };
    default_spec(spec);
    json::default(spec, &["enableServiceLinks"], true);
    for list in CONTAINERS {
        for container in json::items_mut(spec, &[list]) {
            let limits = container["resources"]["limits"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            for (name, amount) in limits {
                json::default(container, &["resources", "requests", &name], amount);
            }
        }
    }
    if spec["hostNetwork"] == true {
        for container in json::items_mut(spec, &["containers"]) {
            for port in json::items_mut(container, &["ports"]) {
                let number = port["containerPort"].clone();
                json::default(port, &["hostPort"], number);
            }
        }
    }
}

pub(super) fn default_template(template: &mut Value) {
    if let Some(spec) = template.get_mut("spec") {
        default_spec(spec);
    }
}

fn default_spec(spec: &mut Value) {
    json::default(spec, &["restartPolicy"], "Always");
    json::default(spec, &["terminationGracePeriodSeconds"], 30);
    json::default(spec, &["dnsPolicy"], "ClusterFirst");
    json::default(spec, &["securityContext"], json!({}));
    json::default(spec, &["schedulerName"], "default-scheduler");
    if let Some(account) = json::at(spec, &["serviceAccountName"]).cloned() {
        json::set(spec, &["serviceAccount"], account);
    } else if let Some(account) = json::at(spec, &["serviceAccount"]).cloned() {
        json::set(spec, &["serviceAccountName"], account);
    }
    for list in CONTAINERS {
        for container in json::items_mut(spec, &[list]) {
            default_container(container);
        }
    }
    if spec["containers"].is_null() {
        json::set(spec, &["containers"], Value::Null);
    }
    for volume in json::items_mut(spec, &["volumes"]) {
        default_volume(volume);
    }
}

fn default_container(container: &mut Value) {
    json::default(container, &["terminationMessagePath"], "/dev/termination-log");
    json::default(container, &["terminationMessagePolicy"], "File");
    let image = json::text(container, &["image"]);
    let name = image.rsplit('/').next().unwrap_or(image);
    let latest = !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    let policy = if latest { "Always" } else { "IfNotPresent" };
    json::default(container, &["imagePullPolicy"], policy);
    for port in json::items_mut(container, &["ports"]) {
        json::default(port, &["protocol"], "TCP");
    }
    for env in json::items_mut(container, &["env"]) {
        if env["valueFrom"]["fieldRef"].is_object() {
            json::default(env, &["valueFrom", "fieldRef", "apiVersion"], "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = json::at_mut(container, &[probe]) else {
            continue;
        };
        for (field, value) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            json::default(probe, &[field], value);
        }
        if probe["httpGet"].is_object() {
            json::default(probe, &["httpGet", "path"], "/");
            json::default(probe, &["httpGet", "scheme"], "HTTP");
        }
    }
}

/// `rw-r--r--`
const MODE: u64 = 0o644;

fn default_volume(volume: &mut Value) {
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if volume[source].is_object() {
            json::default(volume, &[source, "defaultMode"], MODE);
        }
    }
    if volume["hostPath"].is_object() {
        json::default(volume, &["hostPath", "type"], "");
    }
    for source in json::items_mut(volume, &["projected", "sources"]) {
        if source["serviceAccountToken"].is_object() {
            json::default(source, &["serviceAccountToken", "expirationSeconds"], 3600);
        }
    }
    if let Some(map) = volume.as_object_mut()
        && map.len() == 1
    {
        map.insert("emptyDir".to_owned(), json!({}));
    }
}

pub(super) fn prepare_create(pod: &mut Value, context: &Context<'_>) -> Result<(), String> {
    let spec = &mut pod["spec"];
    tolerate(spec);
    let class = json::text(spec, &["priorityClassName"]).to_owned();
    let class = if class.is_empty() {
        let defaults = (context.list)("priorityclasses.scheduling.k8s.io");
        defaults.into_iter().find(|class| class["globalDefault"] == true)
    } else {
        let found = (context.find)("priorityclasses.scheduling.k8s.io", "", &class);
        Some(found.ok_or_else(|| format!("no PriorityClass with name {class} was found"))?)
    };
    let (priority, policy) = match &class {
        Some(class) => {
            let name = json::text(class, &["metadata", "name"]).to_owned();
            json::set(spec, &["priorityClassName"], name);
            (
                class["value"].clone(),
                json::text(class, &["preemptionPolicy"]).to_owned(),
            )
        }
        None => (0.into(), "PreemptLowerPriority".to_owned()),
    };
    if let Some(given) = json::at(spec, &["priority"])
        && *given != priority
    {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    json::set(spec, &["priority"], priority);
    json::set(spec, &["preemptionPolicy"], policy);
    let class = qos(spec);
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if !json::items(spec, &["schedulingGates"]).is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": crate::clock::seconds(context.now),
        }]);
    }
    json::set(pod, &["status"], status);
    Ok(())
}

/// Adds the default tolerations: a pod stays five minutes on a node that is not ready or unreachable.
fn tolerate(spec: &mut Value) {
    let mut tolerations = json::items(spec, &["tolerations"]).to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            let own = json::text(toleration, &["key"]);
            let effect = json::text(toleration, &["effect"]);
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
    json::set(spec, &["tolerations"], tolerations);
}

fn qos(spec: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for list in CONTAINERS {
        for container in json::items(spec, &[list]) {
            for resource in ["cpu", "memory"] {
                let request = json::at(container, &["resources", "requests", resource]);
                let limit = json::at(container, &["resources", "limits", resource]);
                any |= request.is_some() || limit.is_some();
                guaranteed &= limit.is_some() && request == limit;
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

pub(super) fn prepare_update(pod: &mut Value, old: &Value) {
    tolerate(&mut pod["spec"]);
    json::copy(pod, old, &["status"]);
    for field in ["priority", "preemptionPolicy", "enableServiceLinks"] {
        if json::at(pod, &["spec", field]).is_none() {
            json::copy(pod, old, &["spec", field]);
        }
    }
}

pub(super) fn validate_template(template: &Value, path: &str) -> Vec<Cause> {
    let mut causes = names::check_labels(&format!("{path}.labels"), &template["metadata"]["labels"]);
    causes.extend(validate(&template["spec"], &format!("{path}.spec")));
    causes
}

fn one_of(causes: &mut Vec<Cause>, path: String, value: &Value, allowed: &[&str]) {
    if !allowed.iter().any(|word| value == word) {
        let words: Vec<String> = allowed.iter().map(|word| (*word).to_owned()).collect();
        causes.push(if value.is_null() || value == "" {
            Cause::required(path, "")
        } else {
            Cause::not_supported(path, value, &words)
        });
    }
}

pub(super) fn validate(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if json::items(spec, &["containers"]).is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for list in CONTAINERS {
        for (index, container) in json::items(spec, &[list]).iter().enumerate() {
            let path = format!("{path}.{list}[{index}]");
            let name = json::text(container, &["name"]);
            if name.is_empty() {
                causes.push(Cause::required(format!("{path}.name"), ""));
            } else {
                causes.extend(names::check_name(
                    &format!("{path}.name"),
                    name,
                    names::Rule::Label,
                ));
                if seen.contains(&name) {
                    causes.push(Cause::duplicate(format!("{path}.name"), &name.into()));
                }
                seen.push(name);
            }
            validate_container(container, &path, &mut causes);
        }
    }
    let allowed = ["Always", "OnFailure", "Never"];
    one_of(
        &mut causes,
        format!("{path}.restartPolicy"),
        &spec["restartPolicy"],
        &allowed,
    );
    let allowed = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(
        &mut causes,
        format!("{path}.dnsPolicy"),
        &spec["dnsPolicy"],
        &allowed,
    );
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let says = "must be between 1 and 2147483647, inclusive";
        causes.push(Cause::invalid(
            format!("{path}.activeDeadlineSeconds"),
            &seconds.into(),
            says,
        ));
    }
    causes.extend(names::check_labels(
        &format!("{path}.nodeSelector"),
        &spec["nodeSelector"],
    ));
    let node = json::text(spec, &["nodeName"]);
    if !node.is_empty() {
        let field = format!("{path}.nodeName");
        causes.extend(names::check_name(&field, node, names::Rule::Subdomain));
    }
    let class = json::text(spec, &["priorityClassName"]);
    if !class.is_empty() {
        let field = format!("{path}.priorityClassName");
        causes.extend(names::check_name(&field, class, names::Rule::Subdomain));
    }
    causes
}

fn validate_container(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    if json::text(container, &["image"]).trim().is_empty() {
        causes.push(Cause::required(format!("{path}.image"), ""));
    }
    let allowed = ["Always", "IfNotPresent", "Never"];
    one_of(
        causes,
        format!("{path}.imagePullPolicy"),
        &container["imagePullPolicy"],
        &allowed,
    );
    let resources = &container["resources"];
    let amount = |kind: &str, name: &str| {
        json::at(resources, &[kind, name])
            .and_then(Value::as_str)
            // Why parsed as CPU, whatever the resource: CPU quantities are read in thousandths.
            .and_then(|text| quantity::parse("cpu", text).ok())
    };
    for kind in ["limits", "requests"] {
        for (name, value) in resources[kind].as_object().into_iter().flatten() {
            if amount(kind, name).is_some_and(|amount| amount < Amount::ZERO) {
                let field = format!("{path}.resources.{kind}[{name}]");
                causes.push(Cause::invalid(field, value, "must be greater than or equal to 0"));
            }
        }
    }
    for (name, value) in resources["requests"].as_object().into_iter().flatten() {
        let field = format!("{path}.resources.requests");
        match (amount("requests", name), amount("limits", name)) {
            (Some(request), Some(limit)) if request > limit => {
                let limit = json::text(resources, &["limits", name]);
                let says = format!("must be less than or equal to {name} limit of {limit}");
                causes.push(Cause::invalid(field, value, &says));
            }
            (Some(_), None) if name.contains('/') && !name.starts_with("kubernetes.io/") => {
                causes.push(Cause::required(
                    format!("{path}.resources.limits"),
                    "Limit must be set for non overcommitable resources",
                ));
            }
            _ => {}
        }
    }
    for (index, port) in json::items(container, &["ports"]).iter().enumerate() {
        let number = port["containerPort"].as_i64().unwrap_or(0);
        let field = format!("{path}.ports[{index}].containerPort");
        if number == 0 {
            causes.push(Cause::required(field, ""));
        } else if !(1..=65535).contains(&number) {
            let says = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(field, &number.into(), says));
        }
    }
    for (index, env) in json::items(container, &["env"]).iter().enumerate() {
        if json::text(env, &["name"]).is_empty() {
            causes.push(Cause::required(format!("{path}.env[{index}].name"), ""));
        }
    }
}

/// Of a pod's spec only the images, the deadline, additional tolerations and removed scheduling gates may change.
pub(super) fn validate_update(pod: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut plain = pod["spec"].clone();
    let before = &old["spec"];
    for list in CONTAINERS {
        if json::items(&plain, &[list]).len() != json::items(before, &[list]).len() {
            let says = "pod updates may not add or remove containers";
            return vec![Cause::forbidden(format!("spec.{list}"), says)];
        }
        let images: Vec<Value> = json::items(before, &[list])
            .iter()
            .map(|container| container["image"].clone())
            .collect();
        let containers = json::items_mut(&mut plain, &[list]);
        for (container, image) in containers.zip(images) {
            json::set(container, &["image"], image);
        }
    }
    let gates = json::items(before, &["schedulingGates"]);
    for (index, gate) in json::items(&plain, &["schedulingGates"]).iter().enumerate() {
        if !gates.contains(gate) {
            let says = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                json::text(gate, &["name"])
            );
            causes.push(Cause::forbidden(
                format!("spec.schedulingGates[{index}].name"),
                &says,
            ));
        }
    }
    if !gates.is_empty() {
        let selector = |spec: &Value| spec["nodeSelector"].as_object().cloned().unwrap_or_default();
        let now = selector(&plain);
        if selector(before)
            .iter()
            .all(|(key, value)| now.get(key) == Some(value))
        {
            json::copy(&mut plain, before, &["nodeSelector"]);
        }
    }
    let tolerations = json::items(&plain, &["tolerations"]);
    if !json::items(before, &["tolerations"])
        .iter()
        .all(|toleration| tolerations.contains(toleration))
    {
        let says = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", says));
    }
    json::copy(&mut plain, before, &["tolerations"]);
    let deadline = |spec: &Value| spec["activeDeadlineSeconds"].as_i64().unwrap_or(i64::MAX);
    if deadline(&plain) <= deadline(before) {
        json::copy(&mut plain, before, &["activeDeadlineSeconds"]);
    }
    json::copy(&mut plain, before, &["schedulingGates"]);
    if plain != *before {
        let says = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        causes.push(Cause::forbidden("spec", says));
    }
    causes
}
