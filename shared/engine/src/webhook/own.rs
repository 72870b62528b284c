//! Webhooks of our own kinds: the rules live in [`roadstead_convert::validate`] and [`roadstead_convert::default`].

use std::fmt::Debug;
use std::sync::Arc;

use kube::Resource;
use kube::core::admission::{AdmissionResponse, Operation};
use roadstead_api::config::{Config, FeatureGates};
use roadstead_api::constants::groups::KUEUE;
use roadstead_api::kueue::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload};
use roadstead_convert::{default, validate};
use roadstead_jobs::problem::Problem;
use roadstead_kinds::rows;
use roadstead_serve::webhook::{AdmissionHandler, allowed, denied, mutate_path, patched, validate_path};
use serde::de::DeserializeOwned;

use super::answers::{Request, is_leaving, unless, value};

/// The version in which objects come, whatever version they were written in.
pub(super) const VERSION: &str = "v1beta2";

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
            validating::<ClusterQueue>(config, validate::cluster_queue),
        ),
        (
            validate("Cohort"),
            validating::<Cohort>(config, |_old, new, _gates| validate::cohort(new)),
        ),
        (
            validate("ResourceFlavor"),
            validating::<ResourceFlavor>(config, |_old, new, _gates| validate::resource_flavor(new)),
        ),
        (
            validate("Workload"),
            validating::<Workload>(config, validate::workload),
        ),
    ]
}

fn validating<K: Resource<DynamicType = ()> + DeserializeOwned + Debug + 'static>(
    config: &Arc<Config>,
    rules: fn(Option<&K>, &K, &FeatureGates) -> Vec<Problem>,
) -> AdmissionHandler {
    let config = config.clone();
    Arc::new(move |mut request| {
        for object in [&mut request.object, &mut request.old_object]
            .into_iter()
            .flatten()
        {
            // Why: no rule is about them, and they are half of what is read again below.
            object.metadata.managed_fields = None;
        }
        check(&request, rules, &config.feature_gates)
    })
}

fn check<K: Resource<DynamicType = ()> + DeserializeOwned>(
    request: &Request,
    rules: fn(Option<&K>, &K, &FeatureGates) -> Vec<Problem>,
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
    // Why an unreadable old one counts as none: what is stored cannot be mended but by the new one.
    let old = value(request.old_object.as_ref()).and_then(|old| serde_json::from_value(old).ok());
    unless(request, &rules(old.as_ref(), &new, gates))
}

/// Whether this process looks at `AppWrappers`.
pub(super) fn wraps(config: &Config) -> bool {
    config
        .integrations
        .frameworks
        .iter()
        .any(|name| name == rows::APP_WRAPPER.framework)
}

/// The mutating and the validating handler of `AppWrappers`.
pub(super) fn appwrapper() -> (AdmissionHandler, AdmissionHandler) {
    let submitter = |request: Request| {
        patched(&request, |wrapper| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let user = &request.user_info;
            default::appwrapper_submitter(wrapper, &text(&user.username), &text(&user.uid));
        })
    };
    let rules = |request: Request| {
        let Some(new) = value(request.object.as_ref()).filter(|_| !is_leaving(&request)) else {
            return allowed(&request);
        };
        let problems = match (&request.operation, value(request.old_object.as_ref())) {
            (Operation::Update, Some(old)) => validate::appwrapper_update(&old, &new),
            (Operation::Create | Operation::Update | Operation::Delete | Operation::Connect, _) => {
                validate::appwrapper(&new, request.namespace.as_deref().unwrap_or_default())
            }
        };
        unless(&request, &problems)
    };
    (Arc::new(submitter), Arc::new(rules))
}
