//! Webhooks of our own kinds: the rules live in [`roadstead_convert::validate`] and [`roadstead_convert::default`].

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::admission::{AdmissionResponse, Operation};
use roadstead_api::config::{Config, FeatureGates};
use roadstead_api::constants::groups::KUEUE;
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_api::kueue::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload};
use roadstead_convert::{default, validate};
use roadstead_jobs::problem::Problem;
use roadstead_serve::webhook::{AdmissionHandler, allowed, denied, mutate_path, patched, validate_path};
use serde::de::DeserializeOwned;

use super::answers::{Request, is_leaving, unless, value, with_warnings};
use super::registration::{VERSION, managers};

/// The handlers of all our kinds that have webhooks, by path.
pub(super) fn handlers(config: &Arc<Config>) -> Vec<(String, AdmissionHandler)> {
    let in_use: AdmissionHandler = Arc::new(|request| patched(&request, default::in_use_finalizer));
    let minimum = config.clone();
    let minimum: AdmissionHandler = Arc::new(move |request| {
        patched(&request, |workload| {
            default::workload_min_counts(workload, &minimum.feature_gates);
        })
    });
    let mutate = |kind: &str| mutate_path(KUEUE, VERSION, kind);
    let validate = |kind: &str| validate_path(KUEUE, VERSION, kind);
    vec![
        (mutate("ClusterQueue"), in_use.clone()),
        (mutate("ResourceFlavor"), in_use),
        (mutate("Workload"), minimum),
        (
            validate("ClusterQueue"),
            validating::<ClusterQueue>(config, validate::cluster_queue, validate::cluster_queue_warnings),
        ),
        (
            validate("Cohort"),
            validating::<Cohort>(config, |_old, new, _gates| validate::cohort(new), no_warnings),
        ),
        (
            validate("ResourceFlavor"),
            validating::<ResourceFlavor>(
                config,
                |_old, new, _gates| validate::resource_flavor(new),
                no_warnings,
            ),
        ),
        (
            validate("Workload"),
            validating::<Workload>(config, validate::workload, no_warnings),
        ),
    ]
}

const fn no_warnings<K>(_new: &K) -> Vec<String> {
    Vec::new()
}

fn validating<K: Resource<DynamicType = ()> + DeserializeOwned + Debug + 'static>(
    config: &Arc<Config>,
    rules: fn(Option<&K>, &K, &FeatureGates) -> Vec<Problem>,
    warnings: fn(&K) -> Vec<String>,
) -> AdmissionHandler {
    let config = config.clone();
    Arc::new(move |mut request| {
        for object in [&mut request.object, &mut request.old_object]
            .into_iter()
            .flatten()
        {
            // Why: no rule is about managed fields, and they are half of the text that is parsed again below.
            object.metadata.managed_fields = None;
        }
        check(&request, rules, warnings, &config.feature_gates)
    })
}

fn check<K: Resource<DynamicType = ()> + DeserializeOwned>(
    request: &Request,
    rules: fn(Option<&K>, &K, &FeatureGates) -> Vec<Problem>,
    warnings: fn(&K) -> Vec<String>,
    gates: &FeatureGates,
) -> AdmissionResponse {
    let (asked, known) = (&request.kind, K::kind(&()));
    if asked.group != K::group(&()) || asked.version != K::version(&()) || asked.kind != known {
        let of = format!("{}/{}", asked.group, asked.version);
        let text = format!(
            "this webhook checks {known} of {KUEUE}/{VERSION}, not {} of {of}",
            asked.kind
        );
        return denied(request, &text);
    }
    if is_leaving(request) {
        return allowed(request);
    }
    let new = match value(request.object.as_ref()).map(serde_json::from_value::<K>) {
        None => return allowed(request),
        Some(Ok(new)) => new,
        Some(Err(error)) => return denied(request, &format!("the {known} cannot be read: {error}")),
    };
    // Why an unreadable old object counts as none: only the new one can repair it.
    let old = value(request.old_object.as_ref()).and_then(|old| serde_json::from_value(old).ok());
    let answer = unless(request, &rules(old.as_ref(), &new, gates));
    // Why not when it changes: clients show warnings with each write, and controllers write these objects often.
    match request.operation {
        Operation::Create => with_warnings(answer, warnings(&new)),
        Operation::Update | Operation::Delete | Operation::Connect => answer,
    }
}

/// Gives an `AppWrapper` without a queue label the configured default queue; an empty label counts as none.
///
/// *Source*: `spec/appwrapper.md 3.2`.
pub(super) fn default_queue(config: &Config, meta: &mut ObjectMeta) {
    let section = config.roadstead.app_wrapper.as_ref();
    if let Some(queue) = section.and_then(|section| section.default_queue_name.as_ref()) {
        let labels = meta.labels.get_or_insert_default();
        labels
            .entry(QUEUE_NAME.to_owned())
            .or_insert_with(|| queue.clone());
    }
}

/// Records the user who submits an `AppWrapper`.
///
/// Unlike the anchor: a copy names the user who submitted it to the manager (`spec/appwrapper.md` N-24).
pub(super) fn submitter(config: &Config, request: &Request, meta: &mut ObjectMeta) {
    let user = &request.user_info;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let name = text(&user.username);
    if !name.starts_with(&managers(&config.roadstead.multi_kueue.lease_namespace)) {
        default::appwrapper_submitter(meta, &name, &text(&user.uid));
    }
}

/// Problems of an `AppWrapper` beyond those of any job.
pub(super) fn wrapper_problems(config: &Config, request: &Request) -> Vec<Problem> {
    let section = config.roadstead.app_wrapper.as_ref();
    let most = section
        .and_then(|section| section.max_pod_sets)
        .unwrap_or_default();
    let Some(new) = value(request.object.as_ref()) else {
        return Vec::new();
    };
    match (&request.operation, value(request.old_object.as_ref())) {
        (Operation::Update, Some(old)) => validate::appwrapper_update(&old, &new),
        (Operation::Create | Operation::Update | Operation::Delete | Operation::Connect, _) => {
            validate::appwrapper(&new, request.namespace.as_deref().unwrap_or_default(), most)
        }
    }
}

/// Warns about probable mistakes in a new `AppWrapper`. *Source*: `spec/appwrapper.md N-8`.
pub(super) fn hinted(mut answer: AdmissionResponse, request: &Request) -> AdmissionResponse {
    if let (Operation::Create, Some(object)) = (&request.operation, &request.object) {
        let warnings = roadstead_convert::appwrapper::warnings(&object.metadata, &object.data);
        answer.warnings = (!warnings.is_empty()).then_some(warnings);
    }
    answer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(user: &str) -> Request {
        let tuning = json!({"workload.codeflare.dev.appwrapper/retryLimt": "3"});
        serde_json::from_value(json!({
            "uid": "u", "operation": "CREATE", "name": "aw", "namespace": "team",
            "kind": {"group": "workload.codeflare.dev", "version": "v1beta2", "kind": "AppWrapper"},
            "resource": {"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"},
            "userInfo": {"username": user},
            "object": {"metadata": {"name": "aw", "annotations": tuning}, "spec": {"components": []}},
        }))
        .unwrap()
    }

    fn config(appwrapper: &str) -> Config {
        let text = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
             integrations: {{frameworks: [workload.codeflare.dev/appwrapper]}}\n---\n\
             apiVersion: config.roadstead.dev/v1alpha1\nkind: RoadsteadConfiguration\nappwrapper: {appwrapper}\n"
        );
        roadstead_serve::config::parse("test", &text, &[], "kueue-system").unwrap()
    }

    /// Spec: appwrapper 3.2, B95.
    #[test]
    fn an_appwrapper_that_says_nothing_of_a_queue_gets_the_one_that_is_configured() {
        let queue = |config: &Config, given: Option<&str>| {
            let labels = given.map(|queue| [(QUEUE_NAME.to_owned(), queue.to_owned())].into());
            let mut meta = ObjectMeta {
                labels,
                ..ObjectMeta::default()
            };
            default_queue(config, &mut meta);
            meta.labels.unwrap_or_default().remove(QUEUE_NAME)
        };
        let (with, without) = (config("{defaultQueueName: q}"), config("{}"));
        assert_eq!(queue(&with, None).as_deref(), Some("q"));
        assert_eq!(queue(&with, Some("mine")).as_deref(), Some("mine"));
        assert_eq!(queue(&with, Some("")).as_deref(), Some(""));
        assert_eq!(queue(&without, None), None);
    }

    /// Spec: appwrapper 3.2, N-8, N-24.
    #[test]
    fn users_are_written_down_but_for_managers_and_mistakes_are_warned_of() {
        let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
        let config = roadstead_serve::config::parse("test", text, &[], "kueue-system").unwrap();
        let labels = |user: &str| {
            let mut meta = ObjectMeta::default();
            submitter(&config, &request(user), &mut meta);
            meta.labels.unwrap_or_default()
        };
        assert_eq!(labels("alice")["workload.codeflare.dev/user"], "alice");
        let namespace = &config.roadstead.multi_kueue.lease_namespace;
        assert!(labels(&format!("system:serviceaccount:{namespace}:roadstead-west")).is_empty());
        let request = request("alice");
        let answer = hinted(unless(&request, &[]), &request);
        let warnings = answer.warnings.unwrap();
        assert!(warnings[0].contains("retryLimt: no such setting"), "{warnings:?}");
    }
}
